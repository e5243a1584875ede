"""Tasks that complete a response independently of its request; they end with the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from sixfold.core.concurrency import memory_limit
from sixfold.core.concurrency.memory_limit import MemoryScope

_LOG = logging.getLogger("sixfold.chat")


class RunningResponse(Protocol):
    """A response in progress in this process."""

    def stop(self) -> None:
        """End the response early; the text so far is stored and charged."""
        ...


class ResponseTasks:
    """The responses in progress in this process, by account and chat."""

    def __init__(self) -> None:
        self._responses: dict[tuple[str, str], RunningResponse] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, account_id: str, chat_id: str) -> RunningResponse | None:
        """Return the response to a chat that is in progress in this process, or None."""
        return self._responses.get((account_id, chat_id))

    def start(
        self, account_id: str, chat_id: str, response: RunningResponse, work: Coroutine[Any, Any, None]
    ) -> None:
        key = account_id, chat_id
        self._responses[key] = response
        task = asyncio.get_running_loop().create_task(_with_scope(work), name=f"chat {chat_id}")
        self._tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if self._responses.get(key) is response:
                del self._responses[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.error("A response could not be stored", exc_info=error)

        task.add_done_callback(end)

    async def close(self) -> None:
        """Stop all responses and wait until they are stored."""
        for response in tuple(self._responses.values()):
            response.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _with_scope(work: Coroutine[Any, Any, None]) -> None:
    """Run a response with separate memory leases, because those of its request end before it."""
    scope = MemoryScope()
    memory_limit.scope.set(scope)
    try:
        await work
    finally:
        scope.close()
