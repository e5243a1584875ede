"""Lists and objects that forms and the command line send as text."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import msgspec

from sixfold.core.input_limits import json_decoding, json_limits
from sixfold.errors import InputTooLarge

_INVALID_JSON = (msgspec.MsgspecError, ValueError, RecursionError)
_MAX_SIZES = 1_000


def from_text(kind: str, text: str) -> Any:
    """Return the value of a text, for the types of inputs that JSON bodies do not send as strings.

    Sizes are a JSON list or separated by commas, and a project is a JSON object. Any other text is returned
    as it is. Raises `InputTooLarge`.
    """
    if kind == "sizes" and text.strip():
        return listed(text) or [part.strip() for part in text.split(",", _MAX_SIZES)]
    if kind == "project":
        with contextlib.suppress(*_INVALID_JSON):
            return _decoded(text)
    return text


def listed(text: str) -> list[object] | None:
    """Decode a JSON list; return None for any other string."""
    if not text.lstrip().startswith("["):
        return None
    try:
        return cast("list[object]", _decoded(text))
    except (*_INVALID_JSON, InputTooLarge):
        return None


def _decoded(text: str) -> object:
    """Decode a JSON string; raises one of `_INVALID_JSON`, or `InputTooLarge` before decoding."""
    raw = text.encode()
    json_limits.DEFAULT.check(raw)
    return json_decoding.decode(raw)
