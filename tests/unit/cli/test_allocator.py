"""Large blocks of memory are returned to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from sixfold import process_resources

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

process_resources.return_large_blocks()
before, kept = resident(), []
for _ in range(3):
    blocks = [b"x" * (8 * 2**20) for _ in range(6)]
    kept.append(b"y" * 500_000)  # lies behind the blocks in the heap, if they are not mapped
    del blocks
print((resident() - before) // 2**20)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc is required")
def test_large_blocks_are_returned_when_they_are_freed() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 8
