"""Estimates of the child runs of a graph before it runs.

Inline nodes are executed, and all other values are unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import LineItem
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows import slices
from sixfold.core.workflows.execution import node_call
from sixfold.core.workflows.execution.node_sessions import SMALL_TEXT
from sixfold.core.workflows.limits import count_text
from sixfold.core.workflows.ports import ChildRequest, ListValue
from sixfold.core.workflows.slices import Steps
from sixfold.core.workflows.validate import GraphNode, ValidationResult

# Assumed number of images of a node, or of calls for a list, if it is known only during the run.
MAX_BATCH: Final = 64


class UnknownCost:
    """A value that is known only during the run."""

    shape = ()


UNKNOWN: Final = UnknownCost()
# Maximum characters that inline nodes may read and write here; above it, values count as unknown.
_MAX_TEXT: Final = 2**20
# Functions that accept unknown values.
_LAZY = frozenset({"record", "switch"})


def child_request_steps(
    validation: ValidationResult, *, lenient: bool = False
) -> Steps[tuple[tuple[str, ChildRequest], ...]]:
    """Return the child runs of a validated graph by node, in node order, without starting them.

    Raises the error of a node whose estimate fails, such as `EngineUnavailable`. If `lenient` is set, another
    server runs the graph, and such a node counts as a node without child runs.
    """
    values: dict[str, tuple[Any, ...]] = {}
    requests: list[tuple[str, ChildRequest]] = []
    remaining = _MAX_TEXT
    for at, (node_id, node) in enumerate(validation.nodes.items()):
        if at % slices.ITEMS == 0:
            yield
        inputs = dict(node.values)
        for name, (origin, slot) in node.links.items():
            inputs[name] = values[origin][slot]
        spec = node.spec
        if spec.estimate is not None:
            requests += [
                (node_id, child_request) for child_request in _child_requests(node, inputs, lenient=lenient)
            ]
        values[node_id] = _unknown(node, inputs)
        if any(node_input.upload and inputs.get(node_input.name) == "" for node_input in spec.inputs):
            # The input does not name a file.
            values[node_id] = (None,) * len(spec.outputs)
        elif spec.where == "inline" and spec.run is not None and not spec.output_node and remaining > 0:
            characters = count_text(inputs.values())
            # Long texts are processed by a node worker.
            if characters > SMALL_TEXT:
                continue
            remaining -= characters
            values[node_id] = _run_inline(node, inputs) or values[node_id]
            remaining -= count_text(values[node_id])
    return tuple(requests)


def _unknown(node: GraphNode, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return unknown outputs of a node that is not executed, as lists if its inputs or outputs are lists."""
    calls = 0 if node.spec.input_is_list else _calls(inputs)
    return tuple(
        ListValue((UNKNOWN,) * (calls or MAX_BATCH)) if calls or output.is_list else UNKNOWN
        for output in node.spec.outputs
    )


def _calls(inputs: Mapping[str, Any]) -> int:
    """Return the number of calls of a node with list inputs, or 0 without list inputs."""
    return max((len(value) for value in inputs.values() if isinstance(value, ListValue)), default=0)


def _child_requests(node: GraphNode, inputs: Mapping[str, Any], *, lenient: bool) -> Iterator[ChildRequest]:
    estimated: Any = node.spec.estimate
    calls = 0 if node.spec.input_is_list else _calls(inputs)
    try:
        if calls and all(
            len(set(map(id, node_input))) == 1
            for node_input in inputs.values()
            if isinstance(node_input, ListValue)
        ):
            # All calls have the same inputs.
            yield from (*estimated(node_call.ones(inputs)[0]),) * calls
            return
        for call_inputs in node_call.ones(inputs) if calls else [inputs]:
            yield from estimated(call_inputs)
    except EngineError as error:
        if not lenient:
            raise errors.BadRequest(f"{node.spec.class_type} (node {node.id}): {error}") from error
    except (errors.SixfoldError, KeyError, TypeError, ValueError):
        if not lenient:
            raise


def _run_inline(node: GraphNode, inputs: dict[str, Any]) -> tuple[Any, ...]:
    run: Any = node.spec.run
    if any(_has_unknown(value) for value in inputs.values()) and run.__name__ not in _LAZY:
        return ()
    try:
        return node_call.finish(node, node_call.call(node, None, inputs)).outputs  # pyright: ignore[reportArgumentType]  # inline nodes do not use a context
    except (EngineError, TypeError, ValueError):
        return ()


def _has_unknown(value: Any) -> bool:
    return value is UNKNOWN or (isinstance(value, ListValue) and any(each is UNKNOWN for each in value))


ChildRunPrices = Sequence[tuple[str, str, PriceRow]]


def check_spaces(validation: ValidationResult, child_runs: ChildRunPrices, spaces: Collection[str]) -> None:
    """Raise `BadRequest` if one of the account's `spaces` receives a result that may never be paid.

    A space could return the result to the account and let the graph fail, which is then free.
    """
    unpaid = {node for node, model, price in child_runs if price.micros and model not in spaces}
    receivers = {node: model for node, model, _ in child_runs if model in spaces}
    for node_id, node in validation.nodes.items():
        if unpaid.isdisjoint(origin for origin, _ in node.links.values()):
            continue
        unpaid.add(node_id)
        if node_id in receivers:
            raise errors.BadRequest(
                f"The space {receivers[node_id]} (node {node_id}) would receive results that are charged "
                "only if the graph succeeds: run the nodes before it in a separate graph"
            )


class Estimate(msgspec.Struct, frozen=True):
    """The child runs of a graph, and its maximum price.

    `micros` is the total, and `list_micros` the total at list prices, including runs that are free on this
    server. `vram_gb` is the graphics memory in GB that the model files need, or None if one is unknown.
    """

    child_runs: tuple[tuple[str, str, PriceRow], ...]
    vram_gb: float | None = 0

    @property
    def micros(self) -> int:
        """The maximum cost in micro-dollars."""
        return sum(price.micros for _, _, price in self.child_runs)

    @property
    def list_micros(self) -> int:
        """The maximum cost at list prices in micro-dollars, including runs that are free for the caller."""
        return sum(list_price_of(price) for _, _, price in self.child_runs)

    @property
    def price(self) -> PriceRow:
        """The price to hold."""
        text, micros, list_micros = "the sum of its nodes", self.micros, self.list_micros
        price = PriceRow(micros, money.credits_for(micros), text, "children", lines=self.lines)
        return price if list_micros == micros else msgspec.structs.replace(price, list_micros=list_micros)

    @property
    def lines(self) -> tuple[LineItem, ...]:
        """The costs of the child runs; equal costs share a line."""
        return _grouped((model, price.micros) for _, model, price in self.child_runs)

    @property
    def list_lines(self) -> tuple[LineItem, ...]:
        """The costs at list prices; equal costs share a line."""
        return _grouped((model, list_price_of(price)) for _, model, price in self.child_runs)

    @property
    def record(self) -> dict[str, Any]:
        """The estimate as JSON; equal child runs share a row."""
        alike: dict[tuple[str, int, int], list[str]] = {}
        for node, model, price in self.child_runs:
            alike.setdefault((model, price.micros, list_price_of(price)), []).append(node)
        rows = [
            {
                "node_id": nodes[0],
                "node_ids": list(dict.fromkeys(nodes)),
                "model": model,
                "count": len(nodes),
                **_money(micros * len(nodes), listed * len(nodes)),
            }
            for (model, micros, listed), nodes in alike.items()
        ]
        return {**_money(self.micros, self.list_micros), "vram_gb": self.vram_gb, "orders": rows}


def list_price_of(price: PriceRow) -> int:
    """Return the list price in micro-dollars, including runs that are free for the caller."""
    return price.micros if price.list_micros is None else price.list_micros


def _grouped(costs: Iterable[tuple[str, int]]) -> tuple[LineItem, ...]:
    alike = Counter(costs)
    return charges.group_runs((model, micros, count) for (model, micros), count in alike.items())


def _money(micros: int, listed: int) -> dict[str, str]:
    fields = {"price_usd": money.format_usd(micros)}
    return fields if listed == micros else {**fields, "list_price": money.format_usd(listed)}
