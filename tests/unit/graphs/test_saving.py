"""Outcomes of nodes stored in batches, and the places of a graph's files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sixfold.core.graphs import embedded
from sixfold.core.graphs.embedded import GraphEmbedder
from sixfold.core.graphs.fileorder import FileOrder
from sixfold.core.graphs.ports import Stored
from sixfold.core.graphs.saving import OutcomeWriter
from sixfold.errors import StoreFailed

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + bytes(17) + b"\0\0\0\0IEND\xaeB`\x82"


class SlowCache:
    """A cache whose first write waits for `gate`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def find(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        return {}

    async def keep(self, entries: Mapping[str, Stored]) -> None:
        self.batches.append(list(entries))
        self.begun.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error


async def test_outcomes_added_during_a_write_form_the_next_batch() -> None:
    cache = SlowCache()
    writer = OutcomeWriter(cache)
    for at in range(256):
        writer.add(str(at), Stored(None, {}))
    await cache.begun.wait()
    for at in range(256, 600):
        writer.add(str(at), Stored(None, {}))
    cache.gate.set()
    await writer.flush()
    assert [len(batch) for batch in cache.batches] == [256, 256, 88]
    assert cache.batches[2][-1] == "599"


async def test_a_write_that_failed_is_raised_by_flush_and_by_room() -> None:
    cache = SlowCache()
    cache.error = StoreFailed()
    cache.gate.set()
    writer = OutcomeWriter(cache)
    writer.add("a", Stored(bytes(65 * 2**20), {}))
    with pytest.raises(StoreFailed):
        await writer.room()
    with pytest.raises(StoreFailed):
        await writer.flush()


async def test_a_writer_that_is_stopped_writes_nothing_more() -> None:
    cache = SlowCache()
    writer = OutcomeWriter(cache)
    writer.add("a", Stored(None, {}))
    await writer.stop()
    cache.gate.set()
    await asyncio.sleep(0)
    assert cache.batches in ([], [["a"]])


@pytest.mark.parametrize("finishing", [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")])
def test_files_of_one_class_get_the_places_of_their_nodes_in_any_order(finishing: tuple[str, ...]) -> None:
    order = FileOrder([("a", "SaveImage"), ("b", "SaveImage"), ("c", "SaveImage")])
    places = {}
    for node_id in finishing:
        places[node_id] = order.next(node_id, temporary=False)
        order.finish(node_id)
    assert places == {"a": 0, "b": 1, "c": 2}


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
    write = embedded.chunks

    def counted(*documents: Any) -> bytes:
        encoded.append(documents)
        return write(*documents)

    monkeypatch.setattr(embedded, "chunks", counted)
    embedder = GraphEmbedder({"1": {"class_type": "SaveImage"}})
    first, second = embedder.embed(PNG), embedder.embed(PNG)
    assert first == second
    assert embedded.read(first) == {"1": {"class_type": "SaveImage"}}
    assert len(encoded) == 1
