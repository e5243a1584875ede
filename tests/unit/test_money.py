"""Conversion of amounts from and to text is exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core import money


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (40_000, "0.04"),
        (7_000, "0.007"),
        (21_000, "0.021"),
        (300_000, "0.30"),
        (1, "0.000001"),
        (-5, "-0.000005"),
    ],
)
def test_amount_has_two_decimals_or_as_many_as_needed(micros: int, text: str) -> None:
    assert money.format_usd(micros) == text


@given(st.integers(-(2**60), 2**60))
def test_formatted_amount_parses_to_the_same_amount(micros: int) -> None:
    assert money.parse_usd(money.format_usd(micros)) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0.0000001",
        "NaN",
        "Infinity",
        "1e-9",
        "1e999999",
        "-1e999999",
        "1e99999",
        "1e13",
        "1e-999999",
    ],
)
def test_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        money.parse_usd(text)


def test_credits_are_rounded_up() -> None:
    assert [money.credits_for(micros) for micros in (0, 1, 10_000, 10_001)] == [0, 1, 1, 2]
