"""The graph of a page: nodes, columns and the maximum size."""

from __future__ import annotations

from sixfold.core.memory.links import GraphWalk
from sixfold.ui.memory import graph
from sixfold.ui.memory.graph import GraphBox, GraphDrawing


def drawings(walk: GraphWalk) -> tuple[GraphDrawing, GraphDrawing]:
    """Return the wide and the narrow drawing."""
    results = graph.draw(walk)
    assert results is not None
    wide, narrow = results.drawings
    return wide, narrow


def boxes(drawing: GraphDrawing) -> dict[str, GraphBox]:
    return {box.slug: box for box in drawing.boxes}


WALK = GraphWalk(
    (("ann", "Ann", 0), ("acme", "Acme", 1), ("diary", "Diary", 1), ("lake", "Lake", 2)),
    (
        ("ann", "acme", "works_at"),
        ("acme", "ann", "links_to"),
        ("diary", "ann", "links_to"),
        ("acme", "lake", "located_in"),
        ("diary", "acme", "links_to"),
    ),
)


def test_linking_pages_are_left_and_linked_ones_right() -> None:
    wide, narrow = drawings(WALK)
    results = boxes(wide)
    assert results["diary"].x < results["ann"].x < results["acme"].x < results["lake"].x
    labels = {curve.label: (curve.starts, curve.ends) for curve in wide.curves if curve.label}
    assert labels == {"works at": (True, True), "located in": (False, True)}
    assert [curve.is_cross for curve in wide.curves].count(True) == 1
    assert [box.slug for box in narrow.boxes] == ["ann", "acme", "lake", "diary"]


def test_graph_is_bounded_and_shows_that_it_is_truncated() -> None:
    nodes = (("hub", "Hub", 0), *((f"n{at}", "和" * 400, 1) for at in range(500)))
    edges = tuple(("hub", f"n{at}", "links_to") for at in range(500))
    wide, narrow = drawings(GraphWalk(nodes, edges))
    assert len(wide.boxes) == 10
    assert len(narrow.boxes) == 20
    assert boxes(wide)["n0"].label == "和" * 9 + "…"
    result = graph.draw(GraphWalk(nodes, edges))
    assert result is not None
    assert result.is_cut


def test_page_without_links_has_no_graph() -> None:
    assert graph.draw(GraphWalk((("a", "A", 0),), (("a", "a", "links_to"),))) is None
