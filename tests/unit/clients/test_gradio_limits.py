"""Space descriptions that repeat a component are parsed in bounded time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from sixfold import errors
from sixfold.clients.gradio import schema as gradio_schema
from tests import loop_time

CHOICES = [[f"label {number}", f"value {number}"] for number in range(1_000)]
COMPONENTS: list[dict[str, Any]] = [
    {"id": 0, "type": "dropdown", "props": {"choices": CHOICES}},
    {"id": 1, "type": "textbox"},
    {"id": 2, "type": "image"},
    {"id": [3], "type": "image"},
    {"id": 4, "type": "dropdown", "props": {"choices": ["x" * 1_000_000, "y"]}},
]


def described(*functions: tuple[list[Any], list[Any]], parameters: int = 100) -> gradio_schema.SpaceFunction:
    """The best of some functions, each of its inputs and outputs, which share one description."""
    config = {
        "protocol": "sse_v3",
        "components": COMPONENTS,
        "dependencies": [
            {"api_name": "run", "inputs": inputs, "outputs": outputs} for inputs, outputs in functions
        ],
    }
    endpoint = {"parameters": [{"label": "x"}] * parameters, "returns": []}
    return gradio_schema.best_function(config, {"named_endpoints": {"/run": endpoint}})


@pytest.mark.parametrize(
    "functions",
    [
        [([0] * 100, [2])] * 20_000,
        [([1] * 100, [2])] * 20_000,
        [([1], [2] * 1_000_000)],
        [([], [2] * 100)] * 20_000,
    ],
    ids=["choices", "inputs", "outputs of one", "outputs"],
)
def test_a_description_with_too_many_arguments_is_refused(functions: list[Any]) -> None:
    def refused() -> None:
        with pytest.raises(errors.BadRequest, match="more than 50000 inputs and outputs together"):
            described(*functions)

    tracemalloc.start()
    try:
        refused()
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loop_time.cpu_seconds(refused, 1) < 1
    assert grown < 64 * 2**20


def test_many_outputs_within_the_limit_are_named_in_little_time() -> None:
    assert loop_time.cpu_seconds(lambda: described(([1], [2] * 40_000)), 1) < 1
    assert len(set(described(([1], [2] * 40_000)).returns)) == 40_000


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["a", "a_3", "a"], ("a", "a_3", "a_4")),
        (["a", "a_4", "a", "a"], ("a", "a_4", "a_3", "a_5")),
        (["a", "a", "A"], ("a", "a_2", "a_3")),
    ],
)
def test_outputs_whose_labels_collide_have_names_of_their_own(
    labels: list[str], names: tuple[str, ...]
) -> None:
    config = {
        "protocol": "sse_v3",
        "components": COMPONENTS,
        "dependencies": [{"api_name": "run", "inputs": [1], "outputs": [2] * len(labels)}],
    }
    endpoint = {"parameters": [{"label": "x"}], "returns": [{"label": label} for label in labels]}
    assert gradio_schema.best_function(config, {"named_endpoints": {"/run": endpoint}}).returns == names


def test_many_colliding_output_labels_are_named_fast() -> None:
    half = 20_000
    labels = ["a", *(f"a_{number}" for number in range(half, 2 * half)), *["a"] * (half - 1)]
    config = {
        "protocol": "sse_v3",
        "components": COMPONENTS,
        "dependencies": [{"api_name": "run", "inputs": [1], "outputs": [2] * len(labels)}],
    }
    endpoint = {"parameters": [{"label": "x"}], "returns": [{"label": label} for label in labels]}
    endpoints = {"named_endpoints": {"/run": endpoint}}
    assert loop_time.cpu_seconds(lambda: gradio_schema.best_function(config, endpoints), 3) < 3
    assert len(set(gradio_schema.best_function(config, endpoints).returns)) == len(labels)


def test_a_function_with_too_many_choices_is_left_out() -> None:
    assert len(described(([0] * 100, [2]), ([1], [2])).inputs) == 1
    with pytest.raises(errors.BadRequest, match="no public function"):
        described(([0] * 21, [2]))


def test_an_input_whose_choices_are_long_takes_any_text() -> None:
    result = described(([4], [2]))
    assert [(each["type"], each.get("choices")) for each in result.inputs.values()] == [("string", None)]


def test_numbers_that_are_no_numbers_name_no_component() -> None:
    result = described(([1, [3], {}], [2, [3]]))
    assert (len(result.inputs), result.output_kind) == (3, "image")
