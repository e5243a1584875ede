"""Validation errors of graphs in ComfyUI's format: `type`, `message`, `details` and `extra_info`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sixfold.core.workflows import object_info
from sixfold.core.workflows.nodes import NodeInput, nearest

Fault = dict[str, Any]
_LISTED_CHOICES = 20


def fault(kind: str, message: str, details: str = "", **extra: Any) -> Fault:
    return {"type": kind, "message": message, "details": details, "extra_info": extra}


def of_input(kind: str, message: str, details: str, schema: NodeInput, **extra: Any) -> Fault:
    """Return an error of one input, with the input's schema."""
    config = object_info.config(schema)
    return fault(kind, message, details, input_name=schema.name, input_config=config, **extra)


def more(limit: int) -> Fault:
    """Return the error that summarizes all other errors of a graph."""
    return fault("more_errors", f"Only the first {limit:,} errors are described")


def missing_input(schema: NodeInput) -> Fault:
    """Return the error for a missing required input."""
    return fault("required_input_missing", "Required input is missing", schema.name, input_name=schema.name)


def bad_link(schema: NodeInput, value: Any, reason: str = "") -> Fault:
    """Return the error for a link that is malformed or does not lead to an output."""
    text = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
    details = f"{schema.name}, {reason}" if reason else schema.name
    return of_input("bad_linked_input", text, details, schema, received_value=value)


def mismatch(schema: NodeInput, received: str, link: Any) -> Fault:
    """Return the error for a link between incompatible types."""
    details = f"{schema.name}, received_type({received}) mismatch input_type({schema.type})"
    text = "Return type mismatch between linked nodes"
    return of_input("return_type_mismatch", text, details, schema, received_type=received, linked_node=link)


def unconvertible(schema: NodeInput, value: Any, error: Exception) -> Fault:
    """Return the error for a value that cannot be converted to the input's type."""
    return of_input(
        "invalid_input_type",
        f"Failed to convert an input value to a {schema.type} value",
        f"{schema.name}, {value}, {error}",
        schema,
        received_value=value,
        exception_message=str(error),
    )


def not_finite(schema: NodeInput, value: float) -> Fault:
    """Return the error for a number that is NaN or infinite."""
    text = f"Value must be a finite number (got {value})"
    return of_input("value_not_finite", text, schema.name, schema, received_value=str(value))


def too_small(schema: NodeInput, value: Any) -> Fault:
    """Return the error for a number below its minimum."""
    text = f"Value {value} smaller than min of {schema.options['min']}"
    return of_input("value_smaller_than_min", text, schema.name, schema, received_value=value)


def too_big(schema: NodeInput, value: Any) -> Fault:
    """Return the error for a number above its maximum."""
    text = f"Value {value} bigger than max of {schema.options['max']}"
    return of_input("value_bigger_than_max", text, schema.name, schema, received_value=value)


def not_listed(schema: NodeInput, value: Any, choices: Iterable[Any]) -> Fault:
    """Return the error for a value that is not one of the choices; a long list is not repeated."""
    options = list(choices)
    short = len(options) <= _LISTED_CHOICES
    listed_text = str(options) if short else f"(list of length {len(options)})"
    error = fault(
        "value_not_in_list",
        "Value not in list",
        f"{schema.name}: {value!r} not in {listed_text}",
        input_name=schema.name,
        input_config=object_info.config(schema) if short else None,
        received_value=value,
    )
    if near := nearest(value, options):
        error["extra_info"]["nearest"] = near
    return error


def cycle(path: list[str]) -> Fault:
    """Return the error for nodes that depend on each other."""
    listed_text = " → ".join(path)
    return fault("dependency_cycle", "The graph contains a cycle", listed_text, cycle=path, input_name=None)
