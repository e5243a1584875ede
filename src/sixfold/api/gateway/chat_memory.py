"""The header `X-Sixfold-Memory`: excerpts of the memory that match the last message of a chat.

The value names collections, or `*` for all that the key can see, and may end in `; tokens=1500`. The excerpts
become a part of the system prompt, marked as data (see `core/memory/search/context.py`), and count as input
tokens.
The response lists the added pages: in the header of the same name, in the field `sixfold_memory` of its body,
and in a comment at the beginning of a stream.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import ChatCall, ResponseRecorder
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.memory.models import Caller
from sixfold.core.memory.search import context
from sixfold.core.memory.search.context import ContextRequest, PackedContext
from sixfold.core.memory.service import MemoryService
from sixfold.web import bodies
from sixfold.web.raw_asgi import RawRequest, RawResponse

HEADER = "X-Sixfold-Memory"
FIELD = "sixfold_memory"
_NAME = HEADER.lower().encode()
MAX_VALUE, _MAX_COLLECTIONS = 2_000, 20
# The question is usually at the end of a long message.
_QUERY_CHARS = 2_000
_VALUE = re.compile(r"(?P<names>[^;]+?)\s*(?:;\s*tokens\s*=\s*(?P<tokens>\d{1,6})\s*)?")
_SLUGS_CHARS = 1_500
_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class MemoryOptions(msgspec.Struct, frozen=True):
    """The parsed header: the collections (empty for all) and the budget of tokens."""

    collections: tuple[str, ...]
    tokens: int


class AddedMemory(msgspec.Struct, frozen=True):
    """The pages that were added to a request."""

    packed: PackedContext

    def call(self, chat_call: ChatCall) -> ChatCall:
        """Return the call with a recorder that adds the list of used pages to the response."""
        return msgspec.structs.replace(chat_call, recorder=_MemoryNote(chat_call.recorder, self))

    def to_json(self) -> dict[str, Any]:
        pages = [{"slug": hit.slug, "title": hit.title} for hit in self.packed.sources]
        return {"tokens": self.packed.tokens if pages else 0, "pages": pages}

    def header(self) -> str:
        """Return the value of the header: the numbers of tokens and pages, and as many slugs as fit."""
        document = self.to_json()
        slugs = " ".join(quote(page["slug"]) for page in document["pages"])
        if len(slugs) > _SLUGS_CHARS:
            slugs = f"{slugs[:_SLUGS_CHARS].rpartition(' ')[0]} ..."
        return f'tokens={document["tokens"]}; pages={len(document["pages"])}; slugs="{slugs}"'

    def on(self, response: Response | RawResponse) -> Response | RawResponse:
        """Add the header to a response, unless the response is an idempotent replay."""
        if not any(name == b"idempotent-replayed" for name, _ in response.raw_headers):
            response.raw_headers.append((_NAME, self.header().encode()))
        return response


class ChatMemory:
    """Adds excerpts of the memory to chat requests with the header."""

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory

    async def add(
        self, request: RawRequest, principal: Principal, raw: bytes, wire: str
    ) -> tuple[bytes, AddedMemory | None]:
        """Return the body with excerpts, and the added pages or None if the header is missing.

        Raises `BadRequest` for an invalid header, and `Forbidden` for a key that may not read the memory.
        """
        value = request.header(_NAME)
        if value is None:
            return raw, None
        options = parse_header(value)
        principal.require(rights.MEMORY_READ)
        body = await bodies.parse(bodies.parse_object, raw)
        query = last_question(body, wire)[-_QUERY_CHARS:]
        if not query.strip():
            return raw, AddedMemory(_NOTHING)
        packed = await context.build(
            self._memory,
            Caller.of(principal),
            ContextRequest(query, options.tokens, collections=options.collections),
        )
        if packed.sources:
            insert(body, wire, packed.text)
            raw = _encode(body)
        return raw, AddedMemory(packed)


_NOTHING = PackedContext(context.NOTHING, 0, (), 0, "auto")


def parse_header(value: str) -> MemoryOptions:
    """Parse the header; raises `BadRequest`."""
    match = _VALUE.fullmatch(value.strip()) if len(value) <= MAX_VALUE else None
    parts = [] if match is None else match["names"].split(",")
    names = tuple(part.strip() for part in parts if part.strip())
    # Without a name, the collections would not have the limit that was meant.
    if match is None or not names:
        raise errors.BadRequest(
            f"{HEADER} must be collection names separated by commas, or *, for example: notes, team; "
            "tokens=1500"
        )
    tokens = int(match["tokens"]) if match["tokens"] else context.TOKENS
    if not context.MIN_TOKENS <= tokens <= context.MAX_TOKENS:
        raise errors.BadRequest(
            f"{HEADER}: tokens must be from {context.MIN_TOKENS} to {context.MAX_TOKENS:,} (got {tokens:,})"
        )
    if len(names) > _MAX_COLLECTIONS:
        raise errors.BadRequest(
            f"{HEADER} may name at most {_MAX_COLLECTIONS} collections (got {len(names)})"
        )
    return MemoryOptions(() if "*" in names else names, tokens)


def last_question(body: Mapping[str, Any], wire: str) -> str:
    """Return the text of the last message of the user, or ""."""
    items = body.get("input" if wire == "responses" else "messages")
    if isinstance(items, str):
        return items
    for item in reversed(cast("Sequence[Any]", items if isinstance(items, list) else ())):
        if isinstance(item, dict) and cast("dict[str, Any]", item).get("role") == "user":
            text = _text(cast("dict[str, Any]", item).get("content"))
            if text:
                return text
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Any]", content if isinstance(content, list) else ())
    texts = (cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def insert(body: dict[str, Any], wire: str, text: str) -> None:
    """Add a text to the system prompt of a request in its API; raises `BadRequest`."""
    field = {"responses": "instructions", "messages": "system"}.get(wire, "")
    before = body.get(field)
    if before is not None and not isinstance(before, str if wire == "responses" else str | list):
        raise errors.BadRequest(f"{field} must be a string (got {type(before).__name__})")
    if wire == "responses":
        body["instructions"] = f"{before}\n\n{text}" if before else text
    elif wire == "messages":
        blocks = cast("list[Any]", [{"type": "text", "text": before}] if isinstance(before, str) else before)
        body["system"] = [*(blocks if before else ()), {"type": "text", "text": text}]
    else:
        if not isinstance(body.get("messages"), list):
            raise errors.BadRequest("messages must be an array")
        messages = cast("list[Any]", body["messages"])
        roles = [
            cast("dict[str, Any]", message).get("role") for message in messages if isinstance(message, dict)
        ]
        first = next((at for at, role in enumerate(roles) if role not in ("system", "developer")), len(roles))
        body["messages"] = [*messages[:first], {"role": "system", "content": text}, *messages[first:]]


class _MemoryNote:
    """Lists the added pages in a response, after another recorder has stored it."""

    def __init__(self, inner: ResponseRecorder | None, added: AddedMemory) -> None:
        self._inner = inner
        self._added = added

    async def record(self, body: bytes, server: str) -> bytes:
        if self._inner is not None:
            body = await self._inner.record(body, server)
        return await bodies.parse(self._with_pages, body)

    def _with_pages(self, body: bytes) -> bytes:
        """Return the response with the pages; the members of a response are not decoded."""
        try:
            return _encode({**_members(body), FIELD: self._added.to_json()})
        except (msgspec.MsgspecError, UnicodeError):
            # A model server sent something else.
            return body

    async def record_stream(self, blocks: AsyncGenerator[bytes], server: str) -> AsyncGenerator[bytes]:
        """Yield an SSE comment that lists the added pages, which clients ignore, and then the blocks."""
        yield b": " + FIELD.encode() + b" " + _encode(self._added.to_json()) + b"\n\n"
        if self._inner is not None:
            blocks = self._inner.record_stream(blocks, server)
        async for block in blocks:
            yield block
