"""Run the benches: `python -m bench [NAME …] [--write]`; `--write` writes the tables to the docs."""

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
    "encoding",
    "encoding_clips",
    "render",
    "music",
    "style",
    "matting",
    "cutout",
    "upscale",
    "inpaint",
    "resize",
    "weights",
    "server",
    "comfyui",
    "providers",
    "postgres",
    "servers",
    "retrieval",
    "memory",
    "agents",
    "sessions",
    "gateway",
    "streams",
    "processes",
    "queues",
    "startup",
    "forecast",
    "graphs",
    "stt_accuracy",
    "transcription",
)
# Fills databases with gigabytes, so it runs only when it is named.
ON_REQUEST = ("growth",)
PAGE = Path("docs/reference/performance.md")
HEAD = """# Performance

Written by `make bench ARGS=--write`. Machines differ: every table stands beside calibration rows that were
measured in the same run, and ratios are what to compare.

"""


def main() -> None:
    """Run the named benches (default: all of `NAMES`), print their tables and write them with `--write`."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Sixfold on this machine.")
    parser.add_argument("names", nargs="*", help=", ".join(NAMES + ON_REQUEST))
    parser.add_argument("--write", action="store_true", help=f"write the tables to {PAGE}")
    options = parser.parse_args()
    tables: dict[str, str] = {}
    for name in options.names or NAMES:
        bench = importlib.import_module(f"bench.{name}")
        tables[bench.TITLE] = markdown(bench.TITLE, bench.rows())
        print(tables[bench.TITLE], flush=True)
    if options.write:
        written = _tables(PAGE.read_text("utf-8")) if PAGE.exists() and options.names else {}
        PAGE.write_text(HEAD + "\n".join((written | tables).values()), "utf-8")


def _tables(page: str) -> dict[str, str]:
    """Return the tables of the page by their titles."""
    _, *parts = page.split("\n## ")
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


if __name__ == "__main__":
    main()
