"""Write holds and charges of concurrent calls in one transaction.

One statement then updates an account's balance for all of its calls, and one commit covers the whole batch.
If the batch fails (not enough credit for one call, a budget used up), each entry is written by itself and
gets its own result. An entry is written even if the task that added it is canceled.

For an account with plenty of credit (`CreditCache`), the hold does not delay the call: it is written shortly
afterwards or together with the charge, and `ensure_held` waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Database, Transaction
from sixfold.core.gateway import request_log
from sixfold.core.gateway.credit_cache import CreditCache
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from sixfold.errors import StoreFailed

_MAX_TOGETHER = 256
# A deferred hold is written after one to two of these intervals, unless its call ends before.
_LATER_SECONDS = 0.01


class _BillingEntry(NamedTuple):
    """A queued hold if there is no `ending`, else a charge; both in one if `whole`."""

    call: CallRecord
    payer: Payer | None
    ending: CallOutcome | None
    booked: asyncio.Future[None]
    whole: bool = False

    @property
    def durable(self) -> bool:
        """Whether the entry needs an fsync. Holds do not: if the machine loses power, the call is lost
        too.
        """
        return self.ending is not None and self.call.held > 0


class BillingBatcher:
    """Books calls in batches for the server process `holder`; with `trusting`, some holds are deferred."""

    def __init__(self, database: Database, *, trusting: bool = False) -> None:
        self.holder = ""
        self._database = database
        self._credit = CreditCache(database, self._unwritten) if trusting else None
        self._waiting: list[_BillingEntry] = []
        self._working: asyncio.Task[None] | None = None
        # Calls whose hold is deferred, by call id; `_aged` are the ids that the last timer has seen.
        self._later: dict[str, tuple[CallRecord, Payer | None]] = {}
        self._aged: frozenset[str] = frozenset()
        # Holds that were queued after having been deferred, by call id.
        self._begun: dict[str, asyncio.Future[None]] = {}
        self._looking: asyncio.TimerHandle | None = None

    async def hold(self, call: CallRecord, payer: Payer | None) -> None:
        """Hold the amount of a call; on `InsufficientCredits` or `BudgetExceeded` nothing is written.

        If the caller is canceled while waiting, the call has not begun.
        """
        call.counted = payer is not None
        if self._credit is not None:
            covered = self._credit.try_reserve(call.account_id, payer, call.held)
            if covered is None:
                covered = await self._credit.refresh_and_reserve(call.account_id, payer, call.held)
            if covered:
                self._begin_later(call, payer)
                return
            # Write the account's deferred holds first, to keep the order of its calls.
            self._begin_now(self._trusted(call.account_id))
        slip = _entry(call, payer)
        self._enqueue(slip)
        try:
            await slip.booked
        except asyncio.CancelledError:
            self._cancel(slip)
            raise

    async def ensure_held(self, call: CallRecord) -> None:
        """Wait until the hold of a call is written; raises what `hold` raises."""
        if call.id in self._later:
            self._begin_now([call])
        begun = self._begun.get(call.id)
        if begun is not None:
            await asyncio.shield(begun)

    def settle(self, call: CallRecord, ending: CallOutcome) -> asyncio.Future[None]:
        """Queue the outcome and charge of a call; the future is done once they are on disk.

        If a deferred hold is refused now, the future raises what `hold` raises and nothing is written.
        """
        later = self._later.pop(call.id, None)
        if later is not None:
            return self._enqueue(_entry(call, later[1], ending, whole=True))
        slip, begun = _entry(call, None, ending), self._begun.pop(call.id, None)
        if begun is None:
            return self._enqueue(slip)
        if begun.done():
            self._follow(begun, slip)
        else:
            begun.add_done_callback(lambda begun: self._follow(begun, slip))
        return slip.booked

    async def flush(self) -> None:
        """Wait until all entries are written."""
        self._begin_now([call for call, _ in self._later.values()])
        while self._working is not None:
            await asyncio.wait({self._working})

    def _trusted(self, account_id: str) -> list[CallRecord]:
        """Return an account's calls whose hold is deferred."""
        return [call for call, _ in self._later.values() if call.account_id == account_id]

    def _unwritten(self, account_id: str) -> int:
        return sum(call.held for call in self._trusted(account_id))

    def _begin_later(self, call: CallRecord, payer: Payer | None) -> None:
        self._later[call.id] = call, payer
        if self._looking is None:
            self._look_later()

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(_LATER_SECONDS, self._look)

    def _look(self) -> None:
        """Queue the deferred holds that the previous timer has already seen."""
        self._begin_now([call for name, (call, _) in self._later.items() if name in self._aged])
        self._aged, self._looking = frozenset(self._later), None
        if self._later:
            self._look_later()

    def _begin_now(self, calls: Iterable[CallRecord]) -> None:
        for call in calls:
            self._begun[call.id] = self._enqueue(_entry(*self._later.pop(call.id)))

    def _follow(self, begun: asyncio.Future[None], slip: _BillingEntry) -> None:
        """Queue the outcome of a call unless its hold was refused."""
        refused = begun.exception()
        if refused is None:
            self._enqueue(slip)
        elif not slip.booked.done():
            slip.booked.set_exception(refused)

    def _enqueue(self, slip: _BillingEntry) -> asyncio.Future[None]:
        self._waiting.append(slip)
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work(), name="till")
        return slip.booked

    def _cancel(self, slip: _BillingEntry) -> None:
        """Remove a hold from the queue, or end the call if its hold is being written."""
        for index, waiting in enumerate(self._waiting):
            if waiting.booked is slip.booked:
                del self._waiting[index]
                return
        self._enqueue(_entry(slip.call, None, CallOutcome("failed", error="Nobody waited")))

    async def _work(self) -> None:
        try:
            while self._waiting:
                slips, self._waiting = self._waiting[:_MAX_TOGETHER], self._waiting[_MAX_TOGETHER:]
                if not await self._write_batch(slips):
                    await self._write_each(slips)
        finally:
            self._working = None

    async def _write_batch(self, slips: Sequence[_BillingEntry]) -> bool:
        """Return whether the entries were written at once, or refused because the database failed."""
        if len(slips) == 1 and not slips[0].whole:
            return False
        verdict = await self._write(self._book(slips), any(slip.durable for slip in slips))
        if verdict is not None and not isinstance(verdict, StoreFailed):
            return False
        for slip in slips:
            _resolve(slip, verdict)
        return True

    async def _write_each(self, slips: Sequence[_BillingEntry]) -> None:
        if len(slips) == 1:
            _resolve(slips[0], await self._write(self._single(slips[0]), slips[0].durable))
            return
        writing = [self._write(self._single(slip), slip.durable) for slip in slips]
        for slip, verdict in zip(slips, await asyncio.gather(*writing), strict=True):
            _resolve(slip, verdict)

    def _book(self, slips: Sequence[_BillingEntry]) -> Transaction[None]:
        begun = [(slip.call, slip.payer) for slip in slips if slip.ending is None]
        ended = [(slip.call, slip.ending) for slip in slips if slip.ending is not None and not slip.whole]
        whole = [
            (slip.call, slip.payer, slip.ending) for slip in slips if slip.ending is not None and slip.whole
        ]
        return request_log.write_batch(begun, ended, self.holder, whole)

    def _single(self, slip: _BillingEntry) -> Transaction[None]:
        call, ending = slip.call, slip.ending
        if ending is None:
            return request_log.begin(call, self.holder, slip.payer)
        if slip.whole:
            return self._book([slip])
        if call.held:
            return request_log.finish(call, ending, self.holder)
        return request_log.insert(call, ending, self.holder)

    async def _write(self, transaction: Transaction[None], durable: bool) -> Exception | None:
        """Return None if the transaction was written, else its error."""
        try:
            await self._database.write(transaction, durable=durable)
        except Exception as error:  # noqa: BLE001 - whatever a transaction raises is its caller's answer
            return error
        return None


def _entry(
    call: CallRecord, payer: Payer | None, ending: CallOutcome | None = None, *, whole: bool = False
) -> _BillingEntry:
    return _BillingEntry(call, payer, ending, asyncio.get_running_loop().create_future(), whole)


def _resolve(slip: _BillingEntry, verdict: Exception | None) -> None:
    if slip.booked.done():
        return
    if verdict is None:
        slip.booked.set_result(None)
    else:
        slip.booked.set_exception(verdict)
