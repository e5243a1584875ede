"""The pages that show a memory page, its versions and the differences between them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.database import Transaction, now
from sixfold.core.memory import diff, limits, links, mentions, pages, queries, slugs
from sixfold.core.memory.mentions import PageMention
from sixfold.core.memory.models import LINK_TYPE, Caller, Link, MemoryPage
from sixfold.core.memory.operations import before
from sixfold.core.memory.queries import PageGraphView
from sixfold.core.memory.service import Change, part
from sixfold.ui.auth import PageUser
from sixfold.ui.memory.markdown import RenderContext, RenderedPage, page_path, render
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.services import WebServices

_CACHED_CHARS = 8_000
# Texts up to this length are rendered on the event loop, within 10 ms at worst.
_AT_ONCE = 1_000
# One thread for all long texts, so that only one competes with the event loop for the interpreter lock.
_RENDERER = ThreadPoolExecutor(1, "markdown")
_VERSIONS = 30
# Limit on the lines of a comparison.
_MOST_LINES = 3_000


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page with its links, the pages its names refer to, and the current time."""

    view: PageGraphView
    mentions: dict[str, PageMention]
    now: int

    @property
    def titles(self) -> dict[str, str]:
        """Return the titles of linked pages by slug."""
        return {mention.slug: mention.title for mention in self.mentions.values()}


def _shown(caller: Caller, slug: str, as_of: int | None) -> Transaction[ShownPage]:
    view = yield from queries.get_with_relations(caller, slug, as_of)
    moment = links.FOREVER if as_of is None else as_of
    return ShownPage(view, (yield from mentions.of_page(caller, view.page, moment)), (yield from now()))


def _of_version(
    caller: Caller, slug: str, page: MemoryPage
) -> Transaction[tuple[dict[str, PageMention], MemoryPage, int]]:
    """Return the pages that an old text's names refer to now, the current page and the time."""
    found = yield from pages.locate(caller.account_id, slug)
    current = found.page if found is not None else page
    return (
        (yield from mentions.of_names(caller, mentions.names_in(page.body, page.slug), page.slug)),
        current,
        (yield from now()),
    )


async def laid_out(body: str, context: RenderContext) -> RenderedPage:
    """Render a text to HTML; long texts are rendered in a separate thread."""
    if len(body) <= _AT_ONCE:
        return _from_cache(body, context)
    work = _from_cache if len(body) <= _CACHED_CHARS else render
    return await asyncio.get_running_loop().run_in_executor(_RENDERER, work, body, context)


def _from_cache(body: str, context: RenderContext) -> RenderedPage:
    known = tuple((context.mentions or {}).items())
    return _kept(body, replace(context, mentions=None), known)


@lru_cache(maxsize=256)
def _kept(body: str, context: RenderContext, known: tuple[tuple[str, PageMention], ...]) -> RenderedPage:
    """Cache `render`, the slowest part of a page; the account in the key prevents timing attacks."""
    return render(body, replace(context, mentions=dict(known)))


def slug_of(request: Request) -> str:
    """Return the slug in the path; raises `BadRequest` if it is invalid."""
    return slugs.normalize(requests.path_value(request, "slug"))


class ReadPages:
    """The pages that show memory pages and their history."""

    def __init__(self, services: WebServices, shown: PageTemplates) -> None:
        self._services = services
        self._memory = services.memory
        self._pages = shown

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show a page, optionally as of a time or at a version; redirects old slugs."""
        slug = slug_of(request)
        number = request.query_params.get("version")
        if number is not None:
            return await self._version(slug, _number(number), user)
        as_of = request.query_params.get("as_of")
        moment = limits.past(as_of) if as_of else None
        try:
            shown = await self._services.database.read(_shown(user.caller, slug, moment))
        except errors.NotFound:
            return await self._missing(slug, user)
        if shown.view.moved and moment is None:
            return RedirectResponse(page_path(shown.view.page.slug), 308)
        return await self._page(shown, user)

    async def _page(self, shown: ShownPage, user: PageUser) -> Response:
        page, caller = shown.view.page, user.caller
        may_write = caller.may_change(page.collections) and shown.view.at is None
        context = RenderContext(page.slug, page.title, shown.mentions, may_write, caller.account_id)
        written = [link for link in shown.view.links if link.origin != "inferred"]
        response = self._pages.render(
            "memory/page.html",
            user.session,
            user=user,
            page=page,
            view=shown.view,
            text=await laid_out(page.body, context),
            titles=shown.titles,
            links=_by_type(written),
            inferred=[link for link in shown.view.links if link.origin == "inferred"],
            may_write=may_write,
            old=None,
            now=shown.now,
        )
        response.headers["ETag"] = f'"{page.version}"'
        return response

    async def _version(self, slug: str, number: int, user: PageUser) -> Response:
        page = await self._memory.version(user.caller, slug, number)
        found, current, moment = await self._services.database.read(_of_version(user.caller, slug, page))
        context = RenderContext(page.slug, page.title, found, account_id=page.account_id)
        return self._pages.render(
            "memory/page.html",
            user.session,
            user=user,
            page=page,
            view=PageGraphView(page),
            text=await laid_out(page.body, context),
            titles={},
            links={},
            inferred=[],
            may_write=False,
            old=current,
            now=moment,
        )

    async def _missing(self, slug: str, user: PageUser) -> Response:
        """Show that a page was deleted or does not exist yet."""
        found = await self._services.database.read(pages.locate(user.caller.account_id, slug))
        gone = found.page if found is not None and user.caller.sees(found.page.collections) else None
        return self._pages.render(
            "memory/missing.html",
            user.session,
            status=404,
            user=user,
            slug=slug,
            gone=gone,
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
        compared: dict[str, Any] = {"change": None, "hunks": (), "cut": False}
        if older and newer:
            compared = await self._compared(slug, (_number(older), _number(newer)), user.caller)
        return self._pages.render(
            "memory/history.html",
            user.session,
            user=user,
            page=page,
            versions=versions.rows,
            next_cursor=versions.next_cursor,
            now=await self._services.database.read(now()),
            **compared,
        )

    async def _compared(self, slug: str, numbers: tuple[int, int], caller: Caller) -> dict[str, Any]:
        old = await self._memory.version(caller, slug, numbers[0])
        new = await self._memory.version(caller, slug, numbers[1])
        hunks = await asyncio.to_thread(diff.hunks, old.body, new.body)
        names = ("slug", "title", "type", "tags", "collections")
        fields = {
            name: (getattr(old, name), getattr(new, name))
            for name in names
            if getattr(old, name) != getattr(new, name)
        }
        total, shown = 0, []
        for hunk in hunks:
            total += len(hunk.lines)
            if total > _MOST_LINES:
                break
            shown.append(hunk)
        change = Change(slug, old.version, new.version, "", fields)
        return {"change": change, "hunks": shown, "cut": len(shown) < len(hunks)}


def _by_type(found: list[Link]) -> dict[str, list[Link]]:
    """Group links by type; plain links come last, and only to pages without a typed link."""
    grouped: dict[str, list[Link]] = {}
    typed = {link.target for link in found if link.type != LINK_TYPE}
    found = [link for link in found if link.type != LINK_TYPE or link.target not in typed]
    for link in sorted(found, key=lambda link: (link.type == LINK_TYPE, link.type)):
        grouped.setdefault(link.type, []).append(link)
    return grouped


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise errors.BadRequest("version must be a number")
