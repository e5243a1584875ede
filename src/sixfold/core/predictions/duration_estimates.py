"""How long a run is likely to take: what the runs before it took, here and since the server's start."""

from __future__ import annotations

from dataclasses import dataclass

from sixfold.core.clock import SECOND_US, Clock, steady_clock
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState

_WEIGHT = 0.3  # of the latest run in the mean


@dataclass(frozen=True, slots=True)
class DurationSample:
    """A mean in seconds: of the run itself, and of the worker's start before it."""

    run: float = 5.0
    start: float = 1.0

    def and_then(self, run: float, start: float | None) -> DurationSample:
        """The mean with one run more; a warm one says nothing of the start."""
        started = self.start if start is None else self.start + _WEIGHT * (start - self.start)
        return DurationSample(self.run + _WEIGHT * (run - self.run), started)


class DurationEstimator:
    """What runs took, by model and engine; a guess of a few seconds before there was any."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or steady_clock()
        self._took: dict[tuple[str, str], DurationSample] = {}

    def heard(self, _prediction_id: str, event: Event) -> None:
        """Learn from a prediction that has succeeded."""
        if not isinstance(event, StateChanged) or event.prediction.state is not PredictionState.SUCCEEDED:
            return
        prediction = event.prediction
        key, stations = (prediction.model, prediction.engine), prediction.stations
        run = stations.run / SECOND_US
        start = stations.cold_start / SECOND_US if stations.cold_start else None
        before = self._took.get(key)
        if before is None:
            self._took[key] = DurationSample(run) if start is None else DurationSample(run, start)
        else:
            self._took[key] = before.and_then(run, start)

    def knows(self, model: str, engine: str) -> bool:
        """Whether any run was measured, so that what is told is no mere guess."""
        return (model, engine) in self._took

    def usual(self, model: str, engine: str) -> DurationSample:
        """What a run usually takes."""
        return self._took.get((model, engine), DurationSample())

    def until_end(self, model: str, engine: str, rounds: int, *, cold: bool) -> float:
        """Seconds until a run ends that waits for so many rounds of others before it."""
        took = self.usual(model, engine)
        return round((rounds + 1) * took.run + (took.start if cold else 0.0), 3)

    def left(self, prediction: Prediction, progress: float) -> float:
        """Seconds that a run which has begun likely needs still, by its progress or by others' times."""
        began = prediction.started_at or prediction.created_at
        elapsed = max(0, self._clock() - began) / SECOND_US
        if 0 < progress < 1:
            return round(elapsed * (1 - progress) / progress, 3)
        return round(max(0.0, self.usual(prediction.model, prediction.engine).run - elapsed), 3)
