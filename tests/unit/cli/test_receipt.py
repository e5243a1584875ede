"""The receipt has the same layout for every outcome of a run."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sixfold.cli import receipt
from sixfold.cli.terminal import TerminalStyle


def rendered_receipt(prediction: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    receipt.draw(TerminalStyle(stream), prediction)
    return stream.getvalue().splitlines()


def step(name: str, ms: float | None, usd: str | None = None, *, at: bool = True) -> dict[str, Any]:
    return {"name": name, "at": "2026-11-20T22:00:00.000Z" if at else None, "ms": ms, "usd": usd}


SUCCEEDED = [
    step("priced", 0.24, "0.04"),
    step("held", None, "0.04"),
    step("queued", 3.2),
    step("run", 1234),
    step("stored", 24.4),
    step("captured", 9.96, "0.04"),
]
FAILED = [*SUCCEEDED[:4], step("stored", None, at=False), step("captured", None, "0.00", at=False)]


def test_receipt_shows_six_steps_with_time_and_amount() -> None:
    assert rendered_receipt({"status": "succeeded", "receipt": SUCCEEDED}) == [
        "  ●───────────●───────────●───────────●───────────●───────────●",
        "  priced      held        queued      run         stored      captured",
        "  0.2 ms                  3.2 ms      1.2 s       24 ms       10.0 ms",
        "  0.04 USD    0.04 USD                                        0.04 USD",
    ]


def test_columns_widen_for_small_amounts() -> None:
    steps = [step("priced", 1.6, "0.058334"), step("held", None, "0.058334"), *SUCCEEDED[2:]]
    lines = rendered_receipt({"status": "succeeded", "receipt": steps})
    assert lines[3].startswith("  0.058334 USD  0.058334 USD  ")
    assert [lines[0].find("●", 3), lines[1].find("held")] == [lines[3].find("0.058334", 3)] * 2


def test_failed_step_is_marked_with_a_cross() -> None:
    lines = rendered_receipt({"status": "failed", "receipt": FAILED})
    assert lines[0] == "  ●───────────●───────────●───────────✕───────────○───────────○"
    assert lines[-1] == "  failed: nothing was charged"


def test_prediction_without_a_receipt_prints_nothing() -> None:
    assert rendered_receipt({"status": "queued"}) == []


class Terminal(io.StringIO):
    """Stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_bar_is_shown_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for stream, silent in ((io.StringIO(), True), (Terminal(), False)):
        bar = receipt.ReceiptBar(TerminalStyle(stream))
        bar.show({"status": "running", "progress": 0.5}, 3)
        bar.clear()
        assert (stream.getvalue() == "") == silent
        assert ("50%" in stream.getvalue()) != silent


def test_no_color_variable_disables_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" in TerminalStyle(Terminal()).accent("x")
    monkeypatch.setenv("NO_COLOR", "1")
    assert TerminalStyle(Terminal()).accent("x") == "x"


def test_calculation_of_the_charge_is_below_the_steps() -> None:
    charge = {"amount_usd": "0.04", "sum": "1 × 0.04/image = 0.04 USD", "lines": [{"unit": "image"}]}
    paid = [*SUCCEEDED[:5], {**SUCCEEDED[5], "charge": charge}]
    assert rendered_receipt({"status": "succeeded", "receipt": paid})[4:] == ["  1 × 0.04/image = 0.04 USD"]
    free = [*SUCCEEDED[:5], {**SUCCEEDED[5], "charge": {**charge, "lines": []}}]
    assert len(rendered_receipt({"status": "succeeded", "receipt": free})) == 4


@pytest.mark.parametrize(
    ("model", "held", "lines"), [("space:wf", "0.04", 1), ("space:wf", "0.00", 0), ("ra1", "0.04", 0)]
)
def test_graph_with_cached_results_states_why_it_is_free(model: str, held: str, lines: int) -> None:
    steps = [SUCCEEDED[0], step("held", None, held), *SUCCEEDED[2:5], step("captured", 9.96, "0.00")]
    shown = rendered_receipt({"status": "succeeded", "model": model, "receipt": steps})[4:]
    assert shown == ["  nothing was charged: results of nodes in the cache are free"][:lines]


def test_list_price_is_shown_once() -> None:
    total = "1 × 0.00/image = 0.00 USD (list price 0.04 USD)"
    line = {"unit": "image", "rate_usd": "0.00", "list_rate_usd": "0.04"}
    prediction = {"status": "succeeded", "list_price": "0.04"}
    for words in (total, "0.00 USD"):
        charge = {"amount_usd": "0.00", "sum": words, "lines": [line]}
        free = [*SUCCEEDED[:5], {**SUCCEEDED[5], "charge": charge}]
        assert rendered_receipt({**prediction, "receipt": free})[4:] == [f"  {words}"]
    (shown,) = rendered_receipt({**prediction, "receipt": SUCCEEDED})[4:]
    assert shown == "  list price 0.04 USD (runs on your own hardware are free)"
