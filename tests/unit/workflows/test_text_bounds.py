"""Text nodes: lengths are computed first, and the work of a run is bounded."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows import estimate, slices
from sixfold.core.workflows.execution.execute import GraphRunLimits, NodeError, execute
from sixfold.core.workflows.execution.node_sessions import SMALL_TEXT
from sixfold.core.workflows.limits import GraphTooLarge
from sixfold.core.workflows.validate import ValidationResult, validate
from sixfold.engines.workflow_nodes import registry
from sixfold.engines.workflow_nodes import text as text_nodes
from tests.unit.workflows.tiny_graphs import ExecutionFixture, node

# Nodes for texts do not use their context.
HERE: Any = None
LONG = "a" * 2**19


def validate_graph(graph: dict[str, Any]) -> ValidationResult:
    verdict = validate(graph, registry.registry())
    assert verdict.valid, verdict.errors
    return verdict


@pytest.mark.parametrize(
    "build",
    [
        lambda: text_nodes.replace(HERE, "a" * 100_000, "a", "b" * 100_000),
        lambda: text_nodes.replace(HERE, "a" * 100_000, "", "b" * 100_000),
        lambda: text_nodes.concatenate(HERE, LONG, LONG, "b"),
    ],
)
def test_too_long_text_is_refused_before_it_is_built(build: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnusableInput, match="at most 1,048,576 characters \\(got"):
            build()
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_text_of_the_maximum_length_is_built() -> None:
    assert text_nodes.replace(HERE, "a" * 1024, "a", "b" * 1024) == ("b" * 2**20,)
    assert text_nodes.replace(HERE, "abab", "ab", "") == ("",)
    assert text_nodes.concatenate(HERE, LONG, LONG, "") == ("a" * 2**20,)


def doubling(count: int, text: str = LONG) -> dict[str, Any]:
    """Return a graph that shows `count` forms of a text."""
    graph = {"0": node("PrimitiveString", value=text)}
    for at in range(1, count):
        graph[str(at)] = node("CaseConverter", string=[str(at - 1), 0], mode="UPPERCASE")
    return {**graph, "out": node("PreviewAny", source=[str(count - 1), 0])}


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("a" * (SMALL_TEXT - 100), 20 * SMALL_TEXT, 2**20), ("a" * (SMALL_TEXT + 1), 0, 0), (LONG, 0, 0)],
)
def test_estimate_processes_a_limited_amount_of_text(
    monkeypatch: pytest.MonkeyPatch, text: str, least: int, most: int
) -> None:
    verdict = validate_graph(doubling(100, text))
    handled = 0
    call = estimate.node_call.call

    def counted(node_: Any, context: Any, inputs: Any) -> Any:
        nonlocal handled
        handled += sum(len(each) for each in inputs.values() if isinstance(each, str))
        return call(node_, context, inputs)

    monkeypatch.setattr(estimate.node_call, "call", counted)
    assert slices.complete(estimate.child_request_steps(verdict)) == ()
    assert least <= handled <= most


async def test_event_loop_runs_between_long_texts(tmp_path: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await execute(validate_graph(doubling(30)), ExecutionFixture(tmp_path).location, lambda _event: None)
    ticking.cancel()
    assert ticks > 30


async def test_nodes_show_a_limited_amount_of_text(tmp_path: Path) -> None:
    fixture = ExecutionFixture(tmp_path)
    graph: dict[str, Any] = {"0": node("PrimitiveString", value=LONG)}
    graph |= {f"out{at}": node("PreviewAny", source=["0", 0]) for at in range(4)}
    result = await execute(validate_graph(graph), fixture.location, lambda _event: None)
    assert result.outputs["out3"] == {"text": (LONG,)}
    graph["more"] = node("PreviewAny", source=["0", 0])
    # The outputs of the first run are cached.
    with pytest.raises(GraphTooLarge, match="show at most 2,097,152 characters of text"):
        await execute(validate_graph(graph), fixture.location, lambda _event: None)


async def test_run_processes_a_limited_amount_of_text(tmp_path: Path) -> None:
    with pytest.raises(GraphTooLarge, match="more than 4,000,000 characters of text"):
        await execute(
            validate_graph(doubling(30)),
            ExecutionFixture(tmp_path).location,
            lambda _event: None,
            GraphRunLimits(text=4_000_000),
        )


async def test_texts_that_wait_for_another_node_count_as_memory(tmp_path: Path) -> None:
    graph = {"0": node("PrimitiveString", value=LONG)}
    for at in range(1, 9):
        graph[str(at)] = node("StringTrim", string=["0", 0], mode="Both")
        graph[f"both{at}"] = node(
            "StringConcatenate", string_a=[str(at), 0], string_b=[f"both{at + 1}" if at < 8 else "0", 0]
        )
    graph["out"] = node("PreviewAny", source=["both1", 0])
    for each in graph.values():
        if each["class_type"] == "StringConcatenate":
            each["inputs"]["delimiter"] = ""
    with pytest.raises((GraphTooLarge, NodeError)) as excinfo:
        await execute(
            validate_graph(graph),
            ExecutionFixture(tmp_path).location,
            lambda _event: None,
            GraphRunLimits(memory_bytes=2**20),
        )
    assert "at a time" in str(excinfo.value)
