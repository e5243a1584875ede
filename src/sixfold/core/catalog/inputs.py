"""Input descriptors of models, and validation of inputs."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from sixfold.core.catalog import text_values
from sixfold.errors import InvalidInput, Problem

Type = Literal[
    "string",
    "integer",
    "number",
    "boolean",
    "image",
    "audio",
    "video",
    "file",
    "artifact",
    "sizes",
    "project",
    "texts",
    "images",
    "series",
    "numbers",
    "turns",
    "messages",
]
MEDIA_TYPES = frozenset({"image", "audio", "video", "file", "artifact"})
NUMBER_TYPES = frozenset({"integer", "number"})
# A form or the command line sends each of these as a string. In JSON, `sizes` must be a list.
LIST_TYPES = frozenset({"sizes", "texts", "images", "series", "numbers", "turns", "messages"})
# Roles of a turn; `model` means assistant.
ROLES = ("user", "assistant", "model")
_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})", re.ASCII)
_MAX_URL_CHARS = 48 * 2**20
# The maximum length of a list that is sent as a string, if its descriptor does not set a limit.
_MAX_PARTS = 100_000
_LINE = re.compile(r"\S[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Matches patterns that are a plain list of words.
_WORDS = re.compile(r"\w*(\|\w+)+")
# Maximum number of characters of a rejected value that is repeated in an error message.
_MAX_SHOWN = 40
_NO_ADDRESS = (
    "must be a URL, a `data:` URL or an upload{}: `POST /api/uploads` stores a file and returns its URL"
)
# A URL, `data:` URI, upload id or path on this server.
ADDRESS = re.compile(r"https?://.|data:.|blob_.|/(?:media|uploads)/.", re.IGNORECASE | re.DOTALL)


class Descriptor(msgspec.Struct, frozen=True):
    """One input: its type and its limits. `min` and `max` are inclusive; `snap` rounds integers.

    `choices` are strings; an integer with choices accepts both the number and its string form. An `artifact`
    is a file of any kind, specified by a URL string.

    `sizes` is a list of one to `max_items` sizes, each "WxH" or {"width", "height"}, from `min` to `max`
    pixels. A `project` is an object that `timeline.check` validates. `texts` is a list of strings, `images` a
    list of images, `numbers` a list of numbers, `series` a list of numbers or of {"t", "y"}, where null marks
    a gap, `turns` a list of {"role", "text"} (the earlier conversation, stored as a JSON string), and
    `messages` a list of {"role", "content"} as in chat completions.

    `aliases` are alternative names that a request may use for the input. A string must match `pattern` as a
    whole; `like` is an example of a match. `each` is the range of the numbers in a string. `needs` maps other
    inputs to the values that this input requires, `required_for` maps other inputs to the values that make
    this input required, and `unless` names the inputs that may replace it. An `extra` input is accepted, but
    it is not part of the published interface of a template. An `ignored` input accepts every value, and the
    result of `check` does not contain it.
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
    aliases: Sequence[str] = ()
    pattern: str = ""
    like: str = ""
    each: Sequence[int] = ()
    needs: Mapping[str, Sequence[str]] = {}
    required_for: Mapping[str, Sequence[str]] = {}
    unless: Sequence[str] = ()
    extra: bool = False
    ignored: bool = False


class _InvalidValue(Exception):
    """A value violates its descriptor; the message completes `<name> …`."""

    def __init__(self, predicate: str, kind: str) -> None:
        super().__init__(predicate)
        self.kind = kind


def check(descriptors: tuple[Descriptor, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a run with all defaults filled in and without unknown names.

    Raises `InvalidInput` with one problem per invalid input, in the descriptors' order. An optional input
    without a default that was omitted is absent from the result.
    """
    checked, problems = _check_each(descriptors, values)
    problems += _unmet(descriptors, checked, {problem.input for problem in problems})
    if problems:
        raise InvalidInput(problems)
    return checked


def valid_values(descriptors: Sequence[Descriptor], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked values of the inputs that are valid on their own."""
    return _check_each(descriptors, values)[0]


def _check_each(
    descriptors: Sequence[Descriptor], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    checked: dict[str, Any] = {}
    problems: list[Problem] = []
    for descriptor in descriptors:
        if descriptor.ignored:
            continue
        value = _value_of(descriptor, values)
        try:
            if _is_absent(descriptor, value):
                _fill(descriptor, checked)
            else:
                checked[descriptor.name] = _CHECKS[descriptor.type](descriptor, value)
        except _InvalidValue as invalid:
            problems.append(Problem(descriptor.name, f"{descriptor.name} {invalid}", invalid.kind))
    return checked, problems


def invalid_addresses(descriptors: Sequence[Descriptor], values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each media input that does not match `ADDRESS`."""
    for descriptor in descriptors:
        value = values.get(descriptor.name) or ()
        texts = cast("list[object]", value) if isinstance(value, list) else [value] if value else []
        if invalid := [text for text in texts if not ADDRESS.match(str(text).strip())]:
            message = f"{descriptor.name} {_NO_ADDRESS.format(_rejected_value(invalid[0]))}"
            yield Problem(descriptor.name, message, "url_type")


def _unmet(
    descriptors: tuple[Descriptor, ...], checked: Mapping[str, Any], wrong: Collection[str]
) -> Iterator[Problem]:
    problems = [
        problem
        for descriptor in descriptors
        if descriptor.name not in wrong
        for problem in _conflicts(descriptor, checked)
    ]
    # One of these inputs may already be required, invalid, or not allowed for another reason.
    invalid = {*wrong, *(problem.input for problem in problems)}
    yield from problems
    for descriptor in descriptors:
        alternatives = (descriptor.name, *descriptor.unless)
        if descriptor.unless and not any(
            _is_filled(checked.get(name)) or name in invalid for name in alternatives
        ):
            yield Problem(descriptor.name, f"{' or '.join(alternatives)} is required", "missing")


def _conflicts(descriptor: Descriptor, checked: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the conflicts of an input with the values of other inputs."""
    name = descriptor.name
    if not _is_filled(checked.get(name)):
        for other, those in descriptor.required_for.items():
            if checked.get(other) in those:
                yield Problem(name, f"{name} is required for {other} {checked[other]}", "missing")
        return
    for other, allowed in descriptor.needs.items():
        if other in checked and checked[other] not in allowed:
            yield Problem(name, f"{name} requires {other} {' or '.join(allowed)}", "requires")


def _is_filled(value: Any) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)


def _value_of(descriptor: Descriptor, request: Mapping[str, Any]) -> Any:
    """Return the value of the input, or of the first alias that is present."""
    values = (request.get(name) for name in (descriptor.name, *descriptor.aliases))
    return next(
        (value for value in values if not _is_absent(descriptor, value)), request.get(descriptor.name)
    )


def _is_absent(descriptor: Descriptor, value: Any) -> bool:
    """Return whether a value counts as omitted.

    A blank string does if the input is required, a file, or a number that the engine chooses by default,
    such as a seed: an empty field of a form sends a blank string.
    """
    if value is None:
        return True
    blank = isinstance(value, str) and not value.strip()
    chosen = descriptor.type in NUMBER_TYPES and descriptor.default is None
    return blank and (descriptor.required or chosen or descriptor.type in MEDIA_TYPES)


def _fill(descriptor: Descriptor, checked: dict[str, Any]) -> None:
    if not _is_absent(descriptor, descriptor.default):
        checked[descriptor.name] = descriptor.default
    elif descriptor.required:
        raise _InvalidValue("is required", "missing")


def _string(descriptor: Descriptor, value: Any) -> str:
    if descriptor.choices and value not in descriptor.choices:
        kind = "enum" if isinstance(value, str) else "string_type"
        raise _InvalidValue(f"must be one of {', '.join(descriptor.choices)}{_rejected_value(value)}", kind)
    if not isinstance(value, str):
        raise _InvalidValue("must be a string", "string_type")
    if descriptor.max_chars is not None and len(value) > descriptor.max_chars:
        raise _InvalidValue(f"must be at most {descriptor.max_chars} characters", "string_too_long")
    if descriptor.pattern and not re.fullmatch(descriptor.pattern, value):
        raise _InvalidValue(f"must {_pattern_text(descriptor)}{_rejected_value(value)}", "string_pattern")
    for number in re.findall(r"\d+", value) if descriptor.each else ():
        low, high = descriptor.each
        _in_range(msgspec.structs.replace(descriptor, min=low, max=high), int(number))
    if not value.isascii() and _SURROGATE.search(value):
        raise _InvalidValue("must be valid Unicode", "string_unicode")
    return value


def _pattern_text(descriptor: Descriptor) -> str:
    if _WORDS.fullmatch(descriptor.pattern):
        return f"be one of {', '.join(word for word in descriptor.pattern.split('|') if word)}"
    return f"have the form `{descriptor.like}`"


def _integer(descriptor: Descriptor, value: Any) -> int:
    number = value
    if (isinstance(value, float) and value.is_integer()) or value in descriptor.choices:
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        if descriptor.choices:
            raise _InvalidValue(
                f"must be one of {', '.join(descriptor.choices)}{_rejected_value(value)}", "int_type"
            )
        raise _InvalidValue(f"must be a whole number{_limits(descriptor, ' of')}", "int_type")
    if descriptor.choices and str(number) not in descriptor.choices:
        raise _InvalidValue(f"must be one of {', '.join(descriptor.choices)}{_rejected_value(value)}", "enum")
    # The limits apply to the number as sent, so that rounding cannot move an invalid number within them.
    _in_range(descriptor, number)
    if descriptor.snap:
        number = round(number / descriptor.snap) * descriptor.snap
        _in_range(descriptor, number)
    return number


def _number(descriptor: Descriptor, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _InvalidValue(f"must be a number{_limits(descriptor, ' of')}", "float_type")
    if isinstance(value, float) and not math.isfinite(value):
        raise _InvalidValue("must be finite", "finite_number")
    _in_range(descriptor, value)
    return value


def _in_range(descriptor: Descriptor, value: float) -> None:
    low, high = descriptor.min, descriptor.max
    if (low is not None and value < low) or (high is not None and value > high):
        raise _InvalidValue(f"must be{_limits(descriptor)}{_rejected_value(value)}", "out_of_range")
    # Values are stored as signed 64-bit integers.
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _InvalidValue(f"must be from {-(2**63)} to {2**63 - 1}", "out_of_range")


def _limits(descriptor: Descriptor, of: str = "") -> str:
    """Return ` from 1 to 8`, ` at least 1` (after `of`), or an empty string, for the descriptor's limits."""
    low, high = descriptor.min, descriptor.max
    if low is not None and high is not None:
        return f" from {_plain(low)} to {_plain(high)}"
    if low is not None:
        return f"{of} at least {low:g}"
    return f"{of} at most {high:g}" if high is not None else ""


def _rejected_value(value: object) -> str:
    """Return ` (got 9)` for a short printable value, otherwise an empty string."""
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN * 3:
        return ""
    text = str(value) if isinstance(value, str | int | float) else ""
    return f" (got {text})" if 0 < len(text) <= _MAX_SHOWN and text.isprintable() else ""


def _plain(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() else str(bound)


def _boolean(_descriptor: Descriptor, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _InvalidValue("must be true or false", "bool_type")
    return value


def _media(_descriptor: Descriptor, value: Any) -> str:
    if not isinstance(value, str):
        raise _InvalidValue(_NO_ADDRESS.format(_rejected_value(value)), "url_type")
    if len(value) > _MAX_URL_CHARS:
        raise _InvalidValue(f"must be at most {_MAX_URL_CHARS} characters (got {len(value)})", "url_too_long")
    return value.strip()


def _sizes(descriptor: Descriptor, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise _InvalidValue('must be a list of sizes, such as ["1200x630"]', "list_type")
    texts = cast("list[object]", value)
    if not 0 < len(texts) <= (descriptor.max_items or len(texts)):
        raise _InvalidValue(
            f"must have 1 to {descriptor.max_items} sizes", "too_long" if texts else "too_short"
        )
    return [_size(descriptor, item) for item in texts]


def _size(descriptor: Descriptor, item: object) -> str:
    sides: list[object] = []
    if isinstance(item, str) and (match := _SIZE.fullmatch(item)):
        sides = [int(match[1]), int(match[2])]
    elif isinstance(item, Mapping):
        fields = cast("Mapping[str, object]", item)
        sides = [fields.get("width"), fields.get("height")]
    if len(sides) != 2:
        got = _rejected_value(cast("object", item))
        raise _InvalidValue(
            f'must contain sizes such as "1200x630" or {{"width": 1200, "height": 630}}{got}', "size_type"
        )
    width, height = (_integer(descriptor, side) for side in sides)
    return f"{width}x{height}"


def _project(_descriptor: Descriptor, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _InvalidValue("must be an object", "object_type")
    return cast("Mapping[str, Any]", value)


def _texts(descriptor: Descriptor, value: Any) -> list[str]:
    """Parse a list of strings; a single string is read as a JSON list, or else split into lines."""
    items: object = value
    if isinstance(value, str):
        list_items = text_values.listed(value)
        items = _lines(descriptor, value) if list_items is None else list_items
    items = _items(descriptor, items, "texts")
    if not all(isinstance(item, str) for item in items):
        raise _InvalidValue("must contain only strings", "string_type")
    return [_string(descriptor, item) for item in items]


def _images(descriptor: Descriptor, value: Any) -> list[str]:
    """Parse a list of images; a single string is read as a JSON list, or else split at whitespace."""
    items: object = value
    if isinstance(value, str):
        items = text_values.listed(value) or _parts(descriptor, value, None, "images")
    sources = [_media(descriptor, item) for item in _items(descriptor, items, "images")]
    if not all(sources):
        raise _InvalidValue("must contain a URL or an upload for each image", "url_type")
    return sources


def _numbers(descriptor: Descriptor, value: Any) -> list[float]:
    """Parse a list of numbers; a single string is split at commas."""
    items: object = value
    if isinstance(value, str):
        items = [_to_number(part) for part in _parts(descriptor, value.strip(" []"), ",", "numbers")]
    expected = f"numbers{_limits(descriptor)}"
    return [_list_number(descriptor, item) for item in _items(descriptor, items, expected)]


def _list_number(descriptor: Descriptor, item: object) -> float:
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise _InvalidValue(f"must contain only numbers{_limits(descriptor)}", "float_type")
    return _number(descriptor, item)


def _series(descriptor: Descriptor, value: Any) -> list[Any]:
    """Parse a series in order: numbers or null, or objects with a time `t` and a value `y`."""
    items: object = value
    if isinstance(value, str):
        items = text_values.listed(value) or [
            _to_number(part) for part in _parts(descriptor, value, ",", "values")
        ]
    points = [_point(descriptor, item) for item in _items(descriptor, items, "values")]
    values = [each if isinstance(each, int | float | None) else each["y"] for each in points]
    if (count := len(values) - values.count(None)) < 2:
        raise _InvalidValue(f"must have at least 2 values that are not null (got {count})", "too_short")
    return points


def _point(descriptor: Descriptor, item: object) -> Any:
    if isinstance(item, Mapping):
        fields = cast("Mapping[str, object]", item)
        moment = fields.get("t")
        if isinstance(moment, bool) or not isinstance(moment, str | int | float):
            raise _InvalidValue("must contain a time t (a string or a number) for each y", "series_type")
        return {"t": moment, "y": _measure(descriptor, fields.get("y"))}
    return _measure(descriptor, item)


def _measure(descriptor: Descriptor, item: object) -> float | None:
    return None if item is None else _list_number(descriptor, item)


def _turns(descriptor: Descriptor, value: Any) -> str:
    """Return the earlier conversation as a JSON string, or an empty string."""
    if isinstance(value, str) and not value.strip():
        return ""
    rows = text_values.listed(value) if isinstance(value, str) else value
    if not isinstance(rows, list) or not all(map(_is_turn, cast("list[object]", rows))):
        raise _InvalidValue("must be a JSON array of items with role and text", "turns_type")
    return _string(descriptor, value if isinstance(value, str) else json.dumps(rows, ensure_ascii=False))


def _is_turn(item: object) -> bool:
    if not isinstance(item, Mapping):
        return False
    turn = cast("Mapping[str, object]", item)
    return turn.get("role") in ROLES and isinstance(turn.get("text"), str)


def _messages(descriptor: Descriptor, value: Any) -> list[object] | None:
    """Return the messages of a conversation; the engine validates their contents."""
    if isinstance(value, str) and not value.strip():
        return None
    rows = _items(descriptor, text_values.listed(value) if isinstance(value, str) else value, "messages")
    if not all(isinstance(row, Mapping) for row in rows):
        raise _InvalidValue("must be a list of messages", "list_type")
    return rows


def _items(descriptor: Descriptor, value: object, expected: str) -> list[object]:
    if not isinstance(value, list):
        raise _InvalidValue(f"must be a list of {expected}", "list_type")
    items = cast("list[object]", value)
    if not items:
        raise _InvalidValue("must contain at least one item", "too_short")
    if descriptor.max_items is not None and len(items) > descriptor.max_items:
        raise _InvalidValue(f"must have at most {descriptor.max_items} {expected}", "too_long")
    return items


def _parts(descriptor: Descriptor, text: str, separator: str | None, expected: str) -> list[str]:
    """Split a string into parts; raises `_InvalidValue` above the maximum length of the list."""
    limit = descriptor.max_items or _MAX_PARTS
    parts = text.split(separator, limit)
    if len(parts) > limit:
        raise _InvalidValue(f"must have at most {limit} {expected}", "too_long")
    return parts


def _lines(descriptor: Descriptor, text: str) -> list[str]:
    """Return the non-blank lines of a string; raises `_InvalidValue` above the maximum length of the list."""
    limit = descriptor.max_items or _MAX_PARTS
    lines = [match[0].rstrip() for match in itertools.islice(_LINE.finditer(text), limit + 1)]
    if len(lines) > limit:
        raise _InvalidValue(f"must have at most {limit} texts", "too_long")
    return lines


def _to_number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


_CHECKS: dict[str, Callable[[Descriptor, Any], Any]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "image": _media,
    "audio": _media,
    "video": _media,
    "file": _media,
    "artifact": _media,
    "sizes": _sizes,
    "project": _project,
    "texts": _texts,
    "images": _images,
    "series": _series,
    "numbers": _numbers,
    "turns": _turns,
    "messages": _messages,
}
