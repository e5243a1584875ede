"""Derivation of a model's inputs and output from the type hints of its function."""

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
_OUTPUT_KINDS: Mapping[Any, str] = {str: "text", Path: "file", bytes: "file", Image.Image: "image"}
_BOUNDS = (("min", ("least", "ge")), ("max", ("most", "le")))  # names in Sixfold and in annotated-types


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's resolved type hints; raises `InvalidModelFile`."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidModelFile(f"a type hint cannot be resolved: {error}") from error


def inputs(function: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments as rows of a model's `inputs` table; raises `InvalidModelFile`."""
    type_hints = hints(function)
    inputs_by_name: dict[str, dict[str, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidModelFile(f"{name} must be a keyword argument")
        if name not in type_hints:
            raise InvalidModelFile(f"{name} must have a type hint")
        if type_hints[name] != model_api.Progress:
            inputs_by_name[name] = _input_row(name, type_hints[name], parameter.default)
    return inputs_by_name


def output_kind(function: Callable[..., Any]) -> str:
    """Return the kind of output for the return hint, such as `image`; the default is `json`."""
    hint, markers = _unwrap(hints(function).get("return", dict))
    if get_origin(hint) in (list, tuple) and get_args(hint):
        hint, markers = _unwrap(get_args(hint)[0])
    media = next((marker.kind for marker in markers if isinstance(marker, model_api.Media)), None)
    return media or _OUTPUT_KINDS.get(hint, "json")


def progress_argument(function: Callable[..., Any]) -> str | None:
    """Return the name of the argument of type `sixfold.Progress`, or None."""
    return next((name for name, hint in hints(function).items() if hint == model_api.Progress), None)


def kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each argument without `Annotated` and `None`."""
    return {name: _unwrap(hint)[0] for name, hint in hints(function).items() if name != "return"}


def _input_row(name: str, hint: Any, default: Any) -> dict[str, Any]:
    bare, markers = _unwrap(hint)
    facts = _type_row(name, bare)
    for marker in markers:
        facts |= _marker_fields(marker)
    if default is inspect.Parameter.empty:
        facts["required"] = not _is_optional(hint)
    elif isinstance(default, str | int | float | bool):
        facts["default"] = default
    elif default is not None:
        raise InvalidModelFile(f"the default of {name} must be a string, a number, true, false or None")
    return facts


def _type_row(name: str, bare: Any) -> dict[str, Any]:
    """Return the row of a type; raises `InvalidModelFile` for a type that a request cannot contain."""
    if get_origin(bare) is Literal:
        return _choices_row(name, get_args(bare))
    if bare in _PLAIN:
        return {"type": _PLAIN[bare]}
    raise InvalidModelFile(f"the type of {name} is not supported: {bare}")


def _choices_row(name: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the row of a `Literal`, whose values must be all strings or all integers."""
    are_integers = all(type(value) is int for value in values)
    if not are_integers and not all(isinstance(value, str) for value in values):
        raise InvalidModelFile(f"the choices of {name} must be all strings or all integers")
    return {"type": "integer" if are_integers else "string", "choices": [str(value) for value in values]}


def _marker_fields(marker: Any) -> dict[str, Any]:
    if isinstance(marker, str):
        return {"description": marker}
    if isinstance(marker, model_api.Media):
        return {"type": marker.kind}
    if isinstance(marker, model_api.Length):
        return {"max_chars": marker.most}
    fields: dict[str, Any] = {}
    for key, names in _BOUNDS:
        value = next(
            (getattr(marker, each) for each in names if getattr(marker, each, None) is not None), None
        )
        if value is not None:
            fields[key] = value
    return fields


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type inside `Annotated` and `| None`, and all markers."""
    markers: tuple[Any, ...] = ()
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            markers += tuple(more)
        elif _is_optional(hint):
            (hint,) = [each for each in get_args(hint) if each is not type(None)]
        else:
            return hint, markers


def _is_optional(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_optional(get_args(hint)[0])
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return type(None) in options and len(options) == 2
