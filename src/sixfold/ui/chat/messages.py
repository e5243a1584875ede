"""The items of a chat, converted to messages of the page and to requests to a model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from sixfold import errors
from sixfold.core import documents, ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency import loaded_objects
from sixfold.core.files.files import AccountFile, FileNotFound
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, ImagePart, Part, TextPart
from sixfold.core.gateway.conversations.conversations import ConversationItem
from sixfold.core.input_limits import json_decoding
from sixfold.web.services import WebServices

MAX_TEXT_CHARS = 200_000
MAX_FILES = 10
# The files of a message that pages show, and those of all messages of one request: a message that was added
# over the API can refer to 70,000 files.
_SHOWN_FILES, MAX_CHAT_FILES = 20, 500
IMAGE_BYTES = 8 * 2**20
# Limits for all messages of one request together.
_REQUEST_IMAGES, _REQUEST_IMAGE_BYTES = 32, 48 * 2**20
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
# Text files that are read without conversion.
_TEXT_SUFFIXES = re.compile(
    r"\.(?:c|conf|cpp|css|csv|go|h|ini|java|js|json|jsonl|log|py|rs|rst|sh|sql|svg|tex|toml|ts|tsv|xml|"
    r"yaml|yml)"
)
_NAME = re.compile(r'[\x00-\x1f\x7f<>"]+')
_T = TypeVar("_T", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode


class AttachedFile(NamedTuple):
    """A file of a message: its id, its name, and whether it is an image."""

    id: str
    name: str
    is_image: bool


class AnswerDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Details of an answer besides its text. `cost` is in micro-dollars.

    `end` is end, length, filter or stopped. `charge` lists the parts of the cost as JSON. `sources` are the
    pages of the memory and the web that the model was shown, each with slug or URL and title.
    `prediction` is the run that generated an image as the answer. `tools` are the tool calls.
    """

    model: str = ""
    cost: int = 0
    input: int = 0
    output: int = 0
    milliseconds: int = 0
    end: str = ""
    request: str = ""
    charge: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    prediction: str = ""
    tools: tuple[str, ...] = ()


class Draft(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer that is in progress, or that failed with an `error` and its machine-readable `code`."""

    text: str = ""
    status: str = ""
    error: str = ""
    code: str = ""
    model: str = ""


class StoredMessage(NamedTuple):
    """A message of a chat."""

    id: str
    place: int
    role: Literal["user", "assistant"]
    text: str
    files: tuple[AttachedFile, ...]
    detail: AnswerDetail

    @property
    def shown_files(self) -> tuple[AttachedFile, ...]:
        """The files that pages show."""
        return self.files[:_SHOWN_FILES]


def check_files(count: int) -> None:
    """Raise `BadRequest` if the messages of a request have too many files."""
    if count > MAX_CHAT_FILES:
        raise errors.BadRequest(
            f"A chat may have at most {MAX_CHAT_FILES} files in its messages (got {count:,}): start a new one"
        )


def read_draft(stored: str) -> Draft | None:
    """Return a stored draft, or None if there is none."""
    return _read(stored, Draft) if stored else None


def write(value: AnswerDetail | Draft) -> str:
    """Return a detail or a draft as it is stored."""
    return _encode(value).decode()


def _read(stored: str, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(stored, type=kind)
    except msgspec.MsgspecError:
        # A later version of the server may have stored an unknown format.
        return kind()


def parse(item_id: str, place: int, item: str, detail: str = "{}") -> StoredMessage | None:
    """Return an item as a message; None for items of other types, which the API can store."""
    fields: dict[str, Any] = json_decoding.decode(item.encode())
    role = fields.get("role")
    if fields.get("type", "message") != "message" or role not in ("user", "assistant"):
        return None
    texts: list[str] = []
    files: list[AttachedFile] = []
    content = fields.get("content")
    for part in cast("Sequence[Any]", content) if isinstance(content, list) else ({"text": content},):
        if not isinstance(part, dict):
            continue
        values = cast("dict[str, Any]", part)
        if isinstance(values.get("text"), str):
            texts.append(values["text"])
        elif isinstance(values.get("file_id"), str):
            name = str(values.get("filename") or values.get("name") or "file")
            files.append(AttachedFile(values["file_id"], name, values.get("type") == "input_image"))
    return StoredMessage(item_id, place, role, "\n\n".join(texts), tuple(files), _read(detail, AnswerDetail))


def question(text: str, files: Sequence[AccountFile]) -> ConversationItem:
    """Return a user's message as an item."""
    content: list[Mapping[str, str]] = [
        {
            "type": "input_image" if file.content_type in IMAGE_TYPES else "input_file",
            "file_id": file.id,
            "filename": file.filename,
        }
        for file in files
    ]
    return _item("user", [*content, {"type": "input_text", "text": text}])


def answer(text: str, *, complete: bool = True) -> ConversationItem:
    """Return a model's message as an item."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return _item("assistant", [part], "completed" if complete else "incomplete")


def _item(role: str, content: Sequence[Mapping[str, Any]], status: str = "completed") -> ConversationItem:
    item_id = ids.new("msg")
    fields = {"id": item_id, "type": "message", "role": role, "status": status, "content": content}
    return ConversationItem(item_id, _encode(fields).decode())


class RequestBuilder:
    """Builds requests to models from the items of a chat."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def build(self, tenant: Tenant, items: Sequence[str], system: str = "") -> ChatRequest:
        """Return the request; raises `BadRequest` if its files are too many or cannot be read."""
        messages: list[ChatMessage] = []
        budget = _FileBudget(self._services.document_texts.max_chars)
        parsed_messages = [message for item in items if (message := parse("", 0, item)) is not None]
        check_files(sum(len(message.files) for message in parsed_messages))
        for message in parsed_messages:
            parts: tuple[Part, ...] = (
                *[await self._part(tenant, file, budget) for file in message.files],
                *([TextPart(message.text)] if message.text else ()),
            )
            if messages and messages[-1].role == message.role:
                # The previous question was not answered; some servers accept alternating roles only.
                messages[-1] = ChatMessage(message.role, (*messages[-1].parts, *parts))
            elif parts:
                messages.append(ChatMessage(message.role, parts))
        return ChatRequest(tuple(messages), system=system)

    async def _part(self, tenant: Tenant, attached: AttachedFile, budget: _FileBudget) -> Part:
        try:
            file = await self._services.files.get(tenant, attached.id)
        except FileNotFound:
            return TextPart(f"[{attached.name}: this file was deleted]")
        if attached.is_image:
            budget.spend_image(file)
            data = await self._content(file)
            encoded = await asyncio.to_thread(documents.to_base64, data)
            return ImagePart(media_type=file.content_type, data=encoded)
        if file.size > self._services.document_texts.file_bytes:
            limit = self._services.document_texts.file_bytes
            raise errors.TooLarge(f"{file.filename} must be at most {limit:,} bytes (got {file.size:,})")
        text = await self._services.document_texts.text(
            tenant.account_id, _readable_name(file.filename), await self._content(file)
        )
        budget.spend_text(text)
        return TextPart(f'<document name="{_NAME.sub(" ", file.filename)}">\n{text}\n</document>')

    async def _content(self, file: AccountFile) -> bytes:
        await loaded_objects.reserve(file.size, loaded_objects.INLINED_COPIES)
        return b"".join([block async for block in self._services.files.read(file)])


class _FileBudget:
    """Counts the images and characters of documents in one request, and enforces their limits."""

    def __init__(self, max_chars: int) -> None:
        self._images = 0
        self._bytes = 0
        self._chars = 0
        self._max_chars = max_chars

    def spend_image(self, file: AccountFile) -> None:
        self._images += 1
        self._bytes += file.size
        if self._images > _REQUEST_IMAGES or self._bytes > _REQUEST_IMAGE_BYTES:
            raise errors.BadRequest(
                f"A chat may have at most {_REQUEST_IMAGES} images and {_REQUEST_IMAGE_BYTES >> 20} MiB of "
                "images in total: start a new chat"
            )

    def spend_text(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > self._max_chars:
            raise errors.BadRequest(
                f"The documents of a chat may have at most {self._max_chars:,} characters: start a new chat"
            )


def can_attach(name: str, media_type: str) -> bool:
    """Return whether a file can be attached: an image, or a document whose text can be read."""
    return media_type in IMAGE_TYPES or _readable_name(name) != ""


def _readable_name(name: str) -> str:
    """Return a file name by which a document can be read, or an empty string."""
    if documents.kind_of(name):
        return name
    return f"{name}.txt" if _TEXT_SUFFIXES.fullmatch(PurePath(name).suffix.lower()) else ""
