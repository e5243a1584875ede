"""Small charts of the last 24 hours, rendered as SVG on the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sixfold.core import money
from sixfold.core.clock import rfc3339
from sixfold.core.predictions.admin_figures import STEP_US, FigureSlot
from sixfold.ui.templating import duration

WIDTH, HEIGHT = 240.0, 56.0
_TOP = 4.0


class SparkLine(msgspec.Struct, frozen=True):
    """One line of a chart: its name, its value in words, its color, and its paths in chart units."""

    name: str
    value: str
    hue: str
    line: str
    area: str


class Sparkline(msgspec.Struct, frozen=True):
    """A chart with up to three lines; `summary` describes it in words."""

    title: str
    lines: tuple[SparkLine, ...]
    summary: str


def charts(slots: Sequence[FigureSlot]) -> tuple[Sparkline, ...]:
    """Return the charts of the queue and the workers, run times, failures and money."""
    runs, calls = sum(slot.runs for slot in slots), sum(slot.calls for slot in slots)
    median, high = (_last([slot.median_us for slot in slots]), _last([slot.high_us for slot in slots]))
    failed = sum(slot.failed for slot in slots)
    by_calls = sum(slot.earned_by_calls for slot in slots)
    earned, spent = sum(slot.earned for slot in slots), sum(slot.spent for slot in slots)
    return (
        _chart(
            "Queue and workers",
            slots,
            (
                ("waiting, mean", _number(slots[-1].queue), "hosting", lambda slot: round(slot.queue, 2)),
                ("busy workers", _number(slots[-1].busy), "reached", lambda slot: round(slot.busy, 2)),
            ),
            _number,
        ),
        _chart(
            "Run time",
            slots,
            (
                ("median", duration(median), "gateway", lambda slot: slot.median_us),
                ("95th percentile", duration(high), "media", lambda slot: slot.high_us),
            ),
            lambda value: duration(round(value)),
        ),
        _chart(
            "Errors",
            slots,
            ((f"of {runs + calls} requests", str(failed), "wrong", lambda slot: slot.failed),),
            lambda value: f"{value:g}",
        ),
        _chart(
            "Earned and provider cost",
            slots,
            (
                ("USD by runs", money.short_usd(earned), "reached", lambda slot: slot.earned),
                ("by calls", money.short_usd(by_calls), "gateway", lambda slot: slot.earned_by_calls),
                ("to providers", money.short_usd(spent), "media", lambda slot: slot.spent),
            ),
            lambda value: f"{money.short_usd(round(value))} USD",
        ),
    )


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _last(values: Sequence[int | None]) -> int | None:
    return next((value for value in reversed(values) if value is not None), None)


def _chart(
    title: str,
    slots: Sequence[FigureSlot],
    lines: Sequence[tuple[str, str, str, Callable[[FigureSlot], float | None]]],
    in_words: Callable[[float], str],
) -> Sparkline:
    values = [[value(slot) for slot in slots] for *_, value in lines]
    highest = max((number or 0.0 for line in values for number in line), default=0.0)
    peak = max(range(len(slots)), key=lambda at: max(line[at] or 0.0 for line in values))
    spark_lines = tuple(
        SparkLine(name, text, hue, *_paths(numbers, highest))
        for (name, text, hue, _), numbers in zip(lines, values, strict=True)
    )
    start, end = (_minute(slots[peak].start + offset) for offset in (0, STEP_US))
    between = f"between {start} and {end} UTC"
    summary = f"highest {in_words(highest)} {between}" if highest else "nothing in 24 hours"
    return Sparkline(title, spark_lines, summary)


def _minute(moment: int) -> str:
    return (rfc3339(moment) or "")[11:16]


def _paths(values: Sequence[float | None], highest: float) -> tuple[str, str]:
    """Return the SVG paths of a line and of the area below it; a missing value repeats the previous one."""
    points: list[str] = []
    level = 0.0
    for index, value in enumerate(values):
        level = level if value is None else value
        x = WIDTH * index / max(1, len(values) - 1)
        y = HEIGHT - (HEIGHT - _TOP) * (level / highest if highest else 0.0)
        points.append(f"{x:.4g} {y:.4g}")
    line = "M" + "L".join(points)
    return line, f"{line}L{WIDTH:g} {HEIGHT:g}L0 {HEIGHT:g}Z"
