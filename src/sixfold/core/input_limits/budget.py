"""Limits on the objects that a reader builds from untrusted input, checked before they are built."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from sixfold import errors


class Limit(NamedTuple):
    """The maximum of a quantity; the message contains `{}` or `{:,}` as a placeholder."""

    maximum: int
    message: str
    error: Callable[[str], Exception] = errors.InputTooLarge

    def exceeded(self) -> Exception:
        """Return the error for input that exceeds this limit."""
        return self.error(self.message.format(self.maximum))


class InputBudget:
    """Counts quantities of one input, such as items, bytes and nesting levels, against limits by name.

    A reader calls `spend` before it allocates.
    """

    __slots__ = ("_deadline", "_limits", "_spent", "_time")

    def __init__(self, *, cpu_ms: Limit | None = None, **limits: Limit) -> None:
        self._limits = limits
        self._spent = dict.fromkeys(limits, 0)
        self._time = cpu_ms
        self._deadline = time.thread_time() + cpu_ms.maximum / 1000 if cpu_ms is not None else 0.0

    def spend(self, **amounts: int) -> None:
        """Add amounts that are about to be allocated; raises the error of the first exceeded limit."""
        for name, amount in amounts.items():
            self._spent[name] += amount
            limit = self._limits[name]
            if self._spent[name] > limit.maximum:
                raise limit.exceeded()

    def check(self, **amounts: int) -> None:
        """Check amounts, such as a nesting level, against their limits without adding them up."""
        for name, amount in amounts.items():
            limit = self._limits[name]
            if amount > limit.maximum:
                raise limit.exceeded()

    def check_time(self) -> None:
        """Raise the error of the CPU time limit if this thread has exceeded it since construction."""
        if self._time is not None and time.thread_time() > self._deadline:
            raise self._time.exceeded()

    def amount(self, name: str) -> int:
        """Return the amount added so far."""
        return self._spent[name]
