"""Measure the overhead of workflow graphs: validation, execution, caching, conversion and drawing.

.venv/bin/python -m bench graphs; SIXFOLD_BENCH_COMFYUI=FOLDER also measures the ComfyUI in that folder (see
bench/comfyui_peer.py), alternately with Sixfold.

The nodes are trivial, because only the overhead is measured. `validated and run` is the executor alone,
from a graph to its outputs. `all cached` is the same graph again: Sixfold looks up the outputs first, while
ComfyUI looks up every node. ComfyUI's cache key of a node includes all of its ancestors: one long chain is
its worst case, and many short chains are its best case; both are measured. The executors do not do the same
work: ComfyUI asks every node whether it changed, instantiates it, records progress and frees the memory of
models; Sixfold identifies nodes by the content of their inputs, accounts for memory, and its cache outlives
the process.

`through the server` is a graph of 2,000 nodes sent to `POST /prompt`, beside the executor alone on a chain
of the same length: the time per node, and the time from the last output to `execution_success`. One graph
only forwards a text, one shows every second node, and one stores 500 images of 8 x 8 pixels.

`POST /prompt` measures a whole server over HTTP and websocket, with the same client for both. Sixfold
checks the key, prices the prompt, holds the price, stores prompt and result in a database and captures;
ComfyUI has one user, and its queue and history end with its process.

Pairs and templates are public workflows in `shared/data/workflows`; without them their rows are skipped.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from bench import comfyui_peer
from bench.comfyui_peer import Timing
from bench.reporting import Row, calibration, of_samples
from sixfold.core.workflows import diff, slices
from sixfold.core.workflows.editor_format.to_api import convert
from sixfold.core.workflows.execution.execute import execute
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.svg import layout
from sixfold.core.workflows.validate import validate
from sixfold.engines.workflow_nodes import registry as workflow_nodes_registry
from tests.e2e import servers
from tests.unit.workflows import corpus
from tests.unit.workflows.tiny_graphs import CLASSES, ExecutionFixture, node

TITLE = "Graphs: chains of trivial nodes, and third-party workflows"
ROUNDS, LONG_ROUNDS = 5, 3
Graph = dict[str, dict[str, Any]]


def chain(length: int, name: str = "") -> Graph:
    """Return a chain: a number, `count` additions and an output; `name` makes its nodes distinct."""
    graph = {f"{name}0": node("Number", value=1)}
    graph.update(
        {f"{name}{at}": node("Add", a=[f"{name}{at - 1}", 0], b=at % 50) for at in range(1, length - 1)}
    )
    return {**graph, f"{name}out": node("Show", value=[f"{name}{length - 2}", 0])}


def bundle(count: int, length: int) -> Graph:
    """Return many distinct chains side by side."""
    result: Graph = {}
    for at in range(count):
        result |= chain(length, f"{at}-")
        result[f"{at}-0"] = node("Number", value=at)
    return result


# The graphs that both executors run, and a graph for Sixfold alone: its chain is too deep for ComfyUI.
SHAPES = {"one chain of 200": chain(200), "20 chains of 10": bundle(20, 10)}
LONG = {"one chain of 20,000": chain(20_000)}


async def send_prompt_timed(graph: Graph, fixture: ExecutionFixture) -> float:
    """Return the seconds of one validation and run."""
    gc.collect()
    began = time.perf_counter()
    await execute(validate(graph, CLASSES), fixture.location, lambda _event: None)
    return time.perf_counter() - began


async def run_twice(graph: Graph) -> Timing:
    """Run a graph for the first time, and again with all results cached; return the seconds of both."""
    with tempfile.TemporaryDirectory() as folder:
        fixture = ExecutionFixture(Path(folder))
        return Timing(await send_prompt_timed(graph, fixture), await send_prompt_timed(graph, fixture))


def each_node(of: str, length: int, samples: list[Timing], note: str = "") -> list[Row]:
    return [
        of_samples(f"{of}: a node, validated and run", [each.fresh / length for each in samples], "µs", note),
        of_samples(f"{of}: a node, all cached", [each.again / length for each in samples], "µs", note),
    ]


async def executors(place: Path | None) -> list[Row]:
    """Measure Sixfold's executor, alternately with ComfyUI's if it is available."""
    results: list[Row] = []
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(comfyui_peer.executor(place)) if place else None
        for name, graph in SHAPES.items():
            ours, theirs = list[Timing](), list[Timing]()
            for _ in range(ROUNDS):
                ours.append(await run_twice(graph))
                theirs += [await peer.measure(graph)] if peer else []
            results += each_node(name, len(graph), ours)
            if peer:
                note = f"ComfyUI {peer.version}: its execution.py without its server"
                results += each_node(f"ComfyUI, {name}", len(graph), theirs, note)
    for name, graph in LONG.items():
        results += each_node(name, len(graph), [await run_twice(graph) for _ in range(LONG_ROUNDS)])
    return results


def text_chain(length: int, text: str) -> Graph:
    """Return a chain of ComfyUI's built-in classes that passes a string from node to node and displays it."""
    graph = {"0": node("PrimitiveString", value=text)}
    graph.update({str(at): node("PrimitiveString", value=[str(at - 1), 0]) for at in range(1, length - 1)})
    return {**graph, "out": node("PreviewAny", source=[str(length - 2), 0])}


def show_nodes(length: int, text: str) -> Graph:
    """Return a graph of nodes that each display a string."""
    graph: Graph = {}
    for at in range(length // 2):
        graph[str(at)] = node("PrimitiveString", value=f"{text} {at}")
        graph[f"out{at}"] = node("PreviewAny", source=[str(at), 0])
    return graph


def images(length: int, text: str) -> Graph:
    """Return a graph that creates, twice inverts and stores images, with four nodes for each image."""
    graph: Graph = {}
    for at in range(length // 4):
        color = int(text[:5], 16) * 16 + at % 16
        graph[str(at)] = node("EmptyImage", width=8, height=1 + at, batch_size=1, color=color)
        graph[f"a{at}"] = node("ImageInvert", image=[str(at), 0])
        graph[f"b{at}"] = node("ImageInvert", image=[f"a{at}", 0])
        graph[f"out{at}"] = node("PreviewImage", images=[f"b{at}", 0])
    return graph


@dataclass(frozen=True)
class Ending:
    """Seconds until the end of a prompt, and the part of them after its last output."""

    seconds: float
    after_output: float


async def measure_prompt(
    client: httpx.AsyncClient, url: str, headers: Mapping[str, str], graph: Graph
) -> Ending:
    """Send a prompt, wait for its end as a ComfyUI client does, and return the durations."""
    me = uuid.uuid4().hex
    address = f"{url.replace('http', 'ws', 1)}/ws?clientId={me}"
    async with connect(
        address, additional_headers=headers, proxy=None, compression=None, max_size=None
    ) as socket:
        began = output = time.perf_counter()
        sent = await client.post(f"{url}/prompt", json={"prompt": graph, "client_id": me}, headers=headers)
        sent.raise_for_status()
        async for text in socket:
            message = json.loads(text) if isinstance(text, str) else {}
            if message.get("type") == "execution_error":
                raise SystemExit(f"{url}: {message['data']}")
            if message.get("type") == "executed":
                output = time.perf_counter()
            if message.get("type") == "execution_success":
                ended = time.perf_counter()
                return Ending(ended - began, ended - output)
    raise SystemExit(f"{url} hung up")


LARGE = 2000
LARGE_GRAPHS = {"a chain": text_chain, "1,000 texts shown": show_nodes, "500 images stored": images}


async def measure_large_graph(client: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> list[Row]:
    """Compare the time per node of the server with that of the executor, and measure the end of a prompt."""
    alone = [(await run_twice(chain(LARGE))).fresh / LARGE for _ in range(LONG_ROUNDS)]
    rows = [of_samples("a chain of 2,000: a node alone", alone, "µs")]
    for name, make in LARGE_GRAPHS.items():
        ends = [
            await measure_prompt(client, url, headers, make(LARGE, uuid.uuid4().hex)) for _ in range(ROUNDS)
        ]
        title = f"2,000 nodes, {name}"
        rows.append(
            of_samples(f"{title}: a node through the server", [end.seconds / LARGE for end in ends], "µs")
        )
        after = [end.after_output for end in ends]
        rows.append(of_samples(f"{title}: from the last output to the end", after, "ms"))
    return rows


async def measure_servers(place: Path | None) -> list[Row]:
    """Measure whole servers on the chain, alternating between Sixfold and ComfyUI if it is available."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=600))
        ours = await stack.enter_async_context(servers.serving(folder / "ours"))
        request: dict[str, tuple[str, dict[str, str]]] = {
            "POST /prompt, a chain of 200": (
                f"http://127.0.0.1:{ours.port}",
                {"Authorization": f"Bearer {ours.key}"},
            )
        }
        if place is not None:
            url = await stack.enter_async_context(comfyui_peer.server(place, folder / "theirs"))
            request["ComfyUI, POST /prompt, a chain of 200"] = url, {}
        samples: dict[str, list[Timing]] = {name: [] for name in request}
        for turn in range(ROUNDS + 1):  # the first round warms up
            for name, (url, headers) in request.items():
                graph = text_chain(200, uuid.uuid4().hex)
                fresh, again = [await measure_prompt(client, url, headers, graph) for _ in range(2)]
                samples[name] += [Timing(fresh.seconds, again.seconds)] if turn else []
        served = await measure_large_graph(client, *next(iter(request.values())))
    return served + [
        row
        for name, each in samples.items()
        for row in (
            of_samples(f"{name}: until it ends", [one.fresh for one in each], "ms"),
            of_samples(f"{name}: again", [one.again for one in each], "ms"),
        )
    ]


def best_times(what: Callable[[Any], object], arguments: list[Any], times: int = 5) -> list[float]:
    results: list[float] = []
    for each in arguments:
        samples: list[float] = []
        for _ in range(times):
            began = time.perf_counter()
            what(each)
            samples.append(time.perf_counter() - began)
        results.append(min(samples))
    return results


def measure_third_party() -> list[Row]:
    """Measure the conversion, check and drawing of third-party workflows."""
    if not corpus.PAIRS:
        return []
    registry = corpus.schemas()
    pairs = [(corpus.load(path), corpus.load(executed_path(path))) for path in corpus.PAIRS]
    equal = sum(
        slices.complete(
            diff.compare_steps(
                known_graph(true, registry), known_graph(convert(ui, registry).graph, registry)
            )
        ).equal
        for ui, true in pairs
    )
    templates = [corpus.load(path) for path in corpus.TEMPLATES]
    graphs = [convert(each, workflow_nodes_registry.registry()).graph for each in templates]
    share = Row(
        "conversions equal to the executed graph",
        100 * equal / len(pairs),
        "%",
        note=f"{equal} of {len(pairs)}",
    )
    return [
        share,
        of_samples(
            "conversion of a template",
            best_times(lambda each: convert(each, workflow_nodes_registry.registry()), templates),
            "ms",
        ),
        of_samples(
            "validation of a template",
            best_times(lambda each: validate(each, workflow_nodes_registry.registry()), graphs),
            "µs",
        ),
        of_samples(
            "drawing of a template",
            best_times(lambda each: layout.draw(each, workflow_nodes_registry.registry()), graphs),
            "ms",
        ),
    ]


def executed_path(path: Path) -> Path:
    """Return the executed graph that belongs to an editor's file."""
    return path.with_name(path.name.replace(".ui.", ".api."))


def known_graph(graph: Any, registry: Registry) -> Any:
    return {
        node_id: {
            "class_type": each["class_type"],
            "inputs": {
                name: value
                for name, value in each["inputs"].items()
                if each["class_type"] not in registry or name in registry[each["class_type"]].by_name
            },
        }
        for node_id, each in graph.items()
    }


async def measure_with_comfyui() -> list[Row]:
    """Return the rows that Sixfold and ComfyUI have in common."""
    place = comfyui_peer.checkout()
    left_out = Row(
        "ComfyUI: skipped", 0, "", note=f"{comfyui_peer.PLACE} does not name a checkout of ComfyUI"
    )
    return [*await executors(place), *await measure_servers(place), *([] if place else [left_out])]


def rows() -> list[Row]:
    return [*calibration(), *asyncio.run(measure_with_comfyui()), *measure_third_party()]
