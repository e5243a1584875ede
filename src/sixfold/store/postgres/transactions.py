"""Transactions on their way through a group: what each asks next, what it was told, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sixfold.core.database import Query, Row, Transaction


@dataclass(frozen=True, slots=True)
class StepResultRow:
    """A statement that a transaction has run, and what it was told."""

    text: str
    arguments: Sequence[Any]
    rows: Sequence[Row]

    @property
    def wrote(self) -> bool:
        """Whether it may have changed anything: it does, unless it tells of its rows and there were none."""
        return not self.text.startswith("SELECT") and (bool(self.rows) or "RETURNING" not in self.text)


@dataclass(slots=True, eq=False)
class TransactionJob:
    """A transaction on its way: `query` is what it asks next, None once it has ended.

    `moment` (epoch µs) is its `now`, from when it first asks for it.
    """

    transaction: Transaction[Any]
    durable: bool
    future: asyncio.Future[Any]
    query: Query | None = None
    moment: int | None = None
    seen: list[StepResultRow] = field(default_factory=list["StepResultRow"])
    value: Any = None
    error: BaseException | None = None

    def ask(self, step: Callable[[], Query]) -> None:
        """Let it come to its next question, or to its end."""
        try:
            self.query = step()
        except StopIteration as end:
            self.query, self.value = None, end.value
        except Exception as error:  # noqa: BLE001 - whatever a transaction raises is its caller's answer
            self.fail(error)

    def begin(self) -> None:
        """The first question."""
        self.ask(partial(next, self.transaction))

    def tell(self, seen: StepResultRow) -> None:
        """An answer."""
        self.seen.append(seen)
        self.ask(partial(self.transaction.send, seen.rows))

    def count(self, seen: Sequence[StepResultRow]) -> None:
        """The answer to a query with `each`."""
        self.seen += seen
        changed = sum(len(step.rows) for step in seen)
        self.ask(partial(self.transaction.send, [{"changed": changed}]))

    def refuse_half(self) -> None:
        """Raise `RunSeparately` where it failed after it had written."""
        if self.error is not None and any(step.wrote for step in self.seen):
            raise RunSeparately

    def fail(self, error: BaseException) -> None:
        """The end, without a value."""
        self.query, self.error = None, error


Crowd = list[tuple[TransactionJob, list[Any]]]  # who asks for the same, and with which arguments


class RunSeparately(Exception):
    """Transactions that ran together must be run one by one: one of them failed after it had written."""
