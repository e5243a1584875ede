"""The relay's till: calls that begin or end at the same moment are booked in one transaction.

One statement then moves an account's money for all of them, and one commit pays for all. Where they do not
fit together (too little money for one, a budget used up), each is booked by itself and gets its own verdict.
What was handed in is booked even when whoever handed it in goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Database, Transaction
from sixfold.core.relay import requestlog
from sixfold.core.relay.requestlog import Call, Ending
from sixfold.errors import StoreFailed

_MAX_TOGETHER = 256


class _Slip(NamedTuple):
    """One booking that waits: a beginning, unless there is an `ending`."""

    call: Call
    payer: Payer | None
    ending: Ending | None
    booked: asyncio.Future[None]

    @property
    def durable(self) -> bool:
        """Only what is acknowledged is: with the machine's power a call is lost, and its hold."""
        return self.ending is not None and self.call.held > 0


class Till:
    """Books calls; `holder` is the server whose they are."""

    def __init__(self, database: Database) -> None:
        self.holder = ""
        self._database = database
        self._waiting: list[_Slip] = []
        self._working: asyncio.Task[None] | None = None

    async def begin(self, call: Call, payer: Payer | None) -> None:
        """Hold a call's money; raises `InsufficientCredits` or `BudgetExceeded` and then has written nothing.

        Whoever is cancelled while he waits has begun nothing.
        """
        call.counted = payer is not None
        booked = self._hand_in(call, payer, None)
        try:
            await booked
        except asyncio.CancelledError:
            self._take_back(call, booked)
            raise

    def end(self, call: Call, ending: Ending) -> asyncio.Future[None]:
        """Book how a call ended, and charge what it cost; done once that is on the disk."""
        return self._hand_in(call, None, ending)

    async def drain(self) -> None:
        """Wait until everything that was handed in is booked."""
        while self._working is not None:
            await asyncio.wait({self._working})

    def _hand_in(self, call: Call, payer: Payer | None, ending: Ending | None) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        booked: asyncio.Future[None] = loop.create_future()
        self._waiting.append(_Slip(call, payer, ending, booked))
        if self._working is None:
            self._working = loop.create_task(self._work(), name="till")
        return booked

    def _take_back(self, call: Call, booked: asyncio.Future[None]) -> None:
        """Forget a beginning that still waits; end one that is being booked."""
        for index, slip in enumerate(self._waiting):
            if slip.booked is booked:
                del self._waiting[index]
                return
        self._hand_in(call, None, Ending("failed", error="Nobody waited"))

    async def _work(self) -> None:
        try:
            while self._waiting:
                slips, self._waiting = self._waiting[:_MAX_TOGETHER], self._waiting[_MAX_TOGETHER:]
                if len(slips) == 1 or not await self._together(slips):
                    await self._apart(slips)
        finally:
            self._working = None

    async def _together(self, slips: Sequence[_Slip]) -> bool:
        """Whether all of them were booked at once, or refused by a store that is out of order."""
        begun = [(slip.call, slip.payer) for slip in slips if slip.ending is None]
        ended = [(slip.call, slip.ending) for slip in slips if slip.ending is not None]
        writing = self._write(requestlog.book(begun, ended, self.holder), any(slip.durable for slip in slips))
        verdict = await writing
        if verdict is not None and not isinstance(verdict, StoreFailed):
            return False
        for slip in slips:
            _tell(slip, verdict)
        return True

    async def _apart(self, slips: Sequence[_Slip]) -> None:
        if len(slips) == 1:
            _tell(slips[0], await self._write(self._single(slips[0]), slips[0].durable))
            return
        writing = [self._write(self._single(slip), slip.durable) for slip in slips]
        for slip, verdict in zip(slips, await asyncio.gather(*writing), strict=True):
            _tell(slip, verdict)

    def _single(self, slip: _Slip) -> Transaction[None]:
        call, ending = slip.call, slip.ending
        if ending is None:
            return requestlog.begin(call, self.holder, slip.payer)
        if call.held:
            return requestlog.finish(call, ending, self.holder)
        return requestlog.insert(call, ending, self.holder)

    async def _write(self, transaction: Transaction[None], durable: bool) -> BaseException | None:
        """None where it was written, else why not."""
        writing = self._database.write(transaction, durable=durable)
        return (await asyncio.gather(writing, return_exceptions=True))[0]


def _tell(slip: _Slip, verdict: BaseException | None) -> None:
    if slip.booked.done():
        return
    if verdict is None:
        slip.booked.set_result(None)
    else:
        slip.booked.set_exception(verdict)
