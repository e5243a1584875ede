"""Steps of sessions on their way through a driver: numbered, awaited, and lost with their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sixfold.core.sessions.engine import Answer, Ask, Frame, Shown
from sixfold.core.workers.ports import Failed, Lost
from sixfold.worker import protocol, session_steps

_UNSENDABLE = (TypeError, ValueError, OverflowError)


class Steps:
    """What one worker was asked for and has not answered."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, asyncio.Future[Sequence[Answer]]]] = {}

    async def take(
        self,
        number: int,
        asked: Sequence[Ask],
        failpoint: protocol.Failpoint | None,
        send: Callable[[protocol.Steps], None],
    ) -> Sequence[Answer]:
        """Send some steps together and wait for what came of them; one that cannot be sent fails alone."""

        def put(some: Sequence[Ask]) -> None:
            send(session_steps.order(number, some, failpoint))

        try:
            return await self._answers(number, asked, put)
        except _UNSENDABLE as error:
            whole = _failed(error)
        unfit = {place: fault for place, ask in enumerate(asked) if (fault := _fault(ask))}
        if not unfit:  # each could be sent, and all of them are too much
            return [whole] * len(asked)
        fit = [ask for place, ask in enumerate(asked) if place not in unfit]
        rest = iter(await self._answers(number, fit, put) if fit else ())
        return [unfit[place] if place in unfit else next(rest) for place in range(len(asked))]

    async def _answers(
        self, number: int, asked: Sequence[Ask], put: Callable[[Sequence[Ask]], None]
    ) -> Sequence[Answer]:
        answers: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._open[number] = len(asked), answers
        try:
            put(asked)
            return await answers
        finally:
            self._open.pop(number, None)

    def hear(self, message: protocol.Took) -> None:
        """Pass answers on, unless nobody waits for them any more."""
        _, answers = self._open.get(message.number, (0, None))
        if answers is not None and not answers.done():
            answers.set_result([_answer(one) for one in message.answers])

    def lose(self, why: str) -> None:
        """The worker is gone."""
        for count, answers in self._open.values():
            if not answers.done():
                answers.set_result([Lost(why)] * count)


def _fault(ask: Ask) -> Failed | None:
    """Why this step cannot be sent, if it cannot."""
    try:
        protocol.frame(session_steps.order(0, [ask], None))
    except _UNSENDABLE as error:
        return _failed(error)
    return None


def _failed(error: Exception) -> Failed:
    return Failed(f"The step cannot be sent to a worker: {error}", public=False)


def _answer(message: protocol.Stepped | protocol.Fail) -> Answer:
    if isinstance(message, protocol.Fail):
        return Failed(message.message, message.public, message.detail, message.unusable)
    frame = None
    if message.image:
        frame = Frame(message.image, message.format, message.width, message.height)
    return Shown(message.state, tuple(message.poses), frame)
