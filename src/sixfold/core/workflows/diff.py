"""Comparison of two graphs, independent of their node ids."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.core.workflows import slices
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.nodes import Graph, is_link
from sixfold.core.workflows.slices import Steps


class GraphDifference(msgspec.Struct, frozen=True):
    """Added and removed nodes, changed inputs, and `pairs`, which maps node ids of `a` to those of `b`."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Mapping[str, Any], ...]
    pairs: Mapping[str, str]

    @property
    def equal(self) -> bool:
        """Whether the graphs are equivalent."""
        return not (self.added or self.removed or self.changed)

    @property
    def record(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": [dict(each) for each in self.changed],
            "renamed": {a: b for a, b in self.pairs.items() if a != b},
        }


def compare_steps(a: Graph, b: Graph) -> Steps[GraphDifference]:
    """Return the difference from `a` to `b`; nodes match by id and class, or else by values or links."""
    pairs = {node_id: node_id for node_id in a if node_id in b and _class(a, node_id) == _class(b, node_id)}
    for similar in (_whole, _place):
        yield from _pair(a, b, pairs, similar)
    changed: list[Mapping[str, Any]] = []
    for at, (node_a, other) in enumerate(pairs.items()):
        if at % slices.ITEMS == 0:
            yield
        changed += _changes(a[node_a], b[other], node_a, other, pairs)
    paired = set(pairs.values())
    added = tuple(node_id for node_id in b if node_id not in paired)
    return GraphDifference(
        added, tuple(node_id for node_id in a if node_id not in pairs), tuple(changed), pairs
    )


def _class(graph: Graph, node_id: str) -> str:
    return str(graph[node_id].get("class_type"))


def _values(node: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mapping(node.get("inputs")).items() if not is_link(value)}


def _whole(graph: Graph, node_id: str) -> object:
    return _class(graph, node_id), repr(sorted(_values(graph[node_id]).items(), key=lambda each: each[0]))


def _place(graph: Graph, node_id: str) -> object:
    """Return a node's class, and the classes to which it is linked."""
    links = mapping(graph[node_id].get("inputs"))
    ends = [
        (name, _class(graph, str(link[0])), link[1])
        for name, link in sorted(links.items())
        if is_link(link) and str(link[0]) in graph
    ]
    return _class(graph, node_id), repr(ends)


def _pair(a: Graph, b: Graph, pairs: dict[str, str], similar: Any) -> Steps[None]:
    """Pair the remaining nodes, in order, for which `similar` returns equal values."""
    paired = set(pairs.values())
    unmatched: dict[object, deque[str]] = defaultdict(deque)
    for at, node_id in enumerate(b):
        if at % slices.ITEMS == 0:
            yield
        if node_id not in paired:
            unmatched[similar(b, node_id)].append(node_id)
    for at, node_id in enumerate(a):
        if at % slices.ITEMS == 0:
            yield
        if node_id not in pairs and (candidates := unmatched.get(similar(a, node_id))):
            pairs[node_id] = candidates.popleft()


def _changes(
    inputs_a: Mapping[str, Any], other: Mapping[str, Any], a: str, b: str, pairs: Mapping[str, str]
) -> list[dict[str, Any]]:
    before, after = mapping(inputs_a.get("inputs")), mapping(other.get("inputs"))
    changes: list[dict[str, Any]] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        mapped = [pairs.get(str(old[0]), str(old[0])), old[1]] if is_link(old) else old
        value = [str(new[0]), new[1]] if is_link(new) else new
        if mapped != value or (name in before) != (name in after):
            where = {"node_id": a, "class_type": inputs_a.get("class_type"), "input": name}
            changes.append({**where, "from": old, "to": new, **({"renamed_to": b} if a != b else {})})
    return changes
