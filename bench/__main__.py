"""Run the benches: `python -m bench [NAME …] [--write]`; `--write` keeps the tables in the docs."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from bench.table import markdown

NAMES = (
    "ledger",
    "pipeline",
    "worker",
    "objects",
    "scene",
    "video",
    "style",
    "matting",
    "resize",
    "weights",
    "server",
    "comfyui",
    "providers",
    "postgres",
    "retrieval",
    "memory",
    "agents",
)
PAGE = Path("docs/reference/performance.md")
HEAD = """# Performance

Written by `make bench ARGS=--write`. Machines differ: every table stands beside calibration rows that were
measured in the same run, and ratios are what to compare.

"""


def main() -> None:
    """Measure what was asked for, print it, and keep it when told to."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Sixfold on this machine.")
    parser.add_argument("names", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--write", action="store_true", help=f"keep the tables in {PAGE}")
    options = parser.parse_args()
    tables: list[str] = []
    for name in options.names or NAMES:
        bench = importlib.import_module(f"bench.{name}")
        tables.append(markdown(bench.TITLE, bench.rows()))
        print(tables[-1], flush=True)
    if options.write:
        PAGE.write_text(HEAD + "\n".join(tables), "utf-8")


if __name__ == "__main__":
    main()
