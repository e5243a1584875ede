"""Memory, for the asynchronous client."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any, Unpack

from sixfold.client import requests
from sixfold.client.async_transport import AsyncTransport
from sixfold.client.requests import ApiCall, FileInput
from sixfold.client.types.memory import (
    Backlinks,
    BacklinksQuery,
    DeletedPage,
    DocumentImportResult,
    Found,
    ImportResult,
    LinkBody,
    Links,
    NewPageBody,
    Page,
    PageChangesBody,
    Pages,
    PagesQuery,
    PageTags,
    SearchBody,
    Tags,
    Timeline,
    TimelineEntryBody,
    TimelineQuery,
    TraverseQuery,
    Walk,
)


class AsyncMemory:
    """Pages, search and links: `client.memory`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def search(self, **body: Unpack[SearchBody]) -> Found:
        """Search pages: `search(query="Who works at Acme?", limit=5)`."""
        return await self._transport.request(ApiCall("POST", "/api/search", document={**body}))

    async def pages(self, **query: Unpack[PagesQuery]) -> Pages:
        """Return a list of pages; `next_cursor` is the `cursor` of the next list."""
        return await self._transport.request(ApiCall("GET", "/api/pages", query))

    async def get(self, slug: str, as_of: str | None = None) -> Page:
        """Return the current state of a page, or its state at the time or the end of the date `as_of`."""
        return await self._transport.request(ApiCall("GET", _one("pages", slug), {"as_of": as_of}))

    async def create(self, **body: Unpack[NewPageBody]) -> Page:
        """Create a page: `create(slug="people/ann", body="Works at [[companies/acme]].")`."""
        key = requests.new_idempotency_key()
        return await self._transport.request(
            ApiCall("POST", "/api/pages", document={**body}, idempotency_key=key)
        )

    async def edit(self, slug: str, **changes: Unpack[PageChangesBody]) -> Page:
        """Change a part of a page: `edit("people/ann", operation="append", content="Moved to Oslo.")`."""
        return await self._transport.request(ApiCall("PATCH", _one("pages", slug), document={**changes}))

    async def delete(self, slug: str) -> DeletedPage:
        """Delete a page; its versions remain, so `restore` can undo this."""
        return await self._transport.request(ApiCall("DELETE", _one("pages", slug)))

    async def versions(self, slug: str, limit: int | None = None, cursor: str | None = None) -> Any:
        """Return the versions of a page, newest first."""
        return await self._transport.request(
            ApiCall("GET", _one("versions", slug), {"limit": limit, "cursor": cursor})
        )

    async def restore(self, slug: str, version: int) -> Page:
        """Make an earlier version of a page the current one."""
        key = requests.new_idempotency_key()
        call = ApiCall("POST", _one("versions", slug), document={"version": version}, idempotency_key=key)
        return await self._transport.request(call)

    async def links(
        self, slug: str, as_of: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> Links:
        """Return the typed links of a page to other pages; all of them if `limit` is None."""
        query = {"as_of": as_of, "limit": limit, "cursor": cursor}
        return await self._transport.request(ApiCall("GET", _one("links", slug), query))

    async def add_link(self, slug: str, **body: Unpack[LinkBody]) -> Links:
        """Add a typed link: `add_link("people/ann", to="companies/acme", type="works_at")`."""
        key = requests.new_idempotency_key()
        call = ApiCall("POST", _one("links", slug), document={**body}, idempotency_key=key)
        return await self._transport.request(call)

    async def backlinks(self, slug: str, **query: Unpack[BacklinksQuery]) -> Backlinks:
        """Return the links of other pages to a page."""
        return await self._transport.request(ApiCall("GET", _one("backlinks", slug), query))

    async def traverse(self, slug: str, **query: Unpack[TraverseQuery]) -> Walk:
        """Return the pages that are reachable from a page, and the links between them."""
        return await self._transport.request(ApiCall("GET", _one("traverse", slug), query))

    async def timeline(self, slug: str, **query: Unpack[TimelineQuery]) -> Timeline:
        """Return the dated entries of a page."""
        return await self._transport.request(ApiCall("GET", _one("timeline", slug), query))

    async def add_to_timeline(self, slug: str, **entry: Unpack[TimelineEntryBody]) -> Timeline:
        """Add a dated entry: `add_to_timeline("people/ann", date="2026-05-01", summary="Joined Acme")`."""
        key = requests.new_idempotency_key()
        call = ApiCall("POST", _one("timeline", slug), document={**entry}, idempotency_key=key)
        return await self._transport.request(call)

    async def tags(self, limit: int | None = None, cursor: str | None = None) -> Tags:
        """Return the tags in use with their numbers of pages."""
        return await self._transport.request(ApiCall("GET", "/api/tags", {"limit": limit, "cursor": cursor}))

    async def add_tags(self, slug: str, tags: list[str]) -> PageTags:
        """Add tags to a page."""
        return await self._transport.request(ApiCall("POST", _one("tags", slug), document={"tags": tags}))

    async def import_archive(self, file: FileInput) -> ImportResult:
        """Import a ZIP or tar archive of Markdown pages, such as an Obsidian vault."""
        return await self._send_file("/api/import", file)

    async def import_document(self, file: FileInput, folder: str | None = None) -> DocumentImportResult:
        """Import a PDF, DOCX, HTML or EPUB file as pages."""
        return await self._send_file("/api/documents", file, {"folder": folder})

    async def export(self, target: str | Path | IO[bytes]) -> None:
        """Write all pages as a ZIP archive of Markdown files."""
        await self._transport.download("/api/export", target)

    async def _send_file(self, path: str, file: FileInput, query: dict[str, str | None] | None = None) -> Any:
        part = requests.file_part(file)
        key = requests.new_idempotency_key()
        call = ApiCall(
            "POST", path, query or {}, file=part, idempotency_key=key, seconds=requests.POLL_SECONDS
        )
        try:
            return await self._transport.request(call)
        finally:
            if isinstance(file, Path) and not isinstance(part[1], bytes):
                part[1].close()


def _one(resource: str, slug: str) -> str:
    return requests.path(f"/api/{resource}/{{slug}}", slug=slug)
