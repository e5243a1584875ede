"""Steps of sessions on their way through a driver: numbered, awaited, and lost with their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sixfold.core.work.live import Frame, Step, Stepped
from sixfold.core.work.ports import Failed, Lost
from sixfold.worker import live, protocol

Answer = Stepped | Failed | Lost


class Steps:
    """The steps that one worker was asked for and has not answered."""

    def __init__(self) -> None:
        self._open: dict[int, asyncio.Future[Answer]] = {}

    async def take(
        self,
        number: int,
        step: Step,
        failpoint: protocol.Failpoint | None,
        send: Callable[[protocol.Step], None],
    ) -> Answer:
        """Send a step and wait for what came of it."""
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            send(live.order(number, step, failpoint))
            return await answer
        except (TypeError, ValueError, OverflowError) as error:
            return Failed(f"The step cannot be sent to a worker: {error}", public=False)
        finally:
            self._open.pop(number, None)

    def hear(self, message: protocol.Stepped | protocol.Fail) -> bool:
        """Pass an answer on; False when it belongs to no step."""
        answer = self._open.get(message.number)
        if answer is None:
            return isinstance(message, protocol.Stepped)  # of a step that nobody waits for any more
        if not answer.done():
            answer.set_result(_answer(message))
        return True

    def lose(self, why: str) -> None:
        """The worker is gone."""
        for answer in self._open.values():
            if not answer.done():
                answer.set_result(Lost(why))


def _answer(message: protocol.Stepped | protocol.Fail) -> Answer:
    if isinstance(message, protocol.Fail):
        return Failed(message.message, message.public, message.detail, message.unusable)
    frame = None
    if message.image:
        frame = Frame(message.image, message.format, message.width, message.height)
    return Stepped(message.state, tuple(message.poses), frame)
