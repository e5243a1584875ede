"""Time expressions in queries, and their effect on search."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from sixfold.core.clock import DAY_US
from sixfold.core.memory.commands import FREELY
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search import time_expressions
from tests.harness import databases
from tests.unit.memory.fixtures import open_memory

NOW = round(datetime(2026, 11, 20, 15, 30, tzinfo=UTC).timestamp()) * 1_000_000  # a Friday


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("what did Ann say yesterday?", "2026-11-19", "2026-11-19"),
        ("the day before yesterday", "2026-11-18", "2026-11-18"),
        ("plans of today", "2026-11-20", "2026-11-20"),
        ("decisions last week", "2026-11-09", "2026-11-15"),
        ("this week", "2026-11-16", "2026-11-22"),
        ("in the past week", "2026-11-13", "2026-11-20"),
        ("in the last week", "2026-11-13", "2026-11-20"),
        ("over the last three days", "2026-11-17", "2026-11-20"),
        ("two months ago", "2026-09-01", "2026-09-30"),
        ("a year ago", "2025-01-01", "2025-12-31"),
        ("3 weeks ago", "2026-10-26", "2026-11-01"),
        ("10 days ago", "2026-11-10", "2026-11-10"),
        ("Last month", "2026-10-01", "2026-10-31"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("in March", "2026-03-01", "2026-03-31"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("in February 2024", "2024-02-01", "2024-02-29"),
        ("since March", "2026-03-01", "2026-11-20"),
        ("on Monday", "2026-11-16", "2026-11-16"),
        ("last Friday", "2026-11-13", "2026-11-13"),
        ("what was made in 2024", "2024-01-01", "2024-12-31"),
        ("since yesterday", "2026-11-19", "2026-11-20"),
    ],
)
def test_time_expression_is_parsed_to_a_range_of_days(text: str, first: str, last: str) -> None:
    result = time_expressions.parse(text, NOW)
    assert result is not None
    assert (result.since, result.until) == time_expressions.micros(
        date.fromisoformat(first), date.fromisoformat(last)
    )


@pytest.mark.parametrize(
    "text", ["", "march on", "a may pole", "the last one", "999 bottles", "weekly", "at last"]
)
def test_other_words_are_not_time_expressions(text: str) -> None:
    assert not time_expressions.mentioned(text)
    assert time_expressions.parse(text, NOW) is None


@pytest.mark.parametrize(
    ("moment", "days"), [("2024-02", ("2024-02-01", "2024-02-29")), ("2026", ("2026-01-01", "2026-12-31"))]
)
def test_range_of_a_time_has_its_precision(moment: str, days: tuple[str, str]) -> None:
    first, last = (date.fromisoformat(day) for day in days)
    assert time_expressions.named(moment) == time_expressions.micros(first, last)
    assert (
        time_expressions.named("")
        is time_expressions.named("--05")
        is time_expressions.named("2026-02-30")
        is None
    )


def test_distant_past_is_within_the_calendar() -> None:
    assert time_expressions.parse("999 years ago", NOW) is not None
    assert time_expressions.parse("999 weeks ago", 0) is not None


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_pages_of_the_requested_time_rank_first(backend: str, tmp_path: Path) -> None:
    at = [NOW]
    async with open_memory(backend, lambda: at[0], folder=tmp_path) as memory:

        async def put(slug: str, body: str, days_ago: int) -> None:
            at[0] = NOW - days_ago * DAY_US
            await memory.service.write(memory.ann, PageWrite(slug, body), FREELY)
            at[0] = NOW

        async def slugs(query: str) -> list[str]:
            hits = (await memory.service.search(memory.ann, SearchRequest(query))).hits
            return [hit.slug for hit in hits]

        await put("notes/anvil-now", "The anvil, the anvil and once more the anvil.", 0)
        await put("notes/anvil-then", "We cast an anvil of iron, as it was ordered.", 8)
        await put("log/2026-03-14", "The anvil was ordered.", 0)
        await put("notes/pears", "Pears are ripe.", 1)
        assert (await slugs("anvil"))[0] == "notes/anvil-now"
        assert (await slugs("anvil last week"))[0] == "notes/anvil-then"
        assert (await slugs("anvil in March"))[0] == "log/2026-03-14"
        assert (await slugs("what happened yesterday?")) == ["notes/pears"]
        assert (await slugs("what was new eight months ago")) == ["log/2026-03-14"]
        assert await slugs("marmalade yesterday") == []
        explained = await memory.service.search(memory.ann, SearchRequest("anvil last week", explain=True))
        messages = [hit.explain["when"] for hit in explained.hits if hit.explain]
        assert messages == [0.6] + [0.0] * (len(messages) - 1)
