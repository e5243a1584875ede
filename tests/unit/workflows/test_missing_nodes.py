"""Missing nodes are grouped by package, and marked in the drawing."""

from __future__ import annotations

import re
from typing import Any

from sixfold.app import graphs as app_graphs
from sixfold.core.workflows import missing_nodes
from sixfold.core.workflows.svg import layout

REGISTRY = app_graphs.node_classes()
GRAPH: dict[str, dict[str, Any]] = {
    "1": {"class_type": "EmptyLatentImage", "inputs": {}},
    "2": {"class_type": "FaceDetailer", "inputs": {}},
    "3": {"class_type": "FaceDetailer", "inputs": {}},
    "4": {"class_type": "Unheard", "inputs": {}},
    "5:1": {"class_type": "Nested", "inputs": {}},
}


def node(kind: str, **properties: Any) -> dict[str, Any]:
    """Return a node of the editor's format."""
    return {"type": kind, "properties": properties}


def test_missing_nodes_are_grouped_by_the_package_in_the_file() -> None:
    document = {
        "nodes": [node("FaceDetailer", cnr_id="impact-pack"), node("Unheard", cnr_id=7), "nonsense", {}],
        "definitions": {"subgraphs": [{"nodes": [node("Nested", aux_id="someone/nested")]}, None]},
    }
    assert missing_nodes.by_package(GRAPH, REGISTRY, document) == {
        "impact-pack": {"FaceDetailer": ["2", "3"]},
        "someone/nested": {"Nested": ["5:1"]},
        "": {"Unheard": ["4"]},
    }
    for other in (None, [], {"nodes": 5, "definitions": {"subgraphs": {}}}, GRAPH):
        assert list(missing_nodes.by_package(GRAPH, REGISTRY, other)) == [""]


def test_the_drawing_marks_missing_nodes() -> None:
    drawing = layout.draw(GRAPH, REGISTRY)
    assert set(re.findall(r'class="node missing" data-node="([^"]+)"', drawing)) == {"2", "3", "4", "5:1"}
    assert "missing" not in layout.draw({"1": GRAPH["1"]}, REGISTRY).partition("</style>")[2]


def test_drawing_has_a_limited_number_of_columns() -> None:
    chain = {
        str(at): {"class_type": "X", "inputs": {"image": [str(at - 1), 0]} if at else {}} for at in range(12)
    }

    def lefts(columns: int) -> list[float]:
        drawing = layout.draw(chain, REGISTRY, columns=columns)
        return [float(x) for x in re.findall(r'data-node="\d+" transform="translate\(([\d.]+) ', drawing)]

    for columns in (6, 5, 3, 1):
        assert len(lefts(columns)) == len(chain)
        # Rows have equally many columns: 12 nodes in rows of at most 5 are three rows of 4.
        assert len(set(lefts(columns))) == {6: 6, 5: 4, 3: 3, 1: 1}[columns]
