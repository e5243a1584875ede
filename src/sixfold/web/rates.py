"""A limit on the requests of an account, or of an address without a key, in this server's memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from sixfold import errors
from sixfold.web import refusals

BURST_SECONDS = 10.0  # of the rate, which may come at once
_MAX_KEYS = 100_000
_SHARED = ""  # the key of all that do not fit


class RequestRates:
    """At most `per_second` requests for each key, by the generic cell rate algorithm; 0 is no limit.

    A key that owes nothing is forgotten. Where too many do, new ones share one limit: none that counts is
    forgotten for others.
    """

    def __init__(
        self,
        per_second: float,
        noun: str,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = _MAX_KEYS,
    ) -> None:
        self._per_second = per_second
        self._step = 1 / per_second if per_second else 0.0
        self._noun = noun
        self._clock = clock
        self._max_keys = max_keys
        self._due: dict[str, float] = {}  # when all that was asked would be earned
        self._full_until = -math.inf

    def spend(self, key: str) -> None:
        """Count a request; raises `TooManyRequests`."""
        if not self._step:
            return
        moment = self._clock()
        due = self._due.get(key)
        if due is None:
            key, due = self._enter(key, moment)
        due = (due if due > moment else moment) + self._step
        if due > moment + BURST_SECONDS:
            self._refuse(key, due - moment)
        self._due[key] = due

    def _enter(self, key: str, moment: float) -> tuple[str, float]:
        if len(self._due) >= self._max_keys:
            if moment >= self._full_until:
                self._due = {name: due for name, due in self._due.items() if due > moment}
                self._full_until = moment + 1
            if len(self._due) >= self._max_keys:
                return _SHARED, self._due.get(_SHARED, moment)
        return key, moment

    def _refuse(self, key: str, ahead: float) -> None:
        refusals.recorder().add("rate", key)
        raise errors.TooManyRequests(
            f"{self._noun} may make {self._per_second:g} requests a second, and {BURST_SECONDS:g} seconds of "
            "that at once: ask again later",
            retry_after=max(1, math.ceil(ahead - BURST_SECONDS)),
        )
