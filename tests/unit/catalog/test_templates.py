"""Templates: hardware prices, expected run times, and events repeated to new subscribers."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.hardware import HardwareCatalog
from sixfold.core.catalog.metering import HardwareRate
from sixfold.core.catalog.templates import Templates
from sixfold.core.predictions.duration_estimates import DurationEstimator
from sixfold.core.predictions.event_history import EventHistories, has_seen_end
from sixfold.core.predictions.events import LogEvent, StateChanged
from sixfold.core.predictions.models import StepDurations
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers.pool import WorkerPool, WorkerSlot
from sixfold.settings import Settings
from tests.harness.pipeline import Options, running_pipeline

SECOND = 1_000_000


def test_each_hardware_costs_what_its_template_says() -> None:
    result = app_catalog.templates()
    assert result.hardware_rate("piano", None) == HardwareRate("gpu-24gb-a", 420_000)
    assert result.hardware_rate("piano", "gpu-24gb-a") == HardwareRate("gpu-24gb-a", 420_000)
    assert result.hardware_rate("piano", "gpu-16gb-a") == HardwareRate("gpu-16gb-a", 300_000)
    assert result.hardware_rate("text-to-3d", None) == HardwareRate("gpu-24gb-b", 540_000)
    for hardware in ("gpu-16gb-a", "gpu-9000"):
        with pytest.raises(errors.InvalidInput) as excinfo:
            result.hardware_rate("video-t2v", hardware)
        assert excinfo.value.problems[0].input == "hardware"


def test_template_with_unknown_hardware_is_refused() -> None:
    row = {"hardware": "gpu-9000", "price_hour": "1", "repository": "r", "license": "l"}
    with pytest.raises(errors.InvalidInput):
        Templates({"x": row}, HardwareCatalog({}))


def test_idle_time_follows_last_template_unless_configured() -> None:
    engine = app_catalog.catalog(Settings(), app_catalog.price_table(Settings())).engines()
    pool, now = WorkerPool(engine["scene-painter"]), time.monotonic()
    pool.slots = [WorkerSlot(since=now, idle_seconds=3600.0), WorkerSlot(since=now, idle_seconds=0.0)]
    remaining = pool.slots[0]
    list(pool.pop_idle(None))
    slots = pool.slots
    assert slots == [remaining]
    list(pool.pop_idle(None))
    # A list per engine and second would hold memory that could otherwise be returned.
    assert pool.slots is slots
    list(pool.pop_idle(0.0))
    assert pool.slots == []


async def test_run_times_are_estimated_from_earlier_runs(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options()) as pipeline:
        result = await pipeline.run()
    clock = iter(range(SECOND, 100 * SECOND, SECOND))
    times = DurationEstimator(lambda: next(clock))
    guess = times.until_end(result.model, result.engine, 0, cold=True)
    assert not times.has_sample(result.model, result.engine)
    durations = StepDurations(1, 1, 2 * SECOND, 10 * SECOND, 1, 1)
    prediction = msgspec.structs.replace(result, durations=durations)
    times.on_event(prediction.id, StateChanged(prediction))
    assert guess == 6.0
    assert times.has_sample(result.model, result.engine)
    assert times.until_end(result.model, result.engine, 0, cold=True) == 12.0
    assert times.until_end(result.model, result.engine, 2, cold=False) == 30.0
    quick = msgspec.structs.replace(
        prediction, durations=msgspec.structs.replace(durations, run=0, cold_start=0)
    )
    times.on_event(quick.id, StateChanged(quick))
    assert times.average(result.model, result.engine).run == pytest.approx(7.0)
    assert times.average(result.model, result.engine).start == pytest.approx(2.0)
    current_prediction = msgspec.structs.replace(prediction, state=PredictionState.RUNNING, started_at=SECOND)
    # No time has passed yet.
    assert times.remaining(current_prediction, 0.5) == 0.0
    assert times.remaining(current_prediction, 0.5) == 1.0
    assert times.remaining(current_prediction, 0.0) == pytest.approx(5.0)


async def test_full_history_drops_its_oldest_events_with_a_notice(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        queued = await pipeline.service.submit(pipeline.request())
    moment = queued.created_at
    histories = EventHistories(lambda: moment)
    histories.add("pred_other", LogEvent("nobody knows of it"))
    assert histories.get("pred_other") is None
    histories.add(queued.id, StateChanged(queued))
    for line in range(999):
        histories.add(queued.id, LogEvent(str(line)))
    history = histories.get(queued.id)
    assert history is not None
    assert [number for number, _ in history.since(0) or ()] == list(range(2, 2001, 2))
    histories.add(queued.id, LogEvent("one too many"))
    assert history.since(0) is None
    assert history.since(2002) == ()
    assert [number for number, _ in history.since(1998) or ()] == [2000, 2002]


async def test_histories_are_bounded_by_the_bytes_of_their_documents(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        queued = await pipeline.service.submit(pipeline.request(extras={"graph": "x" * 2**20}))
    assert 2**20 < queued.size < 2**20 + 1000
    histories = EventHistories(lambda: queued.created_at, max_bytes=4 * 2**20)
    for number in range(9):
        histories.add(f"pred_{number}", StateChanged(queued))
    assert [number for number in range(9) if histories.get(f"pred_{number}") is not None] == [6, 7, 8]
    assert histories.size == 3 * queued.size
    for line in range(1200):
        histories.add("pred_7", LogEvent("y" * 10_000 if line < 200 else ""))
    # Only the event of pred_8 remains, because the long lines of pred_7 were dropped first.
    assert histories.size == queued.size
    assert [number for number in range(9) if histories.get(f"pred_{number}") is not None] == [7, 8]


async def test_history_end_is_recorded_once_with_the_record_number(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        queued = await pipeline.service.submit(pipeline.request())
    prediction = msgspec.structs.replace(
        queued, state=PredictionState.SUCCEEDED, completed_at=queued.created_at + 50_000
    )
    # This process may receive the end later than the process that ran the prediction.
    for late in (0, 70_000):
        moment = prediction.created_at + 50_000 + late
        histories = EventHistories(lambda moment=moment: moment)
        for event in (
            StateChanged(queued),
            StateChanged(prediction),
            StateChanged(prediction),
            LogEvent("late"),
        ):
            histories.add(queued.id, event)
        history = histories.get(queued.id)
        assert history is not None
        assert [event for _, event in history.events] == [StateChanged(queued), StateChanged(prediction)]
        number = history.last
        assert number % 2 == 1
        assert has_seen_end(prediction, number)
        assert not has_seen_end(prediction, number - 1)
        assert not has_seen_end(queued, number)
    # The end cannot have such a low number.
    assert not has_seen_end(prediction, 49)
