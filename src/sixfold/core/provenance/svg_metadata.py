"""Removal of the parts of an SVG that are not drawn: comments, descriptions and what editors add."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.parsers import expat

from sixfold.core.provenance.formats.edits import FileEdit
from sixfold.core.provenance.formats.parts import MalformedFile, part_budget

_SEPARATOR = " "
_DESCRIPTIONS = frozenset({"metadata", "title", "desc"})
# Elements of other namespaces are drawn only within this one.
_FOREIGN = "foreignObject"
_XLINK = "http://www.w3.org/1999/xlink"
_XML = "http://www.w3.org/XML/1998/namespace"
_STYLESHEET = "xml-stylesheet"
# The parser reads an incomplete tag again with each piece, and keeps all attributes of a tag in memory.
MAX_BYTES, _PIECE_BYTES = 4 << 20, 1 << 18
_MAX_PARTS = 200_000
_ATTRIBUTE = re.compile(rb"\s++([^\s=<>/\"']++)\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+')")
_NAME = re.compile(rb"<[^\s/>]+")


def removals(data: bytes) -> list[FileEdit]:
    """Return the edits that remove these parts; raises `MalformedFile` if the file cannot be parsed."""
    if len(data) > MAX_BYTES:
        raise MalformedFile(f"an SVG must have at most {MAX_BYTES:,} bytes")
    reader = _Reader(data)
    try:
        reader.read()
    except expat.ExpatError as error:
        raise MalformedFile(str(error)) from error
    return reader.edits


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.edits: list[FileEdit] = []
        self._data = data
        self._budget = part_budget(_MAX_PARTS)
        self._parser = parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CommentHandler = lambda _text: self._cut_at(b"<!--", b"-->")
        parser.ProcessingInstructionHandler = self._instruct
        self._namespace: str | None = None
        # The open elements within a removed one, and the position where that begins.
        self._removed, self._removed_from = 0, 0
        self._foreign = 0

    def read(self) -> None:
        for at in range(0, len(self._data), _PIECE_BYTES):
            self._parser.Parse(self._data[at : at + _PIECE_BYTES], at + _PIECE_BYTES >= len(self._data))

    def _start(self, name: str, attributes: list[str]) -> None:
        self._budget.spend(parts=1)
        namespace, _, local = name.rpartition(_SEPARATOR)
        if self._namespace is None:
            self._namespace = namespace
        if self._removed:
            self._removed += 1
            return
        is_own = namespace == self._namespace
        if local in _DESCRIPTIONS if is_own else not self._foreign:
            self._removed, self._removed_from = 1, self._position(b"<")
            return
        self._foreign += bool(self._foreign) or (is_own and local == _FOREIGN)
        self._cut_attributes(attributes[::2])

    def _end(self, _name: str) -> None:
        if not self._removed:
            self._foreign -= bool(self._foreign)
            return
        self._removed -= 1
        if not self._removed:
            at = self._parser.CurrentByteIndex
            end = self._after(b">", at) if self._data[at : at + 2] == b"</" else self._tag_end()
            self.edits.append(FileEdit(self._removed_from, end, b""))

    def _tag_end(self) -> int:
        """Return the end of the empty tag with which the removed part begins."""
        at = self._removed_from
        for match in self._attributes(at):
            at = match.end()
        return self._after(b">", at)

    def _cut_attributes(self, names: list[str]) -> None:
        """Remove attributes of editors, and those for programs and for screen readers."""
        expanded_names = iter(names)
        for match in self._attributes(self._position(b"<")):
            if match[1] == b"xmlns" or match[1].startswith(b"xmlns:"):
                continue
            namespace, _, local = next(expanded_names, "").rpartition(_SEPARATOR)
            if namespace not in ("", _XLINK, _XML) or local.startswith(("data-", "aria-")):
                self.edits.append(FileEdit(*match.span(), b""))

    def _attributes(self, at: int) -> Iterator[re.Match[bytes]]:
        match = _NAME.match(self._data, at)
        while match and (match := _ATTRIBUTE.match(self._data, match.end())):
            yield match

    def _instruct(self, target: str, _text: str) -> None:
        if target != _STYLESHEET:
            self._cut_at(b"<?", b"?>")

    def _cut_at(self, opening: bytes, closing: bytes) -> None:
        self._budget.spend(parts=1)
        if not self._removed:
            at = self._position(opening)
            self.edits.append(FileEdit(at, self._after(closing, at + len(opening)), b""))

    def _position(self, opening: bytes) -> int:
        """Return the position of the current part; raises `MalformedFile` if an entity contains it."""
        at = self._parser.CurrentByteIndex
        if self._data[at : at + len(opening)] != opening:
            raise MalformedFile("an entity contains markup")
        return at

    def _after(self, text: bytes, at: int) -> int:
        return self._data.find(text, at) + len(text)
