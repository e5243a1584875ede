"""JSON from outside, read without trust: what is no object is an empty one, what is no list none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

Json = Mapping[str, Any]


def mapping(value: object) -> Json:
    """An object's members."""
    return cast("Json", value) if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list's items."""
    return cast("list[Any]", value) if isinstance(value, list) else []
