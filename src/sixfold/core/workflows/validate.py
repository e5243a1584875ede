"""Validation of a graph, with errors in ComfyUI's format, and its preparation for a run.

Links are followed without recursion, and only nodes that an output needs are validated, as in ComfyUI; if
`all_nodes` is set, the errors of an invalid graph include those of all other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import msgspec

from sixfold.core.workflows import slices, validation_errors
from sixfold.core.workflows.nodes import NodeInput, NodeSpec, Registry
from sixfold.core.workflows.slices import Steps
from sixfold.core.workflows.validation_errors import Fault

Link = tuple[str, int]
# Limits on the reported errors of a graph.
_NO_CLASS = "Cannot execute because a node is missing the class_type property."
_MAX_FAULTS, _MAX_NEAREST, _MAX_CYCLES, _MAX_DEPENDENT = 1000, 50, 5, 16
# `dict` comes first because it is by far the most frequent and fast to check.
_OBJECT = (dict, Mapping)
# Prefix of input types that represent several inputs, named with dots.
_DYNAMIC = "COMFY_"
_COERCE: Mapping[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


class GraphNode(msgspec.Struct):
    """A validated node: its class, its typed values, and its links by input."""

    id: str
    spec: NodeSpec
    values: dict[str, Any] = {}
    links: dict[str, Link] = {}


class ValidationResult(msgspec.Struct, frozen=True):
    """The result of validating a graph.

    `nodes` are the nodes that the valid `outputs` need, each after its dependencies. `error` is ComfyUI's
    error for the whole graph, or None if some output can run; `node_errors` are the errors by node.
    `missing_classes` maps an unknown class to its nodes, `missing_models` are model files that do not exist.
    `needs_remote` is True if only a connected ComfyUI can run the graph.
    """

    nodes: Mapping[str, GraphNode]
    outputs: tuple[str, ...]
    error: Fault | None
    node_errors: Mapping[str, Any]
    missing_classes: Mapping[str, tuple[str, ...]]
    missing_models: tuple[Mapping[str, str], ...] = ()
    needs_remote: bool = False

    @property
    def valid(self) -> bool:
        """Whether the whole graph can run."""
        return self.error is None and not self.node_errors

    @property
    def errors(self) -> list[dict[str, Any]]:
        """All errors in one list; errors of nodes contain `node_id` and `class_type`."""
        is_fatal = self.error is not None and self.error["type"] != "prompt_outputs_failed_validation"
        result: list[dict[str, Any]] = [dict(cast("Fault", self.error))] if is_fatal else []
        for node_id, row in self.node_errors.items():
            where = {"node_id": node_id, "class_type": row["class_type"]}
            result += [{**where, **error} for error in row["errors"]]
        return result


def validate(
    graph: object,
    registry: Registry,
    *,
    targets: Collection[str] | None = None,
    installed: Mapping[str, Collection[str]] | None = None,
    strict_models: bool = False,
    all_nodes: bool = False,
) -> ValidationResult:
    """Validate a graph; `targets` limits the outputs to run.

    `installed` maps each model folder to its files; a missing file is reported in `missing_models`, and is an
    error if `strict_models` is set.

    If `all_nodes` is set and the graph has an error, nodes that valid links do not connect to an output are
    validated as well: their errors would otherwise be reported only after the first errors are corrected.
    """
    return slices.complete(
        validation_steps(
            graph,
            registry,
            targets=targets,
            installed=installed,
            strict_models=strict_models,
            all_nodes=all_nodes,
        )
    )


def validation_steps(
    graph: object,
    registry: Registry,
    *,
    targets: Collection[str] | None = None,
    installed: Mapping[str, Collection[str]] | None = None,
    strict_models: bool = False,
    all_nodes: bool = False,
) -> Steps[ValidationResult]:
    """Run `validate` in slices, yielding after each so that the event loop stays responsive."""
    return _Check(registry, installed or {}, strict_models, all_nodes).run(graph, targets)


class _Check:
    """One validation with its state."""

    def __init__(
        self,
        registry: Registry,
        installed: Mapping[str, Collection[str]],
        strict_models: bool,
        all_nodes: bool,
    ) -> None:
        self._registry = registry
        self._installed = installed
        self._strict = strict_models
        self._all_nodes = all_nodes
        self._graph: Mapping[str, Mapping[str, Any]] = {}
        self._specs: dict[str, NodeSpec] = {}
        self._nodes: dict[str, GraphNode] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._models: list[Mapping[str, str]] = []
        self._path_nodes: dict[str, GraphNode] = {}
        self._cycles = self._described = self._visits = 0

    def run(self, graph: object, targets: Collection[str] | None) -> Steps[ValidationResult]:
        if (malformed := _malformed(graph)) is not None:
            return ValidationResult({}, (), malformed, {}, {})
        self._graph = cast("Mapping[str, Mapping[str, Any]]", graph)
        yield
        unknown = self._find_classes()
        yield
        output_ids = [
            node_id
            for node_id, spec in self._specs.items()
            if spec.output_node and (targets is None or node_id in targets)
        ]
        error = self._unknown(unknown)
        if not output_ids:
            error = error or validation_errors.fault("prompt_no_outputs", "Prompt has no outputs")
        for output in output_ids:
            yield from self._visit(output)
        if self._all_nodes and (error is not None or self._faults):
            for node_id in self._specs:
                yield from self._visit(node_id)
        return (yield from self._verdict(output_ids, unknown, error))

    def _find_classes(self) -> dict[str, tuple[str, ...]]:
        """Find every node's class; return the nodes of each unknown class."""
        unknown: dict[str, list[str]] = {}
        for node_id, node in self._graph.items():
            class_type = node["class_type"]
            spec = self._registry.get(class_type)
            if spec is None:
                unknown.setdefault(class_type, []).append(node_id)
            else:
                self._specs[node_id] = spec
        return {class_type: tuple(nodes) for class_type, nodes in unknown.items()}

    def _unknown(self, unknown: Mapping[str, tuple[str, ...]]) -> Fault | None:
        """Return one error for all unknown classes, or None; its message names the first, as in ComfyUI."""
        if not unknown:
            return None
        class_type, nodes = next(iter(unknown.items()))
        missing = [
            {
                "class_type": name,
                "node_ids": list(ids),
                "nearest": self._registry.nearest(name) if at < _MAX_NEAREST else "",
            }
            for at, (name, ids) in enumerate(unknown.items())
        ]
        text = f"Cannot execute because node {class_type} does not exist." if class_type else _NO_CLASS
        return validation_errors.fault("invalid_prompt", text, f"Node ID '#{nodes[0]}'", missing=missing)

    def _visit(self, output: str) -> Steps[None]:
        """Validate a node after its dependencies; a cycle is an error of the node that closes it."""
        if output in self._nodes:
            return
        path: list[tuple[str, Iterator[Link]]] = [(output, self._enter(output))]
        while path:
            self._visits += 1
            if self._visits % slices.ITEMS == 0:
                yield
            node_id, pending = path[-1]
            for needed, _ in pending:
                if needed in self._path_nodes:
                    self._faults.setdefault(node_id, []).append(self._cycle_error(needed, path))
                elif needed not in self._nodes and needed in self._specs:
                    path.append((needed, self._enter(needed)))
                    break
            else:
                self._nodes[node_id] = self._path_nodes.pop(node_id)
                path.pop()

    def _cycle_error(self, node_id: str, path: list[tuple[str, Iterator[Link]]]) -> Fault:
        """Return the error of a cycle; only some cycles are described because each lists its whole path."""
        self._cycles += 1
        if self._cycles > _MAX_CYCLES:
            return validation_errors.cycle([node_id, "…", node_id])
        ids = [entered for entered, _ in path]
        return validation_errors.cycle([*ids[ids.index(node_id) :], node_id])

    def _enter(self, node_id: str) -> Iterator[Link]:
        node = self._checked(node_id)
        self._path_nodes[node_id] = node
        return iter(node.links.values())

    # -- one node --------------------------------------------------------------------------------

    def _checked(self, node_id: str) -> GraphNode:
        spec = self._specs[node_id]
        inputs: Mapping[str, Any] = self._graph[node_id].get("inputs") or {}
        node = GraphNode(node_id, spec)
        faults: list[Fault] = []
        for node_input in spec.inputs:
            if node_input.name in inputs:
                if (fault := self._input(node, node_input, inputs[node_input.name])) is not None:
                    faults.append(fault)
            elif node_input.type.startswith(_DYNAMIC):
                self._dynamic(node, node_input, inputs)
            elif node_input.section == "required":
                faults.append(validation_errors.missing_input(node_input))
        if faults:
            self._faults[node_id] = self._limited(faults)
        return node

    def _limited(self, faults: list[Fault]) -> list[Fault]:
        """Return the errors of a node, up to the limit for the whole graph."""
        remaining = max(0, _MAX_FAULTS - self._described)
        self._described += len(faults)
        return (
            faults if len(faults) <= remaining else [*faults[:remaining], validation_errors.more(_MAX_FAULTS)]
        )

    def _dynamic(self, node: GraphNode, each: NodeInput, inputs: Mapping[str, Any]) -> None:
        for name, value in inputs.items():
            if name.startswith(f"{each.name}."):
                self._input(node, NodeInput(name, "*", each.section), value)

    def _input(self, node: GraphNode, each: NodeInput, value: Any) -> Fault | None:
        if isinstance(value, list):
            return self._link(node, each, cast("list[Any]", value))
        if isinstance(value, dict) and "__value__" in value:
            value = cast("dict[str, Any]", value)["__value__"]
        coerce = _COERCE.get(each.type)
        if coerce is not None:
            try:
                value = coerce(value)
            except (ValueError, TypeError, OverflowError) as error:
                return validation_errors.unconvertible(each, value, error)
        if isinstance(value, float) and not math.isfinite(value):
            return validation_errors.not_finite(each, value)
        node.values[each.name] = value
        if each.choices is not None:
            return self._choice(node, each, value)
        options = each.options
        if "min" in options and _is_number(value) and value < options["min"]:
            return validation_errors.too_small(each, value)
        if "max" in options and _is_number(value) and value > options["max"]:
            return validation_errors.too_big(each, value)
        return None

    def _link(self, node: GraphNode, each: NodeInput, value: list[Any]) -> Fault | None:
        if len(value) != 2 or isinstance(value[1], bool) or not isinstance(value[1], int):
            return validation_errors.bad_link(each, value)
        origin, slot = str(value[0]), value[1]
        source = self._specs.get(origin)
        if source is None:
            if origin not in self._graph:
                return validation_errors.bad_link(each, value, f"there is no node {origin}")
            # The unknown class is reported separately.
            return None
        if not 0 <= slot < len(source.outputs):
            return validation_errors.bad_link(each, value, f"node {origin} has no output {slot}")
        node.links[each.name] = (origin, slot)
        received = source.outputs[slot].type
        if received != each.type and not _fits(received, each.type):
            return validation_errors.mismatch(each, received, value)
        return None

    def _choice(self, node: GraphNode, each: NodeInput, value: Any) -> Fault | None:
        if each.name in node.spec.uploads:
            return None
        folder = str(each.options.get("folder") or "")
        choices: Collection[Any] = self._installed.get(folder, ()) if folder else each.choices or ()
        if each.options.get("multiselect") and isinstance(value, list):
            invalid = [item for item in cast("list[Any]", value) if item not in choices]
            value = invalid[0] if invalid else None
            if not invalid:
                return None
        if value in choices:
            return None
        if folder:
            self._models.append(
                {"file": str(value), "folder": folder, "node_id": node.id, "input": each.name}
            )
            if not self._strict:
                return None
        if self._described >= _MAX_FAULTS:
            return validation_errors.more(_MAX_FAULTS)
        return validation_errors.not_listed(each, value, choices)

    # -- the whole graph -------------------------------------------------------------------------

    def _verdict(
        self, output_ids: list[str], unknown: Mapping[str, tuple[str, ...]], error: Fault | None
    ) -> Steps[ValidationResult]:
        models = tuple(self._models)
        if not self._faults and error is None:
            return ValidationResult(self._nodes, tuple(output_ids), None, {}, unknown, models)
        yield
        bad = self._bad()
        yield
        dependent = self._dependent([output for output in output_ids if output in bad], bad)
        if self._all_nodes:
            dependent |= {node_id: [] for node_id in self._faults if node_id not in dependent}
        yield
        node_errors = {
            node_id: {
                "errors": self._faults[node_id],
                "dependent_outputs": outputs,
                "class_type": self._specs[node_id].class_type,
            }
            for node_id, outputs in dependent.items()
            if node_id in self._faults
        }
        good = [output for output in output_ids if output not in bad]
        if error is None and not good:
            error = self._failed(node_errors)
        needed = self._reached(good) if error is None else set[str]()
        nodes = {node_id: node for node_id, node in self._nodes.items() if node_id in needed}
        return ValidationResult(nodes, tuple(good) if needed else (), error, node_errors, unknown, models)

    def _bad(self) -> set[str]:
        """Return the nodes that have an error or depend on one; nodes come after their dependencies."""
        bad = set(self._faults)
        for node_id, node in self._nodes.items():
            if any(origin in bad for origin, _ in node.links.values()):
                bad.add(node_id)
        return bad

    def _dependent(self, outputs: list[str], bad: set[str]) -> dict[str, list[str]]:
        """Return the first outputs that depend on each bad node.

        A node with enough outputs is not visited again, because its dependencies have as many. Therefore each
        link is followed a limited number of times.
        """
        by_node: dict[str, list[str]] = {}
        for output in outputs:
            stack = [output]
            while stack:
                node_id = stack.pop()
                fields = by_node.setdefault(node_id, [])
                if len(fields) >= _MAX_DEPENDENT or (fields and fields[-1] == output):
                    continue
                fields.append(output)
                stack += [each for each, _ in self._nodes[node_id].links.values() if each in bad]
        return by_node

    def _reached(self, outputs: Collection[str]) -> set[str]:
        """Return the nodes that these outputs need, including the outputs."""
        reached, stack = set(outputs), list(outputs)
        while stack:
            node = self._nodes.get(stack.pop())
            for origin, _ in node.links.values() if node else ():
                if origin not in reached:
                    reached.add(origin)
                    stack.append(origin)
        return reached

    def _failed(self, node_errors: Mapping[str, Any]) -> Fault:
        texts = [
            f"{error['message']}: {error['details']}"
            for row in node_errors.values()
            for error in row["errors"]
        ]
        text = "Prompt outputs failed validation"
        return validation_errors.fault("prompt_outputs_failed_validation", text, "\n".join(texts))


def _malformed(graph: object) -> Fault | None:
    """Return the error of a document that is not a graph, or None."""
    if not isinstance(graph, Mapping):
        return validation_errors.fault("no_prompt" if not graph else "invalid_prompt", "No prompt provided")
    for node_id, node in cast("Mapping[Any, Any]", graph).items():
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", node) if isinstance(node, _OBJECT) else {}
        if not isinstance(fields.get("class_type"), str) or not isinstance(
            fields.get("inputs") or {}, _OBJECT
        ):
            return validation_errors.fault("invalid_prompt", _NO_CLASS, f"Node ID '#{node_id}'")
    return None


def _fits(received: str, expected: str) -> bool:
    """Return whether a value of type `received` fits an input of type `expected`."""
    if received == "*" or expected == "*" or received.startswith(_DYNAMIC) or expected.startswith(_DYNAMIC):
        return True
    if "," not in received and "," not in expected:
        return False
    received_types, other = ({part.strip() for part in kind.split(",")} for kind in (received, expected))
    return bool(received_types & other) or "*" in received_types | other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
