"""Steps of sessions on their way through a driver: numbered, awaited, and lost with their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sixfold.core.work.live import Answer, Ask, Frame, Shown
from sixfold.core.work.ports import Failed, Lost
from sixfold.worker import live, protocol


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
        """Send some steps together and wait for what came of them."""
        answers: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        self._open[number] = len(asked), answers
        try:
            send(live.order(number, asked, failpoint))
            return await answers
        except (TypeError, ValueError, OverflowError) as error:
            return [Failed(f"The step cannot be sent to a worker: {error}", public=False)] * len(asked)
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


def _answer(message: protocol.Stepped | protocol.Fail) -> Answer:
    if isinstance(message, protocol.Fail):
        return Failed(message.message, message.public, message.detail, message.unusable)
    frame = None
    if message.image:
        frame = Frame(message.image, message.format, message.width, message.height)
    return Shown(message.state, tuple(message.poses), frame)
