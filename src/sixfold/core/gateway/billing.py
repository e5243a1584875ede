"""Batched writing of the holds and charges of concurrent calls.

One statement then updates an account's balance for all of its calls, and one commit covers the whole batch.
If the batch fails (not enough credit for one call, a budget used up), each entry is written separately and
has a separate result. An entry is written even if the task that added it is canceled.

For an account with plenty of credit (`CreditCache`), the hold does not delay the call: it is written shortly
afterwards or together with the charge, and `ensure_held` waits for it.

If the database fails while the end of a call is written, the caller of a complete response receives an error,
so its charge is undone, and a stream has been delivered already, so its charge is written when the database
responds again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.concurrency import background
from sixfold.core.database import Database, Transaction
from sixfold.core.gateway import request_log
from sixfold.core.gateway.credit_cache import CreditCache
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from sixfold.errors import StoreFailed

_MAX_BATCH = 256
# A deferred hold is written after one to two of these intervals, unless its call ends before.
DEFER_SECONDS = 0.01
# How often a write is repeated while the database fails, and how long `flush` waits for it.
_REPEAT_SECONDS, _FLUSH_SECONDS = 0.5, 5.0
_UNHELD = CallOutcome("failed")


class _BillingEntry(NamedTuple):
    """A queued hold if `outcome` is None, otherwise a charge; `combined` means both."""

    call: CallRecord
    payer: Payer | None
    outcome: CallOutcome | None
    done: asyncio.Future[None]
    combined: bool = False

    @property
    def durable(self) -> bool:
        """Whether the entry needs an fsync; a hold does not, as its call is also lost in a power failure."""
        return self.outcome is not None and self.call.held > 0


class BillingBatcher:
    """Settles calls in batches for the server process `holder`.

    If `defer_holds` is set, the holds of some calls are deferred.
    """

    def __init__(self, database: Database, *, defer_holds: bool = False) -> None:
        self.holder = ""
        # The ids of calls with a hold whose end is not written yet.
        self.active: set[str] = set()
        self._database = database
        self._credit = CreditCache(database, self._deferred_amount) if defer_holds else None
        self._queue: list[_BillingEntry] = []
        self._worker: asyncio.Task[None] | None = None
        # Calls whose hold is deferred, by call id; `_seen_deferred` has those that the last timer saw.
        self._deferred: dict[str, tuple[CallRecord, Payer | None]] = {}
        self._seen_deferred: frozenset[str] = frozenset()
        # Holds that were queued after they had been deferred, by call id.
        self._queued_holds: dict[str, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._repetitions: set[asyncio.Task[None]] = set()

    async def hold(self, call: CallRecord, payer: Payer | None) -> None:
        """Hold the amount of a call; raises `InsufficientCredits` or `BudgetExceeded`.

        If an error is raised, nothing is written. If the caller is canceled while waiting, the call does not
        begin.
        """
        call.counted = payer.counted if payer is not None else ""
        if self._credit is not None:
            covered = self._credit.try_reserve(call.account_id, payer, call.held)
            if covered is None:
                covered = await self._credit.refresh_and_reserve(call.account_id, payer, call.held)
            if covered:
                self._defer_hold(call, payer)
                return
            # Write the account's deferred holds first, to keep the order of its calls.
            self._queue_holds(self._deferred_calls(call.account_id))
        entry = _entry(call, payer)
        self._enqueue(entry)
        try:
            await entry.done
        except asyncio.CancelledError:
            self._cancel(entry)
            raise
        except StoreFailed:
            # The hold may be stored.
            self._repeat(partial(request_log.undo, call, _UNHELD, self.holder), call.id)
            raise
        self.active.add(call.id)

    async def ensure_held(self, call: CallRecord) -> None:
        """Wait until the hold of a call is written; raises `InsufficientCredits` or `BudgetExceeded`."""
        if call.id in self._deferred:
            self._queue_holds([call])
        hold = self._queued_holds.get(call.id)
        if hold is not None:
            await asyncio.shield(hold)

    def settle(self, call: CallRecord, outcome: CallOutcome) -> asyncio.Future[None]:
        """Queue the outcome and charge of a call; the future is done once both are on disk.

        If a deferred hold is refused, nothing is written, and the future raises the error of `hold`.
        """
        deferred = self._deferred.pop(call.id, None)
        if deferred is not None:
            return self._enqueue(_entry(call, deferred[1], outcome, combined=True))
        entry, hold = _entry(call, None, outcome), self._queued_holds.pop(call.id, None)
        if hold is None:
            return self._enqueue(entry)
        if hold.done():
            self._enqueue_after_hold(hold, entry)
        else:
            hold.add_done_callback(lambda hold: self._enqueue_after_hold(hold, entry))
        return entry.done

    async def flush(self) -> None:
        """Wait until all entries are written."""
        self._queue_holds([call for call, _ in self._deferred.values()])
        while self._worker is not None:
            await asyncio.wait({self._worker})
        if self._repetitions:
            await asyncio.wait(self._repetitions, timeout=_FLUSH_SECONDS)

    async def refund(self, call_ids: Sequence[str], error: str) -> None:
        """Refund calls whose results are lost; if the database fails, repeat it in the background."""
        transaction = partial(request_log.refund_all, tuple(call_ids), error)
        if isinstance(failure := await self._write(transaction(), durable=True), StoreFailed):
            self._repeat(transaction)
        elif failure is not None:
            raise failure

    def _deferred_calls(self, account_id: str) -> list[CallRecord]:
        return [call for call, _ in self._deferred.values() if call.account_id == account_id]

    def _deferred_amount(self, account_id: str) -> int:
        return sum(call.held for call in self._deferred_calls(account_id))

    def _defer_hold(self, call: CallRecord, payer: Payer | None) -> None:
        self._deferred[call.id] = call, payer
        self.active.add(call.id)
        if self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(DEFER_SECONDS, self._queue_seen)

    def _queue_seen(self) -> None:
        """Queue the deferred holds that the previous timer has already seen."""
        self._queue_holds([call for name, (call, _) in self._deferred.items() if name in self._seen_deferred])
        self._seen_deferred, self._timer = frozenset(self._deferred), None
        if self._deferred:
            self._start_timer()

    def _queue_holds(self, calls: Iterable[CallRecord]) -> None:
        for call in calls:
            self._queued_holds[call.id] = self._enqueue(_entry(*self._deferred.pop(call.id)))

    def _enqueue_after_hold(self, hold: asyncio.Future[None], entry: _BillingEntry) -> None:
        """Queue the outcome of a call unless its hold was refused."""
        error = hold.exception()
        if error is None:
            self._enqueue(entry)
        else:
            self._resolve(entry, error)

    def _enqueue(self, entry: _BillingEntry) -> asyncio.Future[None]:
        self._queue.append(entry)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._write_queue(), name="billing")
        return entry.done

    def _cancel(self, entry: _BillingEntry) -> None:
        """Remove a hold from the queue, or end the call if its hold is being written."""
        for index, queued in enumerate(self._queue):
            if queued.done is entry.done:
                del self._queue[index]
                return
        self._enqueue(_entry(entry.call, None, CallOutcome("failed", error="The caller disconnected")))

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                entries, self._queue = self._queue[:_MAX_BATCH], self._queue[_MAX_BATCH:]
                if not await self._write_batch(entries):
                    await self._write_each(entries)
        finally:
            self._worker = None

    async def _write_batch(self, entries: Sequence[_BillingEntry]) -> bool:
        """Write the entries together; return False if they must be written one by one."""
        error = await self._write(self._transaction(entries), any(entry.durable for entry in entries))
        if error is not None and not isinstance(error, StoreFailed):
            return False
        for entry in entries:
            self._resolve(entry, error)
        return True

    async def _write_each(self, entries: Sequence[_BillingEntry]) -> None:
        if len(entries) == 1:
            self._resolve(
                entries[0], await self._write(self._single_transaction(entries[0]), entries[0].durable)
            )
            return
        writes = [self._write(self._single_transaction(entry), entry.durable) for entry in entries]
        for entry, error in zip(entries, await asyncio.gather(*writes), strict=True):
            self._resolve(entry, error)

    def _resolve(self, entry: _BillingEntry, error: BaseException | None) -> None:
        if entry.outcome is not None:
            if isinstance(error, StoreFailed) and entry.call.held:
                end = request_log.finish if entry.call.streamed else request_log.undo
                self._repeat(partial(end, entry.call, entry.outcome, self.holder), entry.call.id)
            else:
                self.active.discard(entry.call.id)
        if entry.done.done():
            return
        if error is None:
            entry.done.set_result(None)
        else:
            entry.done.set_exception(error)

    def _repeat(self, transaction: Callable[[], Transaction[None]], call_id: str = "") -> None:
        """Write a transaction in the background, which is repeated while the database fails."""

        async def repeat() -> None:
            await background.store_later(
                "billing", lambda: self._database.write(transaction()), _REPEAT_SECONDS
            )
            self.active.discard(call_id)

        task = asyncio.get_running_loop().create_task(repeat(), name="billing repetition")
        self._repetitions.add(task)
        task.add_done_callback(self._repetitions.discard)

    def _transaction(self, entries: Sequence[_BillingEntry]) -> Transaction[None]:
        holds = [(entry.call, entry.payer) for entry in entries if entry.outcome is None]
        outcomes = [
            (entry.call, entry.outcome)
            for entry in entries
            if entry.outcome is not None and not entry.combined
        ]
        combined = [
            (entry.call, entry.payer, entry.outcome)
            for entry in entries
            if entry.outcome is not None and entry.combined
        ]
        return request_log.write_batch(holds, outcomes, self.holder, combined)

    def _single_transaction(self, entry: _BillingEntry) -> Transaction[None]:
        call, outcome = entry.call, entry.outcome
        if outcome is None:
            return request_log.begin(call, self.holder, entry.payer)
        if entry.combined:
            return self._transaction([entry])
        if call.held:
            return request_log.finish(call, outcome, self.holder)
        return request_log.insert(call, outcome, self.holder)

    async def _write(self, transaction: Transaction[None], durable: bool) -> Exception | None:
        """Return None if the transaction was written, otherwise its error."""
        try:
            await self._database.write(transaction, durable=durable)
        except Exception as error:  # noqa: BLE001 - an exception is returned to the caller of its transaction
            return error
        return None


def _entry(
    call: CallRecord, payer: Payer | None, outcome: CallOutcome | None = None, *, combined: bool = False
) -> _BillingEntry:
    return _BillingEntry(call, payer, outcome, asyncio.get_running_loop().create_future(), combined)
