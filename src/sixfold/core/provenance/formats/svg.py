"""SVG: `<metadata id="sixfold-manifest">` as the root's first child; UTF-8 only, without an XML parser."""

from __future__ import annotations

import re

from sixfold.core.provenance.formats.edits import FileEdit, Unembeddable, text_of
from sixfold.core.provenance.formats.parts import MAX_PARTS
from sixfold.core.provenance.formats.xmp import escaped, unescaped

_OURS = re.compile(rb'<(?:[\w.-]{1,64}:)?metadata id="sixfold-manifest">([^<]*)</(?:[\w.-]{1,64}:)?metadata>')
_ROOT = re.compile(rb"<((?:[\w.-]{1,64}:)?)svg(?=[\s/>])")
_SPACE = re.compile(rb"\s*")
_PROLOGUE = ((b"<?", b"?>"), (b"<!--", b"-->"))
# The root begins in the first of these bytes, and the manifest in the second, since a search blocks other
# threads.
_MAX_PROLOGUE, _MAX_OFFSET = 2**20, 2**21
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_QUOTES = re.compile(rb"[\"'>\[\]]|<!--|<\?")
_ATTRIBUTES = re.compile(rb"(?:[^\"'<>]+|\"[^\"<]*\"|'[^'<]*')*+>")


def matches(data: bytes) -> bool:
    """Return whether the first element is `svg`."""
    return _root(data) is not None


def edits(data: bytes, text: str) -> list[FileEdit]:
    """Return the edits that insert the text right after the root's start tag."""
    root = _root(data)
    tag = _ATTRIBUTES.match(data, root.end()) if root else None
    if root is None or tag is None:
        raise Unembeddable("not an SVG in UTF-8")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise Unembeddable("not an SVG in UTF-8") from error
    prefix = root[1]
    ours = b'<%bmetadata id="sixfold-manifest">%b</%bmetadata>'
    ours %= (prefix, escaped(text).encode(), prefix)
    end = tag.end()
    if data[end - 2 : end] == b"/>":
        return [FileEdit(end - 2, end, b">" + ours + b"</%bsvg>" % prefix)]
    cuts = [FileEdit(*match.span(), b"") for match in _OURS.finditer(data, end)]
    return [FileEdit(end, end, ours), *cuts]


def extract(data: bytes) -> str | None:
    """Return the text of this project's element."""
    root = _root(data)
    match = _OURS.search(data, root.end(), root.end() + _MAX_OFFSET) if root else None
    return None if match is None else text_of(unescaped(match[1]))


def _root(data: bytes) -> re.Match[bytes] | None:
    """Return the match of the root's name, after declaration, comments and document type."""
    if data.startswith(_UTF16):
        return None
    data = data[:_MAX_PROLOGUE]
    at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    for _ in range(MAX_PARTS):
        space = _SPACE.match(data, at)
        at = space.end() if space else at
        after = _skipped(data, at)
        if after is None:
            return _ROOT.match(data, at)
        at = after
    return None


def _skipped(data: bytes, at: int) -> int | None:
    """Return the end of the comment, processing instruction or DOCTYPE at `at`, or None.

    None means that an element begins at `at`. The end of an unterminated part is the end of the file.
    """
    for opening, closing in _PROLOGUE:
        if data.startswith(opening, at):
            end = data.find(closing, at + len(opening))
            return len(data) if end < 0 else end + len(closing)
    return _document_type_end(data, at) if data[at : at + 9] == b"<!DOCTYPE" else None


def _document_type_end(data: bytes, at: int) -> int:
    """Return the end of a document type, whose internal subset may contain quotes, comments and markup."""
    depth = 0
    at += 9
    for _ in range(MAX_PARTS):
        match = _QUOTES.search(data, at)
        if match is None:
            break
        sign, at = match[0], match.end()
        depth += (sign == b"[") - (sign == b"]")
        if sign == b">" and depth <= 0:
            return at
        closing = {b'"': b'"', b"'": b"'", b"<!--": b"-->", b"<?": b"?>"}.get(sign)
        if closing:
            end = data.find(closing, at)
            at = len(data) if end < 0 else end + len(closing)
    return len(data)
