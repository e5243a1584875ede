"""Sixfold with a wall clock that a test sets: `clock_child FILE ARGUMENTS…`.

The file has the offset in seconds, which `time.time` and `time.time_ns` follow within a second. The monotonic
clock stays as it is, as it does when the clock of a machine is set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

_SECOND_NS = 1_000_000_000
_monotonic_ns, _time_ns = time.monotonic_ns, time.time_ns


def set_offset(file: Path, seconds: int) -> None:
    """Set the clock of the processes that read `file` to the real time plus `seconds`."""
    # A reader sees the previous offset or this one, never an empty file.
    new_file = file.with_suffix(".new")
    new_file.write_text(str(seconds))
    new_file.replace(file)


def _clock(file: Path) -> Callable[[], int]:
    offset, read_at = 0, -_SECOND_NS

    def time_ns() -> int:
        nonlocal offset, read_at
        if (now := _monotonic_ns()) - read_at >= _SECOND_NS:
            offset, read_at = int(file.read_text()) * _SECOND_NS, now
        return _time_ns() + offset

    return time_ns


def main() -> int:
    """Replace the clock, then run Sixfold's command line with the remaining arguments."""
    time_ns = _clock(Path(sys.argv[1]))
    time.time_ns, time.time = time_ns, lambda: time_ns() / _SECOND_NS
    from sixfold.cli.main import main as sixfold  # noqa: PLC0415 - after the clock is replaced

    return sixfold(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
