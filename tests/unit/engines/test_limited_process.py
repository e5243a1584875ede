"""Calls in separate processes: their results, their errors, and the end of a canceled call."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines import limited_process
from sixfold.engines.limited_process import LimitedProcesses

LIMITS = (2**30, 60, "The file cannot be read.")


async def test_result_is_that_of_the_function() -> None:
    assert await LimitedProcesses(1).call("math:hypot", *LIMITS, 3.0, 4.0) == 5.0


def test_failed_process_raises_the_message_of_the_caller() -> None:
    with pytest.raises(UnusableInput, match=r"^The file cannot be read\.$"):
        limited_process.call("math:sqrt", *LIMITS, -1.0)


async def test_canceled_call_ends_its_process_and_frees_its_place(tmp_path: Path) -> None:
    pool, pipe = LimitedProcesses(1), tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = asyncio.create_task(pool.call("linecache:getlines", *LIMITS, str(pipe)))
    waiting = asyncio.create_task(pool.call("math:sqrt", *LIMITS, 9.0))
    # Opening the pipe succeeds when the process has opened it; the process then waits for data.
    with await asyncio.to_thread(pipe.open, "wb"):
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(60):
            assert await waiting == 3.0


def test_printed_lines_are_not_part_of_a_result_or_a_reason() -> None:
    program = "import os\nfor pipe in (1, 2):\n    os.write(pipe, b'x' * 1000)\n"
    assert limited_process.call("builtins:exec", *LIMITS, program) is None
    program += "from sixfold.core.catalog.engines import UnusableInput\nraise UnusableInput('the reason')\n"
    with pytest.raises(UnusableInput, match=r"^the reason$"):
        limited_process.call("builtins:exec", *LIMITS, program)
