"""Describes a Gradio application as a model, from its `/info` (parameters) and `/config` (limits)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sixfold import errors
from sixfold.core.input_budget import InputBudget, Limit

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
_NO_COMPONENT: Mapping[str, Any] = {}
_Typed = tuple[str, Mapping[str, Any] | None, dict[str, Any]]
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")
_NO_WORD = re.compile(r"\W+")
_MAX_NAME_CHARS = 64
_MAX_INPUTS = 100
_MAX_CHOICES = 1000
_MAX_CHOICE_CHARS = 500
_MAX_FUNCTION_CHOICES = 20_000
_ARGUMENTS = Limit(
    50_000,
    "The space's functions have more than {} inputs and outputs together, which is too many to import",
    errors.BadRequest,
)


@dataclass(frozen=True, slots=True)
class FunctionArgument:
    """An argument of a function: the input that fills it ("" for a state), and its kind.

    `values` maps the choices to their values.
    """

    name: str
    kind: str
    default: Any = None
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SpaceFunction:
    """A function of an application, as a model."""

    api_name: str
    index: int
    inputs: Mapping[str, Mapping[str, Any]]
    places: tuple[FunctionArgument, ...]
    # The index of the main output.
    output: int
    output_kind: str
    # The name of each returned value; "" for hidden ones.
    returns: tuple[str, ...]


def best(config: Mapping[str, Any], info: Mapping[str, Any]) -> SpaceFunction:
    """Return the public function that produces media, preferring the one with most inputs; raises
    `BadRequest`.
    """
    protocol = config.get("protocol")
    if "components" not in config or "dependencies" not in config:
        raise errors.BadRequest("There is no Gradio application at this space")
    if protocol not in _PROTOCOLS:
        version = str(config.get("version", "3"))[:20]
        raise errors.BadRequest(f"The space runs Gradio {version}; 4, 5 and 6 can be imported")
    found = [function for function in _functions(config, info) if function is not None]
    if not found:
        raise errors.BadRequest("The space has no public function that can be called")
    return max(
        found,
        key=lambda one: (one.output_kind in ("image", "video", "audio", "file", "model3d"), len(one.inputs)),
    )


class _ComponentTable:
    """The components of an application by id; counts each use by a function.

    A function of 200 bytes can name a component with a thousand choices a hundred times.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._known = {
            number: each
            for each in _objects(config.get("components"))
            if isinstance(number := each.get("id"), int | str)
        }
        self._typed: dict[tuple[int, str], _Typed] = {}
        self._budget = InputBudget(arguments=_ARGUMENTS)

    def named(self, numbers: Any) -> list[Mapping[str, Any]]:
        """Return the components of a list of ids; raises `BadRequest` above the limit for all lists."""
        listed = _list(numbers)
        self._budget.spend(arguments=len(listed))
        return [
            self._known.get(number, _NO_COMPONENT) if isinstance(number, int | str) else _NO_COMPONENT
            for number in listed
        ]

    def typed(self, component: Mapping[str, Any], kind: str) -> _Typed:
        """Return the type of a component, computed once."""
        key = (id(component), kind)
        if key not in self._typed:
            self._typed[key] = _typed(kind, _object(component.get("props")))
        return self._typed[key]


def _functions(config: Mapping[str, Any], info: Mapping[str, Any]) -> Iterator[SpaceFunction | None]:
    components = _ComponentTable(config)
    named = _object(info.get("named_endpoints"))
    for index, each in enumerate(_objects(config.get("dependencies"))):
        api_name = each.get("api_name")
        if not isinstance(api_name, str) or not _public(each):
            continue
        described = _object(named.get(f"/{api_name}"))
        if described:
            number = each.get("id")
            place = number if isinstance(number, int) else index
            yield _function(api_name, place, each, described, components)


def _public(dependency: Mapping[str, Any]) -> bool:
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
    described: Mapping[str, Any],
    components: _ComponentTable,
) -> SpaceFunction | None:
    asked = components.named(dependency.get("inputs"))
    parameters = iter(_object(each) for each in _list(described.get("parameters")))
    choices = 0
    inputs: dict[str, dict[str, Any]] = {}
    places: list[FunctionArgument] = []
    for component in asked:
        if _hidden(component):
            places.append(FunctionArgument("", "state"))
            continue
        parameter = next(parameters, None)
        if parameter is None or len(inputs) >= _MAX_INPUTS:
            return None
        place, facts = _input(parameter, component, components, inputs)
        choices += len(place.values or ())
        if choices > _MAX_FUNCTION_CHOICES:
            return None
        places.append(place)
        inputs[place.name] = facts
    given = components.named(dependency.get("outputs"))
    output, kind = _output(given)
    return SpaceFunction(api_name, index, inputs, tuple(places), output, kind, _returns(given, described))


def _hidden(component: Mapping[str, Any]) -> bool:
    return component.get("type") == "state" or component.get("skip_api") is True


def _input(
    parameter: Mapping[str, Any],
    component: Mapping[str, Any],
    components: _ComponentTable,
    taken: Mapping[str, Any],
) -> tuple[FunctionArgument, dict[str, Any]]:
    name = str(parameter.get("parameter_name") or "")
    if not _NAME.fullmatch(name) or name in taken:
        name = f"param_{len(taken)}"
    kind = str(component.get("type") or parameter.get("component") or "").lower()
    default = parameter.get("parameter_default")
    has_default = parameter.get("parameter_has_default") is True
    facts: dict[str, Any] = {"description": str(parameter.get("label") or name)[:500]}
    kind, values, more = components.typed(component, kind)
    facts |= more
    if kind != "media" and not has_default:
        facts["required"] = True
    shown = _shown_default(facts, default, values) if has_default and kind != "media" else None
    if shown is not None:
        facts["default"] = shown
    return FunctionArgument(name, kind, None if kind == "media" else default, values), facts


def _typed(kind: str, props: Mapping[str, Any]) -> _Typed:
    """Return how the engine fills an argument, its choices, and the fields of the input descriptor."""
    if kind in _MEDIA and not (kind == "file" and props.get("file_count", "single") != "single"):
        media = _MEDIA[kind]
        listed = "gallery" if kind == "gallery" else "media"
        return listed, None, {"type": "file" if media == "model3d" else media}
    if kind in ("dropdown", "radio") and not props.get("multiselect"):
        values = _choices(props.get("choices"))
        if values and not props.get("allow_custom_value"):
            return "choice", values, {"type": "string", "choices": list(values)}
        return "value", None, {"type": "string"}
    found = _PLAIN.get(kind)
    if found is not None:
        return "value", None, found(props)
    return ("value", None, {"type": "string"}) if kind in _TEXTS else ("json", None, {"type": "string"})


def _choices(given: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in _list(given)[:_MAX_CHOICES]:
        pair = _list(each)
        value = pair[1] if len(pair) == 2 else each
        text = str(value)
        # An input with an overlong choice accepts any text.
        if len(text) > _MAX_CHOICE_CHARS:
            return {}
        values[text] = value
    return values


def _number(props: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _finite(props.get("minimum")), _finite(props.get("maximum"))
    facts: dict[str, Any] = {"type": "integer" if props.get("precision") == 0 else "number"}
    return facts | {key: value for key, value in (("min", low), ("max", high)) if value is not None}


def _slider(props: Mapping[str, Any]) -> dict[str, Any]:
    facts = _number(props)
    step, low = _finite(props.get("step")), facts.get("min", 0)
    whole = all(value is not None and float(value).is_integer() for value in (step, low, facts.get("max", 0)))
    if not whole or not step:
        return facts
    facts["type"] = "integer"
    if step > 1 and low % step == 0:
        facts["snap"] = int(step)
    return facts


def _boolean(_props: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "boolean"}


_PLAIN: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "number": _number,
    "slider": _slider,
    "checkbox": _boolean,
}


def _shown_default(facts: Mapping[str, Any], default: Any, values: Mapping[str, Any] | None) -> Any:
    """Return the default as a descriptor value, or None if it has no such form."""
    if values is not None:
        return str(default) if str(default) in values else None
    match facts["type"]:
        case "integer" if isinstance(default, int | float) and not isinstance(default, bool):
            return int(default) if float(default).is_integer() else None
        case "number" if isinstance(default, int | float) and not isinstance(default, bool):
            return _finite(default)
        case "boolean" if isinstance(default, bool):
            return default
        case "string" if isinstance(default, str):
            return default
        case _:
            return None


def _output(components: list[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the index and kind of the main output: the first media, else JSON, else text."""
    kinds = [str(each.get("type") or "").lower() for each in components]
    for index, kind in enumerate(kinds):
        if kind in _MEDIA:
            return index, _MEDIA[kind]
    for index, kind in enumerate(kinds):
        if kind not in _TEXTS and kind not in ("state", "button", "number", "slider"):
            return index, "json"
    text = next((index for index, kind in enumerate(kinds) if kind in _TEXTS), 0)
    return text, "text" if kinds and kinds[text] in _TEXTS else "json"


def _returns(components: list[Mapping[str, Any]], described: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names for the outputs, from their labels: `Seed used` becomes `seed_used`."""
    labels = iter(_object(each) for each in _list(described.get("returns")))
    names: list[str] = []
    used: set[str] = set()
    # The last number that was tried for each name.
    counts: dict[str, int] = {}
    place = 0
    for component in components:
        if _hidden(component):
            names.append("")
            continue
        place += 1
        label = next(labels, _NO_COMPONENT).get("label") or _object(component.get("props")).get("label")
        word = label[:_MAX_NAME_CHARS] if isinstance(label, str) else ""
        plain = _NO_WORD.sub("_", word).strip("_").lower() or f"output_{place}"
        name = plain
        if name in used:
            number = max(place, counts.get(plain, 0) + 1)
            while (name := f"{plain}_{number}") in used:
                number += 1
            counts[plain] = number
        names.append(name)
        used.add(name)
    return tuple(names)


def _finite(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [_object(each) for each in _list(value)]
