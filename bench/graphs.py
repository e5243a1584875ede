"""What graphs cost beside the work of their nodes: checking, running, running again, converting, drawing.

.venv/bin/python -m bench graphs; SIXFOLD_BENCH_COMFYUI=http://127.0.0.1:8188 also gives a chain to the
ComfyUI that runs there (`python main.py --cpu` in a checkout of it): no index of packages has it.

Chains are of trivial nodes, so that only the run itself is measured. Pairs and templates are other people's
workflows (`shared/data/workflows`); where they are not on the machine their rows are left out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from bench.table import Row, calibration, of_samples
from sixfold.core.graphs import diff, drawing
from sixfold.core.graphs.convert import convert
from sixfold.core.graphs.execute import execute
from sixfold.core.graphs.nodes import Registry
from sixfold.core.graphs.validate import validate
from sixfold.engines.nodes import classes
from tests.unit.graphs import corpus
from tests.unit.graphs.small import CLASSES, World, node

TITLE = "Graphs: chains of trivial nodes, and other people's workflows"


def chain(length: int) -> dict[str, dict[str, Any]]:
    """A number, so many additions, and an output."""
    graph = {"0": node("Number", value=1)}
    graph.update({str(at): node("Add", a=[str(at - 1), 0], b=at % 50) for at in range(1, length - 1)})
    return {**graph, "out": node("Show", value=[str(length - 2), 0])}


async def ran(graph: dict[str, Any], world: World) -> float:
    """Seconds of one run, with its check."""
    gc.collect()
    began = time.perf_counter()
    await execute(validate(graph, CLASSES), world.place, lambda _event: None)
    return time.perf_counter() - began


async def runs(length: int, times: int) -> list[Row]:
    """A chain for the first time, and again."""
    graph = chain(length)
    with tempfile.TemporaryDirectory() as folder:
        fresh = [await ran(graph, World(Path(folder))) for _ in range(times)]
        kept = World(Path(folder))
        await ran(graph, kept)
        again = [await ran(graph, kept) for _ in range(times)]
    each = f"{min(fresh) / length * 1e6:.1f} µs a node at best"
    return [
        of_samples(f"chain of {length:,}: check and run", fresh, "ms", each),
        of_samples(f"chain of {length:,}: all of it cached", again, "ms"),
    ]


def words(length: int, said: str) -> dict[str, dict[str, Any]]:
    """A chain of ComfyUI's own classes: a text that is passed on from node to node, and shown."""
    graph = {"0": node("PrimitiveString", value=said)}
    graph.update({str(at): node("PrimitiveString", value=[str(at - 1), 0]) for at in range(1, length - 1)})
    return {**graph, "out": node("PreviewAny", source=[str(length - 2), 0])}


async def handed_on(client: httpx.AsyncClient, url: str, graph: dict[str, Any]) -> float:
    """Seconds from the prompt to its end, as a client of ComfyUI sees them."""
    me = uuid.uuid4().hex
    address = f"{url.replace('http', 'ws', 1)}/ws?clientId={me}"
    async with connect(address, proxy=None, compression=None, max_size=None, ping_interval=None) as socket:
        began = time.perf_counter()
        sent = await client.post(f"{url}/prompt", json={"prompt": graph, "client_id": me})
        sent.raise_for_status()
        async for text in socket:
            said = json.loads(text) if isinstance(text, str) else {}
            if said.get("type") == "execution_error":
                raise SystemExit(f"ComfyUI: {said['data']}")
            if (
                said.get("type") == "execution_success"
                and said["data"]["prompt_id"] == sent.json()["prompt_id"]
            ):
                break
        return time.perf_counter() - began


async def theirs(url: str, length: int, times: int) -> list[Row]:
    """The same at a ComfyUI: a chain that it has not seen, and one that it has."""
    async with httpx.AsyncClient(trust_env=False, timeout=600) as client:
        fresh = [await handed_on(client, url, words(length, f"{uuid.uuid4()}")) for _ in range(times)]
        known = words(length, f"{uuid.uuid4()}")
        await handed_on(client, url, known)
        again = [await handed_on(client, url, known) for _ in range(times)]
    each = f"{min(fresh) / length * 1e6:.1f} µs a node at best"
    return [
        of_samples(f"ComfyUI, chain of {length:,}: check and run", fresh, "ms", each),
        of_samples(f"ComfyUI, chain of {length:,}: all of it cached", again, "ms"),
    ]


def timed(what: Callable[[Any], object], given: list[Any], times: int = 5) -> list[float]:
    """The best of some times for each."""
    found: list[float] = []
    for each in given:
        samples: list[float] = []
        for _ in range(times):
            began = time.perf_counter()
            what(each)
            samples.append(time.perf_counter() - began)
        found.append(min(samples))
    return found


def others() -> list[Row]:
    """Conversion, checks and pictures of other people's workflows."""
    if not corpus.PAIRS:
        return []
    registry = corpus.schemas()
    pairs = [(corpus.load(path), corpus.load(true_of(path))) for path in corpus.PAIRS]
    equal = sum(
        diff.compare(seen(true, registry), seen(convert(ui, registry).graph, registry)).equal
        for ui, true in pairs
    )
    templates = [corpus.load(path) for path in corpus.TEMPLATES]
    graphs = [convert(each, classes.registry()).graph for each in templates]
    share = Row("pairs converted to what ran", 100 * equal / len(pairs), "%", note=f"{equal} of {len(pairs)}")
    return [
        share,
        of_samples(
            "template converted", timed(lambda each: convert(each, classes.registry()), templates), "ms"
        ),
        of_samples("template checked", timed(lambda each: validate(each, classes.registry()), graphs), "µs"),
        of_samples(
            "template drawn", timed(lambda each: drawing.draw(each, classes.registry()), graphs), "ms"
        ),
    ]


def true_of(path: Path) -> Path:
    """The graph that ran, beside the editor's."""
    return path.with_name(path.name.replace(".ui.", ".api."))


def seen(graph: Any, registry: Registry) -> Any:
    """A graph with the inputs that whoever runs it looks at."""
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


def rows() -> list[Row]:
    """Everything."""
    found = calibration()
    for length, times in ((200, 30), (20_000, 3)):
        found += asyncio.run(runs(length, times))
    if url := os.environ.get("SIXFOLD_BENCH_COMFYUI", "").rstrip("/"):
        found += asyncio.run(theirs(url, 200, 10))
    return found + others()
