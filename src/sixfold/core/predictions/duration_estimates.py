"""Estimates of run durations, based on earlier runs on this server since its start."""

from __future__ import annotations

import msgspec

from sixfold.core.clock import SECOND_US, Clock, steady_clock
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState

# Weight of the latest run in the moving average.
_WEIGHT = 0.3


class DurationSample(msgspec.Struct, frozen=True):
    """Moving averages of the duration of runs and of worker starts, in seconds."""

    run: float = 5.0
    start: float = 1.0

    def updated(self, run: float, start: float | None) -> DurationSample:
        """Return the averages including another run; `start` is None if its worker was warm."""
        started = self.start if start is None else self.start + _WEIGHT * (start - self.start)
        return DurationSample(self.run + _WEIGHT * (run - self.run), started)


class DurationEstimator:
    """Average durations by model and engine; a few seconds are assumed before the first run."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or steady_clock()
        self._averages: dict[tuple[str, str], DurationSample] = {}

    def on_event(self, _prediction_id: str, event: Event) -> None:
        """Update the averages when a prediction succeeds; subscribed to the event bus."""
        if not isinstance(event, StateChanged) or event.prediction.state is not PredictionState.SUCCEEDED:
            return
        prediction = event.prediction
        key, durations = (prediction.model, prediction.engine), prediction.durations
        run = durations.run / SECOND_US
        start = durations.cold_start / SECOND_US if durations.cold_start else None
        before = self._averages.get(key)
        if before is None:
            self._averages[key] = DurationSample(run) if start is None else DurationSample(run, start)
        else:
            self._averages[key] = before.updated(run, start)

    def has_sample(self, model: str, engine: str) -> bool:
        """Return whether a run was measured, so that estimates are not only defaults."""
        return (model, engine) in self._averages

    def average(self, model: str, engine: str) -> DurationSample:
        return self._averages.get((model, engine), DurationSample())

    def until_end(self, model: str, engine: str, rounds: int, *, cold: bool) -> float:
        """Return the estimated seconds until the end of a run after `rounds` other runs."""
        average = self.average(model, engine)
        return round((rounds + 1) * average.run + (average.start if cold else 0.0), 3)

    def remaining(self, prediction: Prediction, progress: float) -> float:
        """Return the estimated remaining seconds of a started run, from its progress or the average."""
        began = prediction.started_at or prediction.created_at
        elapsed = max(0, self._clock() - began) / SECOND_US
        if 0 < progress < 1:
            return round(elapsed * (1 - progress) / progress, 3)
        return round(max(0.0, self.average(prediction.model, prediction.engine).run - elapsed), 3)
