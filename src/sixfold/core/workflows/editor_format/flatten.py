"""Flattening of a workflow in the editor's format: expansion of subgraphs and group nodes.

A node inside a subgraph has the id `<host>:<inner>`; inside a group node, `<host>:<index>`. The borders of
both become pass-through nodes, through which links are followed as through a reroute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sixfold.core.workflows import slices
from sixfold.core.workflows.documents import Json, as_list, mapping
from sixfold.core.workflows.limits import DEFAULT_LIMITS, GraphLimits, measure
from sixfold.core.workflows.nodes import WIDGET_TYPES, NodeInput
from sixfold.core.workflows.slices import Steps
from sixfold.errors import BadRequest

Source = tuple[str, int]

ALWAYS, NEVER, BYPASS = 0, 2, 4
NOTES = frozenset({"Note", "MarkdownNote"})
_GROUP = ("workflow/", "workflow>")
_BORDER_IN, _BORDER_OUT = "<", ">"
_MAX_DEPTH = 32


class EditorSlot(msgspec.Struct):
    """An input of an editor node: the output linked to it, and the name of its widget, if any.

    `value` is the host's value of a promoted widget.
    """

    name: str
    type: str
    source: Source | None = None
    widget: str = ""
    value: Any = None


class EditorNode(msgspec.Struct):
    """A node of the editor; if `passes` is set, each output forwards the input with the same index."""

    id: str
    type: str
    mode: int = ALWAYS
    title: str = ""
    slots: list[EditorSlot] = []
    values: Any = None
    named: dict[str, Any] = {}
    outputs: tuple[str, ...] = ()
    models: tuple[Json, ...] = ()
    passes: bool = False


def is_editor(document: object) -> bool:
    """Return whether a document is in the editor's format."""
    fields = mapping(document)
    return isinstance(fields.get("nodes"), list) and "links" in fields


class InvalidSubgraph(BadRequest):
    """A subgraph contains itself or is nested too deeply."""

    code = "bad_subgraph"


def flatten(document: Json, limits: GraphLimits = DEFAULT_LIMITS) -> dict[str, EditorNode]:
    """Return every node by its flat id, in the document's order.

    Raises `GraphTooLarge` or `InvalidSubgraph`.

    Nodes, inputs and text are counted before they are added, so that `limits` bound work and memory,
    regardless of the size of the expanded document.
    """
    return slices.complete(flattening(document, limits))


def flattening(document: Json, limits: GraphLimits = DEFAULT_LIMITS) -> Steps[dict[str, EditorNode]]:
    """Run `flatten` in slices, yielding after each so that the event loop stays responsive."""
    flat_document = _Document(document, limits)
    links = _sorted_links(document)
    yield
    yield from flat_document.open(document, links, "", ALWAYS)
    return flat_document.nodes


class _Document:
    """The flat nodes so far, and the definitions of subgraphs and group nodes."""

    def __init__(self, document: Json, limits: GraphLimits) -> None:
        self.nodes: dict[str, EditorNode] = {}
        self._budget = limits.budget()
        # The definitions being expanded, outermost first, and the links of each definition.
        self._path: list[str] = []
        self._links: dict[str, _Links] = {}
        self._costs: dict[int, tuple[int, int]] = {}
        definitions: Json = document.get("definitions") or {}
        self._subgraphs: dict[str, Json] = {
            subgraph["id"]: subgraph for subgraph in definitions.get("subgraphs") or ()
        }
        extra: Json = document.get("extra") or {}
        self._groups: Json = extra.get("groupNodes") or {}

    def open(self, graph: Json, links: _Links, prefix: str, mode: int) -> Steps[None]:
        """Add the nodes of a graph or subgraph; their ids start with `prefix`."""
        for at, row in enumerate(as_list(graph.get("nodes"))):
            if at % slices.ITEMS == 0:
                yield
            self._spend(row, prefix)
            node = _node(row, prefix, links.by_id)
            node.mode = node.mode if mode == ALWAYS else mode
            yield from self._add(node, row)

    def _spend(self, row: Json, prefix: str) -> None:
        """Count a node with its slots, values and texts against the budget, before the node is created."""
        cost = self._costs.get(id(row))
        if cost is None:
            cost = self._costs[id(row)] = _cost(row)
        slots = len(as_list(row.get("inputs")))
        self._budget.spend(nodes=1, values=cost[0], text_bytes=cost[1] + (1 + slots) * len(prefix))

    def _add(self, node: EditorNode, row: Json) -> Steps[None]:
        kind = node.type
        group = self._groups.get(kind[len(_GROUP[0]) :]) if kind.startswith(_GROUP) else None
        if kind in self._subgraphs and node.mode != BYPASS:
            yield from self._subgraph(node, self._subgraphs[kind], row)
        elif group is not None and node.mode != BYPASS:
            self._group(node, group)
        else:
            self.nodes[node.id] = node

    # -- subgraphs -------------------------------------------------------------------------------

    def _subgraph(self, host: EditorNode, definition: Json, row: Json) -> Steps[None]:
        """Expand a subgraph, linking its inputs to the host's and the host's outputs to its outputs."""
        self._enter(host.type, str(definition.get("name") or host.type))
        links = self._links.get(host.type)
        if links is None:
            links = self._links[host.type] = _sorted_links(definition)
        prefix = f"{host.id}:"
        inputs: list[Json] = definition.get("inputs") or []
        outputs: list[Json] = definition.get("outputs") or []
        self._budget.spend(values=len(inputs) + len(outputs) + len(links.outgoing))
        by_name = {slot.name: slot for slot in host.slots}
        border = [
            by_name.get(str(node_input.get("name"))) or EditorSlot(str(node_input.get("name")), "*")
            for node_input in inputs
        ]
        proxies: list[list[Any]] = _properties(row).get("proxyWidgets") or []
        values: list[Any] = as_list(host.values)
        if not proxies:
            _assign_values(
                values, [slot for slot, each in zip(border, inputs, strict=True) if _is_widget(each)]
            )
        self.nodes[prefix + _BORDER_IN] = EditorNode(prefix + _BORDER_IN, "", slots=border, passes=True)
        slots = [EditorSlot(str(output.get("name")), str(output.get("type"))) for output in outputs]
        for origin, slot, at in links.outgoing:
            if at < len(slots):
                slots[at].source = _inner((origin, slot), prefix)
        self.nodes[host.id] = EditorNode(host.id, "", host.mode, slots=slots, passes=True)
        yield from self.open(definition, links, prefix, host.mode)
        _promote(self.nodes, prefix, zip(proxies, values, strict=False))
        self._path.pop()

    def _enter(self, definition_id: str, name: str) -> None:
        if definition_id in self._path:
            raise InvalidSubgraph(f"The subgraph {name[:80]!r} contains itself")
        if len(self._path) >= _MAX_DEPTH:
            raise InvalidSubgraph(f"Subgraphs may be nested at most {_MAX_DEPTH} deep")
        self._path.append(definition_id)

    # -- group nodes -----------------------------------------------------------------------------

    def _group(self, host: EditorNode, group: Json) -> None:
        """Expand a group node: its unconnected inputs and outputs are the host's, in order."""
        rows: list[Json] = group.get("nodes") or []
        prefix = f"{host.id}:"
        links: list[list[Any]] = group.get("links") or []
        for row in rows:
            self._spend(row, prefix)
        self._budget.spend(values=len(links) + len(as_list(group.get("external"))))
        inside = {
            (link[2], link[3]): (f"{prefix}{link[0]}", link[1]) for link in links if link[0] is not None
        }
        hidden = {(link[0], link[1]) for link in links}
        hidden -= {(_index(each[0]), each[1]) for each in group.get("external") or ()}
        outer = (slot.source for slot in host.slots)
        values = as_list(host.values)
        out: list[EditorSlot] = []
        for index, row in enumerate(rows):
            node = _node({**row, "id": index}, prefix, {})
            for at, slot in enumerate(node.slots):
                if (index, at) in inside:
                    slot.source = inside[index, at]
                elif not slot.widget:
                    slot.source = next(outer, slot.source)
            count = len(row.get("widgets_values") or ())
            node.values, values = values[:count] or node.values, values[count:]
            node.mode = host.mode or node.mode
            self.nodes[node.id] = node
            out += [
                EditorSlot("", kind, (node.id, at))
                for at, kind in enumerate(node.outputs)
                if (index, at) not in hidden
            ]
        self.nodes[host.id] = EditorNode(host.id, "", host.mode, slots=out, passes=True)


def _cost(row: Json) -> tuple[int, int]:
    """Return the number of values and characters that a row adds to the graph."""
    slots = [*as_list(row.get("inputs")), *as_list(row.get("outputs"))]
    properties = _properties(row)
    values = [row.get(name) for name in ("id", "type", "title", "widgets_values", "widgets_values_named")]
    values += [properties.get("proxyWidgets"), properties.get("models")]
    values += [mapping(slot).get("name") for slot in slots]
    return measure(values)


def _index(item: Any) -> Any:
    """Return the index of a node in a group; some editors store the whole node instead."""
    return mapping(item).get("index", item)


def _assign_values(values: list[Any], slots: list[EditorSlot]) -> None:
    """Assign the host's values to its widgets, in the order of the definition."""
    for slot, value in zip(slots, values, strict=False):
        slot.value = value


def _promote(nodes: Mapping[str, EditorNode], prefix: str, values: Iterable[tuple[list[Any], Any]]) -> None:
    """Assign the host's values of promoted widgets to the inner nodes that own the widgets."""
    for (inner, name, *_), value in values:
        node = nodes.get(f"{prefix}{inner}")
        if node is not None and value is not None:
            node.named[str(name)] = value


def _is_widget(item: Json) -> bool:
    return str(item.get("type")).split(",")[0] in WIDGET_TYPES


def _properties(row: Json) -> Json:
    return row.get("properties") or {}


class _Links(msgspec.Struct, frozen=True):
    """The links of a graph by id, and the links to its outputs as origin, origin slot, output."""

    by_id: Mapping[Any, tuple[str, int, str, int]]
    outgoing: tuple[tuple[str, int, int], ...]


def _sorted_links(graph: Json) -> _Links:
    by_id = links_by_id(graph)
    ends = by_id.values()
    return _Links(by_id, tuple((origin, slot, at) for origin, slot, target, at in ends if target == "-20"))


def links_by_id(graph: Json) -> dict[Any, tuple[str, int, str, int]]:
    """Return a graph's links by id as origin, origin slot, target, target slot.

    Both schemas are supported.
    """
    links: dict[Any, tuple[str, int, str, int]] = {}
    for row in graph.get("links") or ():
        if item := mapping(row):
            ends = (item["origin_id"], item["origin_slot"], item["target_id"], item["target_slot"])
            links[item["id"]] = (str(ends[0]), int(ends[1]), str(ends[2]), int(ends[3]))
        elif len(as_list(row)) >= 5:
            link, origin, slot, target, at = as_list(row)[:5]
            links[link] = (str(origin), int(slot), str(target), int(at))
    return links


def _inner(source: Source, prefix: str) -> Source:
    """Return the flat id of a link's origin; links from outside pass through the border node."""
    origin, slot = source
    return (prefix + (_BORDER_IN if origin == "-10" else origin), slot)


def _node(row: Json, prefix: str, links: Mapping[Any, tuple[str, int, str, int]]) -> EditorNode:
    slots: list[EditorSlot] = []
    for item in as_list(row.get("inputs")):
        link = links.get(item.get("link"))
        widget: Json = item.get("widget") or {}
        slots.append(
            EditorSlot(
                str(item.get("name")),
                str(item.get("type")),
                _inner((link[0], link[1]), prefix) if link else None,
                str(widget.get("name") or ""),
            )
        )
    outputs: list[Json] = row.get("outputs") or []
    return EditorNode(
        id=f"{prefix}{row.get('id')}",
        type=str(row.get("type") or ""),
        mode=int(row.get("mode") or ALWAYS),
        title=str(row.get("title") or ""),
        slots=slots,
        values=row.get("widgets_values"),
        named=dict(row.get("widgets_values_named") or {}),
        outputs=tuple(str(output.get("type")) for output in outputs),
        models=tuple(_properties(row).get("models") or ()),
    )


def widget_of(slot: EditorSlot) -> NodeInput:
    """Return the widget of a slot if the class has no schema."""
    return NodeInput(slot.widget, slot.type)
