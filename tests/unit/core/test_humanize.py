"""Sizes and durations as text."""

from __future__ import annotations

import pytest

from sixfold.core import humanize
from sixfold.ui.templating import duration


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0 ms"),
        (9.94, "9.9 ms"),
        (41.2, "41 ms"),
        (1234, "1.2 s"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
    ],
)
def test_duration_is_formatted_for_people(ms: float, text: str) -> None:
    assert humanize.duration(ms) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (812, "812 B"), (1437, "1.4 kB"), (2_500_000, "2.5 MB"), (10**13, "10000 GB")],
)
def test_size_is_formatted_for_people(count: int, text: str) -> None:
    assert humanize.size(count) == text


@pytest.mark.parametrize(
    ("max_bytes", "text"),
    [(800, "800 bytes"), (32 << 20, "32 MiB"), (3 << 19, "1.5 MiB"), (1 << 30, "1024 MiB")],
)
def test_limit_is_formatted_exactly(max_bytes: int, text: str) -> None:
    assert humanize.limit(max_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "10 ms"), (0.0437, "40 ms"), (0.997, "1.0 s"), (1.24, "1.2 s"), (12.4, "12 s"), (200, "3 min")],
)
def test_estimate_is_formatted_with_few_digits(seconds: float, text: str) -> None:
    assert humanize.roughly(seconds) == text


@pytest.mark.parametrize(("micros", "text"), [(None, "–"), (1_234, "1.2 ms"), (1_240_000, "1.2 s")])
def test_unfinished_step_has_no_duration(micros: int | None, text: str) -> None:
    assert duration(micros) == text


def test_a_count_of_one_has_the_singular() -> None:
    assert [humanize.count(number, "node") for number in (0, 1, 2000)] == ["0 nodes", "1 node", "2,000 nodes"]
