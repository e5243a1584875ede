"""Validation of a graph: ComfyUI's errors, all at once."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from sixfold.core.workflows import object_info
from sixfold.core.workflows.validate import ValidationResult, validate
from sixfold.engines.workflow_nodes import registry
from tests.unit.workflows import corpus
from tests.unit.workflows.effort import lines_run
from tests.unit.workflows.tiny_graphs import CLASSES, node


def check(graph: Any, **facts: Any) -> ValidationResult:
    return validate(graph, CLASSES, **facts)


def messages(graph: dict[str, Any]) -> dict[str, Any]:
    return {**graph, "out": node("Show", value=["1", 0])}


def errors(graph: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["node_id"], each["type"]) for each in check(graph).errors]


def test_nodes_are_ordered_by_their_dependencies() -> None:
    verdict = check(
        {
            "3": node("Show", value=["2", 0]),
            "2": node("Add", a=["1", 0], b="7"),
            "1": node("Number", value=4.9),
        }
    )
    assert verdict.valid
    assert list(verdict.nodes) == ["1", "2", "3"]
    assert verdict.nodes["1"].values == {"value": 4}
    assert verdict.nodes["2"].values == {"b": 7}
    assert verdict.nodes["2"].links == {"a": ("1", 0)}


def test_all_nodes_reports_errors_behind_the_first_ones() -> None:
    graph = {
        "1": node("Number", value=-1),
        "2": node("Unknown", a=["1", 0]),
        "3": node("Show", value=["2", 0]),
        "4": node("Number", value=101),
        "5": node("Add", a=["4", 0], b=["9", 0]),
    }
    few, every = check(graph).errors, check(graph, all_nodes=True).errors
    assert [(each.get("node_id"), each["type"]) for each in few] == [(None, "invalid_prompt")]
    assert [(each.get("node_id"), each["type"]) for each in every] == [
        (None, "invalid_prompt"),
        ("1", "value_smaller_than_min"),
        ("4", "value_bigger_than_max"),
        ("5", "bad_linked_input"),
    ]


def test_all_nodes_leaves_a_graph_valid_beside_unused_nodes() -> None:
    graph = messages({"1": node("Number", value=1), "2": node("Number", value=-1)})
    assert check(graph, all_nodes=True).valid


def test_all_nodes_reports_errors_of_a_graph_without_outputs() -> None:
    results = check({"1": node("Number", value=-1)}, all_nodes=True).errors
    assert [each["type"] for each in results] == ["prompt_no_outputs", "value_smaller_than_min"]


@pytest.mark.parametrize(
    ("graph", "kind", "message"),
    [
        (node("Number", value="x"), "invalid_input_type", "Failed to convert an input value to a INT value"),
        (node("Number", value=-1), "value_smaller_than_min", "Value -1 smaller than min of 0"),
        (node("Number", value=101), "value_bigger_than_max", "Value 101 bigger than max of 100"),
        (node("Number"), "required_input_missing", "Required input is missing"),
        (node("Mode", mode="quik", size=1), "value_not_in_list", "Value not in list"),
        (
            node("Add", a=["9", 0]),
            "bad_linked_input",
            "Bad linked input, must be a length-2 list of [node_id, slot_index]",
        ),
        (
            node("Add", a=[1, 2, 3]),
            "bad_linked_input",
            "Bad linked input, must be a length-2 list of [node_id, slot_index]",
        ),
        (node("Add", a=["t", 0]), "return_type_mismatch", "Return type mismatch between linked nodes"),
        (
            node("Add", a=["t", 4]),
            "bad_linked_input",
            "Bad linked input, must be a length-2 list of [node_id, slot_index]",
        ),
    ],
)
def test_each_error_has_the_type_and_message_of_comfyui(
    graph: dict[str, Any], kind: str, message: str
) -> None:
    verdict = check(messages({"1": graph, "t": node("Text", value="x")}))
    response = verdict.node_errors["1"]
    assert [(each["type"], each["message"]) for each in response["errors"]] == [(kind, message)]
    assert response["dependent_outputs"] == ["out"]
    assert response["class_type"] == graph["class_type"]
    assert verdict.error is not None
    assert verdict.error["type"] == "prompt_outputs_failed_validation"
    assert verdict.error["details"].startswith(f"{message}: ")


def test_misspelled_choice_is_reported_with_the_nearest() -> None:
    result = check(messages({"1": node("Mode", mode="thoro", size=1)})).node_errors["1"]["errors"][0]
    assert result["details"] == "mode: 'thoro' not in ['quick', 'thorough', 'careful']"
    assert result["extra_info"]["nearest"] == "thorough"
    assert result["extra_info"]["input_config"] == [["quick", "thorough", "careful"], {}]


def test_all_errors_are_reported_together() -> None:
    graph = messages({"1": node("Add", a=["2", 0], b="x"), "2": node("Mode", mode="no", size=9)})
    assert errors(graph) == [
        ("1", "return_type_mismatch"),
        ("1", "invalid_input_type"),
        ("2", "value_not_in_list"),
        ("2", "value_bigger_than_max"),
    ]


def test_only_nodes_that_outputs_need_are_validated() -> None:
    verdict = check({**messages({"1": node("Number", value=1)}), "lost": node("Number", value=-5)})
    assert verdict.valid
    assert set(verdict.nodes) == {"1", "out"}


def test_inputs_without_a_schema_are_ignored() -> None:
    verdict = check(messages({"1": node("Number", value=1, upload="image", other=["nobody", 3])}))
    assert verdict.valid
    assert verdict.nodes["1"].values == {"value": 1}
    assert verdict.nodes["1"].links == {}


def test_valid_output_runs_beside_an_invalid_one() -> None:
    verdict = check({**messages({"1": node("Number", value=1)}), "bad": node("Show")})
    assert (verdict.error, verdict.outputs, set(verdict.nodes)) == (None, ("out",), {"1", "out"})
    assert not verdict.valid
    assert set(verdict.node_errors) == {"bad"}


def test_a_list_that_is_a_value_is_unwrapped() -> None:
    verdict = check({"1": node("Show", value={"__value__": [1, 2]})})
    assert verdict.nodes["1"].values == {"value": [1, 2]}


def test_union_types_fit_with_a_common_type() -> None:
    assert check(messages({"1": node("Either", value=["2", 0]), "2": node("Number", value=1)})).valid
    assert errors(messages({"1": node("Either", value=["2", 0]), "2": node("Text", value="")})) == [
        ("1", "return_type_mismatch")
    ]


def test_cycle_is_reported_with_its_path() -> None:
    graph = messages(
        {"1": node("Add", a=["2", 0]), "2": node("Add", a=["3", 0]), "3": node("Add", a=["1", 0])}
    )
    [result] = check(graph).errors
    assert result["type"] == "dependency_cycle"
    assert result["extra_info"]["cycle"] == ["1", "2", "3", "1"]


def test_all_unknown_classes_are_reported_together() -> None:
    graph = messages({"1": node("Numbr", value=1), "2": node("Numbr"), "3": node("Nobody")})
    verdict = check(graph)
    assert verdict.missing_classes == {"Numbr": ("1", "2"), "Nobody": ("3",)}
    assert verdict.error is not None
    assert verdict.error["message"] == "Cannot execute because node Numbr does not exist."
    assert [each["nearest"] for each in verdict.error["extra_info"]["missing"]] == ["Number", ""]


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        ({}, "prompt_no_outputs"),
        ([], "no_prompt"),
        ({"1": {"inputs": {}}}, "invalid_prompt"),
        ({"1": []}, "invalid_prompt"),
        ({"1": node("Number", value=1)}, "prompt_no_outputs"),
    ],
)
def test_invalid_graph_is_one_error(graph: Any, kind: str) -> None:
    verdict = check(graph)
    assert verdict.error is not None
    assert verdict.error["type"] == kind
    assert not verdict.valid


def test_missing_model_is_reported_and_refused_on_demand() -> None:
    graph = messages({"1": node("Loader", name="here.ckpt")})
    missing = ({"file": "here.ckpt", "folder": "checkpoints", "node_id": "1", "input": "name"},)
    assert check(graph).valid
    assert check(graph).missing_models == missing
    assert check(graph, installed={"checkpoints": ["here.ckpt"]}).missing_models == ()
    strict = check(graph, strict_models=True)
    assert strict.node_errors["1"]["errors"][0]["type"] == "value_not_in_list"


def test_only_requested_outputs_run() -> None:
    graph = {**messages({"1": node("Number", value=1)}), "2": node("Show", value=2)}
    assert check(graph, targets={"2"}).outputs == ("2",)


def test_chain_of_twenty_thousand_nodes_is_validated() -> None:
    graph = {"0": node("Number", value=1)}
    graph.update({str(at): node("Add", a=[str(at - 1), 0]) for at in range(1, 20_000)})
    assert len(check({**graph, "out": node("Show", value=["19999", 0])}).nodes) == 20_001


@corpus.here
def test_schemas_of_a_server_are_read_and_written_alike() -> None:
    for spec in corpus.schemas():
        second_spec = object_info.read({spec.class_type: object_info.entry(spec)})[spec.class_type]
        assert second_spec.inputs == spec.inputs
        assert [output.type for output in second_spec.outputs] == [output.type for output in spec.outputs]


@corpus.here
def test_real_graphs_are_valid_except_for_missing_files() -> None:
    checked = 0
    for path in corpus.GRAPHS:
        graph = corpus.load(path)
        if any(
            node.get("class_type") not in corpus.schemas()
            for node in graph.values()
            if isinstance(node, dict)
        ):
            continue
        verdict = validate(graph, corpus.schemas())
        kinds = {each["type"] for each in verdict.errors} - {"value_not_in_list", "required_input_missing"}
        assert not kinds, (path.name, verdict.errors)
        checked += 1
    assert checked >= 50


def fan(count: int, broken: str = "") -> dict[str, Any]:
    """Return a chain of additions on which each output depends; `broken` is the value of one input."""
    graph = {"0": node("Number", value=1)}
    graph |= {str(at): node("Add", a=[str(at - 1), 0], b=broken or 1) for at in range(1, count)}
    return {**graph, **{f"out{at}": node("Show", value=[str(count - 1), 0]) for at in range(count)}}


@pytest.mark.parametrize("broken", ["", "nothing"])
def test_work_is_linear_in_nodes_for_many_outputs(broken: str) -> None:
    graph, four = (lines_run(functools.partial(validate, fan(size, broken), CLASSES)) for size in (100, 400))
    assert four < 5 * graph


def test_a_broken_node_names_the_first_outputs_that_need_it() -> None:
    verdict = validate(fan(30, "nothing"), CLASSES)
    assert verdict.error is not None
    assert verdict.node_errors["1"]["dependent_outputs"] == [f"out{at}" for at in range(16)]
    assert set(verdict.node_errors) == {str(at) for at in range(1, 30)}


def test_number_of_described_errors_is_limited() -> None:
    graph = {str(at): node("Mode", mode=f"mode {at}", size=9) for at in range(800)}
    graph |= {f"out{at}": node("Show", value=[str(at), 0]) for at in range(800)}
    kinds = [each["type"] for each in validate(graph, CLASSES).errors]
    assert kinds.count("more_errors") == 300
    assert len(kinds) - kinds.count("more_errors") == 1000
    assert kinds[-1] == "more_errors"


@pytest.mark.parametrize("number", ["nan", "inf", "-Infinity"])
def test_every_class_refuses_non_finite_numbers(number: str) -> None:
    inputs = [
        (spec.class_type, each.name)
        for spec in registry.registry()
        for each in spec.inputs
        if each.type == "FLOAT" and spec.outputs
    ]
    for kind, name in inputs:
        graph = {"1": node(kind, **{name: number}), "2": node("PreviewAny", source=["1", 0])}
        response = validate(graph, registry.registry()).node_errors["1"]["errors"]
        kinds = {each["extra_info"].get("input_name"): each["type"] for each in response}
        assert kinds[name] == "value_not_finite", (kind, name)
    assert len(inputs) > 50
