"""Limits of graphs, applied whenever a graph is parsed, validated, imported, compared or run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core.concurrency import fair_threads
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.input_limits import json_limits
from sixfold.core.input_limits.budget import InputBudget, Limit
from sixfold.core.workflows import slices
from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.slices import Steps

# Lists and objects between two steps.
_WALKED = 1_000
_TOO_MANY = "A graph may have at most {:,} "
# A character takes up to six bytes of JSON, in the record of the run and in the message of each client.
_MAX_SHOWN = 2**21
_MAX_MEMORY = 96 * 2**20
# A byte of JSON takes up to 24 bytes while its document is decoded, validated and encoded again; the limits
# on JSON documents bound the total.
_DECODED_BYTES, _MAX_DECODED = 24, 48 * 2**20
_SMALL_BYTES = 64 * 1024


class GraphTooLarge(errors.BadRequest):
    """A graph exceeds a limit."""

    code = "graph_too_large"


class DocumentMemory:
    """Limits the memory of the workflow documents that all requests decode concurrently."""

    def __init__(self, max_bytes: int = _MAX_MEMORY, wait_seconds: float = 30.0) -> None:
        message = "Too many large workflows at a time: retry when earlier requests have ended"
        self._limit = MemoryLimit(max_bytes, message, wait_seconds)

    @property
    def total(self) -> int:
        """The number of reserved bytes."""
        return self._limit.total

    async def reserve(self, size: int) -> None:
        """Reserve memory for a document of `size` bytes until the request ends.

        Waits for earlier requests; raises `TooManyRequests`.
        """
        if size > _SMALL_BYTES:
            async with self._limit.lease(fair_threads.owner.get()) as lease:
                await lease.resize(min(size * _DECODED_BYTES, _MAX_DECODED))


class GraphLimits(msgspec.Struct, frozen=True):
    """The largest graph that is accepted.

    `nodes` are counted after subgraphs and group nodes are expanded. `values` counts all inputs, including
    the members of lists and objects. `json_bytes` limits the document, and also the text of the nodes after
    expansion.
    """

    nodes: int = 5_000
    values: int = 100_000
    json_bytes: int = 2**20

    def check_document(self, data: bytes) -> None:
        """Raise `GraphTooLarge` or `InputTooLarge` if the JSON is too large to be decoded."""
        if len(data) > self.json_bytes:
            max_bytes = self.json_bytes
            raise GraphTooLarge(f"A graph may have at most {max_bytes:,} bytes of JSON (got {len(data):,})")
        json_limits.GRAPH.check(data)

    def budget(self) -> InputBudget:
        """Return a budget of nodes, values and text bytes for parsing a graph."""
        suffix = "after its subgraphs are expanded"
        return InputBudget(
            nodes=Limit(self.nodes, _TOO_MANY + f"nodes {suffix}", GraphTooLarge),
            values=Limit(self.values, _TOO_MANY + "values in the inputs of its nodes", GraphTooLarge),
            text_bytes=Limit(self.json_bytes, _TOO_MANY + f"bytes of text {suffix}", GraphTooLarge),
        )

    def checking(self, graph: object) -> Steps[None]:
        """Raise `GraphTooLarge` if a graph in API format has too many nodes or values, yielding often."""
        nodes = mapping(graph)
        budget = self.budget()
        budget.spend(nodes=len(nodes))
        count = 0
        for at, node in enumerate(nodes.values()):
            if at % slices.ITEMS == 0:
                yield
            inputs = mapping(mapping(node).get("inputs"))
            count += len(inputs)
            for number, value in enumerate(inputs.values(), 1):
                if number % _WALKED == 0:
                    yield
                if isinstance(value, list | dict):
                    container = cast("list[Any] | dict[str, Any]", value)
                    count += (
                        2
                        if _is_plain_link(container)
                        else (yield from _counting(container, self.values - count))
                    )
            if count > self.values:
                break
        budget.spend(values=count)


DEFAULT_LIMITS = GraphLimits()


def shown_text() -> InputBudget:
    """Return a budget of the characters that the nodes of one run show."""
    message = "The nodes of a graph may show at most {:,} characters of text: show fewer texts"
    return InputBudget(characters=Limit(_MAX_SHOWN, message, GraphTooLarge))


def count_text(values: Iterable[object]) -> int:
    """Return the number of characters in strings, including those in lists of values."""
    count = 0
    for value in values:
        if isinstance(value, str):
            count += len(value)
        elif isinstance(value, list | tuple):
            count += count_text(cast("Iterable[object]", value))
    return count


def _is_plain_link(value: list[Any] | dict[str, Any]) -> bool:
    # Nearly all values are links, which do not contain strings to count.
    return type(value) is list and len(value) == 2 and type(value[0]) is str and type(value[1]) is int


def _counting(value: list[Any] | dict[str, Any], limit: int) -> Steps[int]:
    """Count the members of a value and of all nested lists and objects, up to `limit`."""
    count = walked = 0
    pending: list[list[Any] | dict[str, Any]] = [value]
    while pending and count <= limit:
        container = pending.pop()
        members = list(container.values()) if isinstance(container, dict) else container
        count += len(members)
        pending += [member for member in members if isinstance(member, list | dict)]
        walked += 1
        if walked % _WALKED == 0:
            yield
    return count


def measure(value: object) -> tuple[int, int]:
    """Return the number of values, including members of lists and objects, and of characters in strings."""
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
            fields = mapping(cast("object", each))
            text += sum(map(len, fields))
            pending += fields.values()
    return count, text
