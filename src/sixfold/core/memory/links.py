"""Typed links, which are parsed from bodies or added by calls, and resolved when targets appear.

A resolved link remains with its target page when the slug of that page changes, as long as the linking text
is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from sixfold import errors
from sixfold.core.database import Query, Row, Transaction, encode_json
from sixfold.core.memory import limits, markdown, slugs
from sixfold.core.memory.models import LINK_TYPE, Caller, Link, MemoryPage, Origin
from sixfold.core.memory.relation_extraction import entities

FOREVER = 2**62
_RANK: Mapping[str, int] = {"explicit": 0, "confirmed": 1, "inferred": 2}


class LinkTarget(msgspec.Struct, frozen=True):
    """The page that the slug or name in a link resolves to."""

    id: str
    slug: str
    by_name: bool


_names = msgspec.json.Decoder(tuple[str, ...]).decode


def targets(
    account_id: str, names: Iterable[tuple[str, str]]
) -> Transaction[dict[tuple[str, str], LinkTarget]]:
    """Resolve pairs of a written target and the folder of its source; unresolved pairs are absent.

    The page at that slug comes first, then the page that had the slug earlier. Otherwise a path is tried in
    the folders around the source, outermost first, because its vault may be inside another vault. A single
    name matches the last segment of a page in the same folder, or else the shortest slug, or else an alias.
    """
    near = {(text, folder): _near(text, folder) for text, folder in names}
    if not near:
        return {}
    texts = {text for text, _ in near}.union(*near.values())
    rows = yield Query("link_targets", {"account_id": account_id, "targets": encode_json(sorted(texts))})
    rows_by_target = {row["target"]: row for row in sorted(rows, key=lambda row: -row["rank"])}
    current = {slug: row for slug, row in rows_by_target.items() if row["rank"] == 0}
    missing = sorted({text for text, _ in near if "/" not in text and text not in rows_by_target})
    rows = yield Query("link_names", {"account_id": account_id, "names": encode_json(missing)})
    rows_by_name = {row["target"]: row for row in rows}
    rows_by_name |= yield from _other_names(
        account_id, [name for name in missing if name not in rows_by_name]
    )
    resolved: dict[tuple[str, str], LinkTarget] = {}
    for (text, folder), others in near.items():
        exact = rows_by_target.get(text)
        beside = next((current[slug] for slug in others if slug in current), None)
        best = exact or beside or rows_by_name.get(text)
        if best is not None:
            resolved[text, folder] = LinkTarget(best["id"], best["slug"], exact is None)
    return resolved


def _near(text: str, folder: str) -> list[str]:
    """Return the slugs to which a link in a folder may lead if its exact slug is free, likeliest first."""
    prefixes = slugs.parent_prefixes(folder) if "/" in text else [f"{folder}/"]
    return [f"{prefix}{text}" for prefix in prefixes]


def _other_names(account_id: str, names: Sequence[str]) -> Transaction[dict[str, Row]]:
    if not names:
        return {}
    keys = {entities.slug_key(name): name for name in names}
    params = {"account_id": account_id, "names": encode_json(list(keys)), "limit": len(keys) * 10}
    rows = yield Query("names_find", params)
    return {keys[row["name"]]: row for row in reversed(rows)}


def arrive_by_other_names(account_id: str, pages: Sequence[tuple[str, str]]) -> Transaction[None]:
    """Resolve unresolved links to the aliases of pages, given as (page id, alias)."""
    rows = [{"id": page_id, "name": slugs.loosely(name)} for page_id, name in pages]
    if rows:
        yield Query("links_arrive_by_name", {"account_id": account_id, "rows": encode_json(rows)})


def arrive(account_id: str, pages: Sequence[tuple[str, str]]) -> Transaction[None]:
    """Resolve unresolved links to the new slugs of pages, given as (page id, slug)."""
    if not pages:
        return
    slug_list = [slug for _, slug in pages]
    yield Query("links_arrive", {"account_id": account_id, "slugs": encode_json(slug_list)})
    shortest: dict[str, tuple[int, str, str]] = {}
    for page_id, slug in pages:
        name = slugs.name(slug)
        if name != slug:
            shortest[name] = min(shortest.get(name, (FOREVER, "", "")), (len(slug), slug, page_id))
    rows = [{"name": name, "id": best[2]} for name, best in shortest.items()]
    if rows:
        yield Query("links_arrive_by_name", {"account_id": account_id, "rows": encode_json(rows)})
    rows = [
        {"folder": folder, "path": slug.removeprefix(folder), "id": page_id}
        for page_id, slug in pages
        # In the last folder, the path is a single name.
        for folder in slugs.parent_prefixes(slugs.parent(slug))[:-1]
    ]
    if rows:
        yield Query("links_arrive_within", {"account_id": account_id, "rows": encode_json(rows)})


def refresh(account_id: str, pages: Sequence[tuple[MemoryPage, bool]], moment: int) -> Transaction[None]:
    """Update the links of pages, given as (page, whether it existed before)."""
    old = yield from _stored_links(account_id, [page.id for page, exists in pages if exists], "body")
    fresh: list[tuple[MemoryPage, markdown.WrittenLink]] = []
    removed: list[dict[str, str]] = []
    changed_rows: list[dict[str, str]] = []
    for page, _ in pages:
        in_text = markdown.links(page.body, _base(page), page.head)
        links_by_key = {(link.target, link.type): link for link in in_text}
        before = old.get(page.id, {})
        fresh += [(page, link) for key, link in links_by_key.items() if key not in before]
        removed += [
            {"id": page.id, "target": key[0], "type": key[1]} for key in before if key not in links_by_key
        ]
        changed_rows += [
            {"id": page.id, "target": key[0], "type": key[1], "context": link.context}
            for key, link in links_by_key.items()
            if key in before and before[key]["context"] != link.context
        ]
    if removed:
        yield _end_query("body", removed, moment)
    if changed_rows:
        yield Query("links_context", {"rows": encode_json(changed_rows)})
    yield from _put(account_id, fresh, old, moment)


def _base(page: MemoryPage) -> str:
    """Return the base of relative links: the file from which a page was imported, or else its slug."""
    return (slugs.loosely(page.path.removesuffix(".md")) or "") if page.path else page.slug


def _stored_links(
    account_id: str, page_ids: Sequence[str], maker: str
) -> Transaction[dict[str, dict[tuple[str, str], Row]]]:
    stored: dict[str, dict[tuple[str, str], Row]] = {}
    if page_ids:
        rows = yield Query(
            "links_kept", {"account_id": account_id, "ids": encode_json(page_ids), "maker": maker}
        )
        for row in rows:
            stored.setdefault(row["page_id"], {})[row["target"], row["type"]] = row
    return stored


def _put(
    account_id: str,
    fresh: Sequence[tuple[MemoryPage, markdown.WrittenLink]],
    old: Mapping[str, Mapping[tuple[str, str], Row]],
    moment: int,
) -> Transaction[None]:
    """Insert new links of pages; a target that the page already named keeps its resolved page."""
    old_rows = {
        (page_id, target): row
        for page_id, rows in old.items()
        for (target, _), row in rows.items()
        if row["target_id"] is not None
    }
    open_pairs = {
        (link.target, slugs.parent(page.slug))
        for page, link in fresh
        if (page.id, link.target) not in old_rows
    }
    target_ids = yield from targets(account_id, open_pairs)
    rows: list[dict[str, Any]] = []
    for page, link in fresh:
        row = _new_row(page.id, link.type, link.target, "body", link.context)
        before = old_rows.get((page.id, link.target))
        target = target_ids.get((link.target, slugs.parent(page.slug)))
        if before is not None:
            row |= {"target_id": before["target_id"], "by_name": before["by_name"]}
        elif target is not None:
            row |= {"target_id": target.id, "by_name": int(target.by_name)}
        rows.append(row)
    if rows:
        yield Query("links_put", {"account_id": account_id, "rows": encode_json(rows), "at": moment})


def _new_row(page_id: str, kind: str, target: str, maker: str, context: str) -> dict[str, Any]:
    return {
        "id": page_id,
        "type": kind,
        "target": target,
        "maker": maker,
        "origin": "explicit",
        "context": context,
        "target_id": None,
        "by_name": 0,
    }


def _end_query(maker: str, rows: object, moment: int) -> Query:
    return Query("links_end", {"maker": maker, "rows": encode_json(rows), "ended_at": moment})


def add(page: MemoryPage, link: tuple[str, str, str], moment: int) -> Transaction[None]:
    """Add a call's link (target, type, context) to a page; an existing link gets the new context."""
    yield from _write_links(page, (link,), moment, alone=False)


def replace(page: MemoryPage, new_links: Sequence[tuple[str, str, str]], moment: int) -> Transaction[None]:
    """Replace the links (target, type, context) that calls added to a page."""
    yield from _write_links(page, new_links, moment, alone=True)


def _write_links(
    page: MemoryPage, new_links: Sequence[tuple[str, str, str]], moment: int, *, alone: bool
) -> Transaction[None]:
    old = (yield from _stored_links(page.account_id, [page.id], "api")).get(page.id, {})
    new = {(target, kind or LINK_TYPE): context for target, kind, context in new_links}
    removed = [
        {"id": page.id, "target": key[0], "type": key[1]}
        for key, row in old.items()
        if (key in new and row["context"] != new[key]) or (alone and key not in new)
    ]
    if removed:
        yield _end_query("api", removed, moment)
    fresh = {key: text for key, text in new.items() if key not in old or old[key]["context"] != text}
    folder = slugs.parent(page.slug)
    target_ids = yield from targets(page.account_id, [(target, folder) for target, _ in fresh])
    rows: list[dict[str, Any]] = []
    for (target, kind), context in fresh.items():
        row = _new_row(page.id, kind, target, "api", context)
        resolved = target_ids.get((target, folder))
        if resolved is not None:
            row |= {"target_id": resolved.id, "by_name": int(resolved.by_name)}
        rows.append(row)
    if rows:
        yield Query("links_put", {"account_id": page.account_id, "rows": encode_json(rows), "at": moment})


def of_calls(page: MemoryPage) -> Transaction[tuple[tuple[str, str, str], ...]]:
    """Return the links (target, type, context) that calls added to a page, which exports must include."""
    return (yield from all_of_calls((page,))).get(page.id, ())


def all_of_calls(pages: Sequence[MemoryPage]) -> Transaction[dict[str, tuple[tuple[str, str, str], ...]]]:
    """Return the links that calls added to pages, by page id; pages without such links are absent."""
    if not pages:
        return {}
    stored_links = yield from _stored_links(pages[0].account_id, [page.id for page in pages], "api")
    return {
        page_id: tuple(sorted((target, kind, str(row["context"])) for (target, kind), row in rows.items()))
        for page_id, rows in stored_links.items()
    }


def remove(caller: Caller, page: MemoryPage, link: tuple[str, str], moment: int) -> Transaction[None]:
    """Remove links to a slug, of one type or any (""); inferred links are dismissed.

    Raises `NotFound` if there are none, and `Conflict` if only the body contains the link.
    """
    to, kind = link
    rows = yield from _between(caller, page, link)
    if not rows:
        raise errors.NotFound(f"{page.slug} has no {f'{kind} ' if kind else ''}link to {to}")
    mine = [
        {"id": page.id, "target": row["target"], "type": row["type"]} for row in rows if row["maker"] == "api"
    ]
    if mine:
        yield _end_query("api", mine, moment)
    inferred = [row for row in rows if row["maker"] == "inference"]
    for row in inferred:
        yield from judge(page, row["target"], row["type"], "dismissed")
    if not mine and not inferred:
        raise errors.Conflict(f"This link is part of the text of {page.slug}: edit the page to remove it")


def _between(caller: Caller, page: MemoryPage, link: tuple[str, str]) -> Transaction[list[Row]]:
    """Return the links from a page to a slug, by any maker.

    The slug of a page that the caller cannot see finds only the links in which it is written.
    """
    to, kind = link
    params = {"account_id": page.account_id, "page_id": page.id, "target": to, "type": kind}
    rows = yield Query("link_between", params)
    return [row for row in rows if row["target"] == to or caller.sees(_names(row["to_collections"]))]


Verdict = Literal["confirmed", "dismissed"]


def judge_all(caller: Caller, page: MemoryPage, judgment: tuple[str, str, Verdict]) -> Transaction[None]:
    """Confirm or dismiss inferred links (target, type or ""); raises `NotFound` if there are none."""
    to, kind, verdict = judgment
    rows = yield from _between(caller, page, (to, kind))
    inferred = [row for row in rows if row["maker"] == "inference"]
    if not inferred:
        raise errors.NotFound(f"{page.slug} does not have an inferred link to {to}")
    for row in inferred:
        yield from judge(page, row["target"], row["type"], verdict)


def judge(page: MemoryPage, target: str, kind: str, verdict: Verdict) -> Transaction[bool]:
    """Confirm or dismiss an inferred link; return whether the link existed."""
    rows = yield Query(
        "link_origin",
        {
            "account_id": page.account_id,
            "page_id": page.id,
            "target": target,
            "type": kind,
            "origin": verdict,
        },
    )
    return bool(rows)


def of_page(caller: Caller, page: MemoryPage, moment: int = FOREVER) -> Transaction[tuple[Link, ...]]:
    """Return the links of a page, each target and type once, explicit before inferred.

    They are the current links, or those at an earlier `moment`.
    """
    rows = yield Query("links_out", {"account_id": page.account_id, "page_id": page.id, "at": moment})
    return _distinct(caller, page, rows)


def of_pages(account_id: str, pages: Sequence[MemoryPage]) -> Transaction[dict[str, tuple[Link, ...]]]:
    """Return the current links of pages by page id, without access checks, for the index."""
    by_page: dict[str, list[Row]] = {page.id: [] for page in pages}
    rows = yield Query("links_out_of", {"account_id": account_id, "ids": encode_json(list(by_page))})
    for row in rows:
        by_page[row["page_id"]].append(row)
    owner = Caller(account_id, "")
    return {page.id: _distinct(owner, page, by_page[page.id]) for page in pages}


def _distinct(caller: Caller, page: MemoryPage, rows: Iterable[Row]) -> tuple[Link, ...]:
    unique: dict[tuple[str, str], Link] = {}
    for row in sorted(rows, key=lambda row: _RANK[row["origin"]]):
        link = _link(caller, page.slug, row)
        unique.setdefault((link.target, link.type), link)
    return tuple(unique.values())


def _link(caller: Caller, source: str, row: Row) -> Link:
    slug: str | None = row["to_slug"]
    is_visible = slug is not None and caller.sees(_names(row["to_collections"]))
    return Link(
        source=source,
        target=slug if slug is not None and is_visible else row["target"],
        type=row["type"],
        context=row["context"],
        origin=cast("Origin", row["origin"]),
        resolved=is_visible and bool(row["resolved"]),
    )


class Backlink(msgspec.Struct, frozen=True):
    """A link to a page, and the page that contains it."""

    source: str
    title: str
    type: str
    context: str
    origin: Origin


def to_page(
    page: MemoryPage, scope: tuple[str, str], limit: int, after: tuple[str, str] = ("", "")
) -> Transaction[tuple[Backlink, ...]]:
    """Return the backlinks of a page by source and type, each pair once, following `after`.

    `scope` contains the collections that the caller can see, as returned by `pages.scope_of`.
    """
    rows = yield Query(
        "links_in",
        {
            "account_id": page.account_id,
            "page_id": page.id,
            "after": after[0],
            "after_type": after[1],
            "scope": scope[0],
            "sep": scope[1],
            "limit": limit,
        },
    )
    return tuple(map(_backlink, rows))


def to_page_at(
    caller: Caller, page: MemoryPage, moment: int, limit: int, after: tuple[str, str] = ("", "")
) -> Transaction[tuple[Backlink, ...]]:
    """Return the backlinks of a page at a time, in the same way as `to_page`."""
    visible: list[Backlink] = []
    while len(visible) < limit:
        params = {"account_id": page.account_id, "page_id": page.id, "at": moment, "limit": limit}
        rows = yield Query("links_in_at", {**params, "after": after[0], "after_type": after[1]})
        visible += [_backlink(row) for row in rows if caller.sees(_names(row["from_collections"]))]
        if len(rows) < limit:
            break
        after = (rows[-1]["from_slug"], rows[-1]["type"])
    return tuple(visible[:limit])


def _backlink(row: Row) -> Backlink:
    return Backlink(row["from_slug"], row["from_title"], row["type"], row["context"], row["origin"])


def validate(to: str, kind: str, context: str) -> tuple[str, str, str]:
    """Validate the target, type and context of a link in a request; raises `InvalidInput`."""
    return (
        slugs.normalize(to, "to"),
        limits.link_type(kind) if kind else LINK_TYPE,
        limits.long_text("context", context, limits.CONTEXT_CHARS),
    )


class GraphWalk(msgspec.Struct, frozen=True):
    """Pages around a page with their distances, and the links between them; `cut` if pages were omitted."""

    nodes: tuple[tuple[str, str, int], ...]
    edges: tuple[tuple[str, str, str], ...]
    cut: bool = False


class LinkPath(msgspec.Struct, frozen=True):
    """The depth, link type ("" for any) and direction of a walk, and the maximum number of its pages."""

    depth: int = 1
    type: str = ""
    direction: Literal["out", "in", "both"] = "out"
    nodes: int = limits.NODES


def walk(caller: Caller, start: MemoryPage, route: LinkPath) -> Transaction[GraphWalk]:
    """Return the pages within some steps of a page, nearest first, at most `route.nodes` of them."""
    nodes: dict[str, tuple[str, str, int]] = {start.id: (start.slug, start.title, 0)}
    edges: dict[tuple[str, str, str], None] = {}
    rim, cut = [start.id], False
    ways = ("out", "in") if route.direction == "both" else (route.direction,)
    for depth in range(1, route.depth + 1):
        following: list[str] = []
        for way in ways:
            rows = yield Query(
                f"edges_{way}",
                {
                    "account_id": caller.account_id,
                    "ids": encode_json(rim),
                    "type": route.type,
                    "limit": route.nodes * 10,
                },
            )
            cut = cut or len(rows) == route.nodes * 10
            for row in rows:
                if not caller.sees(_names(row["collections"])):
                    continue
                if row["to_id"] not in nodes:
                    if len(nodes) >= route.nodes:
                        cut = True
                        continue
                    nodes[row["to_id"]] = (row["slug"], row["title"], depth)
                    following.append(row["to_id"])
                ends = (row["from_id"], row["to_id"])
                source, target = ends if way == "out" else ends[::-1]
                edges[nodes[source][0], nodes[target][0], row["type"]] = None
        rim = following
        if not rim:
            break
    return GraphWalk(tuple(nodes.values()), tuple(edges), cut)
