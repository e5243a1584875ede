"""Completion of `[[links]]` and `#tags` in the editor, as JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.database import Query, Rows, Transaction
from sixfold.core.memory import markdown, pages, queries, slugs
from sixfold.core.memory.models import Caller
from sixfold.core.memory.pages import PageFilter
from sixfold.core.memory.ports import SearchRequest
from sixfold.ui.auth import PageUser
from sixfold.web import requests, responses
from sixfold.web.services import WebServices

_MAX_ENTRIES = 8
_MAX_CHARS = 100
# This character sorts after all others.
_LAST = "\U0010ffff"


class EditorCompletion:
    """Lists pages and tags that begin with the typed characters."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def show(self, request: Request, user: PageUser) -> Response:
        """Return up to eight `entries`: `name` is inserted, `title` and `note` are shown."""
        text = requests.query_text(request, "q", _MAX_CHARS)
        kind = request.query_params.get("kind", "pages")
        if kind not in {"pages", "tags"}:
            raise errors.BadRequest("kind must be pages or tags")
        entries = await (self._pages(user.caller, text) if kind == "pages" else self._tags(user.caller, text))
        return responses.json({"entries": entries})

    async def _pages(self, caller: Caller, text: str) -> list[dict[str, str]]:
        """Return pages whose name or slug begins with `text`, then pages that contain its words."""
        titles = await self._services.database.read(_beginning(caller, text))
        if text.strip() and len(titles) < _MAX_ENTRIES:
            result = await self._services.memory.search(
                caller, SearchRequest(text, mode="lexical", limit=_MAX_ENTRIES, snippet_chars=0, partial=True)
            )
            titles |= {hit.slug: hit.title for hit in result.hits if hit.slug not in titles}
        rows = list(titles.items())[:_MAX_ENTRIES]
        return [{"name": slug, "title": title, "note": slug} for slug, title in rows]

    async def _tags(self, caller: Caller, text: str) -> list[dict[str, str]]:
        """Return tags that begin with `text` and can be written as `#tag`."""
        if not text:
            return []
        rows = await self._services.database.read(_tags_beginning(caller, text))
        return [
            {"name": row["name"], "title": f"#{row['name']}", "note": str(row["count"])}
            for row in rows
            if markdown.TAG.fullmatch(f"#{row['name']}")
        ]


def _beginning(caller: Caller, text: str) -> Transaction[dict[str, str]]:
    params = {"account_id": caller.account_id, "scope": pages.scope_of(caller), "sep": pages.SEPARATOR}
    prefix = slugs.beginning(text.strip())
    if not prefix:
        rows = yield from queries.recent(caller, _MAX_ENTRIES)
        return {row["slug"]: row["title"] for row in rows}
    parameters = {**params, "prefix": prefix, "prefix_end": prefix + _LAST, "limit": _MAX_ENTRIES}
    rows = yield Query("pages_named", parameters)
    below = yield from pages.list_rows(caller, PageFilter(prefix=prefix), _MAX_ENTRIES)
    return {row["slug"]: row["title"] for row in (*rows, *below)}


def _tags_beginning(caller: Caller, text: str) -> Transaction[Rows]:
    params = {"account_id": caller.account_id, "scope": pages.scope_of(caller), "sep": pages.SEPARATOR}
    parameters = {**params, "prefix": text, "prefix_end": text + _LAST, "limit": _MAX_ENTRIES}
    return (yield Query("tags_beginning", parameters))
