"""Messages of runs that a history repeats: bounded by their bytes."""

from __future__ import annotations

from sixfold.core.graphs.hub import Hub


def test_messages_of_runs_are_bounded_by_their_bytes() -> None:
    hub = Hub()
    for number in range(12):
        for _ in range(2):  # of each kind the last one counts
            hub.said(f"pred_{number}", "execution_error", {"traceback": "x" * 2**20})
    assert [number for number in range(12) if hub.messages(f"pred_{number}")] == [5, 6, 7, 8, 9, 10, 11]
    assert 7 * 2**20 < hub.size <= 8 * 2**20
    hub.said("pred_large", "execution_error", {"traceback": "x" * 9 * 2**20})
    assert [each[0] for each in hub.messages("pred_large")] == ["execution_error"]
    assert hub.messages("pred_11") == []
