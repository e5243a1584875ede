"""Reader of canvases of Obsidian (JSON Canvas 1.0): the texts, files and links of a board, and its arrows.

The nodes are in the order in which they are read, from top to bottom and from left to right, below the label
of the smallest group around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.documents import Document
from sixfold.engines.documents import extraction

_NAME_CHARS = 80
_LINK = re.compile(r"!?\[\[(?:[^\[\]|]{0,300}\|)?([^\[\]|]{0,300})\]\]")
_PARAGRAPH = "\n\n"
# Comparing nodes with groups takes at most about a second.
_MAX_COMPARISONS = 5_000_000


class CanvasNode(msgspec.Struct):
    """A text, file, link or group of a canvas, with its position."""

    id: str
    type: str
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0
    text: str = ""
    file: str = ""
    subpath: str = ""
    url: str = ""
    label: str = ""

    def contains(self, node: CanvasNode) -> bool:
        """Return whether the center of a node is inside this group."""
        x, y = node.x + node.width / 2 - self.x, node.y + node.height / 2 - self.y
        return 0 <= x <= self.width and 0 <= y <= self.height

    @property
    def content(self) -> str:
        """The node in Markdown; pages are linked, and other files are embedded."""
        if self.type == "file":
            is_page = self.file.lower().endswith(".md")
            name = self.file[:-3] if is_page else self.file
            return f"{'' if is_page else '!'}[[{name}{self.subpath}]]"
        return self.text.strip() or self.url

    @property
    def name(self) -> str:
        """The node in one line, for the ends of an arrow."""
        if self.type == "file":
            return extraction.line(self.content)
        first = (self.label or self.content).partition("\n")[0]
        # A word before a link in a list is the type of a relation in the memory.
        return extraction.line(_LINK.sub(r"\1", first.lstrip("# ")))[:_NAME_CHARS]


class CanvasEdge(msgspec.Struct, rename="camel"):
    """An arrow between two nodes of a canvas."""

    from_node: str
    to_node: str
    label: str = ""


class CanvasBoard(msgspec.Struct):
    """A canvas file."""

    nodes: list[CanvasNode] = []
    edges: list[CanvasEdge] = []


def read(path: Path, _max_pages: int, max_chars: int) -> Document:
    """Read a canvas; raises `UnusableInput`."""
    data = path.read_bytes()
    if len(data) > 4 * max_chars:
        raise UnusableInput(extraction.TOO_LONG.format(max_chars))
    try:
        canvas = msgspec.json.decode(data or b"{}", type=CanvasBoard)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableInput("The file is not a canvas of Obsidian (JSON with nodes and edges).") from error
    text = _text(canvas, max_chars) or "This canvas is empty."
    return Document("canvas", blocks=extraction.chapters(text, max_chars))


def _text(canvas: CanvasBoard, max_chars: int) -> str:
    """Return a canvas as Markdown; raises `UnusableInput` before it builds more than `max_chars`.

    Arrows repeat the names of nodes: a text can be much longer than its file.
    """
    parts: list[str] = []
    size = -len(_PARAGRAPH)
    for separator, part in _parts(canvas):
        size += len(separator) + len(part)
        if size > max_chars:
            raise UnusableInput(extraction.TOO_LONG.format(max_chars))
        parts += (separator, part)
    return "".join(parts[1:])


def _parts(canvas: CanvasBoard) -> Iterable[tuple[str, str]]:
    """Yield the nodes without a group, each group with its nodes, and the arrows, each after a separator."""
    ordered = sorted(canvas.nodes, key=lambda node: (node.y, node.x))
    groups = [node for node in ordered if node.type == "group"]
    nodes = [node for node in ordered if node.type != "group" and node.content]
    members = _members(nodes, groups)
    yield from ((_PARAGRAPH, node.content) for node in members.get(None, ()))
    for index, group in enumerate(groups):
        yield _PARAGRAPH, f"## {extraction.line(group.label) or 'Group'}"
        yield from ((_PARAGRAPH, node.content) for node in members.get(index, ()))
    names = {node.id: node.name for node in ordered}
    edges = [edge for edge in canvas.edges if {edge.from_node, edge.to_node} <= names.keys()]
    if edges:
        yield _PARAGRAPH, "## Arrows"
    for index, edge in enumerate(edges):
        yield "\n" if index else _PARAGRAPH, _arrow(edge, names)


def _members(
    nodes: Sequence[CanvasNode], groups: Sequence[CanvasNode]
) -> Mapping[int | None, list[CanvasNode]]:
    """Return the nodes of each group by its index, as ids may repeat, and those without a group by None."""
    smallest_first = sorted(enumerate(groups), key=lambda entry: entry[1].width * entry[1].height)
    if len(nodes) * len(groups) > _MAX_COMPARISONS:
        smallest_first = []
    members: dict[int | None, list[CanvasNode]] = {}
    for node in nodes:
        index = next((index for index, group in smallest_first if group.contains(node)), None)
        members.setdefault(index, []).append(node)
    return members


def _arrow(edge: CanvasEdge, names: Mapping[str, str]) -> str:
    label = f" ({extraction.line(edge.label)})" if edge.label else ""
    return f"- {names[edge.from_node]} → {names[edge.to_node]}{label}"
