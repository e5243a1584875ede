"""How well each target does: its latency, and whether to leave it alone for a while."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_FAILURES = 5  # in a row, and the circuit opens
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 120.0
_WEIGHT = 0.2  # of the newest latency in the average
_RETRY_COST, _RETRY_STORE = 5, 100  # in successes


@dataclass(slots=True)
class TargetHealth:
    """What is known of one target; `open_until` in the clock's seconds."""

    failures: int = 0
    open_until: float = 0.0
    trying: bool = False
    busy: bool = False  # the last failure was for being asked too often
    first_seconds: float = 0.0


class HealthTracker:
    """Standings by target. A circuit that was open lets one call through before it closes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, TargetHealth] = {}
        self.out: set[str] = set()  # whose circuit has opened, and who have not answered since
        self._retries = _RETRY_STORE

    def standing(self, target: str) -> TargetHealth:
        """How a target stands."""
        found = self._known.get(target)
        if found is None:
            found = self._known[target] = TargetHealth()
        return found

    def allows(self, target: str) -> bool:
        """Whether a target may be asked now; an open circuit's first call is its trial."""
        if target not in self.out:
            return True
        found = self.standing(target)
        if found.trying or self._clock() < found.open_until:
            return False
        found.trying = True
        return True

    def is_open(self, target: str) -> bool:
        """Whether a target is left alone now."""
        if target not in self.out:
            return False
        found = self.standing(target)
        return found.trying or self._clock() < found.open_until

    def again_in(self, targets: Iterable[str]) -> int:
        """After how many seconds the first of these, which are all left alone, may be asked."""
        return max(1, math.ceil(min(self.standing(target).open_until for target in targets) - self._clock()))

    def busy(self, targets: Iterable[str]) -> bool:
        """Whether all of these were too busy when they were last asked, none broken."""
        return all(self.standing(target).busy for target in targets)

    def succeeded(self, target: str, first_seconds: float) -> None:
        """It answered; `first_seconds` until its first byte."""
        found = self.standing(target)
        old = found.first_seconds or first_seconds
        found.first_seconds = old + _WEIGHT * (first_seconds - old)
        if found.failures:
            self.out.discard(target)
        found.failures, found.trying, found.busy = 0, False, False
        self._retries = min(_RETRY_STORE, self._retries + 1)

    def failed(self, target: str, *, busy: bool = False) -> None:
        """It did not, or was too `busy` to."""
        found = self.standing(target)
        found.failures += 1
        found.trying, found.busy = False, busy
        over = found.failures - _FAILURES
        if over >= 0:
            self.out.add(target)
            found.open_until = self._clock() + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(over, 8))

    def forget(self, upstream: str) -> None:
        """Know nothing of the targets of a server any more, as after its address has changed."""
        for target in [name for name in self._known if name.startswith(f"{upstream}/")]:
            del self._known[target]
            self.out.discard(target)

    def untried(self, target: str) -> None:
        """It was not asked after all, or its answer says nothing about it."""
        self.standing(target).trying = False

    def may_retry(self) -> bool:
        """Whether one more attempt is in the budget: a fifth of what succeeds, so that no storm grows."""
        if self._retries < _RETRY_COST:
            return False
        self._retries -= _RETRY_COST
        return True
