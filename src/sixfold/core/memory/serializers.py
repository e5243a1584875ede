"""Plain values of pages and their parts, shared by REST, MCP tools and commands."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict
from urllib.parse import quote

import msgspec

from sixfold.core.clock import rfc3339
from sixfold.core.database import Row
from sixfold.core.memory import pages
from sixfold.core.memory.import_export.archives import ImportReport
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
    """A link to a page; `resolved` states whether the page exists, `evidence` is the source if inferred."""

    to: str
    type: str
    context: str
    origin: Origin
    inferred: bool
    evidence: str | None
    resolved: bool


BacklinkSchema = TypedDict(
    "BacklinkSchema",
    {
        "from": str,
        "title": str,
        "type": str,
        "context": str,
        "origin": Origin,
        "inferred": bool,
        "evidence": str | None,
    },
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
    """A version of a page without its text; `ended_at` is null for the newest.

    `created_by` is the key or user that wrote the version, and `on_behalf_of` the member or team of the
    organization, or null for the account itself.
    """

    version: VersionNumber
    slug: str
    title: str
    type: str
    tags: list[str]
    collections: list[str]
    operation: str
    chars: int
    created_by: str
    on_behalf_of: str | None
    created_at: str
    ended_at: str | None


ChangeSchema = TypedDict(
    "ChangeSchema",
    {"slug": str, "from": int, "to": int, "diff": str, "truncated": bool, "fields": dict[str, Any]},
)


class NodeSchema(TypedDict):
    """A page in the neighborhood of another page."""

    slug: str
    title: str
    depth: int


EdgeSchema = TypedDict("EdgeSchema", {"from": str, "to": str, "type": str})


class WalkSchema(TypedDict):
    """The neighborhood of a page, and the links within it."""

    nodes: list[NodeSchema]
    edges: list[EdgeSchema]
    truncated: bool


class HitSchema(TypedDict):
    """A search result."""

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
    citation: NotRequired[str]
    explain: NotRequired[dict[str, Any]]


class FoundSchema(TypedDict):
    """The result of a search."""

    results: list[HitSchema]
    mode: Mode
    took_ms: float


class ImportProblemSchema(TypedDict):
    """A file that was not imported, and the reason."""

    path: str
    error: str


class ImportResultSchema(TypedDict):
    """The result of an import; `left_out` are the first 100 skipped files that are not pages."""

    created: int
    updated: int
    skipped: int
    left_out: list[str]
    errors: list[ImportProblemSchema]


class DocumentResultSchema(TypedDict):
    """A document of an import; `parts` is the number of its pages that were written."""

    path: str
    slug: str
    title: str
    parts: int
    changed: bool


class DocumentImportResultSchema(ImportResultSchema):
    """The result of an import of documents."""

    documents: list[DocumentResultSchema]


class CountSchema(TypedDict):
    """A name, and the number of pages with that name."""

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
        "links": [link(result) for result in view.links],
        "backlinks": [backlink(result) for result in view.backlinks],
        "timeline": [entry(result) for result in view.timeline],
    }


def brief(result: MemoryPage, base_url: str) -> PageOfListSchema:
    """Return a page without its text."""
    return {
        "id": result.id,
        "slug": result.slug,
        "title": result.title,
        "url": url(base_url, result.slug),
        "type": result.type,
        "tags": list(result.tags),
        "collections": list(result.collections),
        "version": result.version,
        "created_at": rfc3339(result.created_at),
        "updated_at": rfc3339(result.updated_at),
        "created_by": result.created_by,
    }


def row(result: Row, base_url: str) -> PageOfListSchema:
    return {
        "id": result["id"],
        "slug": result["slug"],
        "title": result["title"],
        "url": url(base_url, result["slug"]),
        "type": result["type"],
        "tags": pages.names_of(result["tags"]),
        "collections": pages.names_of(result["collections"]),
        "version": result["version"],
        "created_at": rfc3339(result["created_at"]),
        "updated_at": rfc3339(result["updated_at"]),
        "created_by": result["created_by"],
    }


def glance(result: Row) -> dict[str, Any]:
    """Return a page of an overview."""
    return {
        "slug": result["slug"],
        "title": result["title"],
        "type": result["type"],
        "version": result["version"],
        "updated_at": rfc3339(result["updated_at"]),
    }


def link(result: Link) -> LinkSchema:
    return {
        "to": result.target,
        "type": result.type,
        "context": result.context,
        "origin": result.origin,
        "inferred": result.origin == "inferred",
        "evidence": _evidence(result),
        "resolved": result.resolved,
    }


def backlink(result: Backlink) -> BacklinkSchema:
    """Return a link from another page."""
    return {
        "from": result.source,
        "title": result.title,
        "type": result.type,
        "context": result.context,
        "origin": result.origin,
        "inferred": result.origin == "inferred",
        "evidence": _evidence(result),
    }


def _evidence(result: Link | Backlink) -> str | None:
    """Return the sentence of an inferred link, or None for an explicit one."""
    return None if result.origin == "explicit" else result.context


def entry(result: TimelineEntry) -> TimelineEntrySchema:
    return {
        "date": result.date,
        "summary": result.summary,
        "detail": result.detail,
        "source": result.source,
        "created_at": rfc3339(result.created_at),
    }


def version(result: Row) -> VersionSchema:
    """Return a version without its text."""
    return {
        "version": result["version"],
        "slug": result["slug"],
        "title": result["title"],
        "type": result["type"],
        "tags": pages.names_of(result["tags"]),
        "collections": pages.names_of(result["collections"]),
        "operation": result["operation"],
        "chars": result["chars"],
        "created_by": result["created_by"],
        "on_behalf_of": result["on_behalf_of"] or None,
        "created_at": rfc3339(result["created_at"]),
        "ended_at": rfc3339(result["ended_at"]),
    }


def change(result: Change, max_chars: int) -> ChangeSchema:
    """Return the diff between two versions, truncated to `max_chars` characters."""
    return {
        "slug": result.slug,
        "from": result.older,
        "to": result.newer,
        "diff": result.diff[:max_chars],
        "truncated": len(result.diff) > max_chars,
        "fields": {name: {"from": old, "to": new} for name, (old, new) in result.fields.items()},
    }


def walk(result: GraphWalk) -> WalkSchema:
    """Return the pages near a page, and the links between them."""
    return {
        "nodes": [{"slug": slug, "title": title, "depth": depth} for slug, title, depth in result.nodes],
        "edges": [{"from": source, "to": target, "type": kind} for source, target, kind in result.edges],
        "truncated": result.cut,
    }


def answer(result: SearchResult, base_url: str) -> FoundSchema:
    return {
        "results": [_hit(hit, base_url) for hit in result.hits],
        "mode": result.mode,
        "took_ms": round(result.took_ms, 3),
    }


def _hit(result: Hit, base_url: str) -> HitSchema:
    row: HitSchema = {
        "id": result.id,
        "slug": result.slug,
        "title": result.title,
        "url": url(base_url, result.slug),
        "type": result.type,
        "tags": list(result.tags),
        "collections": list(result.collections),
        "score": result.score,
        "snippet": result.snippet,
        "updated_at": rfc3339(result.updated_at),
    }
    if result.citation:
        row["citation"] = result.citation
    if result.explain is not None:
        row["explain"] = dict(result.explain)
    return row


def import_result(report: ImportReport) -> ImportResultSchema:
    return {
        "created": report.created,
        "updated": report.updated,
        "skipped": report.skipped,
        "left_out": report.left_out_paths,
        "errors": [{"path": name, "error": why} for name, why in report.errors],
    }


def imported_documents(report: ImportReport) -> DocumentImportResultSchema:
    rows: list[DocumentResultSchema] = [
        {
            "path": document.path,
            "slug": document.slug,
            "title": document.title,
            "parts": document.parts,
            "changed": document.changed,
        }
        for document in report.documents
    ]
    return {**import_result(report), "documents": rows}


def count(result: Row) -> CountSchema:
    return {"name": result["name"], "count": result["count"]}
