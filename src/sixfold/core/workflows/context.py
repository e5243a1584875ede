"""How a running node is heard: progress, previews, files and children."""

from __future__ import annotations

import asyncio
import secrets
import threading
from pathlib import Path
from typing import Protocol

import blake3

from sixfold.core.catalog.engines import Canceled
from sixfold.core.workflows.ports import ChildRequest, NodeChild, NodeChildren, NodeEvent, NodeFile

_STEPS = 100  # of a share that is told


class _NodePosition(Protocol):
    @property
    def children(self) -> NodeChildren: ...
    @property
    def scratch(self) -> Path: ...


class _Emit(Protocol):
    def __call__(self, event: NodeEvent, /) -> None: ...


class GraphHome:
    """What all nodes of a run share: the loop and its thread, the place, and who is told."""

    __slots__ = ("emit", "loop", "place", "thread")

    def __init__(self, place: _NodePosition, emit: _Emit) -> None:
        self.place = place
        self.emit = emit
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()


class RunContextNodes:
    """One node's way to the outside; threads reach the loop through it."""

    __slots__ = ("_canceled", "_children", "_home", "_key", "node_id", "preview_part")

    def __init__(self, node_id: str, key: str, home: GraphHome) -> None:
        self.node_id = node_id
        self._key = key
        self._home = home
        self._canceled = False
        self._children = 0
        self.preview_part = False  # whether a preview engine did some of its work

    @property
    def scratch(self) -> Path:
        """An existing folder for this run's files."""
        return self._home.place.scratch

    def cancel(self) -> None:
        """Let the next word about progress end the node."""
        self._canceled = True

    def progress(self, value: float, maximum: float = 1.0) -> None:
        """Report progress; raises `Canceled` when the run is no longer wanted."""
        if self._canceled:
            raise Canceled
        self._tell_progress(value, maximum)

    def preview(self, data: bytes, content_type: str = "image/jpeg") -> None:
        """Show a picture of what is on its way."""
        self.tell(NodeEvent("preview", {"node": self.node_id, "content_type": content_type}, data))

    def image(self, data: bytes, content_type: str = "image/png") -> None:
        """Send a finished picture to whoever watches, without keeping it."""
        self.tell(NodeEvent("image", {"node": self.node_id, "content_type": content_type}, data))

    def file(self, data: bytes | Path, content_type: str) -> NodeFile:
        """A file of bytes that are in memory or lie in `scratch`."""
        if isinstance(data, Path):
            digest = blake3.blake3(data.read_bytes()).hexdigest()
            return NodeFile(digest, content_type, data)
        path = self.scratch / secrets.token_hex(12)
        path.write_bytes(data)
        return NodeFile(blake3.blake3(data).hexdigest(), content_type, path)

    async def child(self, asked: ChildRequest) -> NodeChild:
        """Run one of the platform's models as part of this run."""
        key = f"{self._key}.{self._children}"
        self._children += 1
        child = await self._home.place.children.run(key, asked.model, asked.inputs, self._child_progress)
        self.preview_part |= child.preview
        return child

    def _child_progress(self, fraction: float) -> None:
        self._tell_progress(fraction, 1.0)

    def _tell_progress(self, value: float, maximum: float) -> None:
        """Told in whole steps, as ComfyUI's clients read them."""
        if not (isinstance(value, int) and isinstance(maximum, int)):
            value, maximum = round(_STEPS * value / maximum), _STEPS
        self.tell(NodeEvent("progress", {"value": value, "max": maximum, "node": self.node_id}))

    def tell(self, event: NodeEvent) -> None:
        """Pass on what happened, from any thread."""
        home = self._home
        if threading.get_ident() == home.thread:
            home.emit(event)
        else:
            home.loop.call_soon_threadsafe(home.emit, event)
