"""Drawing of a graph as SVG with boxes and curves, ranked by longest paths, ordered by barycenters.

Each node is a `<g data-node="…">`, so that a page can color it while it runs. Colors are tokens (`--graph-…`)
with defaults for light and dark mode, which a page may override.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import islice, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold.core.workflows.documents import mapping
from sixfold.core.workflows.nodes import Graph, Registry, is_link

_LINE = 18
# The space above the first row and below the last one, and below a lane.
_EDGE, _BELOW_LANE = 16, 9
# A row with more columns has less space between them.
_WIDE = 5
# The height of a lane, through which only a link passes.
_LANE = 6
_SWEEPS = 6
# The limits for drawing within 20 ms: nodes, and the total columns that links pass.
_MAX_NODES, _MAX_PASSED = 400, 2_000
_MAX_LINES = 3
# The number of columns that can be read on a wide screen; a longer graph continues in rows below.
MAX_COLUMNS = 6
_CHARS = 27
# The characters that are read of a title, a name or a value: a value can have a million.
_READ_CHARS = 400
# A title can be divided before a word, and before a capital in a name such as `VAEDecode`.
_WORD_START = re.compile(r"(?<=[\s_-])|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# The color token of each type; other types use `plain`.
_HUES = {
    "IMAGE": "image",
    "MASK": "mask",
    "LATENT": "latent",
    "MODEL": "model",
    "CLIP": "clip",
    "VAE": "vae",
    "CONDITIONING": "words",
    "STRING": "words",
    "AUDIO": "sound",
    "VIDEO": "video",
    "CONTROL_NET": "control",
}
_LIGHT = {
    "ground": "#fbfaf8",
    "card": "#ffffff",
    "edge": "#dcd8d1",
    "ink": "#2a2825",
    "faint": "#8a857c",
    "plain": "#b3ada3",
    "image": "#4f8fd6",
    "mask": "#5fae8a",
    "latent": "#b878c8",
    "model": "#8b83d9",
    "clip": "#d9a441",
    "vae": "#d2736b",
    "words": "#dd8f52",
    "sound": "#45a9a5",
    "video": "#6a7fd0",
    "control": "#7ba450",
}
_DARK = {"ground": "#1b1a19", "card": "#262523", "edge": "#3b3936", "ink": "#ece8e1", "faint": "#948f86"}


class BoxSizes(msgspec.Struct, frozen=True):
    """The sizes of the boxes of a drawing and of their spaces; `chars` fit in a line of a title."""

    wide: float
    head: float
    chars: int
    across: float
    narrow: float
    down: float
    margin: float
    between_rows: float


_FULL = BoxSizes(wide=216, head=46, chars=25, across=76, narrow=40, down=26, margin=28, between_rows=72)
# Boxes with only a title, in at most two lines, so that a phone shows the whole graph with text of 11 pixels.
_COMPACT = BoxSizes(wide=108, head=40, chars=13, across=22, narrow=22, down=32, margin=14, between_rows=42)


class LayoutBox(msgspec.Struct):
    """A node in the drawing, or a lane for a long link."""

    id: str
    title: str
    lines: tuple[str, ...]
    hue: str
    rank: int = 0
    x: float = 0.0
    y: float = 0.0
    is_lane: bool = False
    is_missing: bool = False
    wide: float = _FULL.wide
    head: float = _FULL.head
    # The y coordinate of the space above the row of the box.
    above: float = 0.0
    tall: float = 0.0  # set in thumbnails only

    @property
    def height(self) -> float:
        return _LANE if self.is_lane else self.head + _LINE * len(self.lines)

    @property
    def middle(self) -> float:
        """The y coordinate at which the links of the box end."""
        return self.y + (_LANE if self.is_lane else self.head) / 2


class Edge(msgspec.Struct, frozen=True):
    """A link in the drawing, in the color of its type."""

    origin: str
    target: str
    hue: str


class GraphLayout(msgspec.Struct, frozen=True):
    """The boxes by node, the columns from left to right with lanes, and the route of each link."""

    boxes: Mapping[str, LayoutBox]
    edges: list[Edge]
    columns: list[list[LayoutBox]]
    routes: list[list[LayoutBox]]


class TooManyParts(Exception):
    """A drawing would have too many nodes, or links across too many columns."""


def lay_out(graph: Graph, registry: Registry, max_nodes: int) -> GraphLayout:
    """Return the order of a graph's nodes in a drawing, without coordinates; raises `TooManyParts`."""
    if len(graph) > max_nodes:
        raise TooManyParts
    edges = _edges(graph, registry)
    boxes = {node_id: _box(node_id, node, registry) for node_id, node in graph.items()}
    columns = _ranked(boxes, edges)
    ends = [(boxes[edge.origin], boxes[edge.target]) for edge in edges]
    if sum(max(1, target.rank - origin.rank) for origin, target in ends) > _MAX_PASSED:
        raise TooManyParts
    lanes: dict[tuple[str, str, int], LayoutBox] = {}
    routes = [
        _route(origin, target, edge.hue, columns, lanes)
        for (origin, target), edge in zip(ends, edges, strict=True)
    ]
    _order(columns, routes)
    return GraphLayout(boxes, edges, columns, routes)


def draw(
    graph: Graph,
    registry: Registry | None = None,
    title: str = "",
    *,
    columns: int = MAX_COLUMNS,
    compact: bool = False,
) -> str:
    """Return the graph as SVG; for a graph that is too large, only the number of its nodes.

    The graph is divided into rows of at most `columns` columns; with one column, the nodes are stacked.
    The nodes of a compact drawing are small and have only titles.
    """
    sizes = _COMPACT if compact else _FULL
    try:
        graph_layout = lay_out(graph, registry or Registry(), _MAX_NODES)
    except TooManyParts:
        graph_layout = lay_out({}, Registry(), 0)
        title = f"{title or 'Graph'}: {len(graph):,} nodes, too many to draw"
        graph_layout.columns.append([LayoutBox("", title, (), "plain")])
        graph_layout = replace(graph_layout, boxes={"": graph_layout.columns[0][0]})
    for box in (box for column in graph_layout.columns for box in column):
        box.wide, box.head, box.lines = sizes.wide, sizes.head, () if compact else box.lines
    width, height = _place(graph_layout.columns, max(1, -(-len(graph_layout.columns) // columns)), sizes)
    lines = [
        _path(route, edge, sizes.margin)
        for route, edge in zip(graph_layout.routes, graph_layout.edges, strict=True)
    ]
    cards = [_card(box, sizes) for box in graph_layout.boxes.values()]
    name, kind = escape(title or "Graph"), "graph compact" if compact else "graph"
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" ',
            f'height="{height:g}" role="img" aria-label="{name}" class="{kind}"><title>{name}</title>',
            f"<style>{_style()}</style>",
            f'<rect class="ground" width="{width:g}" height="{height:g}"/>',
            *lines,
            *cards,
            "</svg>",
        )
    )


def _box(node_id: str, node: Mapping[str, Any], registry: Registry) -> LayoutBox:
    class_type = str(node.get("class_type"))
    spec = registry.get(class_type)
    title = str(mapping(node.get("_meta")).get("title") or class_type)[:_READ_CHARS]
    hue = _HUES.get(spec.outputs[0].type, "plain") if spec and spec.outputs else "plain"
    lines = tuple(islice(_lines(mapping(node.get("inputs"))), _MAX_LINES))
    return LayoutBox(node_id, title, lines, hue, is_missing=bool(registry) and spec is None)


def _lines(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each input with a text or a number, of whose start only some characters are read."""
    for name, value in inputs.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = " ".join(str(value)[:_READ_CHARS].split())
            if text:
                yield cut(f"{' '.join(name[:_READ_CHARS].split())} {text}")


def color(hue: str) -> str:
    """Return the color of a token in light mode."""
    return _LIGHT[hue]


def cut(text: str, limit: int = _CHARS) -> str:
    """Return the text, shortened to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _edges(graph: Graph, registry: Registry) -> list[Edge]:
    """Return the links of a graph; raises `TooManyParts` before it has read more than can be drawn."""
    edges: list[Edge] = []
    for node_id, node in graph.items():
        for value in mapping(node.get("inputs")).values():
            if is_link(value) and str(value[0]) in graph:
                origin = str(value[0])
                spec = registry.get(str(graph[origin].get("class_type")))
                slot = value[1]
                outputs = spec.outputs if spec else ()
                kind = outputs[slot].type if isinstance(slot, int) and 0 <= slot < len(outputs) else ""
                edges.append(Edge(origin, node_id, _HUES.get(kind, "plain")))
                if len(edges) > _MAX_PASSED:
                    raise TooManyParts
    return edges


def _ranked(boxes: Mapping[str, LayoutBox], edges: list[Edge]) -> list[list[LayoutBox]]:
    """Return the boxes in columns: to the right of all inputs, and as near to their consumers as possible."""
    feeds: dict[str, list[str]] = {node_id: [] for node_id in boxes}
    waits = dict.fromkeys(boxes, 0)
    for edge in edges:
        feeds[edge.origin].append(edge.target)
        waits[edge.target] += 1
    order = [node_id for node_id, count in waits.items() if count == 0]
    for node_id in order:
        for target in feeds[node_id]:
            boxes[target].rank = max(boxes[target].rank, boxes[node_id].rank + 1)
            waits[target] -= 1
            if waits[target] == 0:
                order.append(target)
    for node_id in reversed(order):
        if feeds[node_id]:
            boxes[node_id].rank = min(boxes[target].rank for target in feeds[node_id]) - 1
    columns: list[list[LayoutBox]] = [
        [] for _ in range(max((box.rank for box in boxes.values()), default=-1) + 1)
    ]
    for box in boxes.values():
        columns[max(0, box.rank)].append(box)
    return columns


def _route(
    origin: LayoutBox,
    target: LayoutBox,
    hue: str,
    columns: list[list[LayoutBox]],
    lanes: dict[tuple[str, str, int], LayoutBox],
) -> list[LayoutBox]:
    """Return the boxes of a link, with a lane in each column between origin and target.

    Links with the same origin and color share lanes.
    """
    route = [origin]
    for rank in range(origin.rank + 1, target.rank):
        lane = lanes.get((origin.id, hue, rank))
        if lane is None:
            lane = LayoutBox(f"{origin.id}\0{hue}\0{rank}", "", (), hue, rank, is_lane=True)
            lanes[origin.id, hue, rank] = lane
            columns[rank].append(lane)
        route.append(lane)
    return [*route, target]


def _order(columns: list[list[LayoutBox]], routes: list[list[LayoutBox]]) -> None:
    """Reduce crossings by repeatedly ordering each column by the mean position of its neighbors."""
    near: dict[str, set[str]] = {}
    for route in routes:
        for upper, other in pairwise(route):
            near.setdefault(upper.id, set()).add(other.id)
            near.setdefault(other.id, set()).add(upper.id)
    position = {box.id: float(at) for column in columns for at, box in enumerate(column)}
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            means = {
                box.id: sum(position[other] for other in near[box.id]) / len(near[box.id])
                if near.get(box.id)
                else position[box.id]
                for box in column
            }
            column.sort(key=lambda box: means[box.id])  # sorted together, after all means are known
            middle = (len(column) - 1) / 2
            position.update({box.id: at - middle for at, box in enumerate(column)})


def _place(columns: list[list[LayoutBox]], rows: int, sizes: BoxSizes) -> tuple[float, float]:
    """Set the coordinates of all boxes, in rows of equally many columns; return the width and height."""
    across = max(1, -(-len(columns) // rows))
    step = sizes.wide + (sizes.narrow if across > _WIDE else sizes.across)
    top = float(_EDGE)
    for start in range(0, len(columns), across):
        row = columns[start : start + across]
        heights = [
            sum(box.height + _below(box, sizes) for box in column) - _below(column[-1], sizes)
            for column in row
        ]
        for at, column in enumerate(row):
            y = top + (max(heights) - heights[at]) / 2
            for box in column:
                box.x, box.y, box.above = sizes.margin + at * step, y, top - sizes.between_rows / 2
                y += box.height + _below(box, sizes)
        top += max(heights) + sizes.between_rows
    width = 2 * sizes.margin + (across - 1) * step + sizes.wide
    return width, max(top - sizes.between_rows, _EDGE + sizes.head) + _EDGE


def _below(box: LayoutBox, sizes: BoxSizes) -> float:
    return _BELOW_LANE if box.is_lane else sizes.down


def _path(route: list[LayoutBox], edge: Edge, margin: float) -> str:
    x, y = route[0].x + route[0].wide, route[0].middle
    path = f"M{x:g} {y:g}"
    for box in route[1:]:
        if box.x < x:
            path += _to_next_row(x, y, box, margin)
        else:
            bend = max(min(36.0, margin + 8), abs(box.x - x) / 2)
            path += f"C{x + bend:g} {y:g} {box.x - bend:g} {box.middle:g} {box.x:g} {box.middle:g}"
        x, y = box.x + box.wide, box.middle
        path += f"H{x:g}" if box.is_lane else ""
    ends = f'data-from="{escape(edge.origin)}" data-to="{escape(edge.target)}"'
    return f'<path class="link {edge.hue}" {ends} d="{path}"/>'


def _to_next_row(x: float, y: float, box: LayoutBox, margin: float) -> str:
    """Return the path from the end of a row, through the space between the rows, to a box of the next row."""
    turn = margin - 4
    return (
        f"C{x + turn:g} {y:g} {x + turn:g} {box.above:g} {x:g} {box.above:g}H{box.x:g}"
        f"C{box.x - turn:g} {box.above:g} {box.x - turn:g} {box.middle:g} {box.x:g} {box.middle:g}"
    )


def _card(box: LayoutBox, sizes: BoxSizes) -> str:
    kind = "node missing" if box.is_missing else "node"
    note = ": this node is not available on this server" if box.is_missing else ""
    return (
        f'<g class="{kind}" data-node="{escape(box.id)}" transform="translate({box.x:g} {box.y:g})">'
        f"<title>{escape(box.title)}{note}</title>"
        f'<rect class="card" width="{box.wide:g}" height="{box.height:g}" rx="10"/>'
        f'<rect class="mark {box.hue}" x="0" y="{box.head / 2 - 11:g}" width="3" height="22" rx="1.5"/>'
        f"{_compact_texts(box, sizes) if sizes is _COMPACT else _texts(box, sizes)}</g>"
    )


def _texts(box: LayoutBox, sizes: BoxSizes) -> str:
    title = escape(cut(box.title, sizes.chars - len(cut(box.id, 7))))
    values = [
        f'<text class="value" x="16" y="{box.head + 4 + _LINE * at:g}">{escape(line)}</text>'
        for at, line in enumerate(box.lines)
    ]
    return (
        f'<text class="title" x="16" y="28">{title}</text>'
        f'<text class="id" x="{box.wide - 12:g}" y="28">{escape(cut(box.id, 7))}</text>{"".join(values)}'
    )


def _compact_texts(box: LayoutBox, sizes: BoxSizes) -> str:
    """Return a title in one or two lines, divided between its words."""
    lines = [""]
    for word in _WORD_START.split(box.title):
        if lines[-1] and len(f"{lines[-1]}{word}".rstrip()) > sizes.chars:
            lines.append("")
        lines[-1] += word
    halves = [lines[0], "".join(lines[1:])] if len(lines) > 1 else lines
    first = box.head / 2 + 6 - 7 * (len(halves) - 1)
    return "".join(
        f'<text class="title" x="10" y="{first + 15 * at:g}">{escape(cut(half.strip(), sizes.chars))}</text>'
        for at, half in enumerate(halves)
    )


def _style() -> str:
    def tokens(table: Mapping[str, str]) -> str:
        return "".join(f"--g-{name}:var(--graph-{name},{color});" for name, color in table.items())

    hues = "".join(
        f".graph .link.{hue}{{stroke:var(--g-{hue})}}.graph .mark.{hue}{{fill:var(--g-{hue})}}"
        for hue in sorted({*_HUES.values(), "plain"})
    )
    return (
        f".graph{{{tokens(_LIGHT)}font-family:ui-sans-serif,system-ui,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{.graph{{{tokens(_DARK)}}}}}"
        ".graph .ground{fill:var(--g-ground)}.graph .link{fill:none;stroke-width:1.6;opacity:.75}"
        ".graph .card{fill:var(--g-card);stroke:var(--g-edge)}"
        ".graph .missing .card{stroke:#c0392b;stroke-width:2;stroke-dasharray:6 4}"
        ".graph .title{font-size:13.5px;font-weight:600;fill:var(--g-ink)}"
        ".graph .value{font-size:12.5px;fill:var(--g-faint)}"
        ".graph .id{font-size:12.5px;fill:var(--g-faint);text-anchor:end}" + hues
    )
