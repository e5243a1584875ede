"""Services of the server for the engines that run in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import httpx

    from sixfold.clients.comfyui.address import ComfyAddress
    from sixfold.core.gateway.chat import ChatRequest
    from sixfold.core.gateway.gateway import Gateway
    from sixfold.core.predictions.child_runs import ChildRunPort
    from sixfold.core.workflows.execution.node_sessions import NodeSession
    from sixfold.core.workflows.service import GraphService


class OpenNodes(Protocol):
    """Opens a node session for the folder of a run."""

    def __call__(self, scratch: Path, /) -> Awaitable[NodeSession]:
        """Return the session; raises `EngineUnavailable`."""
        ...


class ClientServices(Protocol):
    """Credentials, HTTP clients and downloads."""

    def key(self, name: str) -> str:
        """Return the operator's credential for a provider (such as `fal_key`), or an empty string."""
        ...

    @property
    def client(self) -> httpx.AsyncClient:
        """The client for addresses that the operator configured."""
        ...

    @property
    def guarded(self) -> httpx.AsyncClient:
        """The client with the address guard, for addresses from users or providers."""
        ...

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        """Download a provider's URL to `target` through the address guard; return its content type."""
        ...


class HostServices(ClientServices, Protocol):
    """All services of the server for a `RemoteEngine`; none of them reads account data."""

    @property
    def children(self) -> ChildRunPort:
        """The port that submits child runs."""
        ...

    @property
    def workflows(self) -> GraphService: ...

    @property
    def gateway(self) -> Gateway:
        """The gateway to language models."""
        ...

    @property
    def conversation(self) -> Callable[[Mapping[str, Any], str], ChatRequest]:
        """A function that builds a chat request from a model's inputs and an image URL."""
        ...

    @property
    def open_nodes(self) -> OpenNodes | None:
        """The function that opens a node session in a process, or None if nodes run in threads."""
        ...

    @property
    def comfyui(self) -> ComfyAddress | None:
        """The address of the ComfyUI server in use, or None if it is not known."""
        ...
