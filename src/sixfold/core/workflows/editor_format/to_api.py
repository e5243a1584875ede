"""Conversion of the editor's format to the API format, in the same way as the editor's export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.core.workflows import slices
from sixfold.core.workflows.documents import as_list, mapping
from sixfold.core.workflows.editor_format import flatten, widgets
from sixfold.core.workflows.editor_format.flatten import BYPASS, NEVER, NOTES, EditorNode, Source
from sixfold.core.workflows.limits import DEFAULT_LIMITS, GraphLimits, GraphTooLarge
from sixfold.core.workflows.nodes import Graph, NodeSpec, Registry, is_link
from sixfold.core.workflows.slices import Steps
from sixfold.errors import BadRequest

_VIRTUAL = NOTES | {"Reroute", "PrimitiveNode"}


class NotAWorkflow(BadRequest):
    """The document is not a workflow: send a graph in API format or the file that the ComfyUI editor saves"""

    code = "not_a_workflow"


class ConvertedGraph(msgspec.Struct, frozen=True):
    """A graph in API format; `unknown` maps classes that are not in the registry to their nodes.

    `models` are files for which the workflow itself has a source: `name`, `url`, `directory`.
    """

    graph: Graph
    unknown: Mapping[str, tuple[str, ...]]
    models: tuple[Mapping[str, Any], ...] = ()


class _FixedValue(msgspec.Struct, frozen=True):
    """The value of a primitive, received over a link."""

    value: Any


def convert(document: object, registry: Registry, limits: GraphLimits = DEFAULT_LIMITS) -> ConvertedGraph:
    """Return a document of either format as a graph; raises `NotAWorkflow` or `GraphTooLarge`."""
    return slices.complete(conversion(document, registry, limits))


def conversion(
    document: object, registry: Registry, limits: GraphLimits = DEFAULT_LIMITS, *, any_nodes: bool = False
) -> Steps[ConvertedGraph]:
    """Run `convert` in slices, yielding after each so that the event loop stays responsive.

    If `any_nodes` is set, a node without a class gets an empty class name, which validation reports.
    """
    fields = mapping(document)
    fields = mapping(fields.get("prompt")) or fields
    if flatten.is_editor(fields):
        return (yield from _of_editor(fields, registry, limits))
    yield from limits.checking(fields)
    if not any_nodes and (not fields or not all(_is_node(node) for node in fields.values())):
        raise NotAWorkflow
    graph: dict[str, dict[str, Any]] = {
        str(node_id): dict(node) if _is_node(node) else {**mapping(node), "class_type": ""}
        for node_id, node in fields.items()
    }
    return ConvertedGraph(graph, _unknown(graph, registry))


def _is_node(node: object) -> bool:
    return isinstance(mapping(node).get("class_type"), str)


def _of_editor(document: Mapping[str, Any], registry: Registry, limits: GraphLimits) -> Steps[ConvertedGraph]:
    try:
        nodes = yield from flatten.flattening(document, limits)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise NotAWorkflow("The workflow is not a valid document of the ComfyUI editor") from None
    follower = _LinkFollower(nodes, limits.values)
    graph: dict[str, dict[str, Any]] = {}
    models: list[Mapping[str, Any]] = []
    for at, node in enumerate(nodes.values()):
        if at % slices.ITEMS == 0:
            yield
        if not node.passes and node.mode not in (NEVER, BYPASS) and node.type not in _VIRTUAL:
            graph[node.id] = _exported(node, follower, registry.get(node.type))
            models += node.models
    yield from limits.checking(graph)
    yield
    _drop_dangling(graph)
    return ConvertedGraph(graph, _unknown(graph, registry), tuple(models))


def _exported(node: EditorNode, follower: _LinkFollower, spec: NodeSpec | None) -> dict[str, Any]:
    inputs = {name: _wrapped(value) for name, value in widgets.values(node, spec).items()}
    for slot in node.slots:
        if slot.source is None:
            continue
        match follower.origin(slot.source, slot.type):
            case _FixedValue(value):
                inputs[slot.name] = _wrapped(value)
            case (origin, output):
                inputs[slot.name] = [origin, output]
            case None:
                pass
    title = node.title or (spec.title if spec else "") or node.type
    return {"inputs": inputs, "class_type": node.type, "_meta": {"title": title}}


def _wrapped(value: object) -> object:
    """Wrap a list that is a value, so that it is not mistaken for a link."""
    return {"__value__": items} if (items := as_list(value)) or value == [] else value


class _LinkFollower:
    """Finds the origin of links through reroutes, subgraph borders and bypassed nodes."""

    def __init__(self, nodes: Mapping[str, EditorNode], max_steps: int) -> None:
        self._nodes = nodes
        self._origins: dict[tuple[Source, str], Source | _FixedValue | None] = {}
        self._most_steps = self._steps = max_steps

    def origin(self, source: Source, expected: str) -> Source | _FixedValue | None:
        """Return the output or value at the origin of a link of type `expected`, or None.

        Raises `GraphTooLarge` if the links of the graph take too many steps in total.
        """
        path: list[tuple[Source, str]] = []
        seen: set[Source] = set()
        at: Source | _FixedValue | None = source
        while isinstance(at, tuple):
            if (at, expected) in self._origins:
                at = self._origins[at, expected]
                break
            following = self._next(at, expected) if at not in seen else None
            seen.add(at)
            path.append((at, expected))
            if following == at:
                break
            at = following
        self._origins.update(dict.fromkeys(path, at))
        return at

    def _next(self, at: Source, expected: str) -> Source | _FixedValue | None:
        """Return the origin of one link, or the link itself if it ends there."""
        node = self._nodes.get(at[0])
        if node is None or node.mode == NEVER:
            return None
        if node.mode == BYPASS:
            self._count(1 + len(node.slots))
            return _bypassed(node, at[1], expected)
        self._count(1)
        if node.passes:
            slot = node.slots[at[1]] if at[1] < len(node.slots) else None
            if slot is not None and slot.source is None and slot.value is not None:
                return _FixedValue(slot.value)
            return slot.source if slot else None
        if node.type == "Reroute":
            return node.slots[0].source if node.slots else None
        if node.type == "PrimitiveNode":
            values = as_list(node.values)
            return _FixedValue(values[0]) if values else None
        return at

    def _count(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise GraphTooLarge(
                f"The links of a graph may pass at most {self._most_steps:,} reroutes, "
                "bypassed nodes and subgraph borders"
            )


def _bypassed(node: EditorNode, output: int, expected: str) -> Source | None:
    """Return the input that a bypassed node forwards: at the output's index, else the first of its type."""
    beside = node.slots[output : output + 1]
    for slot in [*beside, *node.slots]:
        if slot.type == expected and slot.source is not None:
            return slot.source
    return None


def _drop_dangling(graph: Mapping[str, dict[str, Any]]) -> None:
    """Remove links to nodes that are not exported."""
    for node in graph.values():
        inputs: dict[str, Any] = node["inputs"]
        for name in [name for name, value in inputs.items() if is_link(value) and value[0] not in graph]:
            del inputs[name]


def _unknown(graph: Graph, registry: Registry) -> dict[str, tuple[str, ...]]:
    unknown: dict[str, list[str]] = {}
    for node_id, node in graph.items():
        class_type = str(node["class_type"])
        if class_type not in registry:
            unknown.setdefault(class_type, []).append(node_id)
    return {class_type: tuple(nodes) for class_type, nodes in unknown.items()}
