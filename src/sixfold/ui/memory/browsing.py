"""`/memory`: folders, tags, types, collections, recent changes and search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.accounts.keys import Principal
from sixfold.core.database import Database, Row, Transaction, now
from sixfold.core.memory import limits, pages, queries, slugs
from sixfold.core.memory.models import Caller
from sixfold.core.memory.ports import SearchRequest, SearchResult
from sixfold.core.memory.sharing import folders
from sixfold.ui.auth import PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web.services import WebServices

_RECENT = 14
# Maximum number of names of one kind; the most frequent come first.
_FACETS = 500
_PAGE = 50
_RESULTS = 12
_MAX_RESULTS = 10_000
_QUERY_CHARS = 10_000


class ListQuery(msgspec.Struct, frozen=True):
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
        filters = {"tag": self.tag, "type": self.type, "collection": self.collection}
        return {name: value for name, value in filters.items() if value}

    def without(self, name: str) -> dict[str, str]:
        """Return the parameters without one filter."""
        remaining = {**self.filters, "q": self.q}
        remaining.pop(name, None)
        return remaining


def _parse_query(request: Request) -> ListQuery:
    parameters = request.query_params
    prefix = slugs.beginning(parameters.get("prefix", "").strip()[: limits.LONG_SLUG])
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    offset = parameters.get("offset", "")
    return ListQuery(
        q=parameters.get("q", "").strip()[:_QUERY_CHARS],
        prefix=prefix,
        tag=parameters.get("tag", "")[: limits.TAG_CHARS],
        type=parameters.get("type", "")[: limits.TYPE_CHARS],
        collection=parameters.get("collection", "")[: limits.TAG_CHARS],
        after=pagination.name_of(parameters.get("cursor", ""))[: limits.LONG_SLUG],
        offset=int(offset) if offset.isascii() and offset.isdigit() and len(offset) < 6 else 0,
    )


def _facets(caller: Caller) -> Transaction[dict[str, list[Row]]]:
    """Return names and counts of types, tags and collections, the most frequent first."""
    facets: dict[str, list[Row]] = {}
    for noun in ("types", "tags", "collections"):
        rows = yield from queries.count_by(caller, noun, _FACETS)
        facets[noun] = sorted(rows, key=lambda row: (-row["count"], row["name"]))
    return facets


def _read_lists(caller: Caller, query: ListQuery) -> Transaction[dict[str, Any]]:
    """Read everything on the page except search results."""
    facets = yield from _facets(caller)
    folder = yield from queries.folder(caller, query.prefix, _PAGE, query.after if query.prefix else "")
    values: dict[str, Any] = {"facets": facets, "folder": folder, "now": (yield from now()), "rows": ()}
    if query.q or query.prefix:
        return values
    if not query.filters:
        values["overview"] = yield from queries.overview(caller, _RECENT)
    return values


async def _read_filtered(database: Database, caller: Caller, query: ListQuery) -> dict[str, Any]:
    """Return the rows of pages that match the filters, and the cursor of the next page of results."""
    if query.q or query.prefix or not query.filters:
        return {}
    filters = pages.PageFilter(query.tag, query.type, query.collection)
    rows = await pages.list_in_slices(database, caller, filters, _PAGE, query.after)
    more = len(rows) > _PAGE
    next_cursor = pagination.cursor_after(rows[_PAGE - 1]["slug"]) if more else None
    return {"rows": rows[:_PAGE], "next_cursor": next_cursor}


def _shares(principal: Principal) -> Transaction[dict[str, Any]]:
    """Return the shared folder that the page shows, or else all folders that the account may open."""
    folder_access = principal.memory
    received = yield from folders.received(principal, folder_access.id if folder_access is not None else "")
    if folder_access is None:
        return {"folder_share": None, "received": received}
    return {"folder_share": received[0] if received else None, "received": ()}


class BrowsePages:
    """The start page of the memory and its search results."""

    def __init__(self, services: WebServices, templates: PageTemplates) -> None:
        self._services = services
        self._pages = templates

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show folders and lists, and with `q` the search results."""
        query = _parse_query(request)
        search = await self._search(user, query)
        values = await self._services.database.read(_read_lists(user.caller, query))
        values |= await _read_filtered(self._services.database, user.caller, query)
        values |= await self._services.database.read(_shares(user.principal))
        return self._render("memory/browse.html", user, query, {**search, **values})

    async def results(self, request: Request, user: PageUser) -> Response:
        """Return the fragment with search results for the script."""
        query = _parse_query(request)
        search = await self._search(user, query)
        current_time = await self._services.database.read(now())
        return self._render("memory/results.html", user, query, {**search, "now": current_time})

    async def _search(self, user: PageUser, query: ListQuery) -> Mapping[str, Any]:
        if not query.q:
            return {"result": None, "problem": ""}
        search_request = SearchRequest(
            query=query.q,
            limit=_RESULTS,
            offset=min(query.offset, _MAX_RESULTS),
            types=(query.type,) if query.type else (),
            tags=(query.tag,) if query.tag else (),
            collections=(query.collection,) if query.collection else (),
            snippet_chars=260,
            explain=True,
        )
        try:
            result: SearchResult | None = await self._services.memory.search(user.caller, search_request)
        except (errors.BadRequest, errors.EngineUnavailable) as error:
            return {"result": None, "problem": error.message}
        return {"result": result, "problem": "", "more": len(result.hits) == _RESULTS}

    def _render(self, name: str, user: PageUser, query: ListQuery, values: Mapping[str, Any]) -> Response:
        defaults = {"overview": None, "next_cursor": None, "more": False, "results": _RESULTS}
        defaults |= {"folder_share": None, "received": ()}
        return self._pages.render(name, user.session, user=user, query=query, **{**defaults, **values})
