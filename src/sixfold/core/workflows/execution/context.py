"""The context of a running node: progress, previews, files and child runs."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
from pathlib import Path
from typing import Protocol

import blake3

from sixfold.core.catalog.engines import Canceled
from sixfold.core.catalog.prompt_words import NO_WORDS
from sixfold.core.media import blob_keys
from sixfold.core.workflows.ports import ChildRequest, NodeChild, NodeChildren, NodeEvent, NodeFile

# Progress is reported in this many steps.
_STEPS = 100


class _NodePosition(Protocol):
    @property
    def children(self) -> NodeChildren: ...
    @property
    def scratch(self) -> Path: ...


class _Emit(Protocol):
    def __call__(self, event: NodeEvent, /) -> None: ...


class GraphRunContext:
    """The shared state of a run's nodes: event loop, thread, location and event callback."""

    __slots__ = ("emit", "location", "loop", "thread")

    def __init__(self, location: _NodePosition, emit: _Emit) -> None:
        self.location = location
        self.emit = emit
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()


class NodeRunContext:
    """The context of one node, through which threads reach the event loop."""

    __slots__ = ("_canceled", "_children", "_key", "_run", "node_id", "preview_part", "words")

    def __init__(self, node_id: str, key: str, run: GraphRunContext) -> None:
        self.node_id = node_id
        self._key = key
        self._run = run
        self._canceled = False
        self._children = 0
        # Whether a preview engine contributed to the node.
        self.preview_part = False
        # The words that engines understood and ignored for the node.
        self.words = NO_WORDS

    @property
    def scratch(self) -> Path:
        """An existing folder for this run's files."""
        return self._run.location.scratch

    def cancel(self) -> None:
        """Make the node's next progress report raise `Canceled`."""
        self._canceled = True

    def progress(self, value: float, maximum: float = 1.0) -> None:
        """Report progress; raises `Canceled` if the run was canceled."""
        if self._canceled:
            raise Canceled
        self._emit_progress(value, maximum)

    def preview(self, data: bytes, content_type: str = "image/jpeg") -> None:
        self.emit_event(NodeEvent("preview", {"node": self.node_id, "content_type": content_type}, data))

    def image(self, data: bytes, content_type: str = "image/png") -> None:
        self.emit_event(NodeEvent("image", {"node": self.node_id, "content_type": content_type}, data))

    def file(self, data: bytes | Path, content_type: str) -> NodeFile:
        if isinstance(data, Path):
            return NodeFile(blob_keys.file_digest(data), content_type, data)
        path = self.scratch / secrets.token_hex(12)
        path.write_bytes(data)
        return NodeFile(blake3.blake3(data).hexdigest(), content_type, path)

    def copy(self, file: NodeFile) -> Path:
        path = self.scratch / secrets.token_hex(12)
        shutil.copyfile(file.path, path)
        return path

    async def child(self, request: ChildRequest) -> NodeChild:
        key = f"{self._key}.{self._children}"
        self._children += 1
        child = await self._run.location.children.run(
            key, request.model, request.inputs, self._child_progress
        )
        self.emit_event(NodeEvent("child", {"node": self.node_id, "prediction": child.id}))
        self.preview_part |= child.preview
        self.words |= child.words
        return child

    def _child_progress(self, fraction: float) -> None:
        self._emit_progress(fraction, 1.0)

    def _emit_progress(self, value: float, maximum: float) -> None:
        """Report progress in whole steps, as ComfyUI clients expect."""
        if not (isinstance(value, int) and isinstance(maximum, int)):
            value, maximum = round(_STEPS * value / maximum), _STEPS
        self.emit_event(NodeEvent("progress", {"value": value, "max": maximum, "node": self.node_id}))

    def emit_event(self, event: NodeEvent) -> None:
        run = self._run
        if threading.get_ident() == run.thread:
            run.emit(event)
        else:
            run.loop.call_soon_threadsafe(run.emit, event)
