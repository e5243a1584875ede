"""Rows of a benchmark's table: name, median, 95th percentile, unit and note."""

from __future__ import annotations

import os
import platform
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; `p95` is None for a single sample."""

    name: str
    median: float
    unit: str
    p95: float | None = None
    note: str = ""


def of_samples(name: str, seconds: Iterable[float], unit: str, note: str = "") -> Row:
    scale = {"µs": 1e6, "ms": 1e3, "s": 1.0}[unit]
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))] * scale
    return Row(name, statistics.median(ordered) * scale, unit, p95, note)


def calibration() -> list[Row]:
    """Return the calibration rows of this machine: fdatasync, and an empty loop."""
    syncs: list[float] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, (Path(folder) / "file").open("wb") as file:
        for _ in range(100):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            syncs.append(time.perf_counter() - began)
    loops: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1_000_000):
            pass
        loops.append(time.perf_counter() - began)
    return [
        of_samples("calibration: fdatasync of 4 KiB", syncs, "ms"),
        of_samples("calibration: 1,000,000 empty loop iterations", loops, "ms", _python()),
    ]


def _python() -> str:
    """Return the version of Python, and whether its build was optimized by a profile."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS"))
    is_optimized = "--enable-optimizations" in options
    return f"Python {platform.python_version()}, {'with' if is_optimized else 'without'} PGO"


def markdown(title: str, rows: Iterable[Row]) -> str:
    """Return the rows as a table for `docs/reference/performance.md`."""
    lines = [f"## {title}", "", "| what | median | p95 | unit | note |", "|---|---|---|---|---|"]
    for row in rows:
        p95 = f"{row.p95:,.2f}" if row.p95 is not None else ""
        lines.append(f"| {row.name} | {row.median:,.2f} | {p95} | {row.unit} | {row.note} |")
    return "\n".join(lines) + "\n"
