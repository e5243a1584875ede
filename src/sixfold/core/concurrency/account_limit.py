"""A limit on the concurrent operations of one account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from sixfold import errors


class AccountLimit:
    """Counts the concurrent operations of each account; `noun` is their name in the error message."""

    def __init__(self, limit: int, noun: str) -> None:
        self._limit = limit
        self._noun = noun
        self._running: Counter[str] = Counter()

    @contextmanager
    def running(self, account_id: str) -> Generator[None]:
        """Count the block as an operation of the account; raises `TooManyRequests` at the limit."""
        if self._running[account_id] >= self._limit:
            raise errors.TooManyRequests(
                f"An account may run at most {self._limit} {self._noun} at a time: retry later"
            )
        self._running[account_id] += 1
        try:
            yield
        finally:
            self._running[account_id] -= 1
            if not self._running[account_id]:
                del self._running[account_id]
