"""The table of figures beside others': rows are found by name, ratios go the right way, gaps stay gaps."""

from __future__ import annotations

import importlib

from bench import __main__ as bench
from bench import comparison_table
from bench.reporting import Row, markdown

PAGE = "# P\n\n" + markdown("T", [Row("a", 1200.0, "per s"), Row("b", 300.0, "per s", 310.0, "slow")])


def figure(better: str, theirs: str = "b") -> comparison_table.Figure:
    return comparison_table.Figure("calls", "T", "a", "other", theirs, better)


def test_a_figure_stands_beside_the_others_with_its_ratio() -> None:
    rows = comparison_table.recorded(PAGE)
    assert comparison_table.line(figure("more"), rows) == "| calls | 1,200 per s | other | 300 per s | 4 × |"
    assert comparison_table.line(figure("less"), rows).endswith("| 0.25 × |")


def test_what_was_not_measured_is_a_dash_and_has_no_ratio() -> None:
    assert comparison_table.line(figure("more", "c"), comparison_table.recorded(PAGE)).endswith(
        "| other | – | – |"
    )


def test_every_figure_is_one_of_a_bench() -> None:
    titles = {importlib.import_module(f"bench.{name}").TITLE for name in bench.NAMES}
    for each in comparison_table.figures():
        assert each.bench in titles, each.bench
        assert each.better in {"more", "less"}
