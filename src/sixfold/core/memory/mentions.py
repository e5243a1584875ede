"""The pages to which the names in a text refer, with their titles, for display."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sixfold.core.database import Query, Transaction, encode_json
from sixfold.core.memory import links, markdown, pages, slugs
from sixfold.core.memory.models import Caller, MemoryPage


class PageMention(NamedTuple):
    """A page to which a name resolves."""

    slug: str
    title: str


def of_page(
    caller: Caller, page: MemoryPage, moment: int = links.FOREVER
) -> Transaction[dict[str, PageMention]]:
    """Resolve the links of a page by their written targets, to pages that the caller can see."""
    rows = yield Query("links_out", {"account_id": page.account_id, "page_id": page.id, "at": moment})
    return {
        row["target"]: PageMention(row["to_slug"], row["to_title"])
        for row in rows
        if row["resolved"] and caller.sees(tuple(pages.names_of(row["to_collections"])))
    }


def names_in(body: str, slug: str) -> frozenset[str]:
    """Return the names in the links of a text; this takes up to 0.1 s."""
    return frozenset(link.target for link in markdown.links(body, slug))


def of_names(caller: Caller, names: Iterable[str], slug: str) -> Transaction[dict[str, PageMention]]:
    """Resolve names as if the page with this slug contained them now."""
    return (yield from _visible(caller, names, slugs.parent(slug)))


def of_draft(caller: Caller, names: Iterable[str], slug: str) -> Transaction[dict[str, PageMention]]:
    """Resolve the names of an unsaved text; links that its page already contains keep their targets."""
    resolved = yield from of_names(caller, names, slug)
    location = yield from pages.locate(caller.account_id, slug)
    if location is None or not caller.sees(location.page.collections):
        return resolved
    return resolved | (yield from of_page(caller, location.page))


def _visible(caller: Caller, names: Iterable[str], folder: str) -> Transaction[dict[str, PageMention]]:
    resolved = yield from links.targets(caller.account_id, [(name, folder) for name in names])
    if not resolved:
        return {}
    ids = encode_json(sorted({target.id for target in resolved.values()}))
    rows = yield Query("pages_titled", {"account_id": caller.account_id, "ids": ids})
    visible_ids = {
        row["id"]: PageMention(row["slug"], row["title"])
        for row in rows
        if caller.sees(tuple(pages.names_of(row["collections"])))
    }
    return {
        name: visible_ids[target.id] for (name, _), target in resolved.items() if target.id in visible_ids
    }
