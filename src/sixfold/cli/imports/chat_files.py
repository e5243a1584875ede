"""The result of an import of chats, and limits on the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, cast

import msgspec

from sixfold.cli.imports.litellm import Omission
from sixfold.core.gateway.conversations.imports import ImportedChat, ImportedMessage

# Maximum bytes of an import and of one chat in JSON, and maximum number of chats.
MAX_BYTES, MAX_CHAT_BYTES, MAX_CHATS = 512 * 2**20, 32 * 2**20, 100_000
_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode


class UnreadableExport(Exception):
    """Raised if an export cannot be read; the message is one sentence."""


class ExportedDocument(msgspec.Struct, frozen=True):
    """A document of a user: the original file, or else its text in Markdown.

    Images, audio and videos have both if their text was extracted.
    """

    email: str
    # Folder of the memory, such as `open-webui/files`.
    folder: str
    name: str
    original: Path | None
    text: str = ""


class ReadExport(msgspec.Struct):
    """The content of an export; each chat has the e-mail address of its user, or ""."""

    chats: list[tuple[str, ImportedChat]] = []
    documents: list[ExportedDocument] = []
    users: list[str] = []
    omitted: list[Omission] = []

    def omit(self, name: str, reason: str) -> None:
        """Record an item that is not imported, and the reason."""
        self.omitted.append(Omission(name[:100], reason))


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raises `UnreadableExport` above the limit."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UnreadableExport(f"{path.name} must be at most {MAX_BYTES // 2**20} MiB")
    return content


def each_chat(name: str, content: bytes, export: ReadExport, add: Callable[[bytes], None]) -> None:
    """Call `add` with the JSON of each chat of a list; chats that `add` cannot decode are omitted."""
    try:
        rows = _rows(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableExport(f"{name} is not a JSON array of chats: {error}") from None
    for number, row in enumerate(rows, 1):
        label = f"chat {number} of {name}"
        if len(export.chats) >= MAX_CHATS:
            export.omit(f"{len(rows) - number + 1} chats", f"an import has at most {MAX_CHATS:,} chats")
            return
        if len(bytes(row)) > MAX_CHAT_BYTES:
            export.omit(label, f"it has more than {MAX_CHAT_BYTES // 2**20} MiB")
            continue
        try:
            add(bytes(row))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            export.omit(label, f"it is not a chat: {str(error)[:200]}")


def path_to(parents: Mapping[str, str | None], last: str | None) -> list[str]:
    """Return the ids of the messages up to the last one, oldest first; a cycle ends the path."""
    paths: dict[str, None] = {}
    current = last
    while current is not None and current in parents and current not in paths:
        paths[current] = None
        current = parents[current]
    return list(reversed(paths))


def message(role: str, text: str) -> ImportedMessage | None:
    """Return a message of a user or a model, or None for another role or empty text."""
    if role not in ("user", "assistant") or not text.strip():
        return None
    return ImportedMessage(cast('Literal["user", "assistant"]', role), text)
