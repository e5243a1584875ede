"""Inputs as they are described to callers."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, cast, get_args

from sixfold.core.catalog.inputs import Descriptor

WireType = Literal["string", "integer", "number", "boolean", "image", "audio", "video", "file"]
_WIRE_TYPES = frozenset(get_args(WireType))


class InputSchema(TypedDict):
    """An input of a model."""

    name: str
    type: WireType
    description: str
    default: Any
    required: bool
    min: float | None
    max: float | None
    choices: list[str]
    order: int


def descriptor(given: Descriptor) -> InputSchema:
    """One input; a type that the contract does not have is written as text."""
    return {
        "name": given.name,
        "type": cast("WireType", given.type) if given.type in _WIRE_TYPES else "string",
        "description": given.description,
        "default": given.default,
        "required": given.required,
        "min": given.min,
        "max": given.max,
        "choices": list(given.choices),
        "order": given.order,
    }
