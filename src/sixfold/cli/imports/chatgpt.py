"""Reader of ChatGPT's export: a zip archive with `conversations.json`, the chats as trees of messages."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec

from sixfold.cli.imports import chat_files
from sixfold.cli.imports.chat_files import MAX_BYTES, ReadExport, UnreadableExport
from sixfold.core.gateway.conversations.imports import ImportedChat

_NAME = re.compile(r"(?:[^/]+/)?conversations(?:-\d+)?\.json")
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)


class _Author(msgspec.Struct):
    role: str = ""


class _Content(msgspec.Struct):
    parts: list[Any] | None = None


class _Metadata(msgspec.Struct):
    is_visually_hidden_from_conversation: Any = None


class _ChatGptMessage(msgspec.Struct):
    author: _Author
    content: _Content | None = None
    metadata: _Metadata | None = None


class _Node(msgspec.Struct):
    message: _ChatGptMessage | None = None
    parent: str | None = None


class _Chat(msgspec.Struct):
    mapping: dict[str, _Node]
    title: str | None = None
    current_node: str | None = None
    conversation_id: str | None = None
    id: str | None = None


_decode = msgspec.json.Decoder(_Chat).decode


def read(path: Path) -> ReadExport:
    """Return the chats of an archive or of its `conversations.json`; raises `UnreadableExport`."""
    export = ReadExport()

    def add(row: bytes) -> None:
        _add(_decode(row), export)

    if not zipfile.is_zipfile(path):
        chat_files.each_chat(path.name, chat_files.read_bytes(path), export, add)
        return export
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            chat_names = [name for name in names if _NAME.fullmatch(name)]
            if not chat_names:
                raise UnreadableExport(f"{path.name} does not contain conversations.json")
            remaining = MAX_BYTES
            for name in chat_names:
                # The size that the archive states may be wrong.
                with archive.open(name) as file:
                    content = file.read(remaining + 1)
                remaining -= len(content)
                if remaining < 0:
                    raise UnreadableExport(f"{path.name} must have at most {MAX_BYTES // 2**20} MiB of chats")
                chat_files.each_chat(name, content, export, add)
    except _ZIP_ERRORS as error:
        raise UnreadableExport(f"{path.name} is not a readable zip archive: {error}") from None
    if skipped := len(names) - len(chat_names):
        export.omit(
            f"{skipped} other files", "only chats are imported: images, voice and the HTML page are not"
        )
    return export


def _add(chat: _Chat, export: ReadExport) -> None:
    """Add the branch of a chat that ends in its current message."""
    title = (chat.title or "Chat").strip() or "Chat"
    chat_id = chat.conversation_id or chat.id
    if not chat_id:
        export.omit(title, "it has no id")
        return
    messages = []
    media = 0
    path = chat_files.path_to({key: node.parent for key, node in chat.mapping.items()}, chat.current_node)
    for key in path:
        node = chat.mapping[key].message
        if node is None or (node.metadata and node.metadata.is_visually_hidden_from_conversation):
            continue
        parts = (node.content.parts if node.content is not None else None) or []
        texts = [part for part in parts if isinstance(part, str)]
        media += len(parts) - len(texts)
        message = chat_files.message(node.author.role, "\n\n".join(texts))
        if message is not None:
            messages.append(message)
    if media:
        export.omit(title, f"{media} images or other media of this chat")
    if not messages:
        export.omit(title, "it has no text of a person or a model")
        return
    export.chats.append(("", ImportedChat(f"chatgpt:{chat_id}", title, tuple(messages))))
