"""The messages that ComfyUI sends during a run, and the state of the run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection

from sixfold.clients.comfyui import decoding
from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.errors import short_text

# The nodes of a graph, and those that run at the same time.
_MAX_NODES, _MAX_RUNNING = 5_000, 100
# The messages in a history, and the bytes of the outputs of a run, which are mostly names of files.
_MAX_MESSAGES, _MAX_OUTPUT_BYTES = 20_000, 16 * 2**20


class NodeStarted(msgspec.Struct, frozen=True):
    """The start of a node."""

    node: str


class NodeProgress(msgspec.Struct, frozen=True):
    """Progress of a node: it has completed `done` of `of` steps."""

    node: str
    done: float
    of: float


class NodeFinished(msgspec.Struct, frozen=True):
    """The result of an output node, for instance `{"images": [...]}`."""

    node: str
    output: Mapping[str, Any]


class NodesCached(msgspec.Struct, frozen=True):
    """Nodes whose results are cached from an earlier run."""

    nodes: tuple[str, ...]


class PreviewImage(msgspec.Struct, frozen=True):
    """A preview image: its JPEG or PNG bytes."""

    data: bytes


Event = NodeStarted | NodeProgress | NodeFinished | NodesCached | PreviewImage
EventCallback = Callable[[Event], None]


class ComfyRun(msgspec.Struct):
    """The state of a prompt, updated by messages."""

    on_event: EventCallback
    output_nodes: frozenset[str]
    previews: bool = False
    prompt_id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))
    client_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    outputs: dict[str, Mapping[str, Any]] = {}
    output_bytes: int = 0
    over: bool = False
    # Whether ComfyUI has ended the run, although some outputs may not have arrived.
    ended: bool = False
    socket: ClientConnection | None = None
    tries: int = 0
    # Newer versions of ComfyUI identify a reconnecting client by this key.
    credential_key: str = ""
    unanswered_since: float | None = None
    missed: int = 0
    submitted: bool = False

    async def handle_message(self, message: str | bytes) -> None:
        """Handle a message of the websocket; raises the error that ended the run."""
        if isinstance(message, bytes):
            # Event type (1: preview), then the image type; both four bytes.
            if message[:4] == b"\0\0\0\1":
                self.on_event(PreviewImage(message[8:]))
            return
        try:
            document: Any = await decoding.decode(message.encode())
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict) and isinstance(document.get("data"), dict):
            kind = short_text(document.get("type"))
            if kind == "executed":
                self.output_bytes += len(message)
            self.handle_event(kind, document["data"])

    def handle_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Handle an event, unless it belongs to another prompt."""
        if data.get("prompt_id", self.prompt_id) != self.prompt_id:
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, data)

    def status(self, data: Mapping[str, Any]) -> None:
        self.credential_key = short_text(data.get("credential_key")) or self.credential_key

    def executing(self, data: Mapping[str, Any]) -> None:
        if data.get("node") is not None:
            self.on_event(NodeStarted(short_text(data["node"])))
        elif "prompt_id" in data:
            # An event without a node means that the run has ended and its history is stored.
            self.end()

    def progress(self, data: Mapping[str, Any]) -> None:
        if data.get("max"):
            self.on_event(_progress(data.get("node"), data))

    def progress_state(self, data: Mapping[str, Any]) -> None:
        with comfyui_errors.parse_errors():
            nodes: Any = data.get("nodes") or {}
            running = [
                _progress(node, state)
                for node, state in islice(nodes.items(), _MAX_NODES)
                if state.get("state") == "running"
            ]
        for event in running[:_MAX_RUNNING]:
            self.on_event(event)

    def executed(self, data: Mapping[str, Any]) -> None:
        output = data.get("output")
        if isinstance(output, dict):
            if self.output_bytes > _MAX_OUTPUT_BYTES or len(self.outputs) >= _MAX_NODES:
                raise comfyui_errors.ComfyError(
                    f"ComfyUI sent outputs of more than {_MAX_OUTPUT_BYTES // 2**20} MiB or "
                    f"{_MAX_NODES:,} nodes."
                )
            self.outputs[short_text(data.get("node"))] = output
            self.on_event(NodeFinished(short_text(data.get("node")), output))

    def cached(self, data: Mapping[str, Any]) -> None:
        with comfyui_errors.parse_errors():
            nodes = tuple(map(short_text, islice(data.get("nodes") or (), _MAX_NODES)))
        self.on_event(NodesCached(nodes))

    def failed(self, data: Mapping[str, Any]) -> None:
        self.over = True
        raise comfyui_errors.node_failed(data)

    def interrupted(self, _data: Mapping[str, Any]) -> None:
        self.over = True
        raise comfyui_errors.ComfyInterrupted("The run was interrupted on the ComfyUI server.")

    def end(self, _data: Mapping[str, Any] | None = None) -> None:
        self.ended = True
        self.over = self.output_nodes <= self.outputs.keys()

    def read_history(self, entry: Mapping[str, Any]) -> None:
        """Update the run from its history, which ComfyUI writes at the end."""
        status: Mapping[str, Any] = entry.get("status") or {}
        messages: Any = status.get("messages") or ()
        for kind, data in islice(messages, _MAX_MESSAGES):
            if kind in {"execution_error", "execution_interrupted"}:
                self.handle_event(kind, data)
        self.over = True
        if status.get("status_str") == "error":
            raise comfyui_errors.ComfyError("ComfyUI failed without an error message.")
        self.outputs.update(entry.get("outputs") or {})


def _progress(node: Any, state: Mapping[str, Any]) -> NodeProgress:
    with comfyui_errors.parse_errors():
        return NodeProgress(short_text(node), float(state.get("value") or 0), float(state.get("max") or 1))


_HANDLERS: dict[str, Callable[[ComfyRun, Mapping[str, Any]], None]] = {
    "status": ComfyRun.status,
    "executing": ComfyRun.executing,
    "progress": ComfyRun.progress,
    "progress_state": ComfyRun.progress_state,
    "executed": ComfyRun.executed,
    "execution_cached": ComfyRun.cached,
    "execution_error": ComfyRun.failed,
    "execution_interrupted": ComfyRun.interrupted,
    "execution_success": ComfyRun.end,
}
