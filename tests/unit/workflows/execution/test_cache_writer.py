"""Node outputs stored in batches, and storage paths of a graph's files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold.core.workflows import image_metadata
from sixfold.core.workflows.execution.cache_writer import CacheWriter
from sixfold.core.workflows.execution.execute import execute
from sixfold.core.workflows.execution.file_order import FileOrder
from sixfold.core.workflows.image_metadata import GraphEmbedder
from sixfold.core.workflows.ports import CachedOutput
from sixfold.core.workflows.validate import validate
from sixfold.errors import StoreFailed
from tests.unit.workflows.tiny_graphs import CLASSES, ExecutionFixture, node

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + bytes(17) + b"\0\0\0\0IEND\xaeB`\x82"


class SlowCache:
    """A cache whose first write waits for `gate`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.start_event = asyncio.Event()
        self.gate = asyncio.Event()

    async def find(self, keys: Sequence[str]) -> Mapping[str, CachedOutput]:
        return {}

    async def keep(self, entries: Mapping[str, CachedOutput]) -> None:
        self.batches.append(list(entries))
        self.start_event.set()
        await self.gate.wait()


async def test_outputs_added_during_a_write_form_the_next_batch() -> None:
    cache = SlowCache()
    writer = CacheWriter(cache)
    for at in range(256):
        writer.add(str(at), CachedOutput(None, {}))
    await cache.start_event.wait()
    for at in range(256, 600):
        writer.add(str(at), CachedOutput(None, {}))
    cache.gate.set()
    await writer.flush()
    assert [len(batch) for batch in cache.batches] == [256, 256, 88]
    assert cache.batches[2][-1] == "599"


class FailingCache(SlowCache):
    """A cache whose first writes fail with `failures`, in order."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self.failures = list(failures)
        self.outputs: dict[str, CachedOutput] = {}

    async def keep(self, entries: Mapping[str, CachedOutput]) -> None:
        self.start_event.set()
        if self.failures:
            raise self.failures.pop(0)
        self.outputs.update(entries)


@pytest.mark.parametrize("failure", [StoreFailed(), OSError(28, "No space left on device")])
async def test_failed_batch_is_rewritten_with_the_newest_outputs(failure: Exception) -> None:
    cache = FailingCache(failure)
    writer = CacheWriter(cache)
    first, second = CachedOutput(b"1", {}), CachedOutput(b"2", {})
    writer.add("a", first)
    writer.add("b", first)
    await cache.start_event.wait()
    writer.add("b", second)
    writer.add("c", second)
    await writer.flush()
    assert cache.outputs == {"a": first, "b": second, "c": second}
    writer.add("d", second)
    await writer.flush()
    assert cache.outputs["d"] == second


async def test_a_flush_drops_outputs_of_a_cache_that_keeps_failing(caplog: pytest.LogCaptureFixture) -> None:
    cache = FailingCache(*[StoreFailed() for _ in range(4)])
    writer = CacheWriter(cache)
    writer.add("a", CachedOutput(bytes(65 * 2**20), {}))
    await writer.wait_for_capacity()
    assert "1 node outputs were not cached" in caplog.text
    writer.add("b", CachedOutput(None, {}))
    await writer.flush()
    assert list(cache.outputs) == ["b"]


@pytest.mark.parametrize("failures", [1, 100])
async def test_a_graph_succeeds_while_its_cache_cannot_be_written(tmp_path: Path, failures: int) -> None:
    cache = FailingCache(*[StoreFailed() for _ in range(failures)])
    fixture = ExecutionFixture(tmp_path)
    graph = {"1": node("Ask", words="x"), "2": node("Show", value=["1", 0])}
    messages: list[str] = []
    location = msgspec.structs.replace(fixture.location, cache=cache)
    end = await execute(validate(graph, CLASSES), location, lambda event: messages.append(event.type))
    assert end.outputs["2"] == {"text": ("X",)}
    assert "execution_success" in messages
    assert len(cache.outputs) == (2 if failures == 1 else 0)


async def test_a_writer_that_is_stopped_writes_nothing_more() -> None:
    cache = SlowCache()
    writer = CacheWriter(cache)
    writer.add("a", CachedOutput(None, {}))
    await writer.stop()
    cache.gate.set()
    await asyncio.sleep(0)
    assert cache.batches in ([], [["a"]])


@pytest.mark.parametrize("finishing", [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")])
def test_files_of_one_class_follow_their_nodes_in_any_order(finishing: tuple[str, ...]) -> None:
    order = FileOrder([("a", "SaveImage"), ("b", "SaveImage"), ("c", "SaveImage")])
    positions = {}
    for node_id in finishing:
        positions[node_id] = order.next(node_id, temporary=False)
        order.finish(node_id)
    assert positions == {"a": 0, "b": 1, "c": 2}


def test_files_of_nodes_that_finish_in_order_are_counted_exactly() -> None:
    order = FileOrder([("a", "SaveImage"), ("t", "PreviewAny"), ("b", "SaveAudio"), ("p", "PreviewImage")])
    assert [order.next("a", temporary=False) for _ in range(3)] == [0, 1, 2]
    order.finish("a")
    order.finish("t")
    assert order.next("b", temporary=False) == 3
    order.finish("b")
    assert order.next("p", temporary=True) == 0


def test_a_graph_is_encoded_once_for_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []
    write = image_metadata.chunks

    def count(*documents: Any) -> bytes:
        encoded.append(documents)
        return write(*documents)

    monkeypatch.setattr(image_metadata, "chunks", count)
    embedder = GraphEmbedder({"1": {"class_type": "SaveImage"}})
    first, second = embedder.embed(PNG), embedder.embed(PNG)
    assert first == second
    assert image_metadata.read(first) == {"1": {"class_type": "SaveImage"}}
    assert len(encoded) == 1


async def test_unexpected_error_of_the_cache_does_not_fail_the_run(caplog: pytest.LogCaptureFixture) -> None:
    cache = FailingCache(ValueError("a bug"))
    cache.gate.set()
    writer = CacheWriter(cache)
    writer.add("lost", CachedOutput(b"x", {}))
    await writer.flush()
    assert "a bug" in caplog.text
    writer.add("next", CachedOutput(None, {}))
    await writer.flush()
    assert list(cache.outputs) == ["next"]
