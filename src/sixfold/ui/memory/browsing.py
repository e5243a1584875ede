"""`/memory`: folders, tags, types, collections, recent changes and search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.database import Row, Transaction, now
from sixfold.core.memory import limits, pages, queries, slugs
from sixfold.core.memory.models import Caller
from sixfold.core.memory.ports import SearchRequest, SearchResult
from sixfold.ui.auth import PageUser
from sixfold.ui.memory import formatting
from sixfold.ui.templating import PageTemplates
from sixfold.web.services import WebServices

_RECENT = 14
# Limit on the names of one kind; the most frequent come first.
_FACETS = 500
_PAGE = 50
_RESULTS = 12
_MOST_RESULTS = 10_000
_QUERY_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The filters in the query string; "" means no filter."""

    q: str = ""
    prefix: str = ""
    tag: str = ""
    type: str = ""
    collection: str = ""
    after: str = ""
    offset: int = 0

    @property
    def filters(self) -> dict[str, str]:
        """Return the filters that are set."""
        found = {"tag": self.tag, "type": self.type, "collection": self.collection}
        return {name: value for name, value in found.items() if value}

    def without(self, name: str) -> str:
        """Return the URL without one filter."""
        kept = {**self.filters, "q": self.q}
        kept.pop(name, None)
        return formatting.browse(kept)


def _wanted(request: Request) -> ListFilter:
    query = request.query_params
    prefix = slugs.beginning(query.get("prefix", "").strip()[: limits.LONG_SLUG])
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    offset = query.get("offset", "")
    return ListFilter(
        q=query.get("q", "").strip()[:_QUERY_CHARS],
        prefix=prefix,
        tag=query.get("tag", "")[: limits.TAG_CHARS],
        type=query.get("type", "")[: limits.TYPE_CHARS],
        collection=query.get("collection", "")[: limits.TAG_CHARS],
        after=pagination.name_of(query.get("cursor", ""))[: limits.LONG_SLUG],
        offset=int(offset) if offset.isascii() and offset.isdigit() and len(offset) < 6 else 0,
    )


def _facets(caller: Caller) -> Transaction[dict[str, list[Row]]]:
    """Return names and counts of types, tags and collections, the most frequent first."""
    found: dict[str, list[Row]] = {}
    for noun in ("types", "tags", "collections"):
        rows = yield from queries.count_by(caller, noun, _FACETS)
        found[noun] = sorted(rows, key=lambda row: (-row["count"], row["name"]))
    return found


def _shelf(caller: Caller, wanted: ListFilter) -> Transaction[dict[str, Any]]:
    """Read everything on the page except search results."""
    facets = yield from _facets(caller)
    opened = yield from queries.folder(caller, wanted.prefix, _PAGE, wanted.after if wanted.prefix else "")
    seen: dict[str, Any] = {"facets": facets, "opened": opened, "now": (yield from now()), "rows": ()}
    if wanted.q or wanted.prefix:
        return seen
    if not wanted.filters:
        seen["overview"] = yield from queries.overview(caller, _RECENT)
        return seen
    filters = pages.PageFilter(wanted.tag, wanted.type, wanted.collection)
    rows = yield from pages.listed(caller, filters, _PAGE, wanted.after)
    seen["rows"] = rows[:_PAGE]
    more = len(rows) > _PAGE
    seen["next_cursor"] = pagination.cursor_after(rows[_PAGE - 1]["slug"]) if more else None
    return seen


class BrowsePages:
    """The start page of the memory and its search results."""

    def __init__(self, services: WebServices, shown: PageTemplates) -> None:
        self._services = services
        self._pages = shown

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show folders and lists, and with `q` the search results."""
        wanted = _wanted(request)
        found = await self._found(user, wanted)
        seen = await self._services.database.read(_shelf(user.caller, wanted))
        return self._render("memory/browse.html", user, wanted, {**found, **seen})

    async def results(self, request: Request, user: PageUser) -> Response:
        """Return the fragment with search results for the script."""
        wanted = _wanted(request)
        found = await self._found(user, wanted)
        moment = await self._services.database.read(now())
        return self._render("memory/results.html", user, wanted, {**found, "now": moment})

    async def _found(self, user: PageUser, wanted: ListFilter) -> Mapping[str, Any]:
        if not wanted.q:
            return {"answer": None, "problem": ""}
        asked = SearchRequest(
            query=wanted.q,
            limit=_RESULTS,
            offset=min(wanted.offset, _MOST_RESULTS),
            types=(wanted.type,) if wanted.type else (),
            tags=(wanted.tag,) if wanted.tag else (),
            collections=(wanted.collection,) if wanted.collection else (),
            snippet_chars=260,
            explain=True,
        )
        try:
            answer: SearchResult | None = await self._services.memory.search(user.caller, asked)
        except (errors.BadRequest, errors.EngineUnavailable) as error:
            return {"answer": None, "problem": error.message}
        return {"answer": answer, "problem": "", "more": len(answer.hits) == _RESULTS}

    def _render(self, name: str, user: PageUser, wanted: ListFilter, values: Mapping[str, Any]) -> Response:
        defaults = {"overview": None, "next_cursor": None, "more": False, "results": _RESULTS}
        return self._pages.render(name, user.session, user=user, wanted=wanted, **{**defaults, **values})
