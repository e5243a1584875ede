"""What a graph's run says, and to whom: ComfyUI's clients, those who follow the prediction, its log.

Of a run with a price they hear at once which node runs and how far it is. What it made (what output nodes
show, and images that are sent but not saved) is withheld until the run is paid; previews are not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Context
from sixfold.core.predictions.events import EventBus, NodeState, NodeStateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.workflows import websocket_hub
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.limits import GraphTooLarge
from sixfold.core.workflows.nodes import Graph
from sixfold.core.workflows.ports import NodeEvent
from sixfold.core.workflows.websocket_hub import WebSocketHub

_PRIVATE = frozenset({"blob", "content_type", "info"})
_FACE = "comfyui"
_LAST = 0.99  # of the progress: the rest is what is stored after the last node


@dataclass(frozen=True, slots=True)
class EventSinks:
    """Who listens: the sockets of ComfyUI's clients, and whoever follows predictions."""

    hub: WebSocketHub
    bus: EventBus


class RunEventPublisher:
    """One run's voice. Its `heard` takes every event of the run, here or on a ComfyUI."""

    def __init__(self, parent: Prediction, graph: Graph, context: Context, ears: EventSinks) -> None:
        inputs = parent.task.inputs
        self._parent = parent
        self._graph = graph
        self._context = context
        self._ears = ears
        self._client_id: str | None = inputs.get("client_id")
        self._prompt_id = str(inputs.get("prompt_id") or parent.id)
        self._all = max(1, len(graph))
        self._over: set[str] = set()
        self._running: dict[str, float] = {}
        self._is_full = False
        ears.hub.forget_withheld(parent.id)  # of an earlier attempt

    def begin(self, nodes: int) -> None:
        """So many nodes are needed."""
        self._all = max(1, nodes)

    def heard(self, event: NodeEvent) -> None:
        """Pass on one event; raises `Canceled` once the run is no longer wanted."""
        if event.binary:
            self._show(event)
            return
        step = _STEPS.get(event.type)
        if step is not None:
            step(self, event.data)
        if event.type in _OURS or (event.type == "executing" and event.data["node"] is None):
            return  # an end is told once the prediction has ended, so that the history has it
        data = {**event.data, "prompt_id": self._prompt_id}
        if event.type == "executed":
            data["output"] = public(event.data["output"])
        self._ears.hub.remember(self._parent.id, event.type, data)
        message = {"type": event.type, "data": data}
        if event.type == "executed" and self._parent.price:
            self._withhold(message)
        else:
            self._tell(message)

    def _show(self, event: NodeEvent) -> None:
        picture = websocket_hub.picture(event.binary, str(event.data["content_type"]))
        if not self._parent.price:
            self._tell(picture)
        elif event.type == "image":
            # Clients take an image for that of the node that they last heard of.
            node = {"node": event.data["node"], "display_node": event.data["node"]}
            self._withhold({"type": "executing", "data": {**node, "prompt_id": self._prompt_id}}, picture)

    def _withhold(self, *messages: websocket_hub.Message) -> None:
        if self._parent.face == _FACE and not self._ears.hub.withhold(self._parent.id, *messages):
            self._is_full = True

    def _tell(self, message: websocket_hub.Message) -> None:
        if self._parent.face == _FACE:
            self._ears.hub.send(Tenant.of(self._parent), self._client_id, message)

    # -- nodes -------------------------------------------------------------------------------------

    def executing(self, data: Mapping[str, Any]) -> None:
        """A node begins; none: the run is over."""
        if data["node"] is not None:
            node = str(data["node"])
            self._context.log(f"node {node} {self._class(node)}")
            self._move(node, "started", 0.0)

    def progress(self, data: Mapping[str, Any]) -> None:
        """A node is so far."""
        node, most = str(data["node"]), float(data["max"] or 1)
        if node not in self._over:
            self._move(node, "progress", min(1.0, max(0.0, float(data["value"]) / most)))

    def finished(self, data: Mapping[str, Any]) -> None:
        """A node has nothing left to do; raises `GraphTooLarge` where too much is withheld."""
        if self._is_full:
            most = websocket_hub.MOST_WITHHELD_BYTES // 2**20
            sentence = f"A graph with a price can send at most {most} MiB of images that it does not save"
            raise GraphTooLarge(f"{sentence}; save them, or run the graph in parts")
        self._end(str(data["node"]), "finished")

    def cached(self, data: Mapping[str, Any]) -> None:
        """These nodes need not run."""
        if data["nodes"]:
            self._context.log(f"cached {' '.join(data['nodes'])}")
        for node in data["nodes"]:
            self._end(str(node), "cached")

    def failed(self, data: Mapping[str, Any]) -> None:
        """The run failed, in a node where one is named."""
        if data.get("node_id") is not None:
            node = str(data["node_id"])
            self._publish(node, "failed", self._running.get(node, 0.0))

    def _end(self, node: str, state: NodeState) -> None:
        self._over.add(node)
        self._running.pop(node, None)
        self._publish(node, state, 1.0)
        self._report()

    def _move(self, node: str, state: NodeState, progress: float) -> None:
        self._running[node] = progress
        self._publish(node, state, progress)
        self._report()

    def _publish(self, node: str, state: NodeState, progress: float) -> None:
        moved = NodeStateChanged(node, self._class(node), state, progress)
        self._ears.bus.publish(self._parent.id, moved)

    def _report(self) -> None:
        done = len(self._over) + sum(self._running.values())
        self._context.progress(min(1.0, done / self._all) * _LAST)

    def _class(self, node: str) -> str:
        return str(self._graph[node]["class_type"]) if node in self._graph else ""


_OURS = frozenset({"execution_success", "finished"})
_STEPS: Mapping[str, Callable[[RunEventPublisher, Mapping[str, Any]], None]] = {
    "executing": RunEventPublisher.executing,
    "progress": RunEventPublisher.progress,
    "finished": RunEventPublisher.finished,
    "execution_cached": RunEventPublisher.cached,
    "execution_error": RunEventPublisher.failed,
}


def public(ui: Mapping[str, Any]) -> dict[str, Any]:
    """What an output node showed, as ComfyUI tells it."""
    return {kind: _shown(rows) if isinstance(rows, list | tuple) else rows for kind, rows in ui.items()}


def _shown(rows: Any) -> list[Any]:
    return [
        {key: value for key, value in plain.items() if key not in _PRIVATE}
        if (plain := mapping(row))
        else row
        for row in rows
    ]
