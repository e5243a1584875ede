"""Model names of fal and Replicate, mapped to this server's models, inputs and outputs."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal, cast

import msgspec

from sixfold import errors
from sixfold.errors import InvalidInput, Problem

Service = Literal["fal", "replicate"]
# Separates the API and the public name in the `face` of a prediction.
_SEPARATOR = ":"
_RATIO = re.compile(r"([1-9]\d?):([1-9]\d?)", re.ASCII)
# The default number of pixels, the step of widths and heights, and the widest ratio.
_PIXELS, _STEP, _WIDEST = 1024 * 1024, 16, 4
_PRESETS: Mapping[str, tuple[int, int]] = {
    "square_hd": (1024, 1024),
    "square": (512, 512),
    "portrait_4_3": (768, 1024),
    "portrait_16_9": (576, 1024),
    "landscape_4_3": (1024, 768),
    "landscape_16_9": (1024, 576),
}
_EMPTY: Any = (None, False, "")


class PublicModel(msgspec.Struct, frozen=True):
    """A row of `data/public_names.toml`, which explains the fields."""

    name: str
    model: str
    inputs: Mapping[str, str]
    output: Any
    size: str = ""
    values: Mapping[str, Mapping[str, Any]] = {}
    refused: Sequence[str] = ()
    single: Sequence[str] = ()
    versions: Sequence[str] = ()

    def translate(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of the model that runs; raises `InvalidInput`."""
        problems = [
            Problem(name, f"{name} is not supported for {self.name} on this server", "extra_forbidden")
            for name in self.refused
            if inputs.get(name) not in _EMPTY
        ]
        problems += [
            Problem(name, f"{name} must be 1: request each output separately", "value_error")
            for name in self.single
            if inputs.get(name) not in (None, 1)
        ]
        if problems:
            raise InvalidInput(problems)
        translated: dict[str, Any] = {}
        for name, own in self.inputs.items():
            value = inputs.get(name)
            if value is not None:
                translated[own] = _spelled(self.values.get(name, {}), value)
        if self.size and inputs.get(self.size) is not None:
            translated["width"], translated["height"] = _SIZES[self.size](self.size, inputs[self.size])
        return translated

    def client_error(self, error: InvalidInput) -> InvalidInput:
        """Return the error with the client's names of the inputs."""
        names = {own: name for name, own in tuple(self.inputs.items())[::-1]}
        if self.size:
            names |= {"width": self.size, "height": self.size}
        problems: list[Problem] = []
        for problem in error.problems:
            name = names.get(problem.input, problem.input)
            text = problem.message.removeprefix(f"{problem.input} ")
            message = problem.message if text == problem.message else f"{name} {text}"
            problems.append(Problem(name, message, problem.kind))
        return InvalidInput(problems)


@functools.cache
def _tables() -> Mapping[str, Mapping[str, PublicModel]]:
    """Return the rows of each service by name."""
    tables = tomllib.loads((resources.files("sixfold.data") / "public_names.toml").read_text("utf-8"))
    return {
        service: {name: PublicModel(name, **row) for name, row in rows.items()}
        for service, rows in tables.items()
    }


class PublicNames:
    """The rows of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rows = _tables()[service]
        self._versions = {version: row for row in self._rows.values() for version in row.versions}

    def __iter__(self) -> Iterator[PublicModel]:
        return iter(self._rows.values())

    def find(self, name: str) -> PublicModel | None:
        return self._rows.get(name)

    def by_version(self, version: str) -> PublicModel | None:
        """Return the row of a published version."""
        return self._versions.get(version)

    def face(self, public: PublicModel | None) -> str:
        """Return the `face` of predictions that are requested by a name."""
        return self._service if public is None else f"{self._service}{_SEPARATOR}{public.name}"

    def of_face(self, face: str) -> PublicModel | None:
        """Return the row by which a prediction was requested."""
        service, _, name = face.partition(_SEPARATOR)
        return self._rows.get(name) if service == self._service else None


def render(template: Any, output: Any, inputs: Mapping[str, Any]) -> Any:
    """Return a row's output with its markers replaced by parts of `output` and `inputs`."""
    if isinstance(template, Mapping):
        rows = cast("Mapping[str, Any]", template)
        return {name: render(value, output, inputs) for name, value in rows.items()}
    if isinstance(template, list):
        return [render(value, output, inputs) for value in cast("list[Any]", template)]
    if not isinstance(template, str) or not template.startswith("@"):
        return template
    marker = template[1:]
    if marker.startswith("input."):
        return inputs.get(marker.removeprefix("input."))
    if marker in ("file", "value"):
        return output
    members = cast("Mapping[str, Any]", output if isinstance(output, Mapping) else {})
    return _chunks(members.get("segments") or ()) if marker == "chunks" else members.get(marker)


def _chunks(segments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"timestamp": [segment.get("start"), segment.get("end")], "text": segment.get("text")}
        for segment in segments
    ]


def _spelled(spellings: Mapping[str, Any], value: Any) -> Any:
    return spellings.get(value, value) if isinstance(value, str) else value


def _of_ratio(name: str, value: Any) -> tuple[int, int]:
    match = _RATIO.fullmatch(value) if isinstance(value, str) else None
    ratio = int(match[1]) / int(match[2]) if match is not None else 0.0
    if not 1 / _WIDEST <= ratio <= _WIDEST:
        raise errors.InvalidInput.of(
            name, f"{name} must be W:H, from 1:{_WIDEST} to {_WIDEST}:1, such as 16:9"
        )
    width = math.sqrt(_PIXELS * ratio)
    return round(width / _STEP) * _STEP, round(width / ratio / _STEP) * _STEP


def _of_preset(name: str, value: Any) -> tuple[Any, Any]:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return fields.get("width", 512), fields.get("height", 512)
    if not isinstance(value, str) or value not in _PRESETS:
        presets = ", ".join(_PRESETS)
        raise errors.InvalidInput.of(
            name, f"{name} must be an object with width and height, or one of {presets}"
        )
    return _PRESETS[value]


_SIZES: Mapping[str, Callable[[str, Any], tuple[Any, Any]]] = {
    "aspect_ratio": _of_ratio,
    "image_size": _of_preset,
}
