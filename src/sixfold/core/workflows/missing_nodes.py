"""The nodes of a workflow whose classes are missing on this server, by the package that contains them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.nodes import Graph, Registry

# The name of the package in the properties of a node: its id in the registry of ComfyUI, or its repository.
_PACKAGE_KEYS = ("cnr_id", "aux_id")
_MAX_NAME = 100
_MAX_DEPTH = 8


def by_package(graph: Graph, registry: Registry, document: Any) -> dict[str, dict[str, list[str]]]:
    """Return the ids of missing nodes by package and class; the package is "" if unknown.

    Only documents in the editor's format contain packages.
    """
    packages = dict(_packages(document, 0))
    missing: dict[str, dict[str, list[str]]] = {}
    for node_id, node in graph.items():
        class_type = str(node.get("class_type"))
        if class_type not in registry:
            classes = missing.setdefault(packages.get(class_type, ""), {})
            classes.setdefault(class_type, []).append(node_id)
    return dict(sorted(missing.items(), key=lambda each: (not each[0], each[0])))


def parse(content: bytes) -> Any:
    """Return the document of a workflow's stored file, or None if it is an image."""
    try:
        return json.loads(content)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None


def _packages(document: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the classes of a document, including those of its subgraphs, with their packages."""
    levels = mapping(document)
    for node in _rows(levels.get("nodes")):
        properties = mapping(node.get("properties"))
        names = (properties.get(key) for key in _PACKAGE_KEYS)
        name = next((name for name in names if isinstance(name, str) and name), "")
        if name:
            yield str(node.get("type")), name[:_MAX_NAME]
    if depth < _MAX_DEPTH:
        for subgraph in _rows(mapping(levels.get("definitions")).get("subgraphs")):
            yield from _packages(subgraph, depth + 1)


def _rows(value: Any) -> list[Mapping[str, Any]]:
    rows = cast("list[Any]", value) if isinstance(value, list) else []
    return [mapping(row) for row in rows]
