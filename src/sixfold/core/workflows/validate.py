"""Whether a graph can run: every error at once, in ComfyUI's shapes, and the graph made ready to run.

Links are followed without recursion, and only what an output needs is looked at, as in ComfyUI.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from sixfold.core.workflows import slices, validation_errors
from sixfold.core.workflows.nodes import NodeInput, NodeSpec, Registry
from sixfold.core.workflows.slices import Steps
from sixfold.core.workflows.validation_errors import Fault

Link = tuple[str, int]
# How much is said of a graph with many errors, so that an answer stays within bounds.
_MOST_FAULTS, _MOST_NEAREST, _MOST_CIRCLES, _MOST_DEPENDENT = 1000, 50, 5, 16
_OBJECT = (dict, Mapping)  # the first is nearly always it, and quickly known
_DYNAMIC = "COMFY_"  # types of inputs that stand for several, named with dots
_COERCE: Mapping[str, Callable[[Any], Any]] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}


@dataclass(slots=True)
class GraphNode:
    """A checked node: its class, its values as their types, and its links by input."""

    id: str
    spec: NodeSpec
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    links: dict[str, Link] = field(default_factory=dict[str, Link])


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What there is to say of a graph.

    `nodes` are those that the good `outputs` need, each after what it needs itself. `error` is ComfyUI's
    word on the whole graph, None when some output can run; `node_errors` are its words on nodes.
    `missing_classes` maps an unknown class to its nodes, `missing_models` are files that no folder has.
    `elsewhere`: by the classes of a ComfyUI, which alone can run it.
    """

    nodes: Mapping[str, GraphNode]
    outputs: tuple[str, ...]
    error: Fault | None
    node_errors: Mapping[str, Any]
    missing_classes: Mapping[str, tuple[str, ...]]
    missing_models: tuple[Mapping[str, str], ...] = ()
    elsewhere: bool = False

    @property
    def valid(self) -> bool:
        """Whether all of it can run."""
        return self.error is None and not self.node_errors

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Every error in one list, those of nodes with `node_id` and `class_type`."""
        whole = self.error is not None and self.error["type"] != "prompt_outputs_failed_validation"
        found: list[dict[str, Any]] = [dict(cast("Fault", self.error))] if whole else []
        for node_id, told in self.node_errors.items():
            where = {"node_id": node_id, "class_type": told["class_type"]}
            found += [{**where, **each} for each in told["errors"]]
        return found


def validate(
    graph: object,
    registry: Registry,
    *,
    targets: Collection[str] | None = None,
    installed: Mapping[str, Collection[str]] | None = None,
    strict_models: bool = False,
) -> ValidationResult:
    """Check a graph; `targets` names the only outputs that are wanted.

    `installed` lists the files of each folder of models; one that is not there is told in
    `missing_models`, and is an error with `strict_models`.
    """
    return slices.complete(
        validation(graph, registry, targets=targets, installed=installed, strict_models=strict_models)
    )


def validation(
    graph: object,
    registry: Registry,
    *,
    targets: Collection[str] | None = None,
    installed: Mapping[str, Collection[str]] | None = None,
    strict_models: bool = False,
) -> Steps[ValidationResult]:
    """The same in steps."""
    return _Check(registry, installed or {}, strict_models).run(graph, targets)


class _Check:
    """One check, and what it has found so far."""

    def __init__(
        self, registry: Registry, installed: Mapping[str, Collection[str]], strict_models: bool
    ) -> None:
        self._registry = registry
        self._installed = installed
        self._strict = strict_models
        self._graph: Mapping[str, Mapping[str, Any]] = {}
        self._specs: dict[str, NodeSpec] = {}
        self._nodes: dict[str, GraphNode] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._models: list[Mapping[str, str]] = []
        self._entered: dict[str, GraphNode] = {}
        self._circles = self._described = self._turns = 0

    def run(self, graph: object, targets: Collection[str] | None) -> Steps[ValidationResult]:
        if (malformed := _malformed(graph)) is not None:
            return ValidationResult({}, (), malformed, {}, {})
        self._graph = cast("Mapping[str, Mapping[str, Any]]", graph)
        yield
        unknown = self._recognise()
        yield
        wanted = [
            node_id
            for node_id, spec in self._specs.items()
            if spec.output_node and (targets is None or node_id in targets)
        ]
        if not wanted:
            error = self._unknown(unknown) or validation_errors.fault(
                "prompt_no_outputs", "Prompt has no outputs"
            )
            return ValidationResult({}, (), error, {}, unknown)
        for output in wanted:
            yield from self._visit(output)
        return (yield from self._verdict(wanted, unknown))

    def _recognise(self) -> dict[str, tuple[str, ...]]:
        """Find every node's class; what is given back are the nodes of each unknown class."""
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
        """All classes that are not there, as one error; the words name the first, as ComfyUI's do."""
        if not unknown:
            return None
        class_type, nodes = next(iter(unknown.items()))
        missing = [
            {
                "class_type": name,
                "node_ids": list(ids),
                "nearest": self._registry.nearest(name) if at < _MOST_NEAREST else "",
            }
            for at, (name, ids) in enumerate(unknown.items())
        ]
        text = f"Cannot execute because node {class_type} does not exist."
        return validation_errors.fault("invalid_prompt", text, f"Node ID '#{nodes[0]}'", missing=missing)

    def _visit(self, output: str) -> Steps[None]:
        """Check a node after all that it needs; a circle is an error of the node that closes it."""
        if output in self._nodes:
            return
        path: list[tuple[str, Iterator[Link]]] = [(output, self._enter(output))]
        while path:
            self._turns += 1
            if self._turns % slices.ITEMS == 0:
                yield
            node_id, pending = path[-1]
            for needed, _ in pending:
                if needed in self._entered:
                    self._faults.setdefault(node_id, []).append(self._circle(needed, path))
                elif needed not in self._nodes and needed in self._specs:
                    path.append((needed, self._enter(needed)))
                    break
            else:
                self._nodes[node_id] = self._entered.pop(node_id)
                path.pop()

    def _circle(self, node_id: str, path: list[tuple[str, Iterator[Link]]]) -> Fault:
        """The fault of a circle; only some are described, since each names its whole path."""
        self._circles += 1
        if self._circles > _MOST_CIRCLES:
            return validation_errors.cycle([node_id, "…", node_id])
        ids = [entered for entered, _ in path]
        return validation_errors.cycle([*ids[ids.index(node_id) :], node_id])

    def _enter(self, node_id: str) -> Iterator[Link]:
        node = self._checked(node_id)
        self._entered[node_id] = node
        return iter(node.links.values())

    # -- one node --------------------------------------------------------------------------------

    def _checked(self, node_id: str) -> GraphNode:
        spec = self._specs[node_id]
        given: Mapping[str, Any] = self._graph[node_id].get("inputs") or {}
        node = GraphNode(node_id, spec)
        found: list[Fault] = []
        for each in spec.inputs:
            if each.name in given:
                if (fault := self._input(node, each, given[each.name])) is not None:
                    found.append(fault)
            elif each.type.startswith(_DYNAMIC):
                self._dynamic(node, each, given)
            elif each.section == "required":
                found.append(validation_errors.missing(each))
        if found:
            self._faults[node_id] = self._within(found)
        return node

    def _within(self, found: list[Fault]) -> list[Fault]:
        """The faults of a node, as far as so many are described for a whole graph."""
        room = max(0, _MOST_FAULTS - self._described)
        self._described += len(found)
        return found if len(found) <= room else [*found[:room], validation_errors.more(_MOST_FAULTS)]

    def _dynamic(self, node: GraphNode, each: NodeInput, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
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
            return None  # its class is unknown, and that is told
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
            left = [one for one in cast("list[Any]", value) if one not in choices]
            value = left[0] if left else None
            if not left:
                return None
        if value in choices:
            return None
        if folder:
            self._models.append(
                {"file": str(value), "folder": folder, "node_id": node.id, "input": each.name}
            )
            if not self._strict:
                return None
        if self._described >= _MOST_FAULTS:
            return validation_errors.more(_MOST_FAULTS)
        return validation_errors.not_listed(each, value, choices)

    # -- the whole -------------------------------------------------------------------------------

    def _verdict(self, wanted: list[str], unknown: Mapping[str, tuple[str, ...]]) -> Steps[ValidationResult]:
        error = self._unknown(unknown)
        models = tuple(self._models)
        if not self._faults and error is None:
            return ValidationResult(self._nodes, tuple(wanted), None, {}, unknown, models)
        yield
        bad = self._bad()
        yield
        dependent = self._dependent([output for output in wanted if output in bad], bad)
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
        good = [output for output in wanted if output not in bad]
        if error is None and not good:
            error = self._failed(node_errors)
        needed = self._reached(good) if error is None else set[str]()
        nodes = {node_id: node for node_id, node in self._nodes.items() if node_id in needed}
        return ValidationResult(nodes, tuple(good) if needed else (), error, node_errors, unknown, models)

    def _bad(self) -> set[str]:
        """The nodes that have a fault or need one that has; nodes stand after what they need."""
        bad = set(self._faults)
        for node_id, node in self._nodes.items():
            if any(origin in bad for origin, _ in node.links.values()):
                bad.add(node_id)
        return bad

    def _dependent(self, outputs: list[str], bad: set[str]) -> dict[str, list[str]]:
        """The first outputs that need each bad node.

        A node with enough of them is not entered again: what it needs has as many, so each link is
        followed a bounded number of times.
        """
        found: dict[str, list[str]] = {}
        for output in outputs:
            stack = [output]
            while stack:
                node_id = stack.pop()
                known = found.setdefault(node_id, [])
                if len(known) >= _MOST_DEPENDENT or (known and known[-1] == output):
                    continue
                known.append(output)
                stack += [each for each, _ in self._nodes[node_id].links.values() if each in bad]
        return found

    def _reached(self, outputs: Collection[str]) -> set[str]:
        """The nodes that some of these outputs need, with the outputs."""
        reached, stack = set(outputs), list(outputs)
        while stack:
            node = self._nodes.get(stack.pop())
            for origin, _ in node.links.values() if node else ():
                if origin not in reached:
                    reached.add(origin)
                    stack.append(origin)
        return reached

    def _failed(self, node_errors: Mapping[str, Any]) -> Fault:
        told = [
            f"{each['message']}: {each['details']}" for row in node_errors.values() for each in row["errors"]
        ]
        text = "Prompt outputs failed validation"
        return validation_errors.fault("prompt_outputs_failed_validation", text, "\n".join(told))


def _malformed(graph: object) -> Fault | None:
    """What keeps a graph from being one at all."""
    if not isinstance(graph, Mapping):
        return validation_errors.fault("no_prompt" if not graph else "invalid_prompt", "No prompt provided")
    for node_id, node in cast("Mapping[Any, Any]", graph).items():
        known: Mapping[str, Any] = cast("Mapping[str, Any]", node) if isinstance(node, _OBJECT) else {}
        if not isinstance(known.get("class_type"), str) or not isinstance(known.get("inputs") or {}, _OBJECT):
            text = "Cannot execute because a node is missing the class_type property."
            return validation_errors.fault("invalid_prompt", text, f"Node ID '#{node_id}'")
    return None


def _fits(received: str, wanted: str) -> bool:
    """Whether a value of one type may go into an input of another: any, or a member in common."""
    if received == "*" or wanted == "*" or received.startswith(_DYNAMIC) or wanted.startswith(_DYNAMIC):
        return True
    if "," not in received and "," not in wanted:
        return False
    one, other = ({part.strip() for part in kind.split(",")} for kind in (received, wanted))
    return bool(one & other) or "*" in one | other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
