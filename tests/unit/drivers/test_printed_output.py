"""Printed output of workers: complete lines in bounded steps."""

from __future__ import annotations

import asyncio
import os

from sixfold.drivers.printed_output import PrintedOutput
from sixfold.worker import runner

CAPACITY = 2**16


async def test_a_pipe_that_stays_full_is_read_once() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    lines: list[bytes] = []

    def log(more: list[bytes]) -> None:
        lines.extend(more)
        os.write(writing, b"\n" * CAPACITY)

    os.write(writing, b"\n" * CAPACITY)
    output = PrintedOutput(reading, log)
    assert output.read() == CAPACITY
    assert len(lines) == CAPACITY
    output.close()
    os.close(writing)


async def test_pieces_of_lines_are_joined_and_cut() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    lines: list[bytes] = []
    output = PrintedOutput(reading, lines.extend)
    for piece in (b"one", b" line\nan", b"other\n", b"x" * 5000, b"x\nlast"):
        os.write(writing, piece)
        output.read()
    assert lines == [b"one line", b"another", b"x" * runner.MAX_LINE_CHARACTERS]
    output.end_line()
    output.end_line()
    assert lines[3:] == [b"last"]
    os.close(writing)
    assert output.read() == 0
    output.close()


async def test_a_full_pipe_is_read_again_after_a_pause() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    counts: asyncio.Queue[int] = asyncio.Queue()
    os.write(writing, b"\n" * CAPACITY)
    output = PrintedOutput(reading, lambda lines: counts.put_nowait(len(lines)))
    assert await counts.get() == CAPACITY
    os.write(writing, b"last\n")
    assert await counts.get() == 1
    output.close()
    os.close(writing)
