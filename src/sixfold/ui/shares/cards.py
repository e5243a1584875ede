"""The pictures of shares, which other sites show beside a link (`og:image`)."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from sixfold import errors
from sixfold.core.media.drawings import Drawing, Label, Point, Shape, ShareCard
from sixfold.core.media.media import MediaSource
from sixfold.core.workflows.svg import layout, thumbnail
from sixfold.core.workflows.svg.layout import LayoutBox
from sixfold.core.workflows.workflows import Workflow
from sixfold.ui.shares import files
from sixfold.ui.shares.content import SharedContent
from sixfold.web.services import WebServices

_KINDS = {"run": "Result", "workflow": "Workflow", "chat": "Chat", "page": "Page"}
_PICTURE_WIDTH = 960
_MAX_TITLE, _MAX_TEXT = 200, 600
_STEPS = 16
_NAME, _NAME_SIZE, _NAME_CHARS = "#6b665e", 6.0, 3.2
_RIM, _MIN_RATIO = 6.0, 2.0


async def card_of(services: WebServices, kind: str, account_id: str, content: SharedContent) -> ShareCard:
    """Return the content of the picture of a share: its title and text with a file or a graph, if any."""
    drawing = None if content.workflow is None else _graph(services, content.workflow)
    picture = "" if drawing is not None else await _picture(services, account_id, content)
    title, text = content.title[:_MAX_TITLE], content.description[:_MAX_TEXT]
    return ShareCard(f"Sixfold · {_KINDS[kind]}", title, text, picture, drawing or content.drawing)


async def _picture(services: WebServices, account_id: str, content: SharedContent) -> str:
    """Return the key of a small image of the file that represents the share, or ""."""
    source = content.files.sources.get(content.image)
    if isinstance(source, str):
        try:
            source = await files.source_of(services, account_id, source)
        except errors.NotFound:
            return ""
    return await _small_image(services, source) if source is not None else ""


async def _small_image(services: WebServices, source: MediaSource) -> str:
    try:
        small = await services.media.thumbnails.find(source.blob, source.content_type, _PICTURE_WIDTH)
    except errors.NotFound:
        return ""
    return "" if small is None else small.key


def _graph(services: WebServices, workflow: Workflow) -> Drawing | None:
    """Return the graph of a workflow with the names of its nodes, or None if it is too large."""
    try:
        graph = thumbnail.arrange(workflow.graph, services.workflows.classes)
    except layout.TooManyParts:
        return None
    links = [
        Shape(points, layout.color(edge.hue), 1.2)
        for route, edge in zip(graph.routes, graph.edges, strict=True)
        for points in [_link(route)]
    ]
    boxes = [Shape(_corners(box), layout.color(box.hue)) for box in graph.boxes.values()]
    names = [
        Label(
            box.x - box.wide / 2,
            box.y + box.tall / 2 + 1,
            layout.cut(box.title, max(3, round(box.wide / _NAME_SIZE * _NAME_CHARS))),
            _NAME_SIZE,
            _NAME,
        )
        for box in graph.boxes.values()
    ]
    return _cropped((*links, *boxes), tuple(names))


def _cropped(shapes: tuple[Shape, ...], names: tuple[Label, ...]) -> Drawing:
    """Return the drawing without the empty space around it, at least twice as wide as high."""
    points = [point for shape in shapes for point in shape.points] or [(0.0, 0.0)]
    left, right = min(x for x, _ in points) - _RIM, max(x for x, _ in points) + _RIM
    top, bottom = min(y for _, y in points) - _RIM, max(y for _, y in points) + 2 * _RIM
    width = max(right - left, _MIN_RATIO * (bottom - top))
    shift = left - (width - (right - left)) / 2
    moved = tuple(
        replace(shape, points=tuple((x - shift, y - top) for x, y in shape.points)) for shape in shapes
    )
    labels = tuple(replace(name, x=name.x - shift, y=name.y - top) for name in names)
    return Drawing(width, bottom - top, moved, labels)


def _corners(box: LayoutBox) -> tuple[Point, ...]:
    left, top = box.x - box.wide / 2, box.y - box.tall / 2
    right, bottom = left + box.wide, top + box.tall
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _link(route: list[LayoutBox]) -> tuple[Point, ...]:
    """Return the points of a link: a curve between each two boxes of its route."""
    points: list[Point] = []
    for one, other in pairwise(route):
        start, end = one.x + one.wide / 2, other.x - other.wide / 2
        bend = max(8.0, (end - start) / 2)
        for step in range(_STEPS + 1):
            t = step / _STEPS
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            x = a * start + b * (start + bend) + c * (end - bend) + d * end
            points.append((x, (a + b) * one.y + (c + d) * other.y))
    return tuple(points)
