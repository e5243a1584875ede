"""Tasks that complete a response independently of its request; they end with the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

_LOG = logging.getLogger("sixfold.chat")


class RunningAnswer(Protocol):
    """An answer in progress in this process."""

    def stop(self) -> None:
        """End the answer early; the text so far is stored and charged."""
        ...


class AnswerTasks:
    """The answers in progress in this process, by account and chat."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], RunningAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, account_id: str, chat_id: str) -> RunningAnswer | None:
        """Return the answer to a chat that is in progress in this process, or None."""
        return self._answers.get((account_id, chat_id))

    def start(
        self, account_id: str, chat_id: str, answer: RunningAnswer, work: Coroutine[Any, Any, None]
    ) -> None:
        key = account_id, chat_id
        self._answers[key] = answer
        task = asyncio.get_running_loop().create_task(work, name=f"chat {chat_id}")
        self._tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if self._answers.get(key) is answer:
                del self._answers[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.error("A response could not be stored", exc_info=error)

        task.add_done_callback(end)

    async def close(self) -> None:
        """Stop all answers and wait until they are stored."""
        for answer in tuple(self._answers.values()):
            answer.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
