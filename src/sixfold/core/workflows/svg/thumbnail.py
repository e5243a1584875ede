"""Drawing of a graph as a small SVG for a card: a colored block per node, with a name if it fits.

The SVG does not contain styles: it is inlined in a page and uses the page's tokens.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise

from sixfold.core.workflows.nodes import Graph, Registry
from sixfold.core.workflows.svg import layout
from sixfold.core.workflows.svg.layout import GraphLayout, LayoutBox

WIDE, TALL, _RIM = 320, 180, 14
# The maximum space of one node.
_ACROSS, _DOWN = 104.0, 52.0
# The height of a lane relative to that of a node.
_LANE = 0.4
# Names are drawn if a node has at least this width.
_NAMED = 74.0
# Graphs with more nodes are not drawn.
_MAX_NODES = 120


def arrange(graph: Graph, registry: Registry) -> GraphLayout:
    """Return the graph in a box of `WIDE` by `TALL`, with the center and size of each node.

    Raises `TooManyParts`.
    """
    graph_layout = layout.lay_out(graph, registry, _MAX_NODES)
    _place(graph_layout.columns, _across(graph_layout))
    return graph_layout


def _across(graph_layout: GraphLayout) -> float:
    return min(_ACROSS, (WIDE - 2 * _RIM) / max(1, len(graph_layout.columns)))


def sketch(graph: Graph, registry: Registry) -> str:
    """Return the graph as SVG of 320 by 180 pixels."""
    try:
        graph_layout = arrange(graph, registry)
    except layout.TooManyParts:
        parts = [f'<text class="many" x="{WIDE / 2}" y="{TALL / 2}">{len(graph):,} nodes</text>']
    else:
        across = _across(graph_layout)
        parts = [
            _link(route, edge.hue)
            for route, edge in zip(graph_layout.routes, graph_layout.edges, strict=True)
        ]
        parts += [_block(box, across) for box in graph_layout.boxes.values()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {TALL}" class="sample graph sketch" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


def _place(columns: list[list[LayoutBox]], across: float) -> None:
    """Set the coordinates of each box to the center of its cell."""
    weights = [sum(_LANE if box.is_lane else 1.0 for box in column) for column in columns]
    down = min(_DOWN, (TALL - 2 * _RIM) / max([1.0, *weights]))
    left = (WIDE - across * len(columns)) / 2
    for rank, column in enumerate(columns):
        y = (TALL - weights[rank] * down) / 2
        for box in column:
            height = down * (_LANE if box.is_lane else 1.0)
            box.x, box.y = left + (rank + 0.5) * across, y + height / 2
            box.wide, box.tall = (across, 0.0) if box.is_lane else (across * 0.56, min(22.0, down * 0.6))
            y += height


def _link(route: list[LayoutBox], hue: str) -> str:
    path = f"M{route[0].x + route[0].wide / 2:.1f} {route[0].y:.1f}"
    for one, other in pairwise(route):
        start, end = one.x + one.wide / 2, other.x - other.wide / 2
        bend = max(8.0, (end - start) / 2)
        path += f"C{start + bend:.1f} {one.y:.1f} {end - bend:.1f} {other.y:.1f} {end:.1f} {other.y:.1f}"
        path += f"H{other.x + other.wide / 2:.1f}" if other.is_lane else ""
    return f'<path class="link {hue}" d="{path}"/>'


def _block(box: LayoutBox, across: float) -> str:
    left, top = box.x - box.wide / 2, box.y - box.tall / 2
    block = (
        f'<rect class="mark {box.hue}" x="{left:.1f}" y="{top:.1f}" width="{box.wide:.1f}" '
        f'height="{box.tall:.1f}" rx="4"/>'
    )
    if across < _NAMED:
        return block
    name = escape(layout.cut(box.title, round(across / 6.6)))
    return f'{block}<text class="name" x="{box.x:.1f}" y="{top + box.tall + 13:.1f}">{name}</text>'
