"""The content of the editor: parsed from a form, created from a page, merged with concurrent changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from sixfold.core.memory import diff, merge, page_edits
from sixfold.core.memory.diff import DiffPiece, Hunk
from sixfold.core.memory.models import PAGE_TYPE, MemoryPage
from sixfold.core.memory.page_edits import PageWrite

# A page of 1 MiB can have 80,000 conflicts, whose HTML takes seconds.
_MAX_SHOWN = 200


class EditorContent(msgspec.Struct, frozen=True):
    """The texts in the editor; `version` is the page version they are based on, or 0 for a new page."""

    slug: str = ""
    title: str = ""
    type: str = PAGE_TYPE
    tags: str = ""
    collections: str = ""
    body: str = ""
    version: int = 0


class EditConflict(NamedTuple):
    """Both sides of a conflict, as text and as equal or differing pieces."""

    mine: str
    theirs: str
    pieces: tuple[tuple[DiffPiece, ...], tuple[DiffPiece, ...]]


class MergedEdit(msgspec.Struct, frozen=True):
    """The result of a merge: the new content of the editor, and the conflicts to resolve.

    `fields` are (name, mine, theirs), with mine in the editor; `changes` are the other side's changes.
    """

    content: EditorContent
    theirs: MemoryPage
    conflicts: tuple[EditConflict, ...]
    fields: tuple[tuple[str, str, str], ...]
    changes: tuple[Hunk, ...]

    @property
    def shown(self) -> tuple[EditConflict, ...]:
        """The conflicts that the page shows beside each other; the text has all of them."""
        return self.conflicts[:_MAX_SHOWN]


def of_page(page: MemoryPage) -> EditorContent:
    return EditorContent(
        slug=page.slug,
        title=page.title,
        type=page.type,
        tags=", ".join(page.tags),
        collections=", ".join(page.collections),
        body=page.body,
        version=page.version,
    )


def of_form(form: Mapping[str, str], slug: str = "") -> EditorContent:
    """Parse the editor's form; line endings become line feeds."""
    version = form.get("version", "")
    return EditorContent(
        slug=slug or form.get("slug", "").strip(),
        title=form.get("title", "").strip(),
        type=form.get("type", "").strip(),
        tags=form.get("tags", "").strip(),
        collections=form.get("collections", "").strip(),
        body=form.get("body", "").replace("\r\n", "\n"),
        version=int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0,
    )


def page_write(content: EditorContent, base: MemoryPage | None) -> PageWrite:
    """Return the page to write; raises `BadRequest` for invalid tags or collections."""
    return PageWrite(
        slug=content.slug,
        body=_body(content, base),
        title=content.title or None,
        type=content.type or None,
        tags=_names("tags", content.tags, base),
        collections=_names("collections", content.collections, base),
    )


def _body(content: EditorContent, base: MemoryPage | None) -> str:
    return content.body if base is None else merge.with_ends_of(content.body, base.body)


def _names(name: str, text: str, base: MemoryPage | None) -> tuple[str, ...]:
    """Parse tags or collections; if unchanged, return those of the page, as names may contain commas."""
    before: tuple[str, ...] = getattr(base, name) if base is not None else ()
    return before if text == ", ".join(before) else page_edits.texts(name, text)


def unsettled(content: EditorContent, theirs: MemoryPage) -> MergedEdit:
    """Return the conflicts whose markers are left in the text of an editor."""
    return MergedEdit(content, theirs, _conflicts(merge.conflicts_in(content.body)), (), ())


def _conflicts(sides: Iterable[tuple[str, str]]) -> tuple[EditConflict, ...]:
    steps = diff.Steps()
    return tuple(
        EditConflict(mine, theirs, diff.words(mine.rstrip("\n"), theirs.rstrip("\n"), steps))
        for mine, theirs in sides
    )


def merge_edit(content: EditorContent, base: MemoryPage, theirs: MemoryPage) -> MergedEdit:
    """Merge an edit of `base` with the current page `theirs`; overlapping changes become conflicts."""
    body = merge.texts(base.body, _body(content, base), theirs.body)
    conflicts: list[tuple[str, str, str]] = []
    values: dict[str, str] = {}
    for name in ("title", "type"):
        mine = getattr(content, name) or getattr(base, name)
        values[name], conflicting = merge.value(getattr(base, name), mine, getattr(theirs, name))
        if conflicting:
            conflicts.append((name, mine, getattr(theirs, name)))
    for name in ("tags", "collections"):
        mine = _names(name, getattr(content, name), base)
        values[name] = ", ".join(merge.names(getattr(base, name), mine, getattr(theirs, name)))
    return MergedEdit(
        content=replace(content, slug=theirs.slug, body=body.text, version=theirs.version, **values),
        theirs=theirs,
        conflicts=_conflicts(part.sides for part in body.conflicts),
        fields=tuple(conflicts),
        changes=diff.hunks(base.body, theirs.body),
    )
