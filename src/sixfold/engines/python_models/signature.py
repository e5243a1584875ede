"""A function's hints as a model's inputs and output."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from PIL import Image

from sixfold import model_api
from sixfold.engines.python_models.files import InvalidModelFile

_PLAIN: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Path: "file",
    bytes: "file",
    Image.Image: "image",
}
_GIVEN: Mapping[Any, str] = {str: "text", Path: "file", bytes: "file", Image.Image: "image"}
_BOUNDS = (("min", ("least", "ge")), ("max", ("most", "le")))  # ours, and those of annotated-types


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's hints, resolved; raises `InvalidModelFile`."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidModelFile(f"a hint cannot be understood: {error}") from error


def inputs(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Its arguments as rows of a catalogue's `inputs`."""
    known = hints(function)
    found: dict[str, dict[str, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidModelFile(f"{name} must be an argument with a name")
        if name not in known:
            raise InvalidModelFile(f"{name} has no type hint")
        if known[name] != model_api.Progress:
            found[name] = _input(name, known[name], parameter.default)
    return found


def output_kind(function: Callable[..., Any]) -> str:
    """What it gives, by its hint."""
    hint, marks = _unwrapped(hints(function).get("return", dict))
    if get_origin(hint) in (list, tuple) and get_args(hint):
        hint, marks = _unwrapped(get_args(hint)[0])
    media = next((mark.kind for mark in marks if isinstance(mark, model_api.Media)), None)
    return media or _GIVEN.get(hint, "json")


def progress_argument(function: Callable[..., Any]) -> str | None:
    """The argument that wants to be given the way to report progress."""
    return next((name for name, hint in hints(function).items() if hint == model_api.Progress), None)


def kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """The bare type of each argument."""
    return {name: _unwrapped(hint)[0] for name, hint in hints(function).items() if name != "return"}


def _input(name: str, hint: Any, default: Any) -> dict[str, Any]:
    bare, marks = _unwrapped(hint)
    facts = _typed(name, bare)
    for mark in marks:
        facts |= _said(mark)
    if default is inspect.Parameter.empty:
        facts["required"] = not _optional(hint)
    elif isinstance(default, str | int | float | bool):
        facts["default"] = default
    elif default is not None:
        raise InvalidModelFile(f"the default of {name} must be a text, a number, true, false or None")
    return facts


def _typed(name: str, bare: Any) -> dict[str, Any]:
    """What a bare type says of its input; raises `InvalidModelFile` for one that no request can give."""
    if get_origin(bare) is Literal:
        return _choice(name, get_args(bare))
    if bare in _PLAIN:
        return {"type": _PLAIN[bare]}
    raise InvalidModelFile(f"{name} has a type that no request can give: {bare}")


def _choice(name: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """One of several values, which are all texts or all whole numbers."""
    whole = all(type(value) is int for value in values)
    if not whole and not all(isinstance(value, str) for value in values):
        raise InvalidModelFile(f"the choices of {name} must be texts, or whole numbers")
    return {"type": "integer" if whole else "string", "choices": [str(value) for value in values]}


def _said(mark: Any) -> dict[str, Any]:
    """What one mark of `Annotated` says of its input."""
    if isinstance(mark, str):
        return {"description": mark}
    if isinstance(mark, model_api.Media):
        return {"type": mark.kind}
    if isinstance(mark, model_api.Length):
        return {"max_chars": mark.most}
    found: dict[str, Any] = {}
    for key, names in _BOUNDS:
        value = next((getattr(mark, each) for each in names if getattr(mark, each, None) is not None), None)
        if value is not None:
            found[key] = value
    return found


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type inside `Annotated` and `| None`, and every mark on the way."""
    marks: tuple[Any, ...] = ()
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            marks += tuple(more)
        elif _optional(hint):
            (hint,) = [each for each in get_args(hint) if each is not type(None)]
        else:
            return hint, marks


def _optional(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _optional(get_args(hint)[0])
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return type(None) in options and len(options) == 2
