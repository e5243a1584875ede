"""What stands in the editor: read from a form, made of a page, merged with what came in between. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from sixfold.core.memory import diff, merge, page_edits
from sixfold.core.memory.diff import DiffPiece, Hunk
from sixfold.core.memory.models import PAGE_TYPE, MemoryPage
from sixfold.core.memory.page_edits import PageWrite


@dataclass(frozen=True, slots=True)
class TypedPage:
    """The texts in the editor; `version` is that of the page they began from, 0 for a new one."""

    slug: str = ""
    title: str = ""
    type: str = PAGE_TYPE
    tags: str = ""
    collections: str = ""
    body: str = ""
    version: int = 0


class EditConflict(NamedTuple):
    """Both sides of a conflict as they stand between the marks, and as pieces that differ or do not."""

    mine: str
    theirs: str
    pieces: tuple[tuple[DiffPiece, ...], tuple[DiffPiece, ...]]


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """An edit that met another: what is in the editor now, and what somebody has to look at."""

    typed: TypedPage
    theirs: MemoryPage
    conflicts: tuple[EditConflict, ...]
    fields: tuple[tuple[str, str, str], ...]  # name, mine, theirs: mine is in the editor
    changes: tuple[Hunk, ...]  # what they changed


def of_page(page: MemoryPage) -> TypedPage:
    """The editor as it opens."""
    return TypedPage(
        slug=page.slug,
        title=page.title,
        type=page.type,
        tags=", ".join(page.tags),
        collections=", ".join(page.collections),
        body=page.body,
        version=page.version,
    )


def of_form(form: Mapping[str, str], slug: str = "") -> TypedPage:
    """The editor as it was sent; lines end in a line feed."""
    version = form.get("version", "")
    return TypedPage(
        slug=slug or form.get("slug", "").strip(),
        title=form.get("title", "").strip(),
        type=form.get("type", "").strip(),
        tags=form.get("tags", "").strip(),
        collections=form.get("collections", "").strip(),
        body=form.get("body", "").replace("\r\n", "\n"),
        version=int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0,
    )


def wanted(typed: TypedPage, base: MemoryPage | None) -> PageWrite:
    """The page to be written; raises `BadRequest` for names that are none."""
    return PageWrite(
        slug=typed.slug,
        body=_body(typed, base),
        title=typed.title or None,
        type=typed.type or None,
        tags=_names("tags", typed.tags, base),
        collections=_names("collections", typed.collections, base),
    )


def _body(typed: TypedPage, base: MemoryPage | None) -> str:
    return typed.body if base is None else merge.with_ends_of(typed.body, base.body)


def _names(name: str, text: str, base: MemoryPage | None) -> tuple[str, ...]:
    """Tags or collections; those of the page where the text is as it was, since a name may have a comma."""
    before: tuple[str, ...] = getattr(base, name) if base is not None else ()
    return before if text == ", ".join(before) else page_edits.texts(name, text)


def meet(typed: TypedPage, base: MemoryPage, theirs: MemoryPage) -> EditOutcome:
    """Merge what was typed on `base` into what the page says now; nothing of either is lost."""
    body = merge.texts(base.body, _body(typed, base), theirs.body)
    clashes: list[tuple[str, str, str]] = []
    values: dict[str, str] = {}
    for name in ("title", "type"):
        mine = getattr(typed, name) or getattr(base, name)
        values[name], clashing = merge.value(getattr(base, name), mine, getattr(theirs, name))
        if clashing:
            clashes.append((name, mine, getattr(theirs, name)))
    for name in ("tags", "collections"):
        mine = _names(name, getattr(typed, name), base)
        values[name] = ", ".join(merge.names(getattr(base, name), mine, getattr(theirs, name)))
    return EditOutcome(
        typed=replace(typed, slug=theirs.slug, body=body.text, version=theirs.version, **values),
        theirs=theirs,
        conflicts=tuple(
            EditConflict(*part.sides, diff.words(*(side.rstrip("\n") for side in part.sides)))
            for part in body.conflicts
        ),
        fields=tuple(clashes),
        changes=diff.hunks(base.body, theirs.body),
    )
