"""A ComfyUI server that sends too much: outputs, nodes, names, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from sixfold.clients.comfyui import events as comfyui_events
from sixfold.clients.comfyui.errors import ComfyError, node_failed, rejection
from sixfold.clients.comfyui.events import ComfyRun, Event, NodeProgress, NodesCached
from sixfold.clients.comfyui.server import MAX_CHOICES, ComfyFile, ComfyServer
from sixfold.core.workflows import object_info
from sixfold.disk_space import WritableFile
from sixfold.engines.providers.comfyui import files, workflows

# Text of a large value, which takes a long time to write as text.
NESTED: Any = [[]] * 300_000


def run_of(events: list[Event]) -> ComfyRun:
    return ComfyRun(events.append, frozenset({"9"}))


def message(kind: Any, **data: Any) -> str:
    return json.dumps({"type": kind, "data": data})


async def receive(run: ComfyRun, messages: list[str]) -> None:
    for each in messages:
        await run.handle_message(each)


async def test_outputs_of_a_run_are_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comfyui_events, "_MAX_OUTPUT_BYTES", 2**20)
    run = run_of([])
    messages = [message("executed", node=number, output={"a": "x" * 100_000}) for number in range(20)]
    with pytest.raises(ComfyError, match="outputs of more than 1 MiB"):
        await receive(run, messages)
    assert len(run.outputs) <= 10


async def test_nodes_with_outputs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comfyui_events, "_MAX_NODES", 3)
    run = run_of([])
    with pytest.raises(ComfyError, match="or 3 nodes"):
        await receive(run, [message("executed", node=number, output={}) for number in range(4)])


async def test_a_message_causes_a_limited_number_of_events() -> None:
    events: list[Event] = []
    run = run_of(events)
    state = {"state": "running", "value": 1, "max": 2}
    await run.handle_message(
        message("progress_state", nodes={f"n{number}": state for number in range(50_000)})
    )
    assert len(events) == 100
    assert all(isinstance(event, NodeProgress) for event in events)
    await run.handle_message(message("execution_cached", nodes=[*range(50_000)]))
    cached = events[-1]
    assert isinstance(cached, NodesCached)
    assert len(cached.nodes) == 5_000


async def test_names_of_other_types_are_empty() -> None:
    events: list[Event] = []
    run = run_of(events)
    await run.handle_message(message(NESTED, node="9"))
    await run.handle_message(message("status", credential_key=NESTED))
    await run.handle_message(message("executing", node=NESTED))
    await run.handle_message(message("execution_cached", nodes=[NESTED, 3]))
    assert run.credential_key == ""
    assert events == [comfyui_events.NodeStarted(""), NodesCached(("", "3"))]
    failed = node_failed({"node_id": NESTED, "node_type": NESTED, "exception_message": NESTED})
    assert str(failed) == "ComfyUI failed in a node: no reason given."
    assert str(rejection({"error": NESTED})) == "ComfyUI refused the graph: no reason given."


async def test_progress_beyond_all_numbers_is_an_error() -> None:
    with pytest.raises(ComfyError, match="unexpected"):
        run_of([]).handle_event("progress", {"node": "9", "value": 10**400, "max": 1})


def test_choices_of_an_input_are_limited() -> None:
    names = [f"model-{number}" for number in range(100_000)]
    schemas = {"UNETLoader": {"input": {"required": {"unet_name": [names]}}}}
    assert files.options(schemas, "UNETLoader", "unet_name") == tuple(names[:MAX_CHOICES])


def test_malformed_classes_are_skipped() -> None:
    classes: dict[str, Any] = {
        "Good": {"input": {"required": {"a": ["INT"]}}, "output": ["INT"]},
        "List": {"input": [1]},
        "Rows": {"input": {"required": [1]}},
        "Number": {"output": 3},
        "Text": "x",
    }
    assert [spec.class_type for spec in object_info.read(classes)] == ["Good"]


class Server:
    """Returns 10 bytes for each file."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def view(self, _file: ComfyFile, target: WritableFile, max_bytes: int) -> str:
        self.limits.append(max_bytes)
        target.write(b"0123456789")
        return "image/png"


async def test_files_of_a_run_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "_MAX_FILES", 3)
    monkeypatch.setattr(workflows, "_MAX_TOTAL_BYTES", 25)
    server = Server()
    downloads = workflows._Downloads(cast("ComfyServer", server), tmp_path)
    rows = [{"filename": f"{number}.png"} for number in range(4)]
    with pytest.raises(ComfyError, match="more than 3 files"):
        await downloads.output({"images": rows})
    assert server.limits == [25, 15, 5]


async def test_a_full_disk_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sixfold.disk_space._RESERVE_BYTES", 2**62)
    monkeypatch.setattr("sixfold.disk_space._RESERVE_PART", 1)
    downloads = workflows._Downloads(cast("ComfyServer", Server()), tmp_path)
    with pytest.raises(ComfyError, match="was not stored: less than"):
        await downloads.output({"images": [{"filename": "a.png"}]})
