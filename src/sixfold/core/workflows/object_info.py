"""Reading and writing of node classes in the format of ComfyUI's `/object_info`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from sixfold.core.workflows.nodes import NodeInput, NodeOutput, NodeSpec, Registry, Section

NO_FILES: Mapping[str, Sequence[str]] = MappingProxyType({})
_SECTIONS: tuple[Section, ...] = ("required", "optional", "hidden")


def read(document: Mapping[str, Any]) -> Registry:
    """Return the classes of an `/object_info` document, without functions; malformed entries are skipped."""
    specs: list[NodeSpec] = []
    for name, row in document.items():
        with contextlib.suppress(TypeError, AttributeError, LookupError, ValueError):
            specs.append(_spec(name, row))
    return Registry(specs)


def _spec(class_type: str, row: Mapping[str, Any]) -> NodeSpec:
    sections: Mapping[str, Mapping[str, Any]] = row.get("input") or {}
    inputs = [
        _input(name, section, row)
        for section in _SECTIONS
        for name, row in (sections.get(section) or {}).items()
    ]
    types: list[Any] = list(row.get("output") or ())
    names: list[Any] = list(row.get("output_name") or types)
    lists: list[Any] = list(row.get("output_is_list") or [False] * len(types))
    outputs = tuple(
        NodeOutput(_type(kind), str(names[at]) if at < len(names) else "", bool(lists[at : at + 1] == [True]))
        for at, kind in enumerate(types)
    )
    return NodeSpec(
        class_type=class_type,
        inputs=tuple(inputs),
        outputs=outputs,
        output_node=bool(row.get("output_node")),
        input_is_list=bool(row.get("input_is_list")),
        category=str(row.get("category") or ""),
        title=str(row.get("display_name") or ""),
        description=str(row.get("description") or ""),
        module=str(row.get("python_module") or ""),
    )


def _input(name: str, section: Section, row: Any) -> NodeInput:
    """Parse one input: `[type]`, `[type, options]`, `[[choices], options]`, or a bare hidden type."""
    parts: list[Any] = list(cast("list[Any]", row)) if isinstance(row, list | tuple) else [row]
    kind: Any = parts[0] if parts else "*"
    raw_options: Any = parts[1] if len(parts) > 1 else None
    options = dict(cast("Mapping[str, Any]", raw_options)) if isinstance(raw_options, Mapping) else {}
    choices: tuple[Any, ...] | None = None
    if isinstance(kind, list):
        choices = tuple(cast("list[Any]", kind))
    elif kind == "COMBO":
        choices = tuple(options.pop("options", ()) or ())
    return NodeInput(name, _type(kind), section, choices, options)


def _type(kind: Any) -> str:
    return "COMBO" if isinstance(kind, list | tuple) else str(kind)


def write(specs: Iterable[NodeSpec], offered: Mapping[str, Sequence[str]] = NO_FILES) -> dict[str, Any]:
    """Return the classes as an `/object_info` document.

    `offered` has the names to list for inputs without choices of their own: model files by folder, and input
    files by the kind of upload.
    """
    return {spec.class_type: entry(spec, offered) for spec in specs}


def entry(spec: NodeSpec, offered: Mapping[str, Sequence[str]] = NO_FILES) -> dict[str, Any]:
    """Return one class as an `/object_info` entry."""
    sections: dict[str, dict[str, Any]] = {"required": {}}
    for node_input in spec.inputs:
        sections.setdefault(node_input.section, {})[node_input.name] = config(node_input, offered)
    return {
        "input": sections,
        "input_order": {name: list(inputs) for name, inputs in sections.items()},
        "output": [output.type for output in spec.outputs],
        "output_is_list": [output.is_list for output in spec.outputs],
        "output_name": [output.name or output.type for output in spec.outputs],
        "name": spec.class_type,
        "display_name": spec.title or spec.class_type,
        "description": spec.description,
        "python_module": spec.module,
        "category": spec.category,
        "output_node": spec.output_node,
    }


def config(each: NodeInput, offered: Mapping[str, Sequence[str]] = NO_FILES) -> Any:
    """Return one input as an `/object_info` entry."""
    if each.section == "hidden":
        return each.type
    if each.choices is not None:
        choices = each.choices or offered.get(str(each.options.get("folder") or each.upload), ())
        return [list(choices), dict(each.options)]
    return [each.type, dict(each.options)]
