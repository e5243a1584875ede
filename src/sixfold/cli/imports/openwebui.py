"""Reader of Open WebUI's SQLite file `webui.db`, or of its export of chats as JSON."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from sixfold.cli.imports import chat_files, openwebui_documents
from sixfold.cli.imports.chat_files import MAX_BYTES, MAX_CHAT_BYTES, MAX_CHATS, ReadExport, UnreadableExport
from sixfold.core.gateway.conversations.imports import ImportedChat

_MAGIC = b"SQLite format 3\0"
# Steps of SQLite's virtual machine for all queries, of which a row takes about 20.
MAX_STEPS = 500_000_000
STEPS_AT_A_TIME = 1_000_000
_TABLES = frozenset(
    {"user", "chat", "file", "knowledge", "knowledge_directory", "knowledge_file", "note", "memory"}
)
# Views, virtual tables and generated columns compute their values, which may never end.
_COMPUTED = """
SELECT name FROM sqlite_schema WHERE type = 'view' OR type = 'table' AND rootpage = 0
UNION SELECT s.name FROM sqlite_schema AS s, pragma_table_xinfo(s.name) AS c
    WHERE s.type = 'table' AND c.hidden
"""


class _OpenWebUiMessage(msgspec.Struct, rename={"parent": "parentId"}):
    role: str = ""
    content: Any = None
    parent: str | None = None
    files: list[Any] | None = None


class _History(msgspec.Struct, rename={"current": "currentId"}):
    messages: dict[str, _OpenWebUiMessage]
    current: str | None = None


class _ChatBody(msgspec.Struct):
    history: _History | None = None


class _ChatRow(msgspec.Struct):
    id: str
    chat: _ChatBody
    title: str | None = None


_decode_row = msgspec.json.Decoder(_ChatRow).decode
_decode_body = msgspec.json.Decoder(_ChatBody).decode


def read(path: Path, uploads: Path | None = None) -> ReadExport:
    """Return the content of a database or an export of chats; raises `UnreadableExport`.

    `uploads` is the folder of uploaded files, by default `uploads` beside a database.
    """
    with path.open("rb") as file:
        is_database = file.read(len(_MAGIC)) == _MAGIC
    export = ReadExport()
    if is_database:
        _read_database(path, uploads or path.absolute().with_name("uploads"), export)
        return export

    def add(row: bytes) -> None:
        _add(_decode_row(row), "", export)

    chat_files.each_chat(path.name, chat_files.read_bytes(path), export, add)
    return export


def _read_database(path: Path, uploads: Path, export: ReadExport) -> None:
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CHAT_BYTES)
            # A damaged text must not end the import.
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            # Views and triggers of the file must not call functions.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            _limit_steps(connection)
            _check_tables(connection)
            users = _users(connection, export)
            _read_chats(connection, users, export)
            openwebui_documents.read(connection, users, uploads, export)
    except (sqlite3.Error, UnicodeError) as error:
        raise UnreadableExport(f"{path.name} is not a database of Open WebUI: {error}") from None


def _limit_steps(connection: sqlite3.Connection) -> None:
    """Interrupt all queries of a connection that together take more than `MAX_STEPS`."""
    remaining = MAX_STEPS

    def is_exceeded() -> bool:
        nonlocal remaining
        remaining -= STEPS_AT_A_TIME
        return remaining < 0

    connection.set_progress_handler(is_exceeded, STEPS_AT_A_TIME)


def _check_tables(connection: sqlite3.Connection) -> None:
    """Raise `UnreadableExport` if a table that is read computes its values."""
    for (name,) in connection.execute(_COMPUTED):
        if str(name).lower() in _TABLES:
            raise UnreadableExport(
                f"The table {name} is a view, is virtual or has generated columns: export the chats again"
            )


def _users(connection: sqlite3.Connection, export: ReadExport) -> dict[str, str]:
    users: dict[str, str] = {}
    for user_id, email, role in connection.execute("SELECT id, email, role FROM user LIMIT ?", (MAX_CHATS,)):
        if role == "pending":
            export.omit(str(email), "the user is pending: nobody has accepted the registration")
        else:
            users[str(user_id)] = str(email).strip().lower()
    export.users = sorted(set(users.values()))
    return users


def _read_chats(connection: sqlite3.Connection, users: dict[str, str], export: ReadExport) -> None:
    size = 0
    rows = connection.execute(
        "SELECT id, user_id, title, chat FROM chat ORDER BY created_at LIMIT ?", (MAX_CHATS,)
    )
    for chat_id, user_id, title, body in rows:
        name = str(title or chat_id)
        email = users.get(str(user_id))
        if email is None:
            export.omit(name, "its user is not imported")
            continue
        raw = body.encode() if isinstance(body, str) else bytes(body or b"")
        size += len(raw)
        if size > MAX_BYTES:
            raise UnreadableExport(f"The database must have at most {MAX_BYTES // 2**20} MiB of chats")
        try:
            _add(_ChatRow(str(chat_id), _decode_body(raw), name), email, export)
        except (msgspec.MsgspecError, RecursionError) as error:
            export.omit(name, f"it is not a chat: {str(error)[:200]}")


def _add(row: _ChatRow, email: str, export: ReadExport) -> None:
    """Add the branch of a chat that ends in its current message."""
    title = (row.title or "Chat").strip() or "Chat"
    history = row.chat.history
    if history is None:
        export.omit(title, "it has no history of messages")
        return
    path = chat_files.path_to({key: each.parent for key, each in history.messages.items()}, history.current)
    branch = [history.messages[key] for key in path]
    texts = [
        (message.role, message.content if isinstance(message.content, str) else "") for message in branch
    ]
    messages = tuple(
        message for role, text in texts if (message := chat_files.message(role, text)) is not None
    )
    if files := sum(len(message.files or ()) for message in branch):
        export.omit(title, f"{files} attached files: an imported chat has only text")
    if not messages:
        export.omit(title, "it has no text of a person or a model")
        return
    export.chats.append((email, ImportedChat(f"openwebui:{row.id}", title, messages)))
