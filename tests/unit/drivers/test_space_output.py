"""The output of a space in a sandbox is read to its end, however long its lines are."""

from __future__ import annotations

import asyncio
import sys

from sixfold.drivers.spaces import SandboxHandle
from sixfold.drivers.temp_dirs import OwnedTempDir

# A progress bar, as a line without an end.
PROGRAM = r"""
import sys
for number in range(100_000):
    sys.stdout.write(f"\r{number:>20} of 100000")
sys.stdout.write("\nfirst\nlast")
"""


async def test_a_progress_bar_does_not_stop_a_space() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    handle = SandboxHandle(process, await asyncio.to_thread(OwnedTempDir))
    try:
        async with asyncio.timeout(20):
            assert await handle.wait() == "exited with status 0"
    finally:
        await handle.remove()
    lines = (await handle.log()).splitlines()
    assert lines[-2:] == ["first", "last"]
    assert all(len(line) <= 4096 for line in lines)
