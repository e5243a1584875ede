"""Inputs as they are described to callers."""

from __future__ import annotations

from typing import Any

from sixfold.core.work.inputs import Descriptor

_WIRE_TYPES = frozenset({"string", "integer", "number", "boolean", "image", "audio", "video", "file"})


def descriptor(given: Descriptor) -> dict[str, Any]:
    """One input; a type that the contract does not have is written as text."""
    return {
        "name": given.name,
        "type": given.type if given.type in _WIRE_TYPES else "string",
        "description": given.description,
        "default": given.default,
        "required": given.required,
        "min": given.min,
        "max": given.max,
        "choices": list(given.choices),
        "order": given.order,
    }
