"""Latency and circuit breaker of each target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Consecutive failures that open the circuit.
_FAILURES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 120.0
# Weight of the newest latency in the moving average.
_WEIGHT = 0.2
# One retry costs this many successes; the budget saves up at most this many.
_RETRY_COST, _RETRY_STORE = 5, 100


@dataclass(slots=True)
class TargetHealth:
    """State of one target. `open_until` is in seconds of the clock; `busy` if the last error was a 429."""

    failures: int = 0
    open_until: float = 0.0
    trying: bool = False
    busy: bool = False
    first_seconds: float = 0.0


class HealthTracker:
    """State of all targets. An open circuit lets one trial call through before it closes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, TargetHealth] = {}
        # Targets whose circuit has opened and that have not responded since.
        self.out: set[str] = set()
        self._retries = _RETRY_STORE

    def standing(self, target: str) -> TargetHealth:
        """Return the state of a target."""
        found = self._known.get(target)
        if found is None:
            found = self._known[target] = TargetHealth()
        return found

    def allows(self, target: str) -> bool:
        """Return whether to call a target now; for an open circuit, True starts the trial call."""
        if target not in self.out:
            return True
        found = self.standing(target)
        if found.trying or self._clock() < found.open_until:
            return False
        found.trying = True
        return True

    def is_open(self, target: str) -> bool:
        """Return whether a target must not be called now."""
        if target not in self.out:
            return False
        found = self.standing(target)
        return found.trying or self._clock() < found.open_until

    def again_in(self, targets: Iterable[str]) -> int:
        """Return the seconds until the first of these targets, all with open circuits, may be called."""
        return max(1, math.ceil(min(self.standing(target).open_until for target in targets) - self._clock()))

    def busy(self, targets: Iterable[str]) -> bool:
        """Return whether the last error of all these targets was a 429."""
        return all(self.standing(target).busy for target in targets)

    def succeeded(self, target: str, first_seconds: float) -> None:
        """Record a response whose first byte took `first_seconds`."""
        found = self.standing(target)
        old = found.first_seconds or first_seconds
        found.first_seconds = old + _WEIGHT * (first_seconds - old)
        if found.failures:
            self.out.discard(target)
        found.failures, found.trying, found.busy = 0, False, False
        self._retries = min(_RETRY_STORE, self._retries + 1)

    def failed(self, target: str, *, busy: bool = False) -> None:
        """Record a failure; `busy` for a 429."""
        found = self.standing(target)
        found.failures += 1
        found.trying, found.busy = False, busy
        over = found.failures - _FAILURES
        if over >= 0:
            self.out.add(target)
            found.open_until = self._clock() + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(over, 8))

    def forget(self, upstream: str) -> None:
        """Drop the state of a server's targets, for example after its URL has changed."""
        for target in [name for name in self._known if name.startswith(f"{upstream}/")]:
            del self._known[target]
            self.out.discard(target)

    def untried(self, target: str) -> None:
        """Release the trial of a call that was not made or whose result says nothing about the target."""
        self.standing(target).trying = False

    def may_retry(self) -> bool:
        """Take one retry from the budget: a fifth of the successes, so that retries cannot flood a server."""
        if self._retries < _RETRY_COST:
            return False
        self._retries -= _RETRY_COST
        return True
