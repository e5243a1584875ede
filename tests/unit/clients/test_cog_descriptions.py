"""Descriptions of hostile Cog containers are read in bounded time, on the event loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sixfold.clients import cog
from sixfold.clients.cog import CogUnreachable
from tests import loop_time
from tests.fakes import cog as fake_cog

MANY = 2_000_000
PART = {f"member {number}": number for number in range(100_000)}
CHOICES = {"enum": [f"choice {number}" for number in range(100_000)]}
REFERENCE = [{"$ref": "#/components/schemas/part"}]


def document(properties: dict[str, Any], **parts: Any) -> dict[str, Any]:
    required = parts.pop("required", [])
    return {"components": {"schemas": {"Input": {"properties": properties, "required": required}, **parts}}}


def inputs_of(description: dict[str, Any]) -> Any:
    """Return the inputs, or the reason why they cannot be read."""
    try:
        return cog.inputs(description)
    except CogUnreachable as error:
        return str(error)


def longest(work: Callable[[], object]) -> float:
    return loop_time.cpu_seconds(work, 0.1)


@pytest.mark.parametrize(
    "description",
    [
        document({"a": {"allOf": REFERENCE * 300_000}}, part=PART),
        document({f"a{number}": {"anyOf": REFERENCE * 16} for number in range(500)}, part=PART),
        document({f"a{number}": {} for number in range(500)}, required=[f"b{at}" for at in range(500_000)]),
        document({f"a{number}": {} for number in range(100_000)}, required=["x"] * 100_000),
        document({f"a{number}": {"allOf": REFERENCE} for number in range(500)}, part=CHOICES),
        document({f"a{number}": {"allOf": REFERENCE} for number in range(500)}, part={"default": [1] * MANY}),
        document(
            {f"a{number}": {"allOf": REFERENCE, "format": "uri"} for number in range(500)},
            part={"description": "x" * MANY},
        ),
        document({f"a{number}": {"allOf": REFERENCE} for number in range(500)}, part={"type": [1] * MANY}),
    ],
    ids=["alternatives", "references", "required", "inputs", "choices", "defaults", "descriptions", "types"],
)
def test_a_large_description_is_read_fast(description: dict[str, Any]) -> None:
    assert longest(lambda: inputs_of(description)) < 0.1
    assert len(json.dumps(inputs_of(description))) < 2**20


def test_long_titles_are_searched_for_a_kind_fast() -> None:
    schemas = {"Output": {"format": "uri", "description": "x" * MANY}}
    description = {"components": {"schemas": schemas}, "info": {"title": "y" * MANY}}
    assert longest(lambda: cog.output_kind(description)) < 0.05
    assert cog.output_kind(description) == "file"


def test_malformed_members_of_inputs_are_ignored() -> None:
    row = {"type": {}, "description": [], "default": {}, "minimum": "x", "enum": [{}], "x-order": "y"}
    assert cog.inputs(document({"a": {**row, "allOf": 5}}, required=7)) == {
        "a": {"type": "string", "description": ""}
    }


def test_an_ordinary_description_keeps_its_choices_and_defaults() -> None:
    rows = fake_cog.INPUT["properties"]
    properties = {name: rows[name] for name in ("strength", "look")}
    assert cog.inputs(document(properties, look=fake_cog.LOOK)) == {
        "strength": {"type": "number", "description": "", "default": 0.5, "min": 0, "max": 1},
        "look": {"type": "string", "description": "", "default": "plain", "choices": ["plain", "bold"]},
    }
