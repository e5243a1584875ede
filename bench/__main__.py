"""Run the benches: `python -m bench [NAME …] [--write]`; `--write` keeps the tables in the docs."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from bench.reporting import markdown

NAMES = (
    "ledger",
    "job_overhead",
    "worker",
    "object_store",
    "scene",
    "video",
    "render",
    "music",
    "style",
    "matting",
    "cutout",
    "resize",
    "weights",
    "server",
    "comfyui",
    "providers",
    "postgres",
    "retrieval",
    "memory",
    "agents",
    "sessions",
    "gateway",
    "queues",
    "growth",
    "startup",
    "forecast",
    "graphs",
    "stt_accuracy",
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
    tables: dict[str, str] = {}
    for name in options.names or NAMES:
        bench = importlib.import_module(f"bench.{name}")
        tables[bench.TITLE] = markdown(bench.TITLE, bench.rows())
        print(tables[bench.TITLE], flush=True)
    if options.write:
        kept = _kept(PAGE.read_text("utf-8")) if PAGE.exists() and options.names else {}
        PAGE.write_text(HEAD + "\n".join((kept | tables).values()), "utf-8")


def _kept(page: str) -> dict[str, str]:
    """The tables of the page by their titles; those that are not measured anew stay."""
    _, *parts = page.split("\n## ")
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


if __name__ == "__main__":
    main()
