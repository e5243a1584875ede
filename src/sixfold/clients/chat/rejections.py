"""Parser of the error responses of model servers."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from sixfold.core.gateway.ports import UpstreamRejection
from sixfold.core.input_limits import json_decoding

_any = json_decoding.decode_whole
_REJECTED = "The model server rejected this request"
# Messages about too long contexts without an error code: vLLM, llama.cpp, Anthropic, Responses, Gemini.
_TOO_LONG = re.compile(
    r"(maximum|exceeds?( the| your)?( available)?) context (length|size|window|limit)"
    r"|(prompt|input) is too long|input token count .*exceeds",
    re.IGNORECASE,
)
# Error codes of content filters: Azure's and OpenAI's.
_FILTERS = frozenset({"content_filter", "content_policy_violation"})


class _Choice(msgspec.Struct):
    error: Any = None


class _RejectionDocument(msgspec.Struct):
    error: Any = None
    choices: list[_Choice | None] | None = None


_document = msgspec.json.Decoder(_RejectionDocument).decode


def is_error(body: bytes) -> bool:
    """Return whether a response of status 200 is an error, or one of its choices is.

    Some servers have sent the status before their provider fails.
    """
    try:
        document = _document(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    choices = document.choices or ()
    return document.error is not None or any(each is not None and each.error is not None for each in choices)


def parse_rejection(body: bytes) -> UpstreamRejection:
    """Parse an error object of any of these servers; the message is limited to 2,000 characters."""
    try:
        document = _any(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return UpstreamRejection(_REJECTED)
    error: Any = (
        cast("dict[str, Any]", document).get("error", document) if isinstance(document, dict) else document
    )
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": error}
    message = (_text_of(fields.get("message")) or _text_of(fields.get("detail")) or _REJECTED)[:2000]
    too_long = fields.get("code") == "context_length_exceeded" or _TOO_LONG.search(message) is not None
    metadata = fields.get("metadata")
    # OpenRouter states the text that its moderation rejected, with the status of a rejected key.
    is_moderated = isinstance(metadata, dict) and "flagged_input" in metadata
    filtered = is_moderated or str(fields.get("code")) in _FILTERS
    return UpstreamRejection(message, str(fields.get("param") or ""), too_long, filtered)


def _text_of(value: Any) -> str:
    """Return a message; a list of invalid fields (Mistral's `detail`) is joined with their problems."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("detail")
    if not isinstance(value, list):
        return str(value or "")
    rows = [cast("dict[str, Any]", row) for row in cast("list[Any]", value) if isinstance(row, dict)]
    names = [".".join(map(str, _list(row.get("loc")))).removeprefix("body.") for row in rows]
    return "; ".join(f"{name}: {row.get('msg', '')}" for name, row in zip(names, rows, strict=True))


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
