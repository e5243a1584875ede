"""The interface of engines that call other machines."""

from __future__ import annotations

from typing import Protocol

from sixfold.core.catalog.engines import Context, Result, Task


class RemoteLost(Exception):
    """The machine of a remote engine was lost during the run; the run may be retried."""


class RemoteEngine(Protocol):
    """An engine on another machine.

    Its run is canceled like any coroutine, and must then cancel the request to the provider.
    """

    name: str
    version: str

    async def run(self, task: Task, context: Context) -> Result:
        """Run `task` and return its result.

        Raises `EngineError` with a readable message if the provider fails.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        ...
