"""The lines of a batch: their input is split in slices, and each removes only its own call when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from sixfold.core.batches import validation
from sixfold.core.batches.lines import LineReply
from sixfold.core.batches.processor import BatchProcessor
from tests.harness.waiting import wait_until

PIECE = 256 * 1024


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for each in data:
        yield each


async def test_many_short_lines_are_split_in_several_turns() -> None:
    """An earlier version split a chunk of one-character lines in one step, which took 150 ms."""
    turns, lines = 0, 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    async for group in validation.chunks(pieces(b"1\n" * (PIECE // 2))):
        assert len(group) <= PIECE // 8
        lines += len(group)
    counter.cancel()
    assert lines == PIECE // 2
    assert turns >= 8


@pytest.mark.parametrize("length", [1, 7, 40_000, 300_000])
async def test_lines_are_the_same_however_the_input_is_divided(length: int) -> None:
    content = b"".join(b"%d" % number + b"x" * length + b"\r\n\n" for number in range(12))
    whole = [line async for group in validation.chunks(pieces(content)) for line in group]
    parts = [content[at : at + 10_007] for at in range(0, len(content), 10_007)]
    assert [line async for group in validation.chunks(pieces(*parts)) for line in group] == whole
    assert [line.number for line in whole] == list(range(1, 24, 2))
    assert [content[line.start : line.start + line.length] for line in whole] == [line.data for line in whole]


async def test_empty_lines_take_a_step_for_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version took 10 s for 20 MB of such lines."""
    steps = 0
    end_line = validation._LineReader._end_line

    def counted(reader: validation._LineReader, newline: int) -> None:
        nonlocal steps
        steps += 1
        end_line(reader, newline)

    monkeypatch.setattr(validation._LineReader, "_end_line", counted)
    content = b"\n" * PIECE + b" \r\n" * PIECE + b"{}\n \n\n{}"
    lines = [line async for group in validation.chunks(pieces(content)) for line in group]
    assert [line.number for line in lines] == [2 * PIECE + 1, 2 * PIECE + 4]
    assert [content[line.start : line.start + line.length] for line in lines] == [b"{}", b"{}"]
    assert steps < 200


async def test_an_outdated_call_leaves_its_successor_cancelable() -> None:
    class Runner:
        """Answers each call when its event is set."""

        endpoints = frozenset({"/v1/responses"})

        def __init__(self) -> None:
            self.answers: list[asyncio.Event] = []

        async def run(self, _call: object) -> LineReply:
            self.answers.append(asyncio.Event())
            await self.answers[-1].wait()
            return LineReply(200, "", b"{}")

    runner: Any = Runner()
    nothing: Any = None
    processor = BatchProcessor(nothing, nothing, nothing, "boot_1")
    processor.attach(runner)
    batch: Any = SimpleNamespace(id="batch_1", endpoint="/v1/responses", header_map={})
    line: Any = SimpleNamespace(number=1, attempt=1)

    def call() -> asyncio.Task[LineReply | None]:
        return asyncio.create_task(processor._call_unless_canceled(batch, line, "key_1", b"{}"))

    outdated = call()
    await wait_until(lambda: len(runner.answers) == 1)
    # Its lease expired while the database was unavailable, so that the line was claimed again.
    current = call()
    await wait_until(lambda: len(runner.answers) == 2)
    runner.answers[0].set()
    assert await outdated is not None
    processor._calls["batch_1"].cancel()
    assert await current is None
    assert processor._calls == {}
