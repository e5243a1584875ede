"""Itemized charges: exact sums, rounded up once, limited by the hold, and formatted for people."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import CostBreakdown, LineItem
from sixfold.core.catalog.metering import run_time
from tests.harness.charge_recomputation import micros, recomputed

M = 1_000_000
UNITS = [
    *(("input_tokens", M), ("output_tokens", M), ("cached_tokens", M), ("characters", M), ("images", 1)),
    *(("audio_seconds", 60_000), ("run_ms", 3_600_000_000), ("second", 1000), ("minute", M), ("ra1", 1)),
]
LINES = st.lists(
    st.builds(
        lambda unit, quantity, rate: LineItem(unit[0], quantity, rate, unit[1]),
        st.sampled_from(UNITS),
        st.integers(0, 1_000_000_000),
        st.integers(0, 10_000_000_000),
    ),
    max_size=12,
)


@given(lines=LINES, most=st.none() | st.integers(0, 10**12))
def test_charge_is_the_line_sum_rounded_up_once_and_capped(lines: list[LineItem], most: int | None) -> None:
    exact = sum((Fraction(line.quantity * line.rate, line.per) for line in lines), Fraction())
    charge = charges.calculate(lines, most)
    assert charge.amount == min(math.ceil(exact), math.inf if most is None else most)
    assert charges.decode(charges.encode(charge)) == charge
    visible_charge = charges.to_json(charge)
    assert visible_charge is not None
    assert recomputed(visible_charge) == micros(visible_charge["amount_usd"]) == charge.amount


@pytest.mark.parametrize(
    ("charge", "text"),
    [
        (
            charges.calculate(
                (LineItem("input_tokens", 1200, 100_000, M), LineItem("output_tokens", 300, 400_000, M))
            ),
            "1,200 × 0.10/M + 300 × 0.40/M = 0.00024 USD",
        ),
        (
            charges.calculate(
                (LineItem("cached_tokens", 2000, 50_000, M), LineItem("reasoning_tokens", 7, 1_000_000, M))
            ),
            "2,000 cached × 0.05/M + 7 reasoning × 1.00/M = 0.000107 USD",
        ),
        (
            charges.calculate((run_time(12_345_678, 400_000),)),
            "12,345.678 ms × 0.40/h = 0.001372 USD, rounded up",
        ),
        (
            charges.calculate((LineItem("audio_seconds", 12_500, 6_000, 60_000),)),
            "12.5 s × 0.006/min = 0.00125 USD",
        ),
        (
            charges.calculate((LineItem("output", 2000, 180_000, 1000), LineItem("request", 1, 60_000))),
            "2 × 0.18/output + 1 × 0.06/request = 0.42 USD",
        ),
        (
            charges.calculate((LineItem("image", 3000, 40_000, 1000),), 50_000),
            "3 × 0.04/image = 0.12 USD, limited to the 0.05 USD held",
        ),
        (
            charges.calculate((LineItem("images", 2, 0), LineItem("output_tokens", 1000, 40_000_000, M))),
            "1,000 × 40.00/M = 0.04 USD",
        ),
        (charges.calculate((LineItem("input_tokens", 9, 0, M),)), "9 × 0.00/M = 0.00 USD"),
        (
            charges.calculate((LineItem("input_tokens", 1200, 0, M, 100_000),)),
            "1,200 × 0.00/M = 0.00 USD (list price 0.00012 USD)",
        ),
        (CostBreakdown(0), "0.00 USD"),
    ],
)
def test_charge_is_formatted_as_its_sum(charge: CostBreakdown, text: str) -> None:
    assert charges.in_words(charge) == text


def test_many_runs_are_stored_in_a_bounded_number_of_lines() -> None:
    runs = [(f"model-{at}", 1000 + at, 2) for at in range(5000)]
    lines = charges.group_runs(runs)
    assert len(lines) == charges.MAX_LINES
    assert charges.total(lines) == sum(each * count for _, each, count in runs)
    text = charges.in_words(charges.calculate(lines))
    assert text is not None
    assert "92 more" in text


def test_limit_of_an_older_row_is_read() -> None:
    stored = '{"amount":5,"lines":[["most",10,1,1]],"most":5}'
    assert charges.decode(stored) == CostBreakdown(5, (LineItem("most", 10, 1),), 5)


@pytest.mark.parametrize("stored", [None, charges.NOTHING])
def test_row_without_lines_shows_no_sum_or_zero(stored: str | None) -> None:
    document: Any = charges.to_json(charges.decode(stored))
    assert document == (None if stored is None else {"amount_usd": "0.00", "sum": "0.00 USD", "lines": []})
