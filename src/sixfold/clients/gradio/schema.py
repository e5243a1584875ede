"""Description of a Gradio application as a model, from its `/info` (parameters) and `/config` (limits)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core.input_limits.budget import InputBudget, Limit

_MEDIA = {
    "image": "image",
    "imageeditor": "image",
    "audio": "audio",
    "video": "video",
    "file": "file",
    "downloadbutton": "file",
    "uploadbutton": "file",
    "gallery": "image",
    "model3d": "model3d",
}
_TEXTS = frozenset(
    {"textbox", "text", "textarea", "code", "markdown", "html", "label", "colorpicker", "chatbot"}
)
_PROTOCOLS = frozenset({"sse_v1", "sse_v2", "sse_v2.1", "sse_v3"})
_VERSIONS = frozenset({"4", "5", "6"})
_NO_COMPONENT: Mapping[str, Any] = {}
_Typed = tuple[str, Mapping[str, Any] | None, dict[str, Any]]
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
_NON_WORD = re.compile(r"\W+")
_MAX_NAME_CHARS = 64
_MAX_NUMBER = 2**63
_MAX_INPUTS = 100
_MAX_CHOICES = 1000
_MAX_CHOICE_CHARS = 500
# Longer labels and names of types are cut.
_MAX_LABEL_CHARS = 500
# Maximum characters of all choices of a component.
_MAX_CHOICES_CHARS = 100_000
_MAX_FUNCTION_CHOICES = 20_000
_ARGUMENTS = Limit(
    50_000,
    "The space's functions have more than {} inputs and outputs in total, which is too many to import",
    errors.BadRequest,
)


class FunctionArgument(msgspec.Struct, frozen=True):
    """An argument of a function: the input that fills it ("" for a state), and its kind.

    `values` maps the choices to their values.
    """

    name: str
    kind: str
    default: Any = None
    values: Mapping[str, Any] | None = None


class SpaceFunction(msgspec.Struct, frozen=True):
    """A function of an application, described as a model."""

    api_name: str
    index: int
    inputs: Mapping[str, Mapping[str, Any]]
    places: tuple[FunctionArgument, ...]
    # The index of the main output.
    output: int
    output_kind: str
    # The name of each returned value; "" for hidden ones.
    returns: tuple[str, ...]


def best_function(config: Mapping[str, Any], info: Mapping[str, Any]) -> SpaceFunction:
    """Return the public function with the most inputs, preferring functions that output media.

    Raises `BadRequest`.
    """
    if "components" not in config or "dependencies" not in config:
        raise errors.BadRequest("This space does not serve a Gradio application")
    version = str(config.get("version", "3"))[:20]
    # A server that does not state its protocol, which Gradio itself does, is judged by its version.
    supported = _VERSIONS if "protocol" not in config else _PROTOCOLS
    if str(config.get("protocol", version.partition(".")[0])) not in supported:
        raise errors.BadRequest(f"The space runs Gradio {version}; only versions 4, 5 and 6 can be imported")
    functions = [function for function in _functions(config, info) if function is not None]
    if not functions:
        raise errors.BadRequest("The space does not have a public function that can be called")
    return max(
        functions,
        key=lambda function: (
            function.output_kind in ("image", "video", "audio", "file", "model3d"),
            len(function.inputs),
        ),
    )


class _ComponentTable:
    """The components of an application by id, with a limit on their uses by functions.

    A function of 200 bytes can name a component with a thousand choices a hundred times.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._components = {
            number: component
            for component in _objects(config.get("components"))
            if isinstance(number := component.get("id"), int | str)
        }
        self._types: dict[tuple[int, str], _Typed] = {}
        self._budget = InputBudget(arguments=_ARGUMENTS)

    def get_many(self, numbers: Any) -> list[Mapping[str, Any]]:
        """Return the components with these ids; raises `BadRequest` if all lists exceed the limit."""
        ids = _list(numbers)
        self._budget.spend(arguments=len(ids))
        return [
            self._components.get(component_id, _NO_COMPONENT)
            if isinstance(component_id, int | str)
            else _NO_COMPONENT
            for component_id in ids
        ]

    def type_of(self, component: Mapping[str, Any], kind: str) -> _Typed:
        """Return the type of a component from a cache."""
        key = (id(component), kind)
        if key not in self._types:
            self._types[key] = _component_type(kind, _object(component.get("props")))
        return self._types[key]


def _functions(config: Mapping[str, Any], info: Mapping[str, Any]) -> Iterator[SpaceFunction | None]:
    components = _ComponentTable(config)
    endpoints = _object(info.get("named_endpoints"))
    for index, dependency in enumerate(_objects(config.get("dependencies"))):
        api_name = dependency.get("api_name")
        if not isinstance(api_name, str) or not _is_public(dependency):
            continue
        description = _object(endpoints.get(f"/{api_name}"))
        if description:
            function_id = dependency.get("id")
            function_index = function_id if isinstance(function_id, int) else index
            yield _function(api_name, function_index, dependency, description, components)


def _is_public(dependency: Mapping[str, Any]) -> bool:
    if dependency.get("backend_fn") is False:
        return False
    return (
        dependency.get("api_visibility", "public") in (None, "public")
        and dependency.get("show_api") is not False
    )


def _function(
    api_name: str,
    index: int,
    dependency: Mapping[str, Any],
    description: Mapping[str, Any],
    components: _ComponentTable,
) -> SpaceFunction | None:
    input_components = components.get_many(dependency.get("inputs"))
    parameters = iter(_object(parameter) for parameter in _list(description.get("parameters")))
    choices = 0
    inputs: dict[str, dict[str, Any]] = {}
    arguments: list[FunctionArgument] = []
    for component in input_components:
        if _is_hidden(component):
            arguments.append(FunctionArgument("", "state"))
            continue
        parameter = next(parameters, None)
        if parameter is None or len(inputs) >= _MAX_INPUTS:
            return None
        argument, descriptor = _input(parameter, component, components, inputs)
        choices += len(argument.values or ())
        if choices > _MAX_FUNCTION_CHOICES:
            return None
        arguments.append(argument)
        inputs[argument.name] = descriptor
    output_components = components.get_many(dependency.get("outputs"))
    output, kind = _output(output_components)
    return SpaceFunction(
        api_name, index, inputs, tuple(arguments), output, kind, _returns(output_components, description)
    )


def _is_hidden(component: Mapping[str, Any]) -> bool:
    return component.get("type") == "state" or component.get("skip_api") is True


def _input(
    parameter: Mapping[str, Any],
    component: Mapping[str, Any],
    components: _ComponentTable,
    used_names: Mapping[str, Any],
) -> tuple[FunctionArgument, dict[str, Any]]:
    name = _text(parameter.get("parameter_name"))
    if not _NAME.fullmatch(name) or name in used_names:
        name = f"param_{len(used_names)}"
    kind = _text(component.get("type") or parameter.get("component")).lower()
    default = parameter.get("parameter_default")
    has_default = parameter.get("parameter_has_default") is True
    descriptor: dict[str, Any] = {"description": _text(parameter.get("label")) or name}
    kind, values, type_fields = components.type_of(component, kind)
    descriptor |= type_fields
    if kind != "media" and not has_default:
        descriptor["required"] = True
    default_value = (
        _descriptor_default(descriptor, default, values) if has_default and kind != "media" else None
    )
    if default_value is not None:
        descriptor["default"] = default_value
    return FunctionArgument(name, kind, None if kind == "media" else default, values), descriptor


def _component_type(kind: str, props: Mapping[str, Any]) -> _Typed:
    """Return the kind of an argument, its choices, and the fields of the input descriptor."""
    if kind in _MEDIA and not (kind == "file" and props.get("file_count", "single") != "single"):
        media = _MEDIA[kind]
        argument_kind = "gallery" if kind == "gallery" else "media"
        return argument_kind, None, {"type": "file" if media == "model3d" else media}
    if kind in ("dropdown", "radio") and not props.get("multiselect"):
        values = _choices(props.get("choices"))
        if values and not props.get("allow_custom_value"):
            return "choice", values, {"type": "string", "choices": list(values)}
        return "value", None, {"type": "string"}
    describe = _SIMPLE_TYPES.get(kind)
    if describe is not None:
        return "value", None, describe(props)
    return ("value", None, {"type": "string"}) if kind in _TEXTS else ("json", None, {"type": "string"})


def _choices(choices: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    chars = 0
    for choice in _list(choices)[:_MAX_CHOICES]:
        pair = _list(choice)
        value = pair[1] if len(pair) == 2 else choice
        if not _is_scalar(value):
            return {}
        text = str(value)
        chars += len(text)
        # If the choices are too long, the input accepts any text.
        if len(text) > _MAX_CHOICE_CHARS or chars > _MAX_CHOICES_CHARS:
            return {}
        values[text] = value
    return values


def _number(props: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _finite(props.get("minimum")), _finite(props.get("maximum"))
    descriptor: dict[str, Any] = {"type": "integer" if props.get("precision") == 0 else "number"}
    return descriptor | {key: value for key, value in (("min", low), ("max", high)) if value is not None}


def _slider(props: Mapping[str, Any]) -> dict[str, Any]:
    descriptor = _number(props)
    step, low = _finite(props.get("step")), descriptor.get("min", 0)
    all_integers = all(
        value is not None and float(value).is_integer() for value in (step, low, descriptor.get("max", 0))
    )
    if not all_integers or not step:
        return descriptor
    descriptor["type"] = "integer"
    if step > 1 and low % step == 0:
        descriptor["snap"] = int(step)
    return descriptor


def _boolean(_props: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "boolean"}


_SIMPLE_TYPES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "number": _number,
    "slider": _slider,
    "checkbox": _boolean,
}


def _descriptor_default(descriptor: Mapping[str, Any], default: Any, values: Mapping[str, Any] | None) -> Any:
    """Return the default as a descriptor value, or None if it cannot be converted."""
    if values is not None:
        return str(default) if _is_scalar(default) and str(default) in values else None
    match descriptor["type"]:
        case "integer" if isinstance(default, int | float) and not isinstance(default, bool):
            number = _finite(default)
            return int(number) if number is not None and float(number).is_integer() else None
        case "number" if isinstance(default, int | float) and not isinstance(default, bool):
            return _finite(default)
        case "boolean" if isinstance(default, bool):
            return default
        case "string" if isinstance(default, str):
            return default
        case _:
            return None


def _output(components: list[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the index and kind of the main output: the first media, or else JSON, or else text."""
    kinds = [_text(component.get("type")).lower() for component in components]
    for index, kind in enumerate(kinds):
        if kind in _MEDIA:
            return index, _MEDIA[kind]
    for index, kind in enumerate(kinds):
        if kind not in _TEXTS and kind not in ("state", "button", "number", "slider"):
            return index, "json"
    text = next((index for index, kind in enumerate(kinds) if kind in _TEXTS), 0)
    return text, "text" if kinds and kinds[text] in _TEXTS else "json"


def _returns(components: list[Mapping[str, Any]], description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names for the outputs, from their labels: `Seed used` becomes `seed_used`."""
    labels = iter(_object(each) for each in _list(description.get("returns")))
    names: list[str] = []
    used: set[str] = set()
    # The last suffix that was tried for each name.
    counts: dict[str, int] = {}
    position = 0
    for component in components:
        if _is_hidden(component):
            names.append("")
            continue
        position += 1
        label = next(labels, _NO_COMPONENT).get("label") or _object(component.get("props")).get("label")
        text = label[:_MAX_NAME_CHARS] if isinstance(label, str) else ""
        base_name = _NON_WORD.sub("_", text).strip("_").lower() or f"output_{position}"
        name = base_name
        if name in used:
            number = max(position, counts.get(base_name, 0) + 1)
            while (name := f"{base_name}_{number}") in used:
                number += 1
            counts[base_name] = number
        names.append(name)
        used.add(name)
    return tuple(names)


def _finite(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An integer may have thousands of digits.
    return value if abs(value) <= _MAX_NUMBER and math.isfinite(value) else None


def _is_scalar(value: Any) -> bool:
    """Return whether a value is neither a list nor an object, whose text may have millions of characters."""
    return value is None or isinstance(value, str | int | float)


def _text(value: Any) -> str:
    """Return the beginning of a string, or an empty string for any other value.

    A parameter of a megabyte may belong to thousands of functions.
    """
    return value[:_MAX_LABEL_CHARS] if isinstance(value, str) else ""


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [_object(item) for item in _list(value)]
