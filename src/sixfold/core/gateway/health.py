"""The latency and circuit breaker of each target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

# Consecutive failures that open the circuit.
_FAILURES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 120.0
# Weight of the newest latency in the moving average.
_WEIGHT = 0.2
# One retry costs this many successes or seconds; the budget accumulates at most this many.
_RETRY_COST, _RETRY_STORE = 5, 100


class TargetHealth(msgspec.Struct):
    """The state of one target.

    `open_until` is in seconds of the clock; `busy` is True if the last error was a 429.
    """

    failures: int = 0
    open_until: float = 0.0
    is_half_open: bool = False
    busy: bool = False
    first_seconds: float = 0.0


class HealthTracker:
    """The state of all targets. A half-open circuit admits one trial call, and closes if it succeeds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._targets: dict[str, TargetHealth] = {}
        # Targets whose circuit has opened and that have not responded since.
        self.tripped: set[str] = set()
        self._retries: float = _RETRY_STORE
        self._refilled_at = clock()

    def get(self, target: str) -> TargetHealth:
        health = self._targets.get(target)
        if health is None:
            health = self._targets[target] = TargetHealth()
        return health

    def allows(self, target: str) -> bool:
        """Return whether to call a target now; True for an open circuit makes it half-open for a trial."""
        if target not in self.tripped:
            return True
        health = self.get(target)
        if health.is_half_open or self._clock() < health.open_until:
            return False
        health.is_half_open = True
        return True

    def start_trial(self, targets: Sequence[str]) -> str | None:
        """Start a trial call although the circuits of all these targets are open.

        Returns the target whose pause ends first, or None if a trial call to one of them is in progress.
        Therefore a server that has recovered serves the next request, and a failing server receives one call
        at a time.
        """
        if any(self.get(target).is_half_open for target in targets):
            return None
        first = min(targets, key=lambda target: self.get(target).open_until, default=None)
        if first is not None:
            self.get(first).is_half_open = True
        return first

    def is_open(self, target: str) -> bool:
        """Return whether a target must not be called now."""
        if target not in self.tripped:
            return False
        health = self.get(target)
        return health.is_half_open or self._clock() < health.open_until

    def seconds_until_half_open(self, targets: Iterable[str]) -> int:
        """Return the seconds until one of these targets, all with open circuits, may be called."""
        return max(1, math.ceil(min(self.get(target).open_until for target in targets) - self._clock()))

    def busy(self, targets: Iterable[str]) -> bool:
        """Return whether the last error of all these targets was a 429."""
        return all(self.get(target).busy for target in targets)

    def record_success(self, target: str, first_seconds: float) -> None:
        """Record a response whose first byte took `first_seconds`."""
        health = self.get(target)
        average = health.first_seconds or first_seconds
        health.first_seconds = average + _WEIGHT * (first_seconds - average)
        if health.failures:
            self.tripped.discard(target)
        health.failures, health.is_half_open, health.busy = 0, False, False
        self._retries = min(_RETRY_STORE, self._retries + 1)

    def record_failure(self, target: str, *, busy: bool = False) -> None:
        """Record a failure; `busy` is True for a 429."""
        health = self.get(target)
        health.failures += 1
        health.is_half_open, health.busy = False, busy
        excess = health.failures - _FAILURES
        if excess >= 0:
            self.tripped.add(target)
            health.open_until = self._clock() + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(excess, 8))

    def forget(self, upstream: str) -> None:
        """Drop the state of a server's targets, for example after its URL has changed."""
        for target in [name for name in self._targets if name.startswith(f"{upstream}/")]:
            del self._targets[target]
            self.tripped.discard(target)

    def release_trial(self, target: str) -> None:
        """Release the trial of a call that was not made or whose result is unrelated to the target."""
        self.get(target).is_half_open = False

    def may_retry(self) -> bool:
        """Take one retry from the budget, which limits retries; return whether it was available.

        The budget grows by one retry for every five successes and every five seconds, so that it is never
        exhausted permanently.
        """
        elapsed, self._refilled_at = self._clock() - self._refilled_at, self._clock()
        self._retries = min(_RETRY_STORE, self._retries + elapsed)
        if self._retries < _RETRY_COST:
            return False
        self._retries -= _RETRY_COST
        return True
