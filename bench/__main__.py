"""Run benchmarks: `python -m bench [NAME …] [--write]`; `--write` updates the documentation."""

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
    "recall",
    "sessions",
    "gateway",
    "streams",
    "pages",
    "accessibility",
    "processes",
    "queues",
    "startup",
    "capacity",
    "forecast",
    "graphs",
    "stt_accuracy",
    "transcription",
)
# Benchmarks that write gigabytes or need another checkout run only if the command line names them.
ON_REQUEST = ("growth", "versions")
PAGE = Path("docs/reference/performance.md")
HEAD = """# Performance

`make bench ARGS=--write` writes this page. Because machines differ, every table begins with calibration rows
from the same run: compare ratios, not absolute values.

"""


def main() -> None:
    """Run the named benchmarks (default: all of `NAMES`) and print their tables; `--write` stores them."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Sixfold on this machine.")
    parser.add_argument("names", nargs="*", help=", ".join(NAMES + ON_REQUEST))
    parser.add_argument("--write", action="store_true", help=f"write the tables to {PAGE} and other pages")
    options = parser.parse_args()
    pages: dict[Path, dict[str, str]] = {}
    for name in options.names or NAMES:
        bench = importlib.import_module(f"bench.{name}")
        table = markdown(bench.TITLE, bench.rows())
        pages.setdefault(getattr(bench, "PAGE", PAGE), {})[bench.TITLE] = table
        print(table, flush=True)
    if options.write:
        for page, tables in pages.items():
            head, written = _parts(page)
            if page == PAGE:
                head, written = HEAD, written if options.names else {}
            page.write_text(head + "\n".join((written | tables).values()), "utf-8")


def _parts(page: Path) -> tuple[str, dict[str, str]]:
    """Return a page's text before the first section, and its sections by their titles."""
    head, *parts = page.read_text("utf-8").split("\n## ") if page.exists() else ("",)
    return f"{head}\n", {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


if __name__ == "__main__":
    main()
