"""Limits on what stays open: websockets and streams, for each account and for the server."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any

from sixfold import errors
from sixfold.web import refusals

_HELD = "sixfold.held"  # of a scope: what is released when its request or websocket ends


class Slots:
    """At most `per_holder` of one kind for each account, and `total` for the server; 0 is no limit.

    `reason` is the label in the metrics.
    """

    def __init__(self, reason: str, noun: str, per_holder: int, total: int = 0) -> None:
        self._reason = reason
        self._noun = noun
        self._per_holder = per_holder
        self._total = total
        self.open = 0
        self.holders = Counter[str]()

    def hold(self, scope: MutableMapping[str, Any], holder: str) -> None:
        """Take one of an account's slots until the request of `scope` ends; raises `TooManyStreams`."""
        if not self._per_holder:
            return
        if self.holders[holder] >= self._per_holder:
            refusals.recorder().add(self._reason, holder)
            raise errors.TooManyStreams(
                f"This account has {self._per_holder} {self._noun} open, which is the limit: close some",
                code=f"too_many_{self._reason}",
            )
        self.holders[holder] += 1
        _held(scope).append(functools.partial(self._leave_holder, holder))

    def enter(self, scope: MutableMapping[str, Any], caller: str) -> None:
        """Take one of the server's slots until the request of `scope` ends; raises `TooManyConnections`."""
        if self._total and self.open >= self._total:
            refusals.recorder().add(self._reason, caller)
            raise errors.TooManyConnections(
                f"The server has too many {self._noun} open; ask again in a moment"
            )
        self.open += 1
        _held(scope).append(self._leave)

    def _leave(self) -> None:
        self.open -= 1

    def _leave_holder(self, holder: str) -> None:
        self.holders[holder] -= 1
        if self.holders[holder] <= 0:
            del self.holders[holder]


def _held(scope: MutableMapping[str, Any]) -> list[Callable[[], None]]:
    return scope.setdefault(_HELD, [])


def release(scope: MutableMapping[str, Any]) -> None:
    """Release what a request or websocket held."""
    for leave in scope.pop(_HELD, ()):
        leave()
