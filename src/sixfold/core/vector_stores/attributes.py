"""Attributes of files in vector stores, and the filters of searches on them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

from sixfold import errors

MAX_ATTRIBUTES = 16
KEY_CHARS, TEXT_CHARS = 64, 512
MAX_DEPTH, MAX_FILTERS = 5, 100
Value = str | float | bool
Attributes = Mapping[str, Value]
Filter = Callable[[Attributes], bool]
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, values: value in values,
    "nin": lambda value, values: value not in values,
}


def check(value: Any, name: str = "attributes") -> dict[str, Value]:
    """Return valid attributes; raises `InvalidInput`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(cast("dict[str, Any]", value)) > MAX_ATTRIBUTES:
        raise errors.InvalidInput.of(name, f"{name} must be an object with at most {MAX_ATTRIBUTES} keys")
    for key, each in cast("dict[str, Any]", value).items():
        if not 0 < len(key) <= KEY_CHARS:
            raise errors.InvalidInput.of(name, f"A key of {name} must have 1 to {KEY_CHARS} characters")
        if not isinstance(each, str | int | float) or (isinstance(each, str) and len(each) > TEXT_CHARS):
            message = (
                f"{name}.{key} must be a number, a boolean or a string of at most {TEXT_CHARS} characters"
            )
            raise errors.InvalidInput.of(name, message)
    return cast("dict[str, Value]", value)


def parse_filter(value: Any) -> Filter | None:
    """Return the filter of a search, or None if it is omitted; raises `InvalidInput`."""
    if value is None:
        return None
    remaining = [MAX_FILTERS]
    return _parse(value, MAX_DEPTH, remaining)


def _parse(value: Any, depth: int, remaining: list[int]) -> Filter:
    remaining[0] -= 1
    if depth == 0 or remaining[0] < 0:
        raise _invalid(f"have at most {MAX_DEPTH} levels and {MAX_FILTERS} conditions")
    if not isinstance(value, dict):
        raise _invalid("be an object")
    fields = cast("dict[str, Any]", value)
    kind = fields.get("type")
    if kind in ("and", "or"):
        rows = fields.get("filters")
        if not isinstance(rows, list) or not rows:
            raise _invalid(f"have a non-empty list of filters for {kind}")
        parts = [_parse(row, depth - 1, remaining) for row in cast("list[Any]", rows)]
        among = all if kind == "and" else any
        return lambda attributes: among(part(attributes) for part in parts)
    compare, key, operand = _COMPARISONS.get(str(kind)), fields.get("key"), fields.get("value")
    if compare is None or not isinstance(key, str):
        raise _invalid(f"have a key and a type of {', '.join(_COMPARISONS)}, and, or")
    is_list = kind in ("in", "nin")
    values = cast("list[Any]", operand) if is_list and isinstance(operand, list) else [operand]
    if is_list != isinstance(operand, list) or not all(
        isinstance(each, str | int | float) for each in values
    ):
        raise _invalid(
            "compare with a string, a number or a boolean, or with a list of these values for in and nin"
        )
    compared = frozenset(values) if is_list else cast("Any", operand)
    return lambda attributes: _holds(compare, attributes.get(key), compared)


def _holds(compare: Callable[[Any, Any], bool], value: Value | None, operand: Any) -> bool:
    if value is None:
        return compare in (_COMPARISONS["ne"], _COMPARISONS["nin"])
    try:
        return compare(value, operand)
    except TypeError:
        # A string and a number cannot be ordered.
        return False


def _invalid(requirement: str) -> errors.InvalidInput:
    return errors.InvalidInput.of("filters", f"filters must {requirement}")
