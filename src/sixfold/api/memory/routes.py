"""Routes of the Memory API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.memory import facts, folders, schemas
from sixfold.api.memory.files import MemoryFileRoutes
from sixfold.api.memory.schemas import caller_of
from sixfold.core import pagination
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.memory import limits, operations, slugs
from sixfold.core.memory import serializers as memory_serializers
from sixfold.core.memory.commands import SavedPage, TagChange
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.links import LinkPath as Walking
from sixfold.core.memory.models import Caller, Link, TimelineEntry
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.search import context
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

Work = Callable[[Request, Caller], Awaitable[Response]]
MARKDOWN = "text/markdown"


class PageRoutes:
    """Handlers for pages and their parts."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._memory = services.memory
        self._base = services.settings.base_url

    def reading(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that authenticates and then calls `work`."""

        async def handle(request: Request) -> Response:
            return await work(request, await caller_of(self._services, request))

        return handle

    def once(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        """Return a POST handler that runs once per Idempotency-Key."""

        async def handle(request: Request, principal: Principal) -> Response:
            return await work(request, Caller.of(principal))

        return self._services.idempotency.once(self._services.authenticator.memory, handle)

    async def search(self, request: Request, caller: Caller) -> Response:
        arguments = await schemas.from_body(schemas.SEARCH, request)
        result = await self._memory.search(caller, operations.parse_search(arguments))
        return responses.unstored_json(memory_serializers.answer(result, self._base))

    async def context(self, request: Request, caller: Caller) -> Response:
        """Return the passages relevant to a query, packed into a token budget."""
        arguments = await schemas.from_body(schemas.CONTEXT, request)
        context_pack = await context.build(self._memory, caller, context.parse(arguments))
        return responses.unstored_json(context_pack.to_json(self._base))

    async def list(self, request: Request, caller: Caller) -> Response:
        arguments = schemas.from_query(schemas.LIST, request)
        result = await self._memory.list(
            caller, operations.parse_filter(arguments), arguments["limit"], arguments["cursor"] or ""
        )
        rows = [memory_serializers.row(row, self._base) for row in result.rows]
        return _part("pages", rows, result.next_cursor)

    async def create(self, request: Request, caller: Caller) -> Response:
        """Create a page, or replace it if `overwrite` is set; the status of both is 201."""
        arguments = await schemas.page_from_body(schemas.NEW_PAGE, request)
        saved_page = await self._memory.write(
            caller, operations.parse_page(arguments), schemas.terms(request, arguments)
        )
        return await self._written(caller, replace(saved_page, created=True))

    async def show(self, request: Request, caller: Caller) -> Response:
        """Return a page, now or at an earlier time; for an old slug, return the location of the new one."""
        slug, moment = _slug(request), schemas.moment(request)
        if _wants_file(request):
            view, text = await self._memory.file(caller, slug, moment)
            headers = responses.NO_STORE | {
                "ETag": f'"{view.page.version}"',
                "X-Sixfold-Path": quote(view.page.path),
            }
            if view.moved:
                headers["Location"] = _location(request, view)
            return Response(text.encode(), 308 if view.moved else 200, headers, MARKDOWN)
        return self._page(request, await self._memory.read(caller, slug, moment))

    async def put(self, request: Request, caller: Caller) -> Response:
        """Create or replace a page."""
        slug = slugs.normalize(_slug(request))
        if bodies.media_type(request) == MARKDOWN:
            arguments: dict[str, Any] = {}
            page_write = PageWrite(slug, _text(await request.body()), whole=True, path=_origin(request, slug))
        else:
            arguments = await schemas.page_from_body(schemas.PAGE, request)
            page_write = operations.parse_page({**arguments, "slug": slug})
        terms = replace(schemas.terms(request, arguments), overwrite=True)
        return await self._written(caller, await self._memory.write(caller, page_write, terms))

    async def patch(self, request: Request, caller: Caller) -> Response:
        arguments = await schemas.from_body(schemas.PATCH, request)
        slug, terms = _slug(request), schemas.terms(request, arguments)
        if arguments["operation"] == "rename":
            if arguments["slug"] is None:
                raise errors.InvalidInput([errors.Problem("slug", "rename requires slug", "missing")])
            origin = _origin(request, arguments["slug"])
            saved_page = await self._memory.rename(caller, slug, arguments["slug"], terms, origin)
        else:
            saved_page = await self._memory.edit(caller, slug, operations.parse_edit(arguments), terms)
        return await self._written(caller, replace(saved_page, created=False))

    async def delete(self, request: Request, caller: Caller) -> Response:
        page = await self._memory.delete(caller, _slug(request), schemas.terms(request))
        return responses.json({"slug": page.slug, "deleted": True, "version": page.version})

    async def _written(self, caller: Caller, saved_page: SavedPage) -> Response:
        view = await self._memory.with_relations(caller, saved_page.page)
        headers = responses.NO_STORE | {"ETag": f'"{saved_page.page.version}"'}
        status = 201 if saved_page.created else 200
        if saved_page.created:
            headers["Location"] = f"/api/pages/{quote(saved_page.page.slug)}"
        return responses.json(memory_serializers.page(view, self._base), status, headers)

    def _page(self, request: Request, view: PageGraphView) -> Response:
        headers = responses.NO_STORE | {"ETag": f'"{view.page.version}"'}
        document = memory_serializers.page(view, self._base)
        if not view.moved:
            return responses.json(document, headers=headers)
        return responses.json(document, 308, headers | {"Location": _location(request, view)})

    async def versions(self, request: Request, caller: Caller) -> Response:
        """List the versions of a page, return one, or return the diff of two."""
        arguments = schemas.from_query(schemas.VERSIONS, request)
        slug = _slug(request)
        if arguments["version"] is not None:
            if _wants_file(request):
                text = await self._memory.version_file(caller, slug, arguments["version"])
                return Response(text.encode(), 200, responses.NO_STORE, MARKDOWN)
            page = await self._memory.version(caller, slug, arguments["version"])
            return responses.unstored_json(memory_serializers.brief(page, self._base) | {"body": page.body})
        if arguments["from"] is not None and arguments["to"] is not None:
            change = await self._memory.diff(caller, slug, arguments["from"], arguments["to"])
            return responses.unstored_json(memory_serializers.change(change, limits.DIFF_CHARS))
        _, result = await self._memory.history(
            caller, slug, arguments["limit"], operations.before(arguments["cursor"])
        )
        return _part("versions", [memory_serializers.version(row) for row in result.rows], result.next_cursor)

    async def restore(self, request: Request, caller: Caller) -> Response:
        """Restore an older version as the newest one."""
        arguments = await schemas.from_body(schemas.RESTORE, request)
        terms = schemas.terms(request, arguments)
        saved_page = await self._memory.restore(caller, _slug(request), arguments["version"], terms)
        return await self._written(caller, replace(saved_page, created=False))

    async def links(self, request: Request, caller: Caller) -> Response:
        arguments = schemas.from_query(schemas.LINKS, request)
        result = await self._memory.links(caller, _slug(request), schemas.moment(request))
        page, following = _links_page(result, arguments["limit"], arguments["cursor"] or "")
        return _part("links", [memory_serializers.link(link) for link in page], following)

    async def link(self, request: Request, caller: Caller) -> Response:
        """Add a link, or confirm or dismiss an inferred one."""
        arguments = await schemas.from_body(schemas.LINK, request)
        new_link = Link("", arguments["to"], arguments["type"] or "", arguments["context"] or "")
        change = (arguments["action"], new_link)
        page = await self._memory.relink(caller, _slug(request), change, schemas.terms(request, arguments))
        result = await self._memory.links(caller, page.slug)
        return _part("links", [memory_serializers.link(link) for link in result], status=201)

    async def unlink(self, request: Request, caller: Caller) -> Response:
        arguments = await schemas.from_either(schemas.UNLINK, request)
        removal = ("remove", Link("", arguments["to"], arguments["type"] or ""))
        page = await self._memory.relink(caller, _slug(request), removal, schemas.terms(request, arguments))
        return _part(
            "links", [memory_serializers.link(link) for link in await self._memory.links(caller, page.slug)]
        )

    async def backlinks(self, request: Request, caller: Caller) -> Response:
        arguments = schemas.from_query(schemas.PARTS, request)
        result, following = await self._memory.backlinks(
            caller, _slug(request), arguments["limit"], arguments["cursor"] or "", schemas.moment(request)
        )
        return _part("backlinks", [memory_serializers.backlink(link) for link in result], following)

    async def traverse(self, request: Request, caller: Caller) -> Response:
        """Return the pages around a page in the link graph."""
        arguments = schemas.from_query(schemas.TRAVERSE, request)
        # The graph of the past is not stored, and the present one would be wrong.
        if schemas.moment(request) is not None:
            raise errors.InvalidInput.of(
                "as_of", "traverse does not support as_of: use the links and backlinks of a page"
            )
        route = Walking(arguments["depth"], arguments["type"] or "", arguments["direction"])
        result = await self._memory.traverse(caller, _slug(request), route)
        return responses.unstored_json(memory_serializers.walk(result))

    async def timeline(self, request: Request, caller: Caller) -> Response:
        arguments = schemas.from_query(schemas.PARTS, request)
        result = await self._memory.timeline(
            caller, _slug(request), arguments["limit"], arguments["cursor"], schemas.moment(request)
        )
        return _part(
            "timeline", [memory_serializers.entry(entry) for entry in result.entries], result.next_cursor
        )

    async def note(self, request: Request, caller: Caller) -> Response:
        """Add a timeline entry."""
        arguments = await schemas.from_body(schemas.ENTRY, request)
        entry = TimelineEntry(
            arguments["date"], arguments["summary"], arguments["detail"] or "", arguments["source"] or ""
        )
        page = await self._memory.note(caller, _slug(request), entry, schemas.terms(request, arguments))
        result = await self._memory.timeline(caller, page.slug, limits.PAGE_SIZE)
        return _part(
            "timeline", [memory_serializers.entry(entry) for entry in result.entries], result.next_cursor, 201
        )

    async def tags(self, request: Request, caller: Caller) -> Response:
        """Return the tags of a page, now or at an earlier time."""
        view = await self._memory.read(caller, _slug(request), schemas.moment(request))
        return _part("tags", list(view.page.tags))

    async def tag(self, request: Request, caller: Caller) -> Response:
        arguments = await schemas.from_body(schemas.TAGS, request)
        return await self._tagged(request, caller, arguments, TagChange(add=arguments["tags"]))

    async def untag(self, request: Request, caller: Caller) -> Response:
        arguments = await schemas.from_either(schemas.TAGS, request)
        return await self._tagged(request, caller, arguments, TagChange(remove=arguments["tags"]))

    async def _tagged(
        self, request: Request, caller: Caller, arguments: dict[str, Any], change: TagChange
    ) -> Response:
        terms = schemas.terms(request, arguments)
        saved_page = await self._memory.tag(caller, _slug(request), change, terms)
        headers = {"ETag": f'"{saved_page.page.version}"'}
        return _part("tags", list(saved_page.page.tags), headers=headers)

    def counted(self, noun: str) -> Work:
        """Return the handler that counts `tags`, `collections` or `types`."""

        async def handle(request: Request, caller: Caller) -> Response:
            arguments = schemas.from_query(schemas.COUNTS, request)
            result = await self._memory.count_by(caller, noun, arguments["limit"], arguments["cursor"] or "")
            return _part(noun, [memory_serializers.count(row) for row in result.rows], result.next_cursor)

        return handle


def _links_page(links: Sequence[Link], limit: int | None, cursor: str) -> tuple[Sequence[Link], str | None]:
    """Return the links after a cursor (all if `limit` is None), and the cursor of the next page."""
    names = [f"{link.target}~{link.type}" for link in links]
    if cursor and cursor not in names:
        raise pagination.InvalidCursor
    first = names.index(cursor) + 1 if cursor else 0
    end = len(links) if limit is None else min(len(links), first + limit)
    return links[first:end], names[end - 1] if end < len(links) else None


def _part(
    noun: str,
    rows: list[Any],
    following: str | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return a page of a list, with the cursor of the next one."""
    return responses.json(
        {noun: rows, "next_cursor": following}, status, responses.NO_STORE | (headers or {})
    )


def _wants_file(request: Request) -> bool:
    """Return whether the client prefers markdown to JSON."""
    return requests.preferred_type(request.headers.get("accept"), ("application/json", MARKDOWN)) == MARKDOWN


def _origin(request: Request, slug: str) -> str:
    """Return the file path that the request names for a page, if it maps to the same slug."""
    return import_export_files.origin(
        unquote(request.headers.get("x-sixfold-path", "")), slugs.normalize(slug)
    )


def _slug(request: Request) -> str:
    return requests.path_value(request, "slug")


def _location(request: Request, view: PageGraphView) -> str:
    query = request.url.query
    return f"/api/pages/{quote(view.page.slug)}" + (f"?{query}" if query else "")


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise errors.BadRequest("The body must be UTF-8 text") from error


def _archives(services: WebServices) -> tuple[RouteEntry, ...]:
    files, body = MemoryFileRoutes(services), services.settings.upload_body_bytes
    return (
        RouteEntry("/api/import", {"POST": files.import_archive}, body, access=rights.MEMORY_WRITE),
        RouteEntry("/api/documents", {"POST": files.import_documents}, body, access=rights.MEMORY_WRITE),
        RouteEntry("/api/export", {"GET": files.export_archive}, access=rights.MEMORY_READ),
    )


def build_api(services: WebServices) -> ApiGroup:
    pages = PageRoutes(services)
    small, page = services.settings.json_body_bytes, services.settings.memory_page_bytes
    # Escaped, a page larger than the limit of other bodies may take twice its size.
    large = small if page <= small else page * 2
    read, once = pages.reading, pages.once
    counts = tuple(
        RouteEntry(f"/api/{noun}", {"GET": read(pages.counted(noun))}, access=rights.MEMORY_READ)
        for noun in _COUNTED
    )
    return ApiGroup(
        "memory",
        responses.error_response,
        (
            RouteEntry("/api/context", {"POST": read(pages.context)}, small, access=rights.MEMORY_READ),
            RouteEntry("/api/search", {"POST": read(pages.search)}, small, access=rights.MEMORY_READ),
            RouteEntry(
                "/api/pages", {"GET": read(pages.list), "POST": once(pages.create)}, large, access=_ACCESS
            ),
            *_archives(services),
            *facts.routes(services),
            *folders.routes(services),
            *counts,
            RouteEntry(
                "/api/pages/{slug:path}",
                {
                    "GET": read(pages.show),
                    "PUT": read(pages.put),
                    "PATCH": read(pages.patch),
                    "DELETE": read(pages.delete),
                },
                large,
                access=_ACCESS,
            ),
            RouteEntry(
                "/api/versions/{slug:path}",
                {"GET": read(pages.versions), "POST": once(pages.restore)},
                small,
                access=_ACCESS,
            ),
            RouteEntry(
                "/api/links/{slug:path}",
                {"GET": read(pages.links), "POST": once(pages.link), "DELETE": read(pages.unlink)},
                small,
                access=_PART_ACCESS,
            ),
            RouteEntry(
                "/api/backlinks/{slug:path}", {"GET": read(pages.backlinks)}, access=rights.MEMORY_READ
            ),
            RouteEntry("/api/traverse/{slug:path}", {"GET": read(pages.traverse)}, access=rights.MEMORY_READ),
            RouteEntry(
                "/api/timeline/{slug:path}",
                {"GET": read(pages.timeline), "POST": once(pages.note)},
                small,
                access=_PART_ACCESS,
            ),
            RouteEntry(
                "/api/tags/{slug:path}",
                {"GET": read(pages.tags), "POST": once(pages.tag), "DELETE": read(pages.untag)},
                small,
                access=_PART_ACCESS,
            ),
        ),
    )


_ACCESS = {"GET": rights.MEMORY_READ} | dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), rights.MEMORY_WRITE)
_PART_ACCESS = {"GET": rights.MEMORY_READ} | dict.fromkeys(("POST", "DELETE"), rights.MEMORY_EDIT)
_COUNTED = ("tags", "collections", "types")
