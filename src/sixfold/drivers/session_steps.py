"""Session steps that are sent to a worker and matched with its answers; they fail if the worker is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sixfold.core.sessions.engine import (
    MAX_FRAME_BYTES,
    MAX_POSE_BYTES,
    MAX_POSES,
    MAX_STATE_BYTES,
    Frame,
    PackedStepResult,
    StepAnswer,
    StepRequest,
)
from sixfold.core.workers.ports import RunFailed, WorkerLost
from sixfold.worker import protocol, session_steps

_UNSENDABLE = (TypeError, ValueError, OverflowError)


class SessionStepper:
    """The pending step requests of one worker."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, asyncio.Future[Sequence[StepAnswer]]]] = {}

    async def send(
        self,
        number: int,
        requests: Sequence[StepRequest],
        failpoint: protocol.Failpoint | None,
        send: Callable[[protocol.StepsMessage], None],
    ) -> Sequence[StepAnswer]:
        """Send steps together and return their answers.

        A step that cannot be encoded does not affect the other steps.
        """

        def send_some(some: Sequence[StepRequest]) -> None:
            send(session_steps.steps_message(number, some, failpoint))

        try:
            return await self._answers(number, requests, send_some)
        except _UNSENDABLE as error:
            answer = _failed(error)
        failed = {index: fault for index, request in enumerate(requests) if (fault := _fault(request))}
        # Each step could be sent alone, but together they are too large.
        if not failed:
            return [answer] * len(requests)
        valid = [request for index, request in enumerate(requests) if index not in failed]
        replies = iter(await self._answers(number, valid, send_some) if valid else ())
        return [failed[index] if index in failed else next(replies) for index in range(len(requests))]

    async def _answers(
        self, number: int, requests: Sequence[StepRequest], send_some: Callable[[Sequence[StepRequest]], None]
    ) -> Sequence[StepAnswer]:
        answers: asyncio.Future[Sequence[StepAnswer]] = asyncio.get_running_loop().create_future()
        self._open[number] = len(requests), answers
        try:
            send_some(requests)
            return await answers
        finally:
            self._open.pop(number, None)

    def resolve(self, message: protocol.StepsDone) -> None:
        """Resolve the pending request, unless it was canceled."""
        count, answers = self._open.get(message.number, (0, None))
        if answers is None or answers.done():
            return
        if len(message.answers) == count:
            answers.set_result([_answer(answer) for answer in message.answers])
        else:
            reason = f"the worker returned {len(message.answers):,} results for {count} steps"
            answers.set_result([WorkerLost(reason)] * count)

    def fail_all(self, reason: str) -> None:
        """Answer all pending requests with `WorkerLost`."""
        for count, answers in self._open.values():
            if not answers.done():
                answers.set_result([WorkerLost(reason)] * count)


def _fault(request: StepRequest) -> RunFailed | None:
    """Return the error if this step cannot be encoded, otherwise None."""
    try:
        protocol.frame(session_steps.steps_message(0, [request], None))
    except _UNSENDABLE as error:
        return _failed(error)
    return None


def _failed(error: Exception) -> RunFailed:
    return RunFailed(f"The step cannot be sent to a worker: {error}", public=False)


def _answer(message: protocol.StepDone | protocol.RunFailedMessage) -> StepAnswer:
    if isinstance(message, protocol.RunFailedMessage):
        return RunFailed(message.message, message.public, message.detail, message.unusable)
    sizes = (
        ("a state", len(message.state), MAX_STATE_BYTES, "bytes"),
        ("a frame", len(message.image), MAX_FRAME_BYTES, "bytes"),
        ("a pose", max(map(len, message.poses), default=0), MAX_POSE_BYTES, "bytes"),
        ("a step", len(message.poses), MAX_POSES, "poses"),
    )
    for name, size, most, unit in sizes:
        if size > most:
            text = f"The model returned {name} of more than {most:,} {unit} (got {size:,})"
            return RunFailed(text, public=True)
    frame = None
    if message.image:
        frame = Frame(message.image, message.format, message.width, message.height)
    return PackedStepResult(message.state, tuple(message.poses), frame, message.words)
