"""Limits of a graph, the same wherever one is read, validated, imported, compared or run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sixfold import errors
from sixfold.core import json_limits
from sixfold.core.graphs.documents import mapping
from sixfold.core.input_budget import InputBudget, Limit

_MOST = "A graph may have at most {:,} "


class GraphTooLarge(errors.BadRequest):
    """The graph exceeds a limit."""

    code = "graph_too_large"


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """The largest graph that is accepted.

    `nodes` are counted after subgraphs and group nodes are opened, `values` are those of all inputs with
    the members of lists and objects. `json_bytes` bounds the document itself, and again the text of the
    nodes after opening.
    """

    nodes: int = 5_000
    values: int = 100_000
    json_bytes: int = 2**20

    def check_document(self, data: bytes) -> None:
        """Raise `GraphTooLarge` or `InputTooLarge` for JSON that is too large to be decoded."""
        if len(data) > self.json_bytes:
            most = self.json_bytes
            raise GraphTooLarge(f"A graph may have at most {most:,} bytes of JSON; got {len(data):,}")
        json_limits.GRAPH.check(data)

    def budget(self) -> InputBudget:
        """A budget of nodes, values and bytes of text for a graph that is about to be read."""
        opened = "after its subgraphs are opened"
        return InputBudget(
            nodes=Limit(self.nodes, _MOST + f"nodes {opened}", GraphTooLarge),
            values=Limit(self.values, _MOST + "values in the inputs of its nodes", GraphTooLarge),
            text_bytes=Limit(self.json_bytes, _MOST + f"bytes of text {opened}", GraphTooLarge),
        )

    def check(self, graph: object) -> None:
        """Raise `GraphTooLarge` for a graph in API format with too many nodes or values."""
        nodes = mapping(graph)
        budget = self.budget()
        budget.spend(nodes=len(nodes))
        count = 0
        for node in nodes.values():
            inputs = mapping(mapping(node).get("inputs"))
            count += len(inputs)
            for value in inputs.values():
                if isinstance(value, list | dict):
                    count += _members(cast("list[Any]", value), self.values)
            if count > self.values:
                break
        budget.spend(values=count)


DEFAULT_LIMITS = GraphLimits()


def count_text(values: Iterable[object]) -> int:
    """Count the characters of texts, also of those in lists of values."""
    count = 0
    for value in values:
        if isinstance(value, str):
            count += len(value)
        elif isinstance(value, tuple):
            count += count_text(cast("tuple[object, ...]", value))
    return count


def _members(value: list[Any] | dict[str, Any], limit: int) -> int:
    # Nearly all of them are links, which need no walk.
    if type(value) is list and len(value) == 2 and type(value[0]) is str and type(value[1]) is int:
        return 2
    return count_values(value, limit)


def count_values(value: object, limit: int) -> int:
    """Count a value with all members of its lists and objects, stopping above `limit`."""
    if not isinstance(value, list | Mapping):
        return 1
    count = 0
    pending: list[Any] = [value]
    while pending and count <= limit:
        held: Any = pending.pop()
        members = cast("list[Any]", list(held.values()) if isinstance(held, Mapping) else held)
        count += len(members)
        pending += [each for each in members if isinstance(each, list | dict)]
    return count


def measure(value: object) -> tuple[int, int]:
    """Count a value with all members of its lists and objects, and the characters of their texts."""
    count = text = 0
    pending: list[Any] = [value]
    while pending:
        each = pending.pop()
        count += 1
        if isinstance(each, str):
            text += len(each)
        elif isinstance(each, list):
            pending += cast("list[Any]", each)
        elif isinstance(each, Mapping):
            known = mapping(cast("object", each))
            text += sum(map(len, known))
            pending += known.values()
    return count, text
