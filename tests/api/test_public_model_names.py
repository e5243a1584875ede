"""Public names of models at fal and Replicate: each runs its model and is in the reference."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sixfold.api.hosting.public_names import PublicModel, PublicNames, render
from sixfold.app import catalog
from sixfold.errors import InvalidInput
from tests.architecture import source

ROWS = {(service, row.name): row for service in ("fal", "replicate") for row in PublicNames(service)}
INPUTS = {name: model.get("inputs", {}) for name, model in catalog.models_document()["models"].items()}


@pytest.mark.parametrize(("service", "name"), ROWS)
def test_a_row_names_a_model_and_its_inputs(service: str, name: str) -> None:
    row = ROWS[service, name]
    known = INPUTS[row.model]
    assert set(row.inputs.values()) <= known.keys()
    required = {each for each, value in known.items() if value.get("required")}
    assert required <= set(row.inputs.values())
    assert not row.size or {"width", "height"} <= known.keys()
    assert all(re.fullmatch("[0-9a-f]{64}", version) for version in row.versions)
    page = source.text(f"docs/reference/http/{'fal' if service == 'fal' else 'hosting'}.md")
    (line,) = [each for each in page.splitlines() if each.startswith(f"| `{name}` |")]
    words = {row.model, *row.inputs, row.size, *row.refused, *row.single} - {""}
    assert words <= set(re.findall(r"`([^`]+)`", line))


FLUX = PublicModel(
    "black-forest-labs/flux-schnell",
    "ra2",
    {"prompt": "prompt", "text": "prompt"},
    ["@file"],
    size="aspect_ratio",
    values={"prompt": {"none": ""}},
    refused=["image"],
    single=["num_outputs"],
)
SIZES = [("1:1", (1024, 1024)), ("16:9", (1360, 768)), ("4:1", (2048, 512)), ("1:4", (512, 2048))]


@pytest.mark.parametrize(("ratio", "size"), SIZES)
def test_a_ratio_becomes_a_size_of_a_megapixel(ratio: str, size: tuple[int, int]) -> None:
    inputs = FLUX.translate({"prompt": "x", "aspect_ratio": ratio, "unknown": 1})
    assert inputs == {"prompt": "x", "width": size[0], "height": size[1]}


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({"aspect_ratio": "5:1"}, "aspect_ratio"),
        ({"aspect_ratio": "0:1"}, "aspect_ratio"),
        ({"aspect_ratio": 1}, "aspect_ratio"),
        ({"image": "https://example.com/a.png"}, "image"),
        ({"num_outputs": 2}, "num_outputs"),
        ({"num_outputs": "many"}, "num_outputs"),
    ],
)
def test_unsupported_input_is_rejected_by_its_name(inputs: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput) as excinfo:
        FLUX.translate(inputs)
    (problem,) = excinfo.value.problems
    assert (problem.input, problem.message.startswith(name)) == (name, True)


def test_spellings_are_translated_and_empty_inputs_left_out() -> None:
    assert FLUX.translate({"prompt": "none", "image": None, "num_outputs": 1}) == {"prompt": ""}


def test_error_uses_the_input_names_of_the_client() -> None:
    error = FLUX.client_error(InvalidInput.of("width", "width must be at most 2048"))
    assert error.message == "aspect_ratio must be at most 2048"


def test_markers_of_an_output_are_replaced() -> None:
    text = {"text": "hi", "segments": [{"start": 0.0, "end": 1.0, "text": "hi"}]}
    template = {"a": "@text", "b": "@chunks", "c": ["@input.seed"], "d": "as it is", "e": "@nothing"}
    assert render(template, text, {"seed": 7}) == {
        "a": "hi",
        "b": [{"timestamp": [0.0, 1.0], "text": "hi"}],
        "c": [7],
        "d": "as it is",
        "e": None,
    }
    assert render(["@value"], "hello", {}) == ["hello"]
    assert render("@text", "no members", {}) is None
