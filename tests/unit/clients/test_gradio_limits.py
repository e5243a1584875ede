"""Descriptions and events of hostile spaces are read in bounded time and memory."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold import disk_space, errors
from sixfold.clients.gradio import schema as gradio_schema
from sixfold.clients.gradio import server as gradio_server
from sixfold.clients.gradio.server import GradioServer, SpaceError
from sixfold.net import response_memory
from tests import loop_time
from tests.unit.net import servers

CHOICES = [[f"label {number}", f"value {number}"] for number in range(1_000)]
COMPONENTS: list[dict[str, Any]] = [
    {"id": 0, "type": "dropdown", "props": {"choices": CHOICES}},
    {"id": 1, "type": "textbox"},
    {"id": 2, "type": "image"},
    {"id": [3], "type": "image"},
    {"id": 4, "type": "dropdown", "props": {"choices": ["x" * 1_000_000, "y"]}},
    {"id": 5, "type": "dropdown", "props": {"choices": [f"{number:0450}" for number in range(1_000)]}},
]


def schema_of(*functions: tuple[list[Any], list[Any]], parameters: int = 100) -> gradio_schema.SpaceFunction:
    """Return the best of functions with these inputs and outputs, which share one description."""
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
    def expect_refusal() -> None:
        with pytest.raises(errors.BadRequest, match="more than 50000 inputs and outputs in total"):
            schema_of(*functions)

    tracemalloc.start()
    try:
        expect_refusal()
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loop_time.cpu_seconds(expect_refusal, 1) < 1
    assert grown < 64 * 2**20


@pytest.mark.parametrize("name", ["parameter_name", "parameter_default", "label", "component", "type"])
@pytest.mark.parametrize("value", [[1] * 100_000, "X" * 400_000], ids=["a list", "a string"])
def test_functions_that_share_a_large_parameter_are_read_fast(name: str, value: Any) -> None:
    parameter = {"parameter_name": "x", "parameter_has_default": True, name: value}
    components = [
        {"id": 0, "type": "dropdown", "props": {"choices": ["a", "b"]}},
        {"id": 1, "type": value if name == "type" else None},
    ]
    row = {"api_name": "run", "inputs": [0, 1], "outputs": [1]}
    config = {"protocol": "sse_v3", "components": components, "dependencies": [row] * 3_000}
    info = {"named_endpoints": {"/run": {"parameters": [parameter, parameter], "returns": []}}}
    assert loop_time.cpu_seconds(lambda: gradio_schema.best_function(config, info), 1) < 1
    description = gradio_schema.best_function(config, info)
    assert len(json.dumps(description.inputs)) < (1_000_000 if name == "parameter_default" else 3_000)


def test_numbers_with_thousands_of_digits_are_ignored() -> None:
    components = [{"id": 0, "type": "slider", "props": {"minimum": 10**4000, "maximum": 1e400, "step": 1}}]
    row = {"api_name": "run", "inputs": [0], "outputs": []}
    config = {"protocol": "sse_v3", "components": components, "dependencies": [row]}
    parameter = {"parameter_name": "x", "parameter_has_default": True, "parameter_default": 10**4000}
    info = {"named_endpoints": {"/run": {"parameters": [parameter], "returns": []}}}
    assert gradio_schema.best_function(config, info).inputs == {"x": {"description": "x", "type": "integer"}}


def test_many_outputs_within_the_limit_are_named_fast() -> None:
    assert loop_time.cpu_seconds(lambda: schema_of(([1], [2] * 40_000)), 1) < 1
    assert len(set(schema_of(([1], [2] * 40_000)).returns)) == 40_000


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["a", "a_3", "a"], ("a", "a_3", "a_4")),
        (["a", "a_4", "a", "a"], ("a", "a_4", "a_3", "a_5")),
        (["a", "a", "A"], ("a", "a_2", "a_3")),
    ],
)
def test_outputs_with_equal_labels_get_unique_names(labels: list[str], names: tuple[str, ...]) -> None:
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


def test_function_with_too_many_choices_is_skipped() -> None:
    assert len(schema_of(([0] * 100, [2]), ([1], [2])).inputs) == 1
    with pytest.raises(errors.BadRequest, match="does not have a public function"):
        schema_of(([0] * 21, [2]))


@pytest.mark.parametrize("component", [4, 5])
def test_input_with_long_choices_accepts_any_text(component: int) -> None:
    result = schema_of(([component], [2]))
    assert [(each["type"], each.get("choices")) for each in result.inputs.values()] == [("string", None)]


def test_invalid_component_ids_are_ignored() -> None:
    result = schema_of(([1, [3], {}], [2, [3]]))
    assert (len(result.inputs), result.output_kind) == (3, "image")


DENSE = {
    "arrays": b"[" + b"[]," * 2_700_000 + b"[]]",
    "members": b"{" + b",".join(b'"%07d":1' % number for number in range(600_000)) + b"}",
    "numbers": b'{"a":[' + b"1," * 4_000_000 + b"1]}",
}


class Body(httpx.AsyncByteStream):
    """The body of a response in chunks."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def space(*bodies: Body) -> GradioServer:
    """A space that returns these bodies in turn."""
    rest = list(bodies)
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=rest.pop(0)))
    return GradioServer(httpx.AsyncClient(transport=transport), "http://space")


@pytest.mark.parametrize("document", DENSE.values(), ids=DENSE)
async def test_a_description_with_too_many_values_is_refused(document: bytes) -> None:
    async def expect_refusal() -> None:
        with pytest.raises(SpaceError, match="too many values"):
            await space(Body(document)).describe()

    async with loop_time.watched() as loop:
        await expect_refusal()
    tracemalloc.start()
    try:
        await expect_refusal()
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert loop.longest < 0.1
    assert grown < 4 * len(document)


async def test_a_description_within_the_limits_is_read() -> None:
    documents: list[dict[str, Any]] = [{"components": COMPONENTS[:4]}, {"named_endpoints": {}}]
    server = space(*(Body(json.dumps(document).encode()) for document in documents))
    assert list(await server.describe()) == documents


async def events_of(body: Body, server: str = "http://space") -> list[dict[str, Any]]:
    """Return the messages of a run whose events have this body."""
    with response_memory.response_memory(server) as memory:
        return [each async for each in space(body).events("s", "e", 60, memory)]


def test_event_is_parsed_in_linear_time_for_any_chunks() -> None:
    message = {"event_id": "e", "msg": "process_completed", "text": "x" * 20_000_000}
    line = b"data: " + json.dumps(message).encode() + b"\n\n"

    cut = len(line) - 5_000
    chunks = (line[:cut], *(line[at : at + 1] for at in range(cut, len(line))))

    async def events() -> list[dict[str, Any]]:
        return await events_of(Body(*chunks))

    assert asyncio.run(events()) == [message]
    assert loop_time.cpu_seconds(lambda: asyncio.run(events()), 1) < 1


async def test_an_event_over_the_limit_is_refused() -> None:
    long = Body(b"data: " + b" " * gradio_server.MAX_EVENT_BYTES)
    with pytest.raises(SpaceError, match="more than 32 MiB"):
        await events_of(long)
    dense = Body(b"data: " + DENSE["arrays"] + b"\n\n")
    with pytest.raises(SpaceError, match="too many values"):
        await events_of(dense)


@pytest.mark.parametrize("line", [b"\n", b"data:{}\n", b": comment\n"])
async def test_a_flood_of_lines_lets_other_tasks_run_and_ends(line: bytes) -> None:
    flood = Body(line * 100_000, line * 100_001)
    async with loop_time.watched() as loop:
        with pytest.raises(SpaceError, match="more than 200,000 lines"):
            await events_of(flood)
    assert loop.longest < 0.1


async def test_chunks_of_one_byte_let_other_tasks_run() -> None:
    chunks = b"1\r\n \r\n" * 30_000 + b"2\r\n{}\r\n0\r\n\r\n"
    answer = servers.raw(servers.head("Transfer-Encoding: chunked") + chunks)
    async with (
        servers.serving(routes={"/config": answer, "/info": answer}) as server,
        httpx.AsyncClient(trust_env=False) as client,
        loop_time.watched() as loop,
    ):
        assert await GradioServer(client, server.url("")).describe() == ({}, {})
    assert loop.longest < 0.1


async def test_imports_share_the_memory_of_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_memory, "MAX_BYTES", 20 * 2**20)
    monkeypatch.setattr(response_memory, "WAIT_SECONDS", 0.01)
    large = b'{"text": "' + b"x" * 3 * 2**20 + b'"}'
    with response_memory.response_memory("http://first") as first:
        await space(Body(large), Body(large)).describe(first)
        with (
            response_memory.response_memory("http://second") as second,
            pytest.raises(errors.TooManyRequests, match="Large results of other runs"),
        ):
            await space(Body(large), Body(large)).describe(second)
    with response_memory.response_memory("http://second") as second:
        await space(Body(large), Body(large)).describe(second)


async def test_runs_share_the_memory_of_large_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_memory, "MAX_BYTES", 30 * 2**20)
    monkeypatch.setattr(response_memory, "WAIT_SECONDS", 0.01)
    large = b'data: {"text": "' + b"x" * 8 * 2**20 + b'"}\n\n'
    with response_memory.response_memory("http://first") as memory:
        async with aclosing(space(Body(large)).events("s", "e", 60, memory)) as events:
            assert len((await anext(events))["text"]) == 8 * 2**20
            with pytest.raises(errors.TooManyRequests, match="Large results of other runs"):
                await events_of(Body(large), "http://second")
            assert await events_of(Body(b"data: {}\n\n"), "http://second") == [{}]
    assert len(await events_of(Body(large), "http://second")) == 1


async def test_files_leave_a_part_of_the_disk_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "_RESERVE_BYTES", 2**62)
    monkeypatch.setattr(disk_space, "_RESERVE_PART", 1)
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, stream=httpx.ByteStream(b"file")))
    async with httpx.AsyncClient(transport=transport) as client:
        with pytest.raises(SpaceError, match="was not stored: less than"):
            await GradioServer(client, "http://space").download("a.png", tmp_path / "a.png", 10)
