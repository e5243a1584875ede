"""Input descriptors: what a model takes, and the one check that every face uses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from sixfold.errors import InvalidInput, Problem

Type = Literal[
    "string", "integer", "number", "boolean", "image", "audio", "video", "file", "sizes", "project"
]
MEDIA_TYPES = frozenset({"image", "audio", "video", "file"})
_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})", re.ASCII)
_MAX_URL_CHARS = 48 * 2**20


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One input: its type and its limits. `min` and `max` include their ends; `snap` rounds integers.

    `sizes` is a list of one to `max_items` sizes, each "WxH" or {"width", "height"}, `min` to `max` pixels.
    A `project` is an object, which `timeline.check` looks into.
    """

    name: str
    type: Type
    description: str = ""
    default: Any = None
    required: bool = False
    min: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()
    max_chars: int | None = None
    max_items: int | None = None
    snap: int | None = None
    order: int = 0


class _Refused(Exception):
    """A value breaks its descriptor: the predicate that completes `<name> …`, and its kind."""

    def __init__(self, predicate: str, kind: str) -> None:
        super().__init__(predicate)
        self.kind = kind


def check(descriptors: tuple[Descriptor, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run: every default filled in, nothing unknown left.

    Raises `InvalidInput` with one problem for every failing input, in the descriptors' order.
    An optional input without a default that was not given is absent from the result.
    """
    checked: dict[str, Any] = {}
    problems: list[Problem] = []
    for descriptor in descriptors:
        value = given.get(descriptor.name)
        try:
            if _is_absent(descriptor, value):
                _fill(descriptor, checked)
            else:
                checked[descriptor.name] = _CHECKS[descriptor.type](descriptor, value)
        except _Refused as refused:
            problems.append(Problem(descriptor.name, f"{descriptor.name} {refused}", refused.kind))
    if problems:
        raise InvalidInput(problems)
    return checked


def _is_absent(descriptor: Descriptor, value: Any) -> bool:
    if value is None:
        return True
    blank = isinstance(value, str) and not value.strip()
    return blank and (descriptor.required or descriptor.type != "string" or bool(descriptor.choices))


def _fill(descriptor: Descriptor, checked: dict[str, Any]) -> None:
    if descriptor.default is not None:
        checked[descriptor.name] = descriptor.default
    elif descriptor.required:
        raise _Refused("is required", "missing")


def _string(descriptor: Descriptor, value: Any) -> str:
    if not isinstance(value, str):
        raise _Refused("must be a string", "string_type")
    if descriptor.choices and value not in descriptor.choices:
        raise _Refused(f"must be one of {', '.join(descriptor.choices)}", "enum")
    if descriptor.max_chars is not None and len(value) > descriptor.max_chars:
        raise _Refused(f"must be at most {descriptor.max_chars} characters", "string_too_long")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise _Refused("must be valid Unicode", "string_unicode")
    return value


def _integer(descriptor: Descriptor, value: Any) -> int:
    number = value
    if isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise _Refused("must be a whole number", "int_type")
    if descriptor.snap:
        number = round(number / descriptor.snap) * descriptor.snap if abs(number) < 2**53 else number
    _in_range(descriptor, number)
    return number


def _number(descriptor: Descriptor, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("must be a number", "float_type")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Refused("must be finite", "finite_number")
    _in_range(descriptor, value)
    return value


def _in_range(descriptor: Descriptor, value: float) -> None:
    low, high = descriptor.min, descriptor.max
    if (low is not None and value < low) or (high is not None and value > high):
        if low is None or high is None:
            bound = f"at least {low:g}" if low is not None else f"at most {high:g}"
            raise _Refused(f"must be {bound}", "out_of_range")
        raise _Refused(f"must be from {_plain(low)} to {_plain(high)}", "out_of_range")


def _plain(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def _boolean(_descriptor: Descriptor, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused("must be true or false", "bool_type")
    return value


def _media(_descriptor: Descriptor, value: Any) -> str:
    if not isinstance(value, str):
        raise _Refused("must be a URL or an upload", "url_type")
    if len(value) > _MAX_URL_CHARS:
        raise _Refused("is too long", "url_too_long")
    return value.strip()


def _sizes(descriptor: Descriptor, value: Any) -> list[str]:
    """The sizes as texts "WxH"; one text may hold several between commas, as a form can say no more."""
    given: object = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise _Refused("must be a list of sizes", "list_type")
    items = cast("list[object]", given)
    if not 0 < len(items) <= (descriptor.max_items or len(items)):
        raise _Refused(f"must be 1 to {descriptor.max_items} sizes", "too_long" if items else "too_short")
    return [_size(descriptor, item) for item in items]


def _size(descriptor: Descriptor, item: object) -> str:
    sides: list[object] = []
    if isinstance(item, str) and (found := _SIZE.fullmatch(item)):
        sides = [int(found[1]), int(found[2])]
    elif isinstance(item, Mapping):
        known = cast("Mapping[str, object]", item)
        sides = [known.get("width"), known.get("height")]
    if len(sides) != 2:
        raise _Refused('must hold sizes as "WxH" or as width and height', "size_type")
    width, height = (_integer(descriptor, side) for side in sides)
    return f"{width}x{height}"


def _project(_descriptor: Descriptor, value: Any) -> Mapping[str, Any]:
    """An object; a form can only send it as JSON text."""
    found: object = value
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError as error:
            raise _Refused("must be an object", "object_type") from error
    if not isinstance(found, Mapping):
        raise _Refused("must be an object", "object_type")
    return cast("Mapping[str, Any]", found)


_CHECKS: dict[str, Callable[[Descriptor, Any], Any]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "image": _media,
    "audio": _media,
    "video": _media,
    "file": _media,
    "sizes": _sizes,
    "project": _project,
}
