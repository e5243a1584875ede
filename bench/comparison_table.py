"""Print the README's table: our figures beside those of others, out of the tables of the last `make bench`.

    make bench ARGS=--write && .venv/bin/python -m bench.comparison_table

bench/comparison_table.toml names the rows. What was not measured is a dash, and no ratio is told of it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from bench.__main__ import PAGE

FIGURES = Path(__file__).with_name("comparison_table.toml")
HEAD = "| | Sixfold | beside | | ours against theirs |\n|---|---:|---|---:|---:|"
_ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<median>[\d,.]+) \|[^|]*\| (?P<unit>[^|]*?) \|", re.MULTILINE)
_LEAST = 0.01  # what the page shows as 0.00 is no figure


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: its label, the rows of Sixfold and of the peer, and whether `more` or `less` is better."""

    what: str
    bench: str
    ours: str
    peer: str
    theirs: str
    better: str


def figures() -> list[Figure]:
    """Return the rows of the table."""
    return [Figure(**row) for row in tomllib.loads(FIGURES.read_text("utf-8"))["figure"]]


def recorded(page: str) -> dict[tuple[str, str], tuple[float, str]]:
    """Return the median and unit of each row on the performance page, by title and name."""
    result: dict[tuple[str, str], tuple[float, str]] = {}
    for part in page.split("\n## ")[1:]:
        title = part.partition("\n")[0].strip()
        for row in _ROW.finditer(part):
            result[title, row["name"]] = float(row["median"].replace(",", "")), row["unit"]
    return result


def shown(measured: tuple[float, str] | None) -> str:
    """Format a figure with its unit to three digits, or a dash if it is missing."""
    if measured is None:
        return "–"
    value, unit = measured
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.3g} {unit}"


def line(figure: Figure, rows: dict[tuple[str, str], tuple[float, str]]) -> str:
    """Return one line of the table."""
    ours, theirs = (rows.get((figure.bench, name)) for name in (figure.ours, figure.theirs))
    ratio = "–"
    if ours and theirs and min(ours[0], theirs[0]) >= _LEAST:
        times = ours[0] / theirs[0] if figure.better == "more" else theirs[0] / ours[0]
        ratio = f"{times:,.3g} ×"
    return f"| {figure.what} | {shown(ours)} | {figure.peer} | {shown(theirs)} | {ratio} |"


def table(page: str) -> str:
    """Return the table in Markdown; a ratio above 1 is in Sixfold's favor."""
    rows = recorded(page)
    return "\n".join([HEAD, *(line(figure, rows) for figure in figures())])


def main() -> None:
    """Print the table."""
    print(table(PAGE.read_text("utf-8")))


if __name__ == "__main__":
    main()
