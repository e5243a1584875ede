"""Which page each name in a text means, with its title: what a text is shown to people with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from sixfold.core.database import Query, Transaction
from sixfold.core.memory import links, markdown, pages, slugs
from sixfold.core.memory.models import Caller, MemoryPage


class PageMention(NamedTuple):
    """A page that a name leads to."""

    slug: str
    title: str


def of_page(
    caller: Caller, page: MemoryPage, moment: int = links.FOREVER
) -> Transaction[dict[str, PageMention]]:
    """What the links of a page lead to, by what is written there; only pages that the caller sees."""
    rows = yield Query("links_out", {"account_id": page.account_id, "page_id": page.id, "at": moment})
    return {
        row["target"]: PageMention(row["to_slug"], row["to_title"])
        for row in rows
        if row["resolved"] and caller.sees(tuple(pages.names_of(row["to_collections"])))
    }


def names_in(body: str, slug: str) -> frozenset[str]:
    """The names in the links of a text, which takes up to a tenth of a second to read."""
    return frozenset(link.target for link in markdown.links(body, slug))


def of_names(caller: Caller, names: Iterable[str], slug: str) -> Transaction[dict[str, PageMention]]:
    """What some names would lead to, if a page with this slug said them now."""
    return (yield from _visible(caller, names, slugs.parent(slug)))


def _visible(caller: Caller, names: Iterable[str], folder: str) -> Transaction[dict[str, PageMention]]:
    found = yield from links.targets(caller.account_id, [(name, folder) for name in names])
    if not found:
        return {}
    ids = msgspec.json.encode(sorted({target.id for target in found.values()})).decode()
    rows = yield Query("pages_titled", {"account_id": caller.account_id, "ids": ids})
    known = {
        row["id"]: PageMention(row["slug"], row["title"])
        for row in rows
        if caller.sees(tuple(pages.names_of(row["collections"])))
    }
    return {name: known[target.id] for (name, _), target in found.items() if target.id in known}
