"""JSON from outside, read without trust: what is no object is an empty one, what is no list none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from sixfold.core.normalization import normalized

Json = Mapping[str, Any]
_ACCENTS = re.compile("[\u0300-\u036f]+")
_JOINTS = re.compile(r"[^a-z0-9]+")


def mapping(value: object) -> Json:
    """An object's members."""
    return cast("Json", value) if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list's items."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def plain_name(text: str, joint: str) -> str:
    """A title as a name in addresses and arguments: its Latin letters, bare, and digits; "" without any."""
    bare = _ACCENTS.sub("", normalized("NFKD", text)).casefold()
    return _JOINTS.sub(joint, bare).strip(joint)
