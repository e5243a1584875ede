"""Assignment of a node's widget values, which the editor saves as a list, to input names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sixfold.core.workflows.documents import as_list, mapping
from sixfold.core.workflows.editor_format.flatten import EditorNode, widget_of
from sixfold.core.workflows.nodes import NodeInput, NodeSpec

_CONTROL = frozenset({"fixed", "increment", "decrement", "randomize", "increment-wrap"})


def values(node: EditorNode, spec: NodeSpec | None) -> dict[str, Any]:
    """Return a node's values by input name."""
    order = _order(node, spec)
    if by_name := mapping(node.values):
        known_names = {widget.name for widget in order} if spec is not None else set(by_name)
        result = {name: value for name, value in by_name.items() if name in known_names}
    else:
        result = _in_order(order, as_list(node.values))
    names = {widget.name for widget in order}
    return {**result, **{name: value for name, value in node.named.items() if name in names}}


def _order(node: EditorNode, spec: NodeSpec | None) -> list[NodeInput]:
    """Return the widgets in the editor's order: the node's list if it is complete, or else the schema's."""
    widget_slots = [slot for slot in node.slots if slot.widget]
    if spec is None:
        return [widget_of(slot) for slot in widget_slots]
    widgets = [
        node_input for node_input in spec.inputs if node_input.section != "hidden" and node_input.is_widget
    ]
    names = {slot.widget for slot in widget_slots}
    if widget_slots and all(widget.name in names for widget in widgets if widget.section == "required"):
        return [spec.by_name.get(slot.widget) or widget_of(slot) for slot in widget_slots]
    return widgets


def _in_order(order: Sequence[NodeInput], items: Sequence[Any]) -> dict[str, Any]:
    """Pair the widgets with the values, skipping the values that control changes after a run."""
    result: dict[str, Any] = {}
    at = 0
    for position, each in enumerate(order):
        if at >= len(items):
            break
        result[each.name] = items[at]
        at += 1
        spare = len(items) - at > len(order) - position - 1
        if at < len(items) and _is_control(items[at], each, spare=spare):
            at += 1
    return result


def _is_control(value: Any, each: NodeInput, *, spare: bool) -> bool:
    """Return whether a value is for `control_after_generate`: a known word, or a boolean in early editors."""
    if isinstance(value, bool):
        return each.has_control and spare
    return isinstance(value, str) and value in _CONTROL and (each.has_control or spare)
