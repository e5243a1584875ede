"""Interfaces between the server and engines that call other machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.core.predictions.child_runs import ChildRunPort


class RemoteLost(Exception):
    """Raised by a remote engine if its machine went away during the run; the run may be retried."""


class HostServices(Protocol):
    """Services of the server for a `RemoteEngine`: credentials and HTTP clients, but no account data."""

    def key(self, name: str) -> str:
        """Return the operator's credential for a provider (such as `fal_key`), or an empty string."""
        ...

    @property
    def client(self) -> Any:
        """Return an `httpx.AsyncClient` for addresses that the operator configured."""
        ...

    @property
    def children(self) -> ChildRunPort:
        """Return the port that submits child runs."""
        ...

    @property
    def workflows(self) -> Any:
        """Return the workflow service (`core.workflows.service`) for the engine that runs workflows."""
        ...

    @property
    def nodes(self) -> Any:
        """Return a function that opens a node session for a run's folder, or None if nodes run in threads."""
        ...

    @property
    def guarded(self) -> Any:
        """Return an `httpx.AsyncClient` with the address guard, for addresses from users or providers."""
        ...

    @property
    def gateway(self) -> Any:
        """Return the gateway to language models (`core.gateway.gateway.Gateway`)."""
        ...

    @property
    def conversation(self) -> Callable[[Mapping[str, Any], str], Any]:
        """Return a function that builds a `ChatRequest` from a model's inputs and an image URL."""
        ...

    @property
    def comfyui(self) -> Any:
        """Return the address of the ComfyUI server (`ComfyAddress`), whose `url` may change."""
        ...

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        """Download a provider's URL to `target` through the address guard; return its content type."""
        ...


class RemoteEngine(Protocol):
    """A model on another machine.

    Its run is canceled like any coroutine and passes that on to the provider.
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
