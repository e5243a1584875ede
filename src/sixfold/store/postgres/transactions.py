"""The state of transactions in a group: next query, executed statements, result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from sixfold.core.database import Query, Row, Transaction
from sixfold.store.postgres.binding import Changes


class StatementResult(msgspec.Struct, frozen=True):
    """A statement that a transaction has executed, with its rows."""

    text: str
    arguments: Sequence[Any]
    rows: Sequence[Row]

    @property
    def wrote(self) -> bool:
        """Whether the statement may have written; a SELECT or an empty RETURNING has not."""
        return not self.text.startswith("SELECT") and (bool(self.rows) or "RETURNING" not in self.text)


class ChangesResult(msgspec.Struct, frozen=True):
    """Changes executed in one round trip; each row contains the number of rows of one change."""

    changes: Sequence[Changes]
    rows: Sequence[Row]

    @property
    def wrote(self) -> bool:
        """Always true, because changes write."""
        return True


class TransactionJob(msgspec.Struct, eq=False):
    """A running transaction; `query` is the next one, or None after the end.

    `moment` is its `now` in epoch µs, set at first use.
    """

    transaction: Transaction[Any]
    durable: bool
    future: asyncio.Future[Any]
    query: Query | None = None
    moment: int | None = None
    seen: list[StatementResult | ChangesResult] = []
    value: Any = None
    error: BaseException | None = None

    def advance(self, step: Callable[[], Query]) -> None:
        """Run the transaction up to its next query, or to its end."""
        try:
            self.query = step()
        except StopIteration as end:
            self.query, self.value = None, end.value
        except Exception as error:  # noqa: BLE001 - raised again for the caller of `write`
            self.fail(error)

    def start(self) -> None:
        """Run the transaction up to its first query."""
        self.advance(partial(next, self.transaction))

    def receive(self, result: StatementResult | ChangesResult) -> None:
        self.seen.append(result)
        self.advance(partial(self.transaction.send, result.rows))

    def require_unwritten(self) -> None:
        """Raise `RunSeparately` if the transaction failed after it had written."""
        if self.error is not None and any(step.wrote for step in self.seen):
            raise RunSeparately

    def fail(self, error: BaseException) -> None:
        self.query, self.error = None, error


# Jobs with the same next statement, and their arguments.
Members = list[tuple[TransactionJob, list[Any]]]


class RunSeparately(Exception):
    """One of the batched transactions failed after it had written; they must be run one by one."""
