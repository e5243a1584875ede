"""Reading of untrusted JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from sixfold.core.input_limits.normalization import normalized

Json = Mapping[str, Any]
_ACCENTS = re.compile("[\u0300-\u036f]+")
_JOINTS = re.compile(r"[^a-z0-9]+")


def mapping(value: object) -> Json:
    """Return an object's members, or an empty mapping for any other value."""
    return cast("Json", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """Return a list's items, or an empty list for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def plain_name(text: str, joint: str) -> str:
    """Return a title as a name for URLs and arguments: Latin letters without accents, and digits.

    Other characters are replaced with `joint`; the result is empty if no character remains.
    """
    bare = _ACCENTS.sub("", normalized("NFKD", text)).casefold()
    return _JOINTS.sub(joint, bare).strip(joint)
