"""Frames of node workers: small data within them up to a limit, and a few frames at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sixfold.core.workflows.execution import node_frames
from sixfold.core.workflows.execution.node_frames import NodeFrame, NodeFrameReader
from sixfold.core.workflows.execution.node_sessions import NodeExecutionResult
from sixfold.core.workflows.ports import NodeArtifact
from sixfold.drivers import node_workers
from sixfold.drivers.node_workers import NodeWorkers
from sixfold.drivers.process import ProcessDriver

_SIZE = 50_000


def test_many_small_files_are_not_all_in_the_frame(tmp_path: Path) -> None:
    result = NodeExecutionResult(
        (), (), artifacts=tuple(NodeArtifact("image/png", bytes([n]) * _SIZE) for n in range(100))
    )
    frame = NodeFrame({"kind": "done"})
    assert node_frames.needs_file(result)
    frame.payload["result"] = node_frames.result_row(result, frame, tmp_path)
    [received] = NodeFrameReader().feed(frame.encode())
    assert len(received.binary) <= 2**20
    loaded = node_frames.read_result(received.payload["result"], received, tmp_path)
    data = [each.path.read_bytes() if each.path else each.data for each in loaded.artifacts]
    assert data == [each.data for each in result.artifacts]


def test_reader_returns_a_limited_number_of_frames() -> None:
    reader, frames = NodeFrameReader(), [NodeFrame({"n": n}, b"x" * n) for n in range(7)]
    data = b"".join(frame.encode() for frame in frames)
    read = reader.feed(data[:-1], 3)
    assert [frame.payload["n"] for frame in read] == [0, 1, 2]
    assert [frame.payload["n"] for frame in reader.feed(b"", 3)] == [3, 4, 5]
    assert reader.feed(b"", 3) == []
    assert [frame.binary for frame in reader.feed(data[-1:], 3)] == [b"x" * 6]


async def test_many_frames_are_read_in_several_loop_iterations(tmp_path: Path) -> None:
    workers = NodeWorkers(ProcessDriver(), tmp_path, 0, owned=True)
    worker = await workers._started()
    loop_counts: list[int] = []

    class Session:
        def handle(self, frame: NodeFrame) -> None:
            loop_counts.append(frame.payload["n"])

    session: Any = Session()
    worker.session = session
    worker.data_received(b"".join(NodeFrame({"kind": "event", "n": n}).encode() for n in range(1000)))
    assert 0 < len(loop_counts) <= node_workers.FRAMES_PER_TURN
    while len(loop_counts) < 1000:
        before = len(loop_counts)
        await asyncio.sleep(0)
        assert len(loop_counts) - before <= node_workers.FRAMES_PER_TURN
    assert loop_counts == list(range(1000))
    worker.session = None
    await workers.close()
