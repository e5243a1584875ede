"""Calls of a node's function, once per item if its inputs are lists of values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows.ports import ListValue, NodeContext, NodeResult
from sixfold.core.workflows.validate import GraphNode


def call(node: GraphNode, context: NodeContext, inputs: Mapping[str, Any]) -> Any:
    """Call the node's function and return its result, or an awaitable if its class is asynchronous."""
    spec = node.spec
    if spec.run is None:
        raise EngineError(
            "this server knows only the schema of this node class: connect a ComfyUI server that can run it"
        )
    if spec.input_is_list:
        return spec.run(context, **{name: _listed(value) for name, value in inputs.items()})
    for value in inputs.values():
        if isinstance(value, ListValue):
            break
    else:
        return spec.run(context, **inputs)
    if spec.where == "await":
        return _each_awaited(node, context, inputs)
    return join_results([finish(node, spec.run(context, **item)) for item in ones(inputs)])


async def _each_awaited(node: GraphNode, context: NodeContext, inputs: Mapping[str, Any]) -> NodeResult:
    result = [finish(node, await call(node, context, item)) for item in ones(inputs)]
    return join_results(result)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, ListValue) else [value]


def ones(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the inputs of each call; a shorter list repeats its last value."""
    lists: dict[str, list[Any]] = {name: _listed(value) for name, value in inputs.items()}
    count = max(len(values) for values in lists.values())
    if not all(lists.values()):
        return []
    return [{name: values[min(at, len(values) - 1)] for name, values in lists.items()} for at in range(count)]


def finish(node: GraphNode, returned: Any) -> NodeResult:
    """Return a function's result as `NodeResult`, with list outputs wrapped in `ListValue`."""
    result: NodeResult = returned if isinstance(returned, NodeResult) else NodeResult(tuple(returned or ()))
    outputs = node.spec.outputs
    if len(result.outputs) < len(outputs) and not inspect.isawaitable(returned):
        missing = len(outputs) - len(result.outputs)
        result = NodeResult((*result.outputs, *(None,) * missing), result.artifacts, result.ui)
    if node.spec.gives_lists:
        values = tuple(
            ListValue(value) if outputs[at].is_list and not isinstance(value, ListValue) else value
            for at, value in enumerate(result.outputs)
        )
        result = NodeResult(values, result.artifacts, result.ui)
    return result


def join_results(result: list[NodeResult]) -> NodeResult:
    """Merge the results of several calls: each output becomes a list of values."""
    outputs = [ListValue(values) for values in zip(*(output.outputs for output in result), strict=True)]
    ui: dict[str, Any] = {}
    for each in result:
        for key, value in each.ui.items():
            ui[key] = [*ui.get(key, ()), *value] if isinstance(value, list | tuple) else value
    return NodeResult(
        tuple(outputs), tuple(artifact for output in result for artifact in output.artifacts), ui
    )
