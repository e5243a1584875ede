"""Documents in chats of all APIs, replaced by their text unless every server of the model supports documents.

OpenAI's `file` and `input_file` parts and Anthropic's `document` blocks contain base64, a URL or a file id.
An image with the id of a file of this server is replaced with the bytes of the file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec

from sixfold import errors
from sixfold.core import documents
from sixfold.core.accounts import connections
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Rights
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.concurrency import loaded_objects
from sixfold.core.files.files import AccountFile, FileNotFound
from sixfold.core.gateway.attachments.document_texts import DocumentTexts
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.provenance.formats import media_types
from sixfold.web import bodies
from sixfold.web.services import WebServices

MAX_DOCUMENTS = 16
_DOCUMENT_PART = re.compile(rb'"type"\s*:\s*"(?:document|file|input_file)"')
_FILE_ID = b'"file_id"'
_KINDS = frozenset({"document", "file", "input_file"})
_IMAGE_KINDS = frozenset({"image", "input_image"})
_encode = msgspec.json.Encoder().encode
_DEFAULT_TYPE = "application/pdf"
_NAME = re.compile(r'[\x00-\x1f\x7f<>"]+')


class DocumentPart(msgspec.Struct, frozen=True):
    """A document of a request: the part that contains it, and the source of its bytes or text."""

    part: dict[str, Any]
    name: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    text: str | None = None

    @property
    def is_inline(self) -> bool:
        """Whether the request contains the document itself, as base64 or as text."""
        return bool(self.data) or self.text is not None


def _may_have_documents(raw: bytes) -> bool:
    return _FILE_ID in raw or _DOCUMENT_PART.search(raw) is not None


class _InlineBudget:
    """The bytes of base64 by which the files of a request may extend its body."""

    def __init__(self, max_bytes: int, used: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes - used

    def spend(self, size: int) -> None:
        """Count a file before it is read; raises `TooLarge`."""
        self._left -= -(-size // 3) * 4
        if self._left < 0:
            raise errors.TooLarge(
                f"A request with its files in base64 must be at most {self._max_bytes:,} bytes: "
                "send fewer or smaller files"
            )


class ChatDocuments:
    """Replaces the documents of requests."""

    def __init__(self, services: WebServices, router: ModelRouter, texts: DocumentTexts) -> None:
        self._services = services
        self._router = router
        self._texts = texts

    async def inline(self, principal: Principal, raw: bytes, wire: str) -> bytes:
        """Return the request with documents as text, or with stored files inlined if servers read documents.

        Raises `BadRequest` for a document that cannot be read, the errors of `DocumentReader.read`, and those
        of `access_checks.unchanged` if the credential has ended while the documents were fetched.
        """
        if not await bodies.parse(_may_have_documents, raw):
            return raw
        inlined = await self._inlined(principal, raw, wire)
        if connections.is_late():
            await self._services.database.read(access_checks.unchanged(), snapshot=False)
        return inlined

    async def _inlined(self, principal: Principal, raw: bytes, wire: str) -> bytes:
        body = await bodies.parse(bodies.parse_object, raw)
        file_parts = _parts(body)
        parts = [_parse(part) for part in file_parts if part["type"] in _KINDS]
        images = [part for part in file_parts if part["type"] in _IMAGE_KINDS]
        if not parts and not images:
            return raw
        if len(images) > MAX_DOCUMENTS:
            raise errors.BadRequest(
                f"A request may have at most {MAX_DOCUMENTS} images with a file_id (got {len(images)})"
            )
        budget = _InlineBudget(self._services.settings.inline_body_bytes, len(raw))
        inlined = [await self._inline_image(principal, part, budget) for part in images]
        if not parts:
            return await asyncio.to_thread(_encode, body) if any(inlined) else raw
        if len(parts) > MAX_DOCUMENTS:
            raise errors.BadRequest(
                f"A request may have at most {MAX_DOCUMENTS} documents (got {len(parts)})"
            )
        if self._router.reads_documents(str(body.get("model", "")), wire):
            changed = [await self._inline_file(principal, part, budget) for part in parts if part.file_id]
            return await asyncio.to_thread(_encode, body) if any(changed) or any(inlined) else raw
        chars = 0
        for part in parts:
            text = part.text if part.text is not None else await self._text(principal, part)
            chars += len(text)
            if chars > self._texts.max_chars:
                raise errors.BadRequest(
                    f"The documents of a request may have at most {self._texts.max_chars:,} characters in "
                    "total: send fewer or shorter documents"
                )
            _replace(part, text, wire)
        return await asyncio.to_thread(_encode, body)

    async def _text(self, principal: Principal, part: DocumentPart) -> str:
        name, data = await self._load(principal, part, loaded_objects.DOCUMENT_COPIES)
        return await self._texts.text(principal.account_id, name, data)

    async def _load(
        self, principal: Principal, part: DocumentPart, copies: int, budget: _InlineBudget | None = None
    ) -> tuple[str, bytes]:
        """Return the name of a document, whose extension states its type, and its bytes."""
        if part.data:
            return _named(part.name, part.media_type), await asyncio.to_thread(_decoded, part.data)
        if part.file_id:
            file, data = await self._read(principal, part.file_id, copies, budget)
            return _named(file.filename, file.content_type), data
        if not part.url.startswith(("https://", "http://")):
            raise errors.BadRequest("A document must have base64 data, an http(s) URL or the id of a file")
        source = await self._services.media.resolve(principal.tenant, Descriptor("url", "file"), part.url)
        name = part.name or unquote(urlsplit(part.url).path.rpartition("/")[2])
        await loaded_objects.reserve(source.size, copies)
        return _named(name, source.content_type), await self._services.blobs.get(source.blob)

    async def _read(
        self, principal: Principal, file_id: str, copies: int, budget: _InlineBudget | None
    ) -> tuple[AccountFile, bytes]:
        file = await self._services.files.get(
            principal.tenant, file_id, with_memory=principal.has(Rights.MEMORY_READ)
        )
        if file.size > self._texts.file_bytes:
            raise errors.TooLarge(
                f"{file.filename} must be at most {self._texts.file_bytes:,} bytes (got {file.size:,})"
            )
        if budget is not None:
            budget.spend(file.size)
        await loaded_objects.reserve(file.size, copies)
        return file, b"".join([block async for block in self._services.files.read(file)])

    async def _inline_image(self, principal: Principal, part: dict[str, Any], budget: _InlineBudget) -> bool:
        """Inline an image of this server; return False for another id, which belongs to the provider."""
        is_block = part["type"] == "image"
        fields = _mapping(part.get("source"), "source") if is_block else part
        try:
            file_id = _string(fields, "file_id")
            _, data = await self._read(principal, file_id, loaded_objects.INLINED_COPIES, budget)
        except FileNotFound:
            return False
        kind = media_types.sniff(data[: media_types.HEAD_BYTES])
        if not kind.startswith("image/"):
            raise errors.BadRequest(f"The file {file_id[:100]} is not an image (content type: {kind})")
        encoded = await asyncio.to_thread(documents.to_base64, data)
        if is_block:
            part["source"] = {"type": "base64", "media_type": kind, "data": encoded}
        else:
            del part["file_id"]
            part["image_url"] = f"data:{kind};base64,{encoded}"
        return True

    async def _inline_file(self, principal: Principal, part: DocumentPart, budget: _InlineBudget) -> bool:
        """Inline a file of this server; return False for another id, which belongs to the provider."""
        try:
            name, data = await self._load(principal, part, loaded_objects.INLINED_COPIES, budget)
        except FileNotFound:
            return False
        encoded = await asyncio.to_thread(documents.to_base64, data)
        match part.part["type"]:
            case "document":
                part.part["source"] = {"type": "base64", "media_type": _DEFAULT_TYPE, "data": encoded}
            case "file":
                part.part["file"] = {"filename": name, "file_data": f"data:{_DEFAULT_TYPE};base64,{encoded}"}
            case _:
                del part.part["file_id"]
                part.part.update(filename=name, file_data=f"data:{_DEFAULT_TYPE};base64,{encoded}")
        return True


def _parts(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of messages and items that are documents, or images with a file id, in order."""
    parts: list[dict[str, Any]] = []
    pending: list[Any] = [body.get("input"), body.get("messages")]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += reversed(cast("list[Any]", value))
        elif isinstance(value, dict):
            part = cast("dict[str, Any]", value)
            if (part.get("type") in _KINDS and "role" not in part) or (
                part.get("type") in _IMAGE_KINDS and _file_id(part)
            ):
                parts.append(part)
            else:
                pending += [part.get("output"), part.get("content")]
    return parts


def _file_id(image: Mapping[str, Any]) -> str:
    source = image.get("source") if image["type"] == "image" else image
    return _string(cast("dict[str, Any]", source), "file_id") if isinstance(source, dict) else ""


def _parse(part: dict[str, Any]) -> DocumentPart:
    """Return a document of any API; raises `BadRequest`."""
    kind = part["type"]
    if kind == "document":
        return _parse_block(part)
    fields = _mapping(part.get("file"), "file") if kind == "file" else part
    media_type, data = _data_uri(_string(fields, "file_data"))
    return DocumentPart(
        part,
        name=_string(fields, "filename"),
        media_type=media_type,
        data=data,
        url=_string(fields, "file_url"),
        file_id=_string(fields, "file_id"),
    )


def _parse_block(part: dict[str, Any]) -> DocumentPart:
    source = _mapping(part.get("source"), "source")
    document = DocumentPart(
        part,
        name=_string(part, "title"),
        media_type=_string(source, "media_type"),
        url=_string(source, "url"),
        file_id=_string(source, "file_id"),
    )
    match source.get("type"):
        case "text":
            return DocumentPart(part, document.name, text=_string(source, "data"))
        case "content":
            return DocumentPart(part, document.name, text=_content_text(source.get("content")))
        case "base64":
            return DocumentPart(part, document.name, document.media_type, data=_string(source, "data"))
        case "url" | "file":
            return document
        case kind:
            raise errors.BadRequest(
                f"document.source.type must be base64, text, content, url or file (got {kind!r})"
            )


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = cast("Sequence[Any]", content if isinstance(content, list) else ())
    texts = [_string(_mapping(block, "content"), "text") for block in blocks]
    return "\n\n".join(text for text in texts if text)


def _replace(document: DocumentPart, text: str, wire: str) -> None:
    part = document.part
    cache_fields = {key: part[key] for key in ("cache_control", "prompt_cache_breakpoint") if key in part}
    notes = _string(part, "context")
    name = _NAME.sub(" ", document.name)[: documents.NAME_CHARS].strip()
    head = f'<document name="{name}">' if name else "<document>"
    body = f"{notes}\n\n{text}" if notes else text
    part.clear()
    part |= {
        "type": "input_text" if wire == "responses" else "text",
        "text": f"{head}\n{body}\n</document>",
        **cache_fields,
    }


def _named(name: str, media_type: str) -> str:
    """Return a file name with an extension; a missing extension is derived from the media type."""
    kind = media_type.partition(";")[0].strip().lower()
    if documents.kind_of(name):
        return name
    return f"{name or 'document'}{documents.MEDIA_TYPES.get(kind, '')}"


def _data_uri(text: str) -> tuple[str, str]:
    """Return the media type and the base64 of a data URI or of a plain base64 string."""
    if not text.startswith("data:"):
        return _DEFAULT_TYPE if text else "", text
    head, _, data = text.removeprefix("data:").partition(",")
    if not head.endswith(";base64"):
        raise errors.BadRequest("file_data must be base64 data, or a data URI with base64 data")
    return head.removesuffix(";base64"), data


def _decoded(text: str) -> bytes:
    try:
        return documents.from_base64(text)
    except ValueError as error:
        raise errors.BadRequest("The data of a document must be valid base64") from error


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise errors.BadRequest(f"{name} of a document must be an object")
    return cast("dict[str, Any]", value)


def _string(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise errors.BadRequest(f"{name} of a document must be a string")
    return value or ""
