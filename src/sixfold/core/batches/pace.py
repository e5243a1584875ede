"""The number of lines of a batch that run concurrently on one server."""

from __future__ import annotations

# Answers per running line after which one more line may run.
_ANSWERS_PER_STEP = 4
# Pauses without an answer after which a lack of money is considered permanent.
_SHORT_PAUSES = 6


class Pace:
    """Limits concurrent lines: half as many after a refusal by a limit, gradually more after answers."""

    def __init__(self, max_width: int) -> None:
        self._max_width = max_width
        self._width = max_width
        self._answers = 0
        # Pauses since the last answer.
        self._pauses = 0
        self._paused_until = 0.0

    @property
    def may_recover(self) -> bool:
        """Whether a lack of money may be due to other lines: the pauses without an answer are few."""
        return self._pauses < _SHORT_PAUSES

    def allows(self, running: int, time: float) -> bool:
        """Return whether another line may start while `running` lines are running."""
        return running < self._width and time >= self._paused_until

    def succeeded(self) -> None:
        self._answers += 1
        self._pauses = 0
        if self._answers >= _ANSWERS_PER_STEP * self._width:
            self._width, self._answers = min(self._max_width, self._width + 1), 0

    def refused(self, time: float, until: float) -> None:
        """Start no lines until a time, then fewer at a time; refusals during a pause only extend it."""
        if time >= self._paused_until:
            self._width, self._answers = max(1, self._width // 2), 0
            self._pauses += 1
        self._paused_until = max(until, self._paused_until)
