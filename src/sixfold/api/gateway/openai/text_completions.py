"""OpenAI's text completions: a model continues a prompt, or fills the gap between a prompt and a suffix.

Requests are forwarded to servers that have this API; they are not converted to chats. Source:
https://platform.openai.com/docs/api-reference/completions.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from sixfold.api.gateway import tags
from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.ports import TEXT_COMPLETIONS

_MAX_ANSWERS, _MAX_PROMPTS = 128, 2048
# The kind of a prompt by the first byte of its JSON.
_KINDS = {b'"': "text", b"[": "tokens", **{b"%d" % digit: "token" for digit in range(10)}}
_PROMPT = "prompt must be a string, a list of strings, or token ids"


class _StreamChoice(msgspec.Struct):
    include_usage: bool | None = None


class _TextHead(msgspec.Struct):
    model: str
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    stream: bool | None = None
    stream_options: _StreamChoice | None = None
    max_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    seed: int | None = None
    user: msgspec.Raw = tags.NONE


_head = msgspec.json.Decoder(_TextHead)
_prompts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def parse_call(raw: bytes) -> ChatCall:
    """Parse the top-level fields of a request body; raises `BadRequest` or `InvalidRequest`."""
    head = cast("_TextHead", parsing.head(_head, raw))
    if head.max_tokens is not None and head.max_tokens < 0:
        raise InvalidRequest(f"max_tokens must be at least 0 (got {head.max_tokens})", param="max_tokens")
    for name, value in (("n", head.n), ("best_of", head.best_of)):
        if value is not None and not 1 <= value <= _MAX_ANSWERS:
            raise InvalidRequest(f"{name} must be from 1 to {_MAX_ANSWERS} (got {value})", param=name)
    options = head.stream_options
    return ChatCall(
        model=head.model,
        stream=bool(head.stream),
        max_tokens=head.max_tokens,
        parse=_untranslatable,
        answers=max(head.n or 1, head.best_of or 1) * _prompt_count(head.prompt),
        user=head.user,
        keep_usage=not head.stream or (options is not None and bool(options.include_usage)),
    )


def _prompt_count(value: msgspec.Raw) -> int:
    """Return the number of prompts: an array of token ids is one prompt, and a list has one for each item."""
    text = bytes(value).lstrip()
    if not text.startswith(b"["):
        if not text.startswith((b'"', b"null")):
            raise InvalidRequest(_PROMPT, param="prompt")
        return 1
    items = _prompts(text)
    if not items:
        raise InvalidRequest("prompt must not be an empty list", param="prompt")
    kinds = {_KINDS.get(bytes(item)[:1], "") for item in items}
    if len(kinds) > 1 or "" in kinds:
        raise InvalidRequest(_PROMPT, param="prompt")
    if kinds == {"token"}:
        return 1
    if len(items) > _MAX_PROMPTS:
        raise InvalidRequest(
            f"prompt must have at most {_MAX_PROMPTS} strings (got {len(items)})", param="prompt"
        )
    return len(items)


def _untranslatable(*_parts: Any) -> Any:
    # The gateway selects only servers of this protocol.
    raise NotImplementedError


DIALECT = ResponseDialect(
    TEXT_COMPLETIONS,
    openai_errors.dialect,
    _untranslatable,
    _untranslatable,
    _untranslatable,
    openai_errors.event,
)
