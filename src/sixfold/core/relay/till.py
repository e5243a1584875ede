"""The relay's till: calls that begin or end at the same moment are booked in one transaction.

One statement then moves an account's money for all of them, and one commit pays for all. Where they do not
fit together (too little money for one, a budget used up), each is booked by itself and gets its own verdict.
Beginnings have a lane of their own, since an ending waits for the disk and they need not. What was handed in
is booked even when whoever handed it in goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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


class _Lane:
    """Slips of one kind: while some are booked the next gather."""

    def __init__(self, book: Callable[[Sequence[_Slip]], Awaitable[None]]) -> None:
        self._book = book
        self._waiting: list[_Slip] = []
        self.working: asyncio.Task[None] | None = None

    def add(self, slip: _Slip) -> None:
        """Book it with those that come at the same moment."""
        self._waiting.append(slip)
        if self.working is None:
            self.working = asyncio.get_running_loop().create_task(self._work(), name="till")

    def forget(self, booked: asyncio.Future[None]) -> None:
        """Book a slip no more, if it still waits."""
        self._waiting = [slip for slip in self._waiting if slip.booked is not booked]

    async def _work(self) -> None:
        try:
            while self._waiting:
                slips, self._waiting = self._waiting[:_MAX_TOGETHER], self._waiting[_MAX_TOGETHER:]
                await self._book(slips)
        finally:
            self.working = None


class Till:
    """Books calls; `holder` is the server whose they are."""

    def __init__(self, database: Database) -> None:
        self.holder = ""
        self._database = database
        self._beginnings = _Lane(self._book)
        self._endings = _Lane(self._book)

    async def begin(self, call: Call, payer: Payer | None) -> None:
        """Hold a call's money; raises `InsufficientCredits` or `BudgetExceeded` and then has written nothing.

        Whoever is cancelled while he waits has begun nothing.
        """
        call.counted = payer is not None
        booked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beginnings.add(_Slip(call, payer, None, booked))
        try:
            await booked
        except asyncio.CancelledError:
            self._beginnings.forget(booked)
            if not booked.cancelled() and booked.exception() is None:
                self._give_up(call)
            raise

    def end(self, call: Call, ending: Ending) -> asyncio.Future[None]:
        """Book how a call ended, and charge what it cost; done once that is on the disk."""
        booked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._endings.add(_Slip(call, None, ending, booked))
        return booked

    async def drain(self) -> None:
        """Wait until everything that was handed in is booked."""
        while working := {lane.working for lane in (self._beginnings, self._endings) if lane.working}:
            await asyncio.wait(working)

    def _give_up(self, call: Call) -> None:
        """End a call that was begun for nobody."""
        self.end(call, Ending("failed", error="Nobody waited"))

    async def _book(self, slips: Sequence[_Slip]) -> None:
        if len(slips) == 1 or not await self._together(slips):
            await self._apart(slips)

    async def _together(self, slips: Sequence[_Slip]) -> bool:
        """Whether all of them were booked at once, or refused by a store that is out of order."""
        begun = [(slip.call, slip.payer) for slip in slips if slip.ending is None]
        ended = [(slip.call, slip.ending) for slip in slips if slip.ending is not None]
        writing = self._write(requestlog.book(begun, ended, self.holder), any(slip.durable for slip in slips))
        verdict = await writing
        if verdict is not None and not isinstance(verdict, StoreFailed):
            return False
        for slip in slips:
            self._tell(slip, verdict)
        return True

    async def _apart(self, slips: Sequence[_Slip]) -> None:
        writing = [self._write(self._single(slip), slip.durable) for slip in slips]
        for slip, verdict in zip(slips, await asyncio.gather(*writing), strict=True):
            self._tell(slip, verdict)

    def _single(self, slip: _Slip) -> Transaction[None]:
        call, ending = slip.call, slip.ending
        if ending is None:
            return requestlog.begin(call, self.holder, slip.payer)
        if call.held:
            return requestlog.finish(call, ending, self.holder)
        return requestlog.insert(call, ending, self.holder)

    async def _write(self, transaction: Transaction[None], durable: bool) -> BaseException | None:
        """None where it was written, else why not."""
        writing = self._database.write(transaction, durable=durable, early=True)
        return (await asyncio.gather(writing, return_exceptions=True))[0]

    def _tell(self, slip: _Slip, verdict: BaseException | None) -> None:
        if slip.booked.done():
            if slip.ending is None and verdict is None:
                self._give_up(slip.call)
        elif verdict is None:
            slip.booked.set_result(None)
        else:
            slip.booked.set_exception(verdict)
