"""The pages that show a memory page, its versions and the differences between them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.single_thread import SingleThread
from sixfold.core.database import Transaction, now
from sixfold.core.memory import diff, limits, links, markdown, mentions, pages, queries, slugs
from sixfold.core.memory.import_export import attachments
from sixfold.core.memory.import_export.attachments import PageFile
from sixfold.core.memory.links import Backlink, GraphWalk
from sixfold.core.memory.mentions import PageMention
from sixfold.core.memory.models import LINK_TYPE, Caller, Link, MemoryPage
from sixfold.core.memory.operations import before
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.service import Change, part
from sixfold.ui.auth import PageUser
from sixfold.ui.memory import formatting, graph
from sixfold.ui.memory.markdown import RenderContext, RenderedPage, page_path, render
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.services import WebServices

_CACHED_CHARS = 8_000
_FIRST_HEADING = re.compile(r"\A\s*#{1,6}\s[^\n]*")
# Texts up to this length are rendered on the event loop, within 10 ms at worst.
_INLINE_CHARS = 1_000
_RENDERER = SingleThread("markdown")
# The text, its HTML of up to five times the length, the page that contains it, and the bytes of that.
_COPIES = 12
_VERSIONS = 30


class PageData(msgspec.Struct, frozen=True):
    """A page with its links, the pages that its names refer to, the current time, and neighboring pages."""

    view: PageGraphView
    mentions: dict[str, PageMention]
    files: dict[str, PageFile]
    now: int
    walk: GraphWalk | None = None

    @property
    def titles(self) -> dict[str, str]:
        """The titles of linked pages by slug."""
        return {mention.slug: mention.title for mention in self.mentions.values()}


def _load_page(caller: Caller, slug: str, as_of: int | None) -> Transaction[PageData]:
    view = yield from queries.get_with_relations(caller, slug, as_of)
    moment = links.FOREVER if as_of is None else as_of
    names = attachments.embedded_slugs(view.page.body, view.page.slug)
    files = yield from attachments.of_names(caller, names, view.page.slug)
    walk = (yield from links.walk(caller, view.page, graph.ROUTE)) if as_of is None else None
    page_mentions = yield from mentions.of_page(caller, view.page, moment)
    return PageData(view, page_mentions, files, (yield from now()), walk)


def _of_version(
    caller: Caller, slug: str, page: MemoryPage
) -> Transaction[tuple[dict[str, PageMention], MemoryPage, int]]:
    """Return the pages to which the names in an old version refer now, the current page and the time."""
    location = yield from pages.locate(caller.account_id, slug)
    current = location.page if location is not None else page
    return (
        (yield from mentions.of_names(caller, mentions.names_in(page.body, page.slug), page.slug)),
        current,
        (yield from now()),
    )


async def render_page(body: str, context: RenderContext) -> RenderedPage:
    """Render a text to HTML; long texts are rendered in a separate thread.

    Raises `TooManyRequests` if concurrent requests use the memory for long texts.
    """
    if len(body) <= _INLINE_CHARS:
        return _from_cache(body, context)
    await loaded_objects.reserve(len(body), _COPIES)
    renderer = _from_cache if len(body) <= _CACHED_CHARS else render
    return await _RENDERER.run(renderer, body, context)


def _from_cache(body: str, context: RenderContext) -> RenderedPage:
    known, files = tuple((context.mentions or {}).items()), _pairs(context.files)
    return _render_cached(body, replace(context, mentions=None, files=None), known, files)


@lru_cache(maxsize=256)
def _render_cached(
    body: str,
    context: RenderContext,
    known: tuple[tuple[str, PageMention], ...],
    files: tuple[tuple[str, PageFile], ...] | None,
) -> RenderedPage:
    """Cache `render`, the slowest part of a page; the account in the key prevents timing attacks."""
    page_files = None if files is None else dict(files)
    return render(body, replace(context, mentions=dict(known), files=page_files))


def _pairs(files: Mapping[str, PageFile] | None) -> tuple[tuple[str, PageFile], ...] | None:
    return None if files is None else tuple(files.items())


def slug_of(request: Request) -> str:
    """Return the slug in the path; raises `BadRequest` if it is invalid."""
    return slugs.normalize(requests.path_value(request, "slug"))


class ReadPages:
    """The pages that show memory pages and their history."""

    def __init__(self, services: WebServices, templates: PageTemplates) -> None:
        self._services = services
        self._memory = services.memory
        self._pages = templates

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show a page, optionally as of a time or at a version; redirect old slugs."""
        slug = slug_of(request)
        number = request.query_params.get("version")
        if number is not None:
            return await self._version(slug, _number(number), user)
        as_of = request.query_params.get("as_of")
        moment = limits.latest("as_of", as_of) if as_of else None
        try:
            data = await self._services.database.read(_load_page(user.caller, slug, moment))
        except errors.NotFound:
            return await self._missing(slug, user)
        if data.view.moved and moment is None:
            return RedirectResponse(page_path(data.view.page.slug, base=user.memory_path), 308)
        return await self._page(data, user)

    async def card(self, request: Request, user: PageUser) -> Response:
        """Return the beginning of a page, which links to it show."""
        page = (await self._memory.read(user.caller, slug_of(request))).page
        # A comment may end after the part that is read.
        text = markdown.without_comments(page.body[: formatting.EXCERPT_SOURCE_CHARS]).partition("%%")[0]
        return self._pages.render(
            "memory/card.html",
            None,
            page=page,
            excerpt=formatting.excerpt(_FIRST_HEADING.sub("", text)),
            now=await self._services.database.read(now()),
        )

    async def _page(self, data: PageData, user: PageUser) -> Response:
        page, caller = data.view.page, user.caller
        may_write = caller.may_change(page.collections) and data.view.at is None
        context = RenderContext(
            page.slug,
            page.title,
            data.mentions,
            may_write,
            caller.account_id,
            has_tasks=may_write,
            files=data.files,
            base=user.memory_path,
        )
        explicit_links = [link for link in data.view.links if link.origin != "inferred"]
        response = self._pages.render(
            "memory/page.html",
            user.session,
            user=user,
            page=page,
            view=data.view,
            text=await render_page(page.body, context),
            titles=data.titles,
            tags=pages.tags_of(page),
            links=_by_type(explicit_links),
            inferred=[link for link in data.view.links if link.origin == "inferred"],
            backlinks=_by_source(data.view.backlinks),
            graph=graph.draw(data.walk) if data.walk is not None else None,
            may_write=may_write,
            old=None,
            now=data.now,
        )
        response.headers["ETag"] = f'"{page.version}"'
        return response

    async def _version(self, slug: str, number: int, user: PageUser) -> Response:
        page = await self._memory.version(user.caller, slug, number)
        page_mentions, current, moment = await self._services.database.read(
            _of_version(user.caller, slug, page)
        )
        context = RenderContext(
            page.slug, page.title, page_mentions, account_id=page.account_id, base=user.memory_path
        )
        return self._pages.render(
            "memory/page.html",
            user.session,
            user=user,
            page=page,
            view=PageGraphView(page),
            text=await render_page(page.body, context),
            titles={},
            tags=pages.tags_of(page),
            links={},
            inferred=[],
            backlinks={},
            graph=None,
            may_write=False,
            old=current,
            now=moment,
        )

    async def _missing(self, slug: str, user: PageUser) -> Response:
        """Show that a page was deleted or does not exist yet."""
        location = await self._services.database.read(pages.locate(user.caller.account_id, slug))
        is_shown = location is not None and user.caller.sees(location.page.collections)
        deleted = (
            location.page if location is not None and is_shown and pages.sees_deleted(user.caller) else None
        )
        return self._pages.render(
            "memory/missing.html",
            user.session,
            status=404,
            user=user,
            slug=slug,
            deleted=deleted,
            now=await self._services.database.read(now()),
        )

    # -- history ---------------------------------------------------------------------------------

    async def history(self, request: Request, user: PageUser) -> Response:
        """Show the versions of a page and the differences between two of them."""
        slug = slug_of(request)
        query = request.query_params
        rows = await self._services.database.read(
            queries.history(user.caller, slug, _VERSIONS, before(query.get("cursor")))
        )
        page, versions = rows[0], part(rows[1], _VERSIONS, "version")
        older, newer = query.get("from"), query.get("to")
        comparison: dict[str, Any] = {"change": None, "hunks": (), "cut": False}
        if older and newer:
            comparison = await self._compare(slug, (_number(older), _number(newer)), user.caller)
        return self._pages.render(
            "memory/history.html",
            user.session,
            user=user,
            page=page,
            versions=versions.rows,
            next_cursor=versions.next_cursor,
            now=await self._services.database.read(now()),
            **comparison,
        )

    async def _compare(self, slug: str, numbers: tuple[int, int], caller: Caller) -> dict[str, Any]:
        old = await self._memory.version(caller, slug, numbers[0])
        new = await self._memory.version(caller, slug, numbers[1])
        hunks = await asyncio.to_thread(diff.hunks, old.body, new.body)
        names = ("slug", "title", "type", "tags", "collections")
        fields = {
            name: (getattr(old, name), getattr(new, name))
            for name in names
            if getattr(old, name) != getattr(new, name)
        }
        shown, remaining = [], diff.MAX_LINES
        for hunk in hunks:
            shown.append(hunk._replace(lines=hunk.lines[: max(0, remaining)]))
            remaining -= len(hunk.lines)
        change = Change(slug, old.version, new.version, "", fields)
        return {"change": change, "hunks": shown, "cut": remaining < 0}


def _by_source(backlinks: Sequence[Backlink]) -> dict[str, tuple[str, str]]:
    """Return the title of each linking page by slug, once, with the types of its typed links."""
    groups: dict[str, tuple[str, str]] = {}
    for link in backlinks:
        types = [] if link.type == LINK_TYPE else [link.type.replace("_", " ")]
        title = groups.get(link.source, ("", ""))[1]
        groups[link.source] = (link.title, ", ".join([*([title] if title else []), *types]))
    return groups


def _by_type(links: list[Link]) -> dict[str, list[Link]]:
    """Group links by type; plain links come last, and only to pages without a typed link."""
    groups: dict[str, list[Link]] = {}
    typed = {link.target for link in links if link.type != LINK_TYPE}
    links = [link for link in links if link.type != LINK_TYPE or link.target not in typed]
    for link in sorted(links, key=lambda link: (link.type == LINK_TYPE, link.type)):
        groups.setdefault(link.type, []).append(link)
    return groups


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise errors.BadRequest("version must be a number")
