"""What graphs cost beside the work of their nodes: checking, running, running again, converting, drawing.

.venv/bin/python -m bench graphs

Chains are of trivial nodes, so that only the run itself is measured. Pairs and templates are other people's
workflows (`shared/data/workflows`); where they are not on the machine their rows are left out.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    return found + others()
