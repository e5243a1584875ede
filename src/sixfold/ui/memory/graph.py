"""The graph of the pages around a page, as boxes and curves that the server draws as SVG.

On wide screens, pages that link here are on the left and linked pages on the right; on narrow ones, the same
pages are a tree.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from sixfold.core.memory.links import GraphWalk, LinkPath
from sixfold.core.memory.models import LINK_TYPE

# A graph shows pages within two links in both directions.
ROUTE = LinkPath(depth=2, direction="both", nodes=40)
_BOX_WIDTH, _GAP, _STEP, _MARGIN = 150, 80, 42, 8
_MAX_IN_COLUMN = 9
_LABEL_UNITS, _TYPE_UNITS = 19, 13
_TREE_WIDTH, _INDENT, _ROW, _MAX_ROWS = 350, 22, 32, 20
_TREE_UNITS = 34


class GraphBox(NamedTuple):
    """A page: its box, label, slug and title, and its distance in links from the page in the middle."""

    x: float
    y: float
    width: float
    label: str
    slug: str
    title: str
    distance: int


class GraphCurve(NamedTuple):
    """A link: its SVG path, the ends that have an arrow, and its type with the label's position.

    `is_cross` is true for a link that is not part of the tree around the page in the middle.
    """

    path: str
    starts: bool
    ends: bool
    label: str = ""
    x: float = 0
    y: float = 0
    anchor: str = "start"
    is_cross: bool = False


class GraphDrawing(msgspec.Struct, frozen=True):
    """A drawing of `width` by `height` SVG units."""

    kind: str
    width: int
    height: int
    boxes: tuple[GraphBox, ...]
    curves: tuple[GraphCurve, ...]


class PageGraph(msgspec.Struct, frozen=True):
    """The drawings of a graph for wide and narrow screens; `is_cut` states whether pages are omitted."""

    drawings: tuple[GraphDrawing, ...]
    is_cut: bool


class _Edge(msgspec.Struct):
    """The links between two pages: their types, and whether there is one in each direction."""

    types: list[str]
    forth: bool = False
    back: bool = False


class _Pages(msgspec.Struct, frozen=True):
    """The pages of a walk: titles and distances by slug, the links between pairs, and each page's parent."""

    titles: Mapping[str, str]
    distances: Mapping[str, int]
    edges: Mapping[tuple[str, str], _Edge]
    parents: Mapping[str, str]

    def connects(self, first: str, other: str) -> bool:
        """Return whether one of two pages is the parent of the other."""
        return self.parents.get(first) == other or self.parents.get(other) == first

    @property
    def center(self) -> str:
        return next(iter(self.titles))

    def children(self, parent: str) -> list[str]:
        """Return the pages that are one link further away, those with typed links first."""
        pages = [slug for slug, other in self.parents.items() if other == parent]
        return sorted(pages, key=lambda slug: (not self.label(parent, slug), self.titles[slug], slug))

    def label(self, first: str, other: str) -> str:
        """Return the types of the links between two pages, without the plain one."""
        edge = self.edges.get(_pair(first, other))
        types = [] if edge is None else [kind.replace("_", " ") for kind in edge.types if kind != LINK_TYPE]
        return ", ".join(types)


def draw(walk: GraphWalk) -> PageGraph | None:
    """Return the drawings of a walk, or None if the page does not have neighbors."""
    if len(walk.nodes) < 2:
        return None
    pages = _read(walk)
    wide, narrow = _layered(pages), _tree(pages)
    is_cut = walk.cut or len(wide.boxes) < len(walk.nodes)
    return PageGraph((wide, narrow), is_cut)


def _pair(first: str, other: str) -> tuple[str, str]:
    return (first, other) if first < other else (other, first)


def _read(walk: GraphWalk) -> _Pages:
    distances = {slug: distance for slug, _, distance in walk.nodes}
    edges: dict[tuple[str, str], _Edge] = {}
    parents: dict[str, str] = {}
    for source, target, kind in walk.edges:
        if source == target:
            continue
        edge = edges.setdefault(_pair(source, target), _Edge([]))
        edge.types.append(kind)
        edge.forth |= source < target
        edge.back |= source > target
        for near, far in ((source, target), (target, source)):
            if distances[far] == distances[near] + 1:
                parents.setdefault(far, near)
    return _Pages({slug: title or slug for slug, title, _ in walk.nodes}, distances, edges, parents)


# -- the layout in columns -----------------------------------------------------------------------


def _layered(pages: _Pages) -> GraphDrawing:
    """Return columns of boxes: two of linking pages, the page, and two of linked pages."""
    columns = _columns(pages)
    numbers = sorted(columns)
    height = max(len(column) for column in columns.values()) * _STEP + 2 * _MARGIN
    boxes: dict[str, GraphBox] = {}
    for place, number in enumerate(numbers):
        top = (height - len(columns[number]) * _STEP) / 2 + _STEP / 2
        for row, slug in enumerate(columns[number]):
            x = _MARGIN + place * (_BOX_WIDTH + _GAP)
            boxes[slug] = _box(pages, slug, (x, top + row * _STEP), _BOX_WIDTH, _LABEL_UNITS)
    sides = {slug: number for number, column in columns.items() for slug in column}
    curves = tuple(
        _curve(pages, (boxes[first], boxes[other]), (sides[first], sides[other]))
        for first, other in pages.edges
        if first in boxes and other in boxes
    )
    width = len(numbers) * (_BOX_WIDTH + _GAP) - _GAP + 2 * _MARGIN
    return GraphDrawing("wide", width, height, tuple(boxes.values()), curves)


def _columns(pages: _Pages) -> dict[int, list[str]]:
    center = pages.center
    columns: dict[int, list[str]] = {0: [center]}
    for slug in pages.children(center):
        edge = pages.edges[_pair(center, slug)]
        leads_to = edge.forth if center < slug else edge.back
        near, far = (1, 2) if leads_to else (-1, -2)
        column = columns.setdefault(near, [])
        if len(column) == _MAX_IN_COLUMN:
            continue
        column.append(slug)
        columns.setdefault(far, []).extend(pages.children(slug))
    return {number: column[:_MAX_IN_COLUMN] for number, column in columns.items() if column}


def _box(pages: _Pages, slug: str, at: tuple[float, float], width: float, units: int) -> GraphBox:
    title = pages.titles[slug]
    return GraphBox(at[0], at[1], width, _cut(title, units), slug, title, pages.distances[slug])


def _curve(pages: _Pages, ends: tuple[GraphBox, GraphBox], sides: tuple[int, int]) -> GraphCurve:
    edge = pages.edges[ends[0].slug, ends[1].slug]
    starts, stops = edge.back, edge.forth
    left, right = ends
    if sides[0] > sides[1]:
        left, right, starts, stops = right, left, stops, starts
    if sides[0] == sides[1]:
        out = left.width if sides[0] >= 0 else 0
        x = left.x + out
        bulge = x + (36 if out else -36)
        path = f"M{x:g} {left.y:g}C{bulge:g} {left.y:g} {bulge:g} {right.y:g} {x:g} {right.y:g}"
        return GraphCurve(path, starts, stops, is_cross=True)
    start, end = left.x + left.width, right.x
    bend = min(_GAP, end - start) * 0.55
    path = f"M{start:g} {left.y:g}C{start + bend:g} {left.y:g} {end - bend:g} {right.y:g} {end:g} {right.y:g}"
    if not pages.connects(left.slug, right.slug):
        return GraphCurve(path, starts, stops, is_cross=True)
    label = _cut(pages.label(left.slug, right.slug), _TYPE_UNITS)
    if right.distance > left.distance:
        return GraphCurve(path, starts, stops, label, right.x - 9, right.y - 5, "end")
    return GraphCurve(path, starts, stops, label, left.x + left.width + 9, left.y - 5)


# -- the layout as a tree ------------------------------------------------------------------------


def _tree(pages: _Pages) -> GraphDrawing:
    rows = _rows(pages)
    boxes = {
        slug: _box(
            pages,
            slug,
            (_MARGIN + pages.distances[slug] * _INDENT, _MARGIN + _ROW * (row + 0.5)),
            0,
            _TREE_UNITS - 3 * pages.distances[slug] - _units(_kind(pages, slug)),
        )
        for row, slug in enumerate(rows)
    }
    curves: list[GraphCurve] = []
    for slug, box in boxes.items():
        parent = boxes.get(pages.parents.get(slug, ""))
        if parent is None:
            continue
        edge = pages.edges[_pair(parent.slug, slug)]
        leads, returns = (edge.forth, edge.back) if parent.slug < slug else (edge.back, edge.forth)
        x, y = parent.x + 4, parent.y + 6
        path = f"M{x:g} {y:g}V{box.y - 8:g}Q{x:g} {box.y:g} {x + 8:g} {box.y:g}H{box.x - 3:g}"
        curves.append(GraphCurve(path, returns, leads, _kind(pages, slug), box.x + 14, box.y + 4))
    height = len(rows) * _ROW + 2 * _MARGIN
    return GraphDrawing("narrow", _TREE_WIDTH, height, tuple(boxes.values()), tuple(curves))


def _kind(pages: _Pages, slug: str) -> str:
    parent = pages.parents.get(slug)
    return "" if parent is None else _cut(pages.label(parent, slug), _TYPE_UNITS)


def _rows(pages: _Pages) -> list[str]:
    """Return the page, and each neighbor followed by its neighbors; direct ones take precedence."""
    near = pages.children(pages.center)[: _MAX_ROWS - 1]
    remaining = _MAX_ROWS - 1 - len(near)
    rows = [pages.center]
    for slug in near:
        further = pages.children(slug)[:remaining]
        remaining -= len(further)
        rows += [slug, *further]
    return rows


def _units(text: Iterable[str]) -> int:
    """Return the width of a text in columns; a Chinese character is two columns wide."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _cut(text: str, units: int) -> str:
    text = " ".join(text[: 4 * _TREE_UNITS].split())
    if _units(text) <= units:
        return text
    while text and _units(text) >= units:
        text = text[:-1]
    return text.rstrip() + "…"
