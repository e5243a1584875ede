"""Publication of a graph run's events to ComfyUI clients, followers of the prediction, and its log.

For a run with a price, clients see node progress immediately, but its images and the UI data of output nodes
are withheld until the run is paid; previews are not sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Context
from sixfold.core.predictions.events import EventBus, NodeState, NodeStateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.workflows.comfyui import websocket_hub
from sixfold.core.workflows.comfyui.websocket_hub import WebSocketHub
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.limits import GraphTooLarge
from sixfold.core.workflows.nodes import Graph
from sixfold.core.workflows.ports import NodeEvent

_PRIVATE = frozenset({"blob", "content_type", "info"})
_FACE = "comfyui"
# Progress after the last node; the rest is for storing the result.
_LAST = 0.99


class EventSinks(msgspec.Struct, frozen=True):
    """The receivers of events: the sockets of ComfyUI clients, and the bus for followers of predictions."""

    hub: WebSocketHub
    bus: EventBus


class RunEventPublisher:
    """Publishes the events of one run; `publish` receives them, from local nodes or from ComfyUI."""

    def __init__(self, parent: Prediction, graph: Graph, context: Context, sinks: EventSinks) -> None:
        inputs = parent.task.inputs
        self._parent = parent
        self._graph = graph
        self._context = context
        self._sinks = sinks
        self._client_id: str | None = inputs.get("client_id")
        self._prompt_id = str(inputs.get("prompt_id") or parent.id)
        self._all = max(1, len(graph))
        self._finished: set[str] = set()
        self._running: dict[str, float] = {}
        self._started_at: dict[str, float] = {}
        self._parts: dict[str, tuple[str, ...]] = {}
        self._last_executing = ""
        self._is_full = False
        # Messages of an earlier attempt are dropped.
        sinks.hub.forget_withheld(parent.id)

    def begin(self, nodes: int) -> None:
        """Set the number of nodes to run."""
        self._all = max(1, nodes)

    def publish(self, event: NodeEvent) -> None:
        """Publish an event; raises `Canceled` if the run was canceled."""
        if event.binary:
            self._show(event)
            return
        step = _STEPS.get(event.type)
        if step is not None:
            step(self, event.data)
        if event.type in _OURS or (event.type == "executing" and event.data["node"] is None):
            # The end is published after the prediction has ended, so that the history contains it.
            return
        data = {**event.data, "prompt_id": self._prompt_id}
        if event.type == "executed":
            data["output"] = public(event.data["output"])
        self._sinks.hub.remember(self._parent.id, event.type, data)
        message = {"type": event.type, "data": data}
        if event.type == "executed" and self._parent.price:
            self._withhold(message)
        else:
            self._send(message)

    def _show(self, event: NodeEvent) -> None:
        image = websocket_hub.image_message(event.binary, str(event.data["content_type"]))
        # Clients assign an image to the node of the last `executing` event, but nodes run concurrently.
        node = str(event.data["node"])
        data = {"node": node, "display_node": node, "prompt_id": self._prompt_id}
        executing: websocket_hub.Message = {"type": "executing", "data": data}
        if self._parent.price:
            if event.type == "image":
                self._withhold(executing, image)
            return
        if node != self._last_executing:
            self._last_executing = node
            self._send(executing)
        self._send(image)

    def _withhold(self, *messages: websocket_hub.Message) -> None:
        if self._parent.face == _FACE and not self._sinks.hub.withhold(self._parent.id, *messages):
            self._is_full = True

    def _send(self, message: websocket_hub.Message) -> None:
        if self._parent.face == _FACE:
            self._sinks.hub.send(Tenant.of(self._parent), self._client_id, message)

    # -- nodes -------------------------------------------------------------------------------------

    def executing(self, data: Mapping[str, Any]) -> None:
        """Publish that a node starts; has no effect at the end of the run, where the node is None."""
        if data["node"] is not None:
            node = self._last_executing = str(data["node"])
            self._context.log(f"node {node} {self._class(node)}")
            self._started_at[node] = time.monotonic()
            self._move(node, "started", 0.0)

    def progress(self, data: Mapping[str, Any]) -> None:
        node, limit = str(data["node"]), float(data["max"] or 1)
        if node not in self._finished:
            self._move(node, "progress", min(1.0, max(0.0, float(data["value"]) / limit)))

    def child(self, data: Mapping[str, Any]) -> None:
        """Record a prediction that a node started."""
        node = str(data["node"])
        self._parts[node] = (*self._parts.get(node, ()), str(data["prediction"]))

    def finished(self, data: Mapping[str, Any]) -> None:
        """Publish that a node has finished; raises `GraphTooLarge` if too much data is withheld."""
        if self._is_full:
            limit = websocket_hub.MAX_WITHHELD_BYTES // 2**20
            raise GraphTooLarge(
                f"A graph with a price can send at most {limit} MiB of texts and of images that it does not "
                "save: save images, or run the graph in parts"
            )
        self._end(str(data["node"]), "finished")

    def cached(self, data: Mapping[str, Any]) -> None:
        """Publish the nodes whose outputs are cached."""
        if data["nodes"]:
            self._context.log(f"cached {' '.join(data['nodes'])}")
        for node in data["nodes"]:
            self._end(str(node), "cached")

    def failed(self, data: Mapping[str, Any]) -> None:
        """Publish that a node failed; has no effect for an error without a node."""
        if data.get("node_id") is not None:
            node = str(data["node_id"])
            self._publish(node, "failed", self._running.get(node, 0.0))

    def _end(self, node: str, state: NodeState) -> None:
        self._finished.add(node)
        self._running.pop(node, None)
        self._publish(node, state, 1.0)
        self._report()

    def _move(self, node: str, state: NodeState, progress: float) -> None:
        self._running[node] = progress
        self._publish(node, state, progress)
        self._report()

    def _publish(self, node: str, state: NodeState, progress: float) -> None:
        details: dict[str, Any] = {}
        if state == "finished" and node in self._started_at:
            seconds = round(time.monotonic() - self._started_at[node], 3)
            details = {"seconds": seconds, "parts": self._parts.get(node, ())}
        event = NodeStateChanged(node, self._class(node), state, progress, details)
        self._sinks.bus.publish(self._parent.id, event)

    def _report(self) -> None:
        progress = len(self._finished) + sum(self._running.values())
        self._context.progress(min(1.0, progress / self._all) * _LAST)

    def _class(self, node: str) -> str:
        return str(self._graph[node]["class_type"]) if node in self._graph else ""


_OURS = frozenset({"execution_success", "finished", "child"})
_STEPS: Mapping[str, Callable[[RunEventPublisher, Mapping[str, Any]], None]] = {
    "executing": RunEventPublisher.executing,
    "progress": RunEventPublisher.progress,
    "child": RunEventPublisher.child,
    "finished": RunEventPublisher.finished,
    "execution_cached": RunEventPublisher.cached,
    "execution_error": RunEventPublisher.failed,
}


def public(ui: Mapping[str, Any]) -> dict[str, Any]:
    """Return the UI data of an output node in ComfyUI's format."""
    return {kind: _public_rows(rows) if isinstance(rows, list | tuple) else rows for kind, rows in ui.items()}


def _public_rows(rows: Any) -> list[Any]:
    return [
        {key: value for key, value in plain.items() if key not in _PRIVATE}
        if (plain := mapping(row))
        else row
        for row in rows
    ]
