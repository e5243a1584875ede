"""The run of a graph: order, cache, children, failure, cancellation, limits."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.workflows import estimate, slices
from sixfold.core.workflows.execution import cache_keys
from sixfold.core.workflows.execution.execute import (
    GraphResult,
    GraphRunLimits,
    NodeError,
    execute,
    unrunnable,
)
from sixfold.core.workflows.limits import GraphTooLarge
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.ports import ChildRequest, NodeEvent
from sixfold.core.workflows.validate import validate
from sixfold.errors import EngineFailed, EngineUnavailable, NotFound
from tests.unit.workflows.tiny_graphs import CLASSES, ExecutionFixture, node, spec

SUM = {
    "1": node("Number", value=2),
    "2": node("Number", value=3),
    "3": node("Add", a=["1", 0], b=["2", 0]),
    "4": node("Slow", a=["3", 0]),
    "5": node("Show", value=["4", 0]),
}


@pytest.fixture
def fixture(tmp_path: Path) -> ExecutionFixture:
    return ExecutionFixture(tmp_path)


async def run(
    fixture: ExecutionFixture,
    graph: Any,
    events: list[NodeEvent] | None = None,
    limits: GraphRunLimits | None = None,
) -> GraphResult:
    verdict = validate(graph, CLASSES)
    assert verdict.valid, verdict.errors
    return await execute(verdict, fixture.location, ([] if events is None else events).append, limits)


def with_name(events: list[NodeEvent]) -> list[tuple[str, Any]]:
    return [(event.type, event.data.get("node")) for event in events if event.type != "finished"]


async def test_run_shows_its_outputs_and_events_like_comfyui(fixture: ExecutionFixture) -> None:
    events: list[NodeEvent] = []
    result = await run(fixture, SUM, events)
    assert result.outputs == {"5": {"text": ("50",)}}
    assert set(result.executed) == set("12345")
    assert with_name(events) == [
        ("execution_start", None),
        ("execution_cached", None),
        ("executing", "1"),
        ("executing", "2"),
        ("executing", "3"),
        ("executing", "4"),
        ("executing", "5"),
        ("executed", "5"),
        ("execution_success", None),
        ("executing", None),
    ]
    [output] = [event.data["output"] for event in events if event.type == "executed"]
    assert output == {"text": ("50",)}
    assert [event.data["node"] for event in events if event.type == "finished"] == list("12345")


async def test_repeated_run_returns_cached_outputs(fixture: ExecutionFixture) -> None:
    await run(fixture, SUM)
    events: list[NodeEvent] = []
    second_result = await run(fixture, SUM, events)
    assert (second_result.executed, set(second_result.cached)) == ((), set("12345"))
    assert second_result.outputs == {"5": {"text": ("50",)}}
    assert [event.type for event in events] == [
        "execution_start",
        "execution_cached",
        "executed",
        "execution_success",
        "executing",
    ]


async def test_changed_last_nodes_reuse_cached_first_nodes(fixture: ExecutionFixture) -> None:
    await run(fixture, SUM)
    result = await run(fixture, {**SUM, "6": node("Add", a=["4", 0]), "5": node("Show", value=["6", 0])})
    assert result.executed == ("6", "5")
    assert result.outputs["5"] == {"text": ("51",)}


async def test_cache_is_independent_of_node_ids(fixture: ExecutionFixture) -> None:
    await run(fixture, SUM)
    names = {"1": "a", "2": "b", "3": "c", "4": "d", "5": "e"}
    renamed = {
        names[node_id]: node(
            each["class_type"],
            **{
                name: [names[value[0]], value[1]] if isinstance(value, list) else value
                for name, value in each["inputs"].items()
            },
        )
        for node_id, each in SUM.items()
    }
    assert (await run(fixture, renamed)).executed == ()


async def test_node_without_repeatable_output_runs_again(fixture: ExecutionFixture) -> None:
    graph = {"1": node("Random"), "2": node("Show", value=["1", 0])}
    await run(fixture, graph)
    assert (await run(fixture, graph)).executed == ("1", "2")


async def test_cache_depends_on_the_content_of_files(fixture: ExecutionFixture) -> None:
    graph = {"1": node("Load", file="a.txt"), "2": node("Show", value=["1", 0])}
    (fixture.folder / "a.txt").write_text("one")
    assert (await run(fixture, graph)).outputs["2"] == {"text": ("one",)}
    (fixture.folder / "b.txt").write_text("one")
    assert (await run(fixture, {**graph, "1": node("Load", file="b.txt")})).executed == ()
    (fixture.folder / "b.txt").write_text("two")
    assert (await run(fixture, {**graph, "1": node("Load", file="b.txt")})).outputs["2"] == {"text": ("two",)}
    with pytest.raises(NotFound):
        await run(fixture, {**graph, "1": node("Load", file="c.txt")})


async def test_children_run_at_the_same_time_and_once(fixture: ExecutionFixture) -> None:
    fixture.gate = asyncio.Event()
    graph = {
        **{f"w{at}": node("Ask", words=f"word {at}") for at in range(5)},
        **{f"s{at}": node("Save", text=[f"w{at}", 0]) for at in range(5)},
    }
    fixture.expected = 5
    running = asyncio.create_task(run(fixture, graph))
    await fixture.arrived.wait()
    fixture.gate.set()
    end = await running
    assert sorted(data for _, data in fixture.files) == [f"WORD {at}".encode() for at in range(5)]
    assert end.outputs["s3"] == {"files": [{"filename": "s3.txt"}]}
    await run(fixture, graph)
    assert len(fixture.requests) == 5


async def test_failed_node_is_named_and_stops_the_run(fixture: ExecutionFixture) -> None:
    fixture.gate = asyncio.Event()
    graph = {
        "1": node("Number", value=1),
        "2": node("Fail", a=["1", 0]),
        "3": node("Show", value=["2", 0]),
        "4": node("Ask", words="x"),
        "5": node("Show", value=["4", 0]),
    }
    events: list[NodeEvent] = []
    with pytest.raises(NodeError, match=r"^Fail \(node 2\) failed$") as excinfo:
        await run(fixture, graph, events)
    assert (excinfo.value.node_id, excinfo.value.class_type) == ("2", "Fail")
    response = events[-1]
    assert response.type == "execution_error"
    assert response.data["node_id"] == "2"
    assert response.data["exception_type"] == "ZeroDivisionError"
    assert "1 // 0" not in str(response.data)


async def test_error_message_of_a_child_is_shown(fixture: ExecutionFixture) -> None:
    def refuse(_words: str) -> str:
        raise EngineUnavailable("Set FAL_KEY.")

    fixture.writer = refuse
    graph = {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}
    with pytest.raises(NodeError, match=r"Ask \(node 1\): Set FAL_KEY\.") as excinfo:
        await run(fixture, graph)
    assert isinstance(excinfo.value.reason, EngineUnavailable)


async def test_interruption_cancels_children_and_is_reported(fixture: ExecutionFixture) -> None:
    fixture.gate = asyncio.Event()
    events: list[NodeEvent] = []
    running = asyncio.create_task(
        run(fixture, {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}, events)
    )
    await fixture.arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert events[-1].type == "execution_interrupted"
    assert fixture.outputs == {}


async def test_lists_run_the_next_nodes_for_each_of_their_values(fixture: ExecutionFixture) -> None:
    graph = {
        "1": node("Number", value=3),
        "2": node("List", upto=["1", 0]),
        "3": node("Add", a=["2", 0], b=10),
        "4": node("Show", value=["3", 0]),
    }
    assert (await run(fixture, graph)).outputs["4"] == {"text": ["10", "11", "12"]}


async def test_a_run_has_limits(fixture: ExecutionFixture) -> None:
    fixture.writer = lambda words: words * (2**20 + 1)
    graph = {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}
    with pytest.raises(GraphTooLarge, match="1 MiB at a time"):
        await run(fixture, graph, None, GraphRunLimits(memory_bytes=2**20))
    fixture.gate = asyncio.Event()
    with pytest.raises(EngineFailed, match=r"longer than 0\.05 seconds"):
        await run(
            fixture,
            {"1": node("Ask", words="z"), "2": node("Show", value=["1", 0])},
            None,
            GraphRunLimits(seconds=0.05),
        )


async def test_a_chain_of_twenty_thousand_runs(fixture: ExecutionFixture) -> None:
    graph = {"0": node("Number", value=1)}
    graph.update({str(at): node("Add", a=[str(at - 1), 0]) for at in range(1, 20_000)})
    graph["out"] = node("Show", value=["19999", 0])
    assert (await run(fixture, graph)).outputs["out"] == {"text": ("20000",)}


async def test_class_without_a_function_is_reported_and_refused(fixture: ExecutionFixture) -> None:
    graph = {"1": node("Remote", a=1), "2": node("Show", value=["1", 0])}
    assert unrunnable(validate(graph, CLASSES)) == ("Remote",)
    with pytest.raises(NodeError, match="connect a ComfyUI server that can run it"):
        await run(fixture, graph)


def test_child_predictions_are_estimated_before_the_run() -> None:
    graph = {
        "1": node("Text", value="hello"),
        "2": node("Ask", words=["1", 0]),
        "3": node("Ask", words=["2", 0]),
        "4": node("Show", value=["3", 0]),
    }
    first, second = slices.complete(estimate.child_request_steps(validate(graph, CLASSES)))
    assert first == ("2", ChildRequest("writer", {"words": "hello"}))
    assert second[0] == "3"
    assert second[1].inputs["words"] is estimate.UNKNOWN


def test_cache_key_changes_only_with_relevant_inputs() -> None:
    def key(graph: Any) -> str:
        return slices.complete(cache_keys.key_steps(validate(graph, CLASSES).nodes))["4"]

    changed_graph = copy.deepcopy(SUM)
    changed_graph["1"]["inputs"]["value"] = 4
    swapped = copy.deepcopy(SUM)
    swapped["3"]["inputs"] = {"b": ["2", 0], "a": ["1", 0]}
    turned = copy.deepcopy(SUM)
    turned["3"]["inputs"] = {"a": ["2", 0], "b": ["1", 0]}
    assert key(SUM) == key(swapped)
    assert len({key(SUM), key(changed_graph), key(turned)}) == 3


async def test_node_in_a_thread_gets_outputs_of_one_on_the_loop(tmp_path: Path) -> None:
    pair = spec("Pair", "-> INT,INT", run=lambda _: (3, 4))
    fixture = ExecutionFixture(tmp_path)
    graph = {"1": node("Pair"), "2": node("Slow", a=["1", 1]), "3": node("Show", value=["2", 0])}
    verdict = validate(graph, Registry([*CLASSES, pair]))
    assert (await execute(verdict, fixture.location, lambda _event: None)).outputs["3"] == {"text": ("40",)}
