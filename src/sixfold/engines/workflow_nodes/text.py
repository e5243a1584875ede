"""Text and number nodes, which are fast enough to run in the server's event loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.estimate import UnknownCost
from sixfold.core.workflows.ports import NodeContext, NodeResult, Run

# The slowest of these nodes takes about 20 ms for a text of this length.
_MAX_CHARS = 2**20


def value(_context: NodeContext, value: Any) -> tuple[Any]:
    return (value,)


def preview(_context: NodeContext, source: Any = None) -> NodeResult:
    return NodeResult(ui={"text": (as_text(source),)})


def as_text(source: Any) -> str:
    if isinstance(source, str | int | float):
        return str(source)
    try:
        return json.dumps(source, ensure_ascii=False)
    except (TypeError, ValueError):
        return f"{type(source).__name__} (not shown as text)"


def switch(_context: NodeContext, switch: bool, on_false: Any = None, on_true: Any = None) -> tuple[Any]:
    """Return one of two values; in an estimate without the condition, the value that is present."""
    if isinstance(switch, UnknownCost):
        return (on_false if on_true is None else on_true,)
    return (on_true if switch else on_false,)


def concatenate(_context: NodeContext, string_a: str, string_b: str, delimiter: str) -> tuple[str]:
    """Join two strings with a delimiter."""
    _check_length(len(string_a) + len(delimiter) + len(string_b))
    return (string_a + delimiter + string_b,)


def _check_length(characters: int) -> None:
    """Raise `UnusableInput` for a text that would be too long, before it is built."""
    if characters > _MAX_CHARS:
        raise UnusableInput(f"A text must have at most {_MAX_CHARS:,} characters (got {characters:,}).")


def substring(_context: NodeContext, string: str, start: int, end: int) -> tuple[str]:
    return (string[start:end],)


def length(_context: NodeContext, string: str) -> tuple[int]:
    return (len(string),)


def case(_context: NodeContext, string: str, mode: str) -> tuple[str]:
    _check_length(len(string))
    return (_CASES[mode](string),)


_CASES: Mapping[str, Callable[[str], str]] = {
    "UPPERCASE": str.upper,
    "lowercase": str.lower,
    "Capitalize": str.capitalize,
    "Title Case": str.title,
}


def trim(_context: NodeContext, string: str, mode: str) -> tuple[str]:
    """Remove surrounding whitespace."""
    return ({"Both": string.strip(), "Left": string.lstrip(), "Right": string.rstrip()}[mode],)


def replace(_context: NodeContext, string: str, find: str, replace: str) -> tuple[str]:
    _check_length(len(string) + string.count(find) * (len(replace) - len(find)))
    return (string.replace(find, replace),)


def contains(_context: NodeContext, string: str, substring: str, case_sensitive: bool) -> tuple[bool]:
    """Return whether `string` contains `substring`."""
    return (substring in string if case_sensitive else substring.lower() in string.lower(),)


def compare(
    _context: NodeContext, string_a: str, string_b: str, mode: str, case_sensitive: bool
) -> tuple[bool]:
    """Return whether `string_a` starts with, ends with or equals `string_b`."""
    first, second = (string_a, string_b) if case_sensitive else (string_a.lower(), string_b.lower())
    return (
        {"Starts With": first.startswith, "Ends With": first.endswith, "Equal": first.__eq__}[mode](second),
    )


RUNS: Mapping[str, Run] = {
    **dict.fromkeys(
        ("PrimitiveString", "PrimitiveStringMultiline", "PrimitiveInt", "PrimitiveFloat", "PrimitiveBoolean"),
        value,
    ),
    "PreviewAny": preview,
    "ComfySwitchNode": switch,
    "StringConcatenate": concatenate,
    "StringSubstring": substring,
    "StringLength": length,
    "CaseConverter": case,
    "StringTrim": trim,
    "StringReplace": replace,
    "StringContains": contains,
    "StringCompare": compare,
}
