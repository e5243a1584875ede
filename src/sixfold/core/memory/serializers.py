"""Plain values of pages and their parts, shared by REST, MCP tools and commands."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict
from urllib.parse import quote

import msgspec

from sixfold.core.clock import rfc3339
from sixfold.core.database import Row
from sixfold.core.memory import pages
from sixfold.core.memory.links import Backlink, GraphWalk
from sixfold.core.memory.models import Link, MemoryPage, Origin, TimelineEntry
from sixfold.core.memory.ports import Hit, Mode, SearchResult
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.service import Change

VersionNumber = Annotated[int, msgspec.Meta(ge=1)]


class PageOfListSchema(TypedDict):
    """A page without its text."""

    id: str
    slug: str
    title: str
    url: str
    type: str
    tags: list[str]
    collections: list[str]
    version: VersionNumber
    created_at: str
    updated_at: str
    created_by: str


class PageVersionSchema(PageOfListSchema):
    """A page at one of its versions."""

    body: str


class LinkSchema(TypedDict):
    """A link to a page; `resolved` tells if it exists, `evidence` is the source of an inferred link."""

    to: str
    type: str
    context: str
    origin: Origin
    evidence: str | None
    resolved: bool


BacklinkSchema = TypedDict(
    "BacklinkSchema",
    {"from": str, "title": str, "type": str, "context": str, "origin": Origin, "evidence": str | None},
)


class TimelineEntrySchema(TypedDict):
    """An entry of a timeline."""

    date: str
    summary: str
    detail: str
    source: str
    created_at: str


class PageSchema(PageVersionSchema):
    """A page with its text, links and timeline."""

    links: list[LinkSchema]
    backlinks: list[BacklinkSchema]
    timeline: list[TimelineEntrySchema]


class VersionSchema(TypedDict):
    """A version of a page without its text; `ended_at` is null for the newest."""

    version: VersionNumber
    slug: str
    title: str
    type: str
    tags: list[str]
    collections: list[str]
    operation: str
    chars: int
    created_by: str
    created_at: str
    ended_at: str | None


ChangeSchema = TypedDict(
    "ChangeSchema",
    {"slug": str, "from": int, "to": int, "diff": str, "truncated": bool, "fields": dict[str, Any]},
)


class NodeSchema(TypedDict):
    """A page in the neighbourhood of another one."""

    slug: str
    title: str
    depth: int


EdgeSchema = TypedDict("EdgeSchema", {"from": str, "to": str, "type": str})


class WalkSchema(TypedDict):
    """The neighbourhood of a page, and the links within it."""

    nodes: list[NodeSchema]
    edges: list[EdgeSchema]
    truncated: bool


class HitSchema(TypedDict):
    """A page that a search found."""

    id: str
    slug: str
    title: str
    url: str
    type: str
    tags: list[str]
    collections: list[str]
    score: float
    snippet: str
    updated_at: str
    explain: NotRequired[dict[str, Any]]


class FoundSchema(TypedDict):
    """The result of a search."""

    results: list[HitSchema]
    mode: Mode
    took_ms: float


class CountSchema(TypedDict):
    """A name, and the number of pages that have it."""

    name: str
    count: int


def url(base_url: str, slug: str) -> str:
    """Return the URL of a page in the web interface."""
    return f"{base_url}/memory/{quote(slug)}"


def page(view: PageGraphView, base_url: str) -> PageSchema:
    """Return a whole page."""
    return {
        **brief(view.page, base_url),
        "body": view.page.body,
        "links": [link(found) for found in view.links],
        "backlinks": [backlink(found) for found in view.backlinks],
        "timeline": [entry(found) for found in view.timeline],
    }


def brief(found: MemoryPage, base_url: str) -> PageOfListSchema:
    """Return a page without its text."""
    return {
        "id": found.id,
        "slug": found.slug,
        "title": found.title,
        "url": url(base_url, found.slug),
        "type": found.type,
        "tags": list(found.tags),
        "collections": list(found.collections),
        "version": found.version,
        "created_at": rfc3339(found.created_at),
        "updated_at": rfc3339(found.updated_at),
        "created_by": found.created_by,
    }


def row(found: Row, base_url: str) -> PageOfListSchema:
    """Return a page of a list."""
    return {
        "id": found["id"],
        "slug": found["slug"],
        "title": found["title"],
        "url": url(base_url, found["slug"]),
        "type": found["type"],
        "tags": pages.names_of(found["tags"]),
        "collections": pages.names_of(found["collections"]),
        "version": found["version"],
        "created_at": rfc3339(found["created_at"]),
        "updated_at": rfc3339(found["updated_at"]),
        "created_by": found["created_by"],
    }


def glance(found: Row) -> dict[str, Any]:
    """Return a page of an overview."""
    return {
        "slug": found["slug"],
        "title": found["title"],
        "type": found["type"],
        "version": found["version"],
        "updated_at": rfc3339(found["updated_at"]),
    }


def link(found: Link) -> LinkSchema:
    """Return a link."""
    return {
        "to": found.target,
        "type": found.type,
        "context": found.context,
        "origin": found.origin,
        "evidence": _evidence(found),
        "resolved": found.resolved,
    }


def backlink(found: Backlink) -> BacklinkSchema:
    """Return a link from another page."""
    return {
        "from": found.source,
        "title": found.title,
        "type": found.type,
        "context": found.context,
        "origin": found.origin,
        "evidence": _evidence(found),
    }


def _evidence(found: Link | Backlink) -> str | None:
    """Return the sentence of an inferred link, or None for an explicit one."""
    return None if found.origin == "explicit" else found.context


def entry(found: TimelineEntry) -> TimelineEntrySchema:
    """Return an entry of a timeline."""
    return {
        "date": found.date,
        "summary": found.summary,
        "detail": found.detail,
        "source": found.source,
        "created_at": rfc3339(found.created_at),
    }


def version(found: Row) -> VersionSchema:
    """Return a version without its text."""
    return {
        "version": found["version"],
        "slug": found["slug"],
        "title": found["title"],
        "type": found["type"],
        "tags": pages.names_of(found["tags"]),
        "collections": pages.names_of(found["collections"]),
        "operation": found["operation"],
        "chars": found["chars"],
        "created_by": found["created_by"],
        "created_at": rfc3339(found["created_at"]),
        "ended_at": rfc3339(found["ended_at"]),
    }


def change(found: Change, most: int) -> ChangeSchema:
    """Return the difference of two versions; a long diff is cut."""
    return {
        "slug": found.slug,
        "from": found.older,
        "to": found.newer,
        "diff": found.diff[:most],
        "truncated": len(found.diff) > most,
        "fields": {name: {"from": old, "to": new} for name, (old, new) in found.fields.items()},
    }


def walk(found: GraphWalk) -> WalkSchema:
    """Return a neighbourhood with its links."""
    return {
        "nodes": [{"slug": slug, "title": title, "depth": depth} for slug, title, depth in found.nodes],
        "edges": [{"from": source, "to": target, "type": kind} for source, target, kind in found.edges],
        "truncated": found.cut,
    }


def answer(found: SearchResult, base_url: str) -> FoundSchema:
    """Return the result of a search."""
    return {
        "results": [_hit(hit, base_url) for hit in found.hits],
        "mode": found.mode,
        "took_ms": round(found.took_ms, 3),
    }


def _hit(found: Hit, base_url: str) -> HitSchema:
    shown: HitSchema = {
        "id": found.id,
        "slug": found.slug,
        "title": found.title,
        "url": url(base_url, found.slug),
        "type": found.type,
        "tags": list(found.tags),
        "collections": list(found.collections),
        "score": found.score,
        "snippet": found.snippet,
        "updated_at": rfc3339(found.updated_at),
    }
    if found.explain is not None:
        shown["explain"] = dict(found.explain)
    return shown


def count(found: Row) -> CountSchema:
    return {"name": found["name"], "count": found["count"]}
