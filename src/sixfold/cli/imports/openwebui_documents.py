"""Reader of the documents in Open WebUI's `webui.db`: files, knowledge bases, notes and memories."""

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from sixfold.cli.imports.chat_files import MAX_BYTES, ExportedDocument, ReadExport, UnreadableExport
from sixfold.core import documents
from sixfold.core.memory import slugs

FOLDER = "open-webui"
MAX_DOCUMENTS = 100_000
_MAX_DEPTH = 20
_SEPARATORS = re.compile(r"[\s/-]+")
_NO_USER = "its user is not imported"
_NO_TEXT = "its file is not in the folder of uploads, and the database has no text of it"
_FILES = "SELECT id, user_id, filename, path FROM file ORDER BY created_at, id LIMIT ?"
_TEXT = "SELECT json_extract(data, '$.content') FROM file WHERE json_valid(data) AND id = ?"
_KNOWLEDGE = "SELECT id, user_id, name FROM knowledge ORDER BY name, id LIMIT ?"
_DIRECTORIES = "SELECT id, parent_id, name FROM knowledge_directory LIMIT ?"
_MEMBERS = "SELECT knowledge_id, file_id, directory_id FROM knowledge_file LIMIT ?"
# In versions without the table `knowledge_file`, a knowledge base lists its files.
_OLD_MEMBERS = """
SELECT knowledge.id, member.value, NULL FROM knowledge,
    json_each(CASE WHEN json_valid(data) THEN data ELSE '{}' END, '$.file_ids') AS member LIMIT ?
"""
_NOTES = """
SELECT id, user_id, title, CASE WHEN json_valid(data) THEN json_extract(data, '$.content.md') END
    FROM note ORDER BY created_at, id LIMIT ?
"""
_MEMORIES = "SELECT user_id, content FROM memory ORDER BY created_at, id LIMIT ?"


class _Place(msgspec.Struct, frozen=True):
    """The folder of a knowledge base, and the e-mail address of its owner if that user is imported."""

    folder: str
    email: str | None


def read(connection: sqlite3.Connection, users: Mapping[str, str], uploads: Path, export: ReadExport) -> None:
    """Add the documents of imported users to an export; `uploads` is the folder of the original files."""
    chars = 0
    try:
        for document in _documents(connection, users, uploads, export):
            chars += len(document.text)
            if chars > MAX_BYTES:
                raise UnreadableExport(
                    f"The documents in this database have more than {MAX_BYTES:,} characters in total: "
                    "delete some in Open WebUI, then import again"
                )
            export.documents.append(document)
    except sqlite3.OperationalError as error:
        is_other = str(error).startswith("no such")
        reason = (
            "this version of Open WebUI stores them in another way" if is_other else "they cannot be read"
        )
        export.omit("further documents", f"{reason}: {error}")


def _documents(
    connection: sqlite3.Connection, users: Mapping[str, str], uploads: Path, export: ReadExport
) -> Iterator[ExportedDocument]:
    places, names = _places(connection, users), _Names()
    for file_id, user_id, filename, path in _rows(connection, _FILES):
        name = PurePosixPath(str(filename or file_id)).name
        place = places.get(str(file_id), _Place(f"{FOLDER}/files", None))
        email = users.get(str(user_id)) or place.email
        if email is None:
            export.omit(name, _NO_USER)
            continue
        original = _original(uploads, str(file_id), str(path or ""))
        text = "" if original is not None and documents.kind_of(name) else _text(connection, file_id)
        if original is None and not text:
            export.omit(name, _NO_TEXT)
            continue
        name = names.unused(email, place.folder, name, str(file_id))
        yield ExportedDocument(email, place.folder, name, original, text)
    yield from _notes(connection, users, export, names)
    yield from _memories(connection, users)


class _Names:
    """The names of documents, which have unique slugs in their folders."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str, str]] = set()
        # The endings of further documents with the same id and slug, which a damaged database can have.
        self._endings: dict[tuple[str, str, str, str], Iterator[str]] = {}

    def unused(self, email: str, folder: str, name: str, document_id: str) -> str:
        """Return a name whose slug is unused; repeated imports of a database return the same names."""
        suffix = PurePosixPath(name).suffix
        stem = name if " " in suffix else name.removesuffix(suffix)
        candidate = name
        first = key = (email, folder, page_segment(name))
        while key in self._taken:
            endings = self._endings.setdefault((*first, document_id), _endings(document_id))
            candidate = f"{stem}-{next(endings)}{name.removeprefix(stem)}"
            key = (email, folder, page_segment(candidate))
        self._taken.add(key)
        return candidate


def _endings(document_id: str) -> Iterator[str]:
    """Yield endings that distinguish the names of documents."""
    numbered = (f"{document_id}-{number}" for number in itertools.count(2))
    return itertools.chain((document_id[:8], document_id), numbered)


def page_segment(name: str) -> str:
    """Return the last segment of the slug of a document's page."""
    plain = name[: -len(".md")] if name.lower().endswith(".md") else name
    return slugs.loosely(slugs.without_ids(plain.replace("/", "-"))) or "unnamed"


def _notes(
    connection: sqlite3.Connection, users: Mapping[str, str], export: ReadExport, names: _Names
) -> Iterator[ExportedDocument]:
    for note_id, user_id, title, text in _rows(connection, _NOTES):
        name, email = str(title or "Note").strip() or "Note", users.get(str(user_id))
        if email is None:
            export.omit(name, _NO_USER)
        elif not isinstance(text, str) or not text.strip():
            export.omit(name, "the note has no text")
        else:
            folder = f"{FOLDER}/notes"
            yield ExportedDocument(email, folder, names.unused(email, folder, name, str(note_id)), None, text)


def _memories(connection: sqlite3.Connection, users: Mapping[str, str]) -> Iterator[ExportedDocument]:
    """Yield one document per user with the sentences that Open WebUI has remembered."""
    sentences: dict[str, list[str]] = {}
    for user_id, content in _rows(connection, _MEMORIES):
        email = users.get(str(user_id))
        if email is not None and isinstance(content, str) and content.strip():
            sentences.setdefault(email, []).append(f"- {' '.join(content.split())}")
    for email, lines in sentences.items():
        yield ExportedDocument(email, FOLDER, "Memories", None, "\n".join(lines))


def _places(connection: sqlite3.Connection, users: Mapping[str, str]) -> dict[str, _Place]:
    """Return the folder of each file in a knowledge base; for several, the first one by name."""
    order: dict[str, _Place] = {}
    for knowledge_id, user_id, name in _rows(connection, _KNOWLEDGE):
        folder = f"{FOLDER}/{_segment(str(name), str(knowledge_id))}"
        order[str(knowledge_id)] = _Place(folder, users.get(str(user_id)))
    folders = _directories(connection)
    members = list(_rows(connection, _MEMBERS)) or list(_rows(connection, _OLD_MEMBERS))
    ranks = {knowledge_id: rank for rank, knowledge_id in enumerate(order)}
    members = [row for row in members if str(row[0]) in order]
    members.sort(key=lambda row: ranks[str(row[0])], reverse=True)
    result: dict[str, _Place] = {}
    for knowledge_id, file_id, directory_id in members:
        place = order[str(knowledge_id)]
        path = "/".join([place.folder, *folders.get(str(directory_id), ())])
        result[str(file_id)] = _Place(path, place.email)
    return result


def _directories(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the path of each directory within its knowledge base."""
    rows = {
        str(row[0]): (str(row[1]), _segment(str(row[2]), str(row[0])))
        for row in _rows(connection, _DIRECTORIES)
    }
    paths: dict[str, list[str]] = {}
    for directory_id in rows:
        segments: dict[str, str] = {}
        current = directory_id
        while current in rows and current not in segments and len(segments) < _MAX_DEPTH:
            parent, segments[current] = rows[current]
            current = parent
        paths[directory_id] = list(reversed(segments.values()))
    return paths


def _segment(name: str, fallback: str) -> str:
    """Return a name as one segment of a slug."""
    plain = (_SEPARATORS.sub("-", text[:100]).strip("-") for text in (name, fallback))
    return next((slug for text in plain if (slug := slugs.loosely(text))), "unnamed")


def _original(uploads: Path, file_id: str, path: str) -> Path | None:
    """Return the stored file; names that lead out of the folder of uploads are ignored."""
    for name in (PurePosixPath(path.replace("\\", "/")).name, file_id):
        file = uploads / name
        with contextlib.suppress(OSError):  # a name that is invalid for files
            if name and "/" not in name and file.is_file() and not file.is_symlink():
                return file
    return None


def _text(connection: sqlite3.Connection, file_id: Any) -> str:
    """Return the text that Open WebUI has extracted from a file, or ""."""
    with contextlib.suppress(sqlite3.DataError, sqlite3.OperationalError):
        row = connection.execute(_TEXT, (file_id,)).fetchone()
        if row is not None and isinstance(row[0], str):
            return row[0].strip()
    return ""


def _rows(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query; nothing if the table does not exist in this version of Open WebUI."""
    try:
        rows = connection.execute(query, (MAX_DOCUMENTS,))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return
        raise
    yield from rows
