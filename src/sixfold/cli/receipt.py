"""The receipt of a prediction in the terminal: six steps, each with its duration and amount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sixfold.cli.terminal import ERASE_LINE, TerminalStyle
from sixfold.core.humanize import duration

STEPS = ("priced", "held", "queued", "run", "stored", "captured")
_ENDED_BADLY = frozenset({"failed", "canceled", "expired"})
_COLUMN = 12


def draw(paint: TerminalStyle, prediction: Mapping[str, Any]) -> None:
    """Print the receipt and the charge of a prediction; steps that were not reached are dimmed."""
    steps = {str(entry["name"]): entry for entry in prediction.get("receipt") or ()}
    if not steps:
        return
    lit = [_is_lit(steps.get(name)) for name in STEPS]
    status = str(prediction.get("status", ""))
    times = [_time(steps.get(name)) for name in STEPS]
    details = [_detail(steps.get(name)) for name in STEPS]
    width = max(_COLUMN, *(len(detail) + 2 for detail in details))
    paint.line("  " + _track(paint, lit, status, width))
    paint.line("  " + _row(paint.bold, paint.dim, lit, STEPS, width))
    paint.line("  " + _row(_same, paint.dim, lit, times, width))
    if any(details):
        paint.line("  " + _row(_same, paint.dim, lit, details, width))
    charge = steps["captured"].get("charge") if "captured" in steps else None
    lines: Sequence[Mapping[str, Any]] = charge["lines"] if charge is not None else ()
    if charge is not None and lines:
        paint.paragraph(str(charge["sum"]))
    # The sum of lines with list rates ends with the list price.
    is_listed = any("list_rate_usd" in line for line in lines)
    if status in _ENDED_BADLY:
        paint.line(f"  {paint.bold(status)}: nothing was charged")
    elif (listed := prediction.get("list_price")) and not is_listed:
        paint.line(f"  list price {listed} USD {paint.dim('(runs on your own hardware are free)')}")
    elif _is_cached_graph(prediction, steps):
        paint.line("  nothing was charged: results of nodes in the cache are free")


def _is_cached_graph(prediction: Mapping[str, Any], steps: Mapping[str, Mapping[str, Any]]) -> bool:
    amounts = [steps[name].get("usd") for name in ("held", "captured") if name in steps]
    is_free = len(amounts) == 2 and amounts[0] != amounts[1] == "0.00"
    return is_free and str(prediction.get("model", "")).startswith("space:")


def _is_lit(entry: Mapping[str, Any] | None) -> bool:
    return entry is not None and entry.get("at") is not None


def _track(paint: TerminalStyle, lit: Sequence[bool], status: str, width: int) -> str:
    """Return a line of six points; after a failure, the point of the last step is a cross."""
    reached = max((index for index, on in enumerate(lit) if on), default=-1)
    points: list[str] = []
    for index, on in enumerate(lit):
        point = "✕" if status in _ENDED_BADLY and index == reached else "●" if on else "○"
        rail = "─" * (width - 1) if index < len(lit) - 1 else ""
        rail_on = on and index < len(lit) - 1 and lit[index + 1]
        points.append((paint.accent if on else paint.dim)(point))
        points.append((paint.accent if rail_on else paint.dim)(rail))
    return "".join(points)


def _row(on: Any, off: Any, lit: Sequence[bool], cells: Sequence[str], width: int) -> str:
    line = (
        (on if is_lit else off)(cell) + " " * (width - len(cell))
        for is_lit, cell in zip(lit, cells, strict=True)
    )
    return "".join(line).rstrip()


def _same(text: str) -> str:
    return text


def _time(entry: Mapping[str, Any] | None) -> str:
    return duration(float(entry["ms"])) if entry is not None and entry.get("ms") is not None else ""


def _detail(entry: Mapping[str, Any] | None) -> str:
    return f"{entry['usd']} USD" if entry is not None and entry.get("usd") else ""


class ReceiptBar:
    """A progress line that redraws itself on a terminal, and is silent otherwise."""

    _CELLS = 28

    def __init__(self, paint: TerminalStyle) -> None:
        self._paint = paint
        self._drawn = False

    def show(self, prediction: Mapping[str, Any], seconds: float) -> None:
        """Draw the progress of a prediction after `seconds`."""
        if not self._paint.is_terminal:
            return
        fraction = min(1.0, max(0.0, float(prediction.get("progress") or 0)))
        full = round(fraction * self._CELLS)
        rail = self._paint.accent("━" * full) + self._paint.dim("━" * (self._CELLS - full))
        status = str(prediction.get("status", ""))
        ahead = prediction.get("queue_position")
        note = f"{ahead} ahead" if status == "queued" and ahead else f"{fraction:4.0%}"
        text = f"  {status.ljust(9)} {rail} {note}  {self._paint.dim(f'{seconds:.0f} s')}"
        self._paint.stream.write(f"{ERASE_LINE}{text}")
        self._paint.stream.flush()
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            self._paint.stream.write(ERASE_LINE)
            self._paint.stream.flush()
            self._drawn = False
