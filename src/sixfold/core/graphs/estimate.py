"""What a graph will order before it runs: trivial nodes are tried, what only a run can know is unknown."""

from __future__ import annotations

from typing import Any, Final

from sixfold import errors
from sixfold.core.graphs.ports import Asked, Given, NodeContext
from sixfold.core.graphs.validate import Verdict
from sixfold.core.work.engines import EngineError


class Unknown:
    """A value that only a run can give."""

    shape = ()


UNKNOWN: Final = Unknown()


def orders(
    verdict: Verdict, context: NodeContext | None = None, *, lenient: bool = False
) -> tuple[tuple[str, Asked], ...]:
    """The orders of a checked graph by node, in the order of its nodes; none is placed.

    Raises what a node's own estimate raises: an `EngineUnavailable` says so before anything is held.
    `lenient`: another server runs the graph, and such a node orders nothing.
    """
    values: dict[str, tuple[Any, ...]] = {}
    found: list[tuple[str, Asked]] = []
    for node_id, node in verdict.nodes.items():
        inputs = dict(node.values)
        for name, (origin, slot) in node.links.items():
            inputs[name] = values[origin][slot]
        spec = node.spec
        unknown = (UNKNOWN,) * len(spec.outputs)
        if spec.estimate is not None:
            found += [(node_id, each) for each in _asked(spec.estimate, inputs, lenient=lenient)]
        values[node_id] = unknown
        if any(each.upload and inputs.get(each.name) == "" for each in spec.inputs):
            values[node_id] = (None,) * len(spec.outputs)  # no file is named
        elif spec.where == "inline" and spec.run is not None and not spec.output_node:
            values[node_id] = _tried(spec.run, context, inputs) or unknown
    return tuple(found)


def _asked(estimated: Any, inputs: dict[str, Any], *, lenient: bool) -> tuple[Asked, ...]:
    try:
        asked: tuple[Asked, ...] = estimated(inputs)
    except (EngineError, errors.SixfoldError, KeyError, TypeError, ValueError):
        if not lenient:
            raise
        return ()
    return asked


def _tried(run: Any, context: NodeContext | None, inputs: dict[str, Any]) -> tuple[Any, ...]:
    if any(value is UNKNOWN for value in inputs.values()) and run.__name__ != "record":
        return ()
    try:
        given = run(context, **inputs)
    except (EngineError, TypeError, ValueError):
        return ()
    return given.outputs if isinstance(given, Given) else tuple(given)
