"""Engines that wait for another machine: the seam between them and the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.core.predictions.child_runs import ChildRunPort


class RemoteLost(Exception):
    """Raised by a remote engine whose machine went away under the run, which may be tried again."""


class HostServices(Protocol):
    """What a `RemoteEngine` gets from the server: keys and ways out; nothing of accounts."""

    def key(self, name: str) -> str:
        """The operator's key for a provider (`fal_key`, …), or an empty string."""
        ...

    @property
    def client(self) -> Any:
        """An `httpx.AsyncClient` for addresses that the operator chose: providers, own servers."""
        ...

    @property
    def children(self) -> ChildRunPort:
        """The way to order other runs."""
        ...

    @property
    def workshop(self) -> Any:
        """Where graphs are run (`graphs.workshop.Workshop`), for the engine that runs them."""
        ...

    @property
    def nodes(self) -> Any:
        """Opens a node session in a process for a run's folder; None where nodes run in threads."""
        ...

    @property
    def guarded(self) -> Any:
        """An `httpx.AsyncClient` behind the guard, for addresses that somebody else named."""
        ...

    @property
    def relay(self) -> Any:
        """The way to language models: a `core.relay.relay.Relay`."""
        ...

    @property
    def conversation(self) -> Callable[[Mapping[str, Any], str], Any]:
        """Reads a model's inputs, and a picture's address, as a `core.relay.chat.Chat`."""
        ...

    @property
    def comfyui(self) -> Any:
        """The ComfyUI that was found, whose `url` may change (`upstreams.comfyui.address.ComfyAddress`)."""
        ...

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        """Fetch a URL that a provider named, through the guard, into a file; gives its content type."""
        ...


class RemoteEngine(Protocol):
    """A model on another machine. Its run is canceled like any coroutine, and passes that on upstream."""

    name: str
    version: str

    async def run(self, task: Task, context: Context) -> Result:
        """Turn `task` into a result; raises `EngineError` with a sentence when the other side fails."""
        ...

    async def close(self) -> None:
        """Let go of connections. Idempotent."""
        ...
