"""Inferred links from plain sentences, written in the transaction that writes the page.

The statements of a page (`extraction.read`) are stored with their sentence, position and pattern. Names are
looked up by slug, title, alias, last segment, and a person's first or last name. If both ends are pages, the
link belongs to the subject's page, with the origin `inference`; otherwise the statement waits for the missing
page. A link ends with its last sentence unless it was confirmed; a dismissed link stays dismissed while its
sentence exists.

Search calls `answers(account_id, text, scope)`, which parses "who works at Acme" and returns pages, each with
a part of a score and its sentence.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from sixfold.core.database import Query, Row, Transaction, encode_json
from sixfold.core.memory.indexing import entries as index
from sixfold.core.memory.indexing import weights
from sixfold.core.memory.models import Caller, MemoryPage
from sixfold.core.memory.relation_extraction import dates, entities, extraction, patterns, question_parser
from sixfold.core.memory.relation_extraction.entity_resolution import (
    KnownEntity,
    MentionContext,
    ResolvedRelation,
    resolve,
)
from sixfold.core.memory.relation_extraction.extraction import ExtractedRelation
from sixfold.core.memory.relation_extraction.patterns import PatternTable

_TABLE = Path(__file__).parents[3] / "data" / "relations.toml"
# Maximum number of rows of one look-up of names.
_MAX_NAMES = 5_000
# Maximum number of statements of other pages that one save resolves again.
_MAX_WAITING = 2_000
_MAX_SUPPORT = 20_000
_texts = msgspec.json.Decoder(tuple[str, ...]).decode

# The subject's id, the relation, and the object's id.
Triple = tuple[str, str, str]


@cache
def table() -> PatternTable:
    """Return the compiled patterns of `data/relations.toml`."""
    return patterns.build(tomllib.loads(_TABLE.read_text("utf-8")))


def refresh(page: MemoryPage) -> Transaction[None]:
    """Update the inferred links of a page from its text."""
    yield from refresh_many((page,))


def refresh_many(pages: Sequence[MemoryPage]) -> Transaction[None]:
    """Update the inferred links of many distinct pages of one account together, as an import does."""
    if not pages:
        return
    account_id = pages[0].account_id
    changed_names, renamed = yield from _put_names(account_id, pages)
    affected = yield from _take_back([page.id for page in pages if page.version > 1])
    affected |= yield from _put_statements(account_id, pages)
    affected |= yield from _settle_others(account_id, pages, changed_names, renamed)
    affected |= yield from _resting_on(pages)
    moment = max(page.updated_at for page in pages)
    yield from _draw(account_id, affected, moment, {page.id for page in pages})


def forget(page: MemoryPage) -> Transaction[None]:
    """Remove the inferred links of a deleted page, and all statements about it."""
    ids = encode_json([page.id])
    rows = yield Query("names_of", {"ids": ids})
    yield Query("names_clear", {"ids": ids})
    affected = yield from _take_back([page.id])
    names = {str(row["name"]) for row in rows}
    affected |= yield from _settle_others(page.account_id, (), names, [page.id])
    yield from _draw(page.account_id, affected, page.updated_at, {page.id})


def _put_names(account_id: str, pages: Sequence[MemoryPage]) -> Transaction[tuple[set[str], list[str]]]:
    """Write the names of pages; return the names that were added or removed, and the pages that lost one."""
    page_ids = [page.id for page in pages if page.version > 1]
    before: dict[str, dict[str, int]] = {}
    if page_ids:
        rows = yield Query("names_of", {"ids": encode_json(page_ids)})
        for row in rows:
            before.setdefault(row["page_id"], {})[row["name"]] = row["rank"]
    stale: list[str] = []
    fresh: list[tuple[str, str, int]] = []
    changed: set[str] = set()
    renamed: list[str] = []
    for page in pages:
        names = extraction.names_of(page, extraction.aliases(page), table())
        old = before.get(page.id, {})
        if names == old:
            continue
        if old:
            stale.append(page.id)
        if old.keys() - names.keys():
            renamed.append(page.id)
        fresh += [(name, page.id, rank) for name, rank in names.items()]
        changed |= names.keys() ^ old.keys()
    if stale:
        yield Query("names_clear", {"ids": encode_json(stale)})
    if fresh:
        yield Query("names_put", {"account_id": account_id, "rows": encode_json(fresh)})
    return changed, renamed


def _take_back(ids: Sequence[str]) -> Transaction[set[Triple]]:
    if not ids:
        return set()
    rows = yield Query("statements_clear", {"ids": encode_json(ids)})
    return {triple for row in rows if (triple := _triple(row)) is not None}


def _triple(row: Row) -> Triple | None:
    if row["subject_id"] is None or row["object_id"] is None:
        return None
    return row["subject_id"], row["relation"], row["object_id"]


def _put_statements(account_id: str, pages: Sequence[MemoryPage]) -> Transaction[set[Triple]]:
    """Read the pages, resolve names, and store their statements; return the resulting links."""
    marked = {page.id: entities.identifiers(page.body) for page in pages}
    entities_by_name = yield from _known(
        account_id, {entities.key(name) for names in marked.values() for name in names}
    )
    read: dict[str, list[ExtractedRelation]] = {}
    for page in pages:
        own = sorted(name for name in marked[page.id] if entities.key(name) in entities_by_name)
        read[page.id] = extraction.read(page, table(), own[: extraction.MAX_KNOWN])
    keys = {
        key for statements in read.values() for statement in statements for key in _keys(statement)
    } - entities_by_name.keys()
    entities_by_name |= yield from _known(account_id, keys)
    rows: list[tuple[object, ...]] = []
    affected: set[Triple] = set()
    for page in pages:
        where = MentionContext(page.slug, page.collections)
        for number, statement in enumerate(read[page.id]):
            relation = resolve(statement, where, entities_by_name, table())
            if relation is None:
                continue
            rows.append(_row(page.id, number, statement, relation))
            if relation.subject_id is not None and relation.object_id is not None:
                affected.add((relation.subject_id, relation.relation, relation.object_id))
    if rows:
        yield Query("statements_put", {"account_id": account_id, "rows": encode_json(rows)})
    return affected


def _keys(statement: ExtractedRelation) -> Iterable[str]:
    return (
        key
        for key in (statement.subject, statement.near_subject, statement.object, statement.near_object)
        if key
    )


def _row(
    page_id: str, number: int, statement: ExtractedRelation, relation: ResolvedRelation
) -> tuple[object, ...]:
    return (
        page_id, number, relation.relation, statement.pattern, relation.subject, relation.subject_id,
        relation.object, relation.object_id, statement.object_text, statement.sentence, statement.start,
        statement.moment,
    )  # fmt: skip


def _known(account_id: str, names: Iterable[str]) -> Transaction[dict[str, list[KnownEntity]]]:
    """Return the pages to which each of some names may refer, best first."""
    keys = sorted(names)
    by_name: dict[str, list[KnownEntity]] = {}
    if keys:
        rows = yield Query(
            "names_find", {"account_id": account_id, "names": encode_json(keys), "limit": _MAX_NAMES}
        )
        for row in rows:
            kind = table().kind(row["type"], row["slug"])
            page = KnownEntity(row["id"], row["rank"], row["slug"], kind, _texts(row["collections"]))
            by_name.setdefault(row["name"], []).append(page)
    return by_name


def _settle_others(
    account_id: str, pages: Sequence[MemoryPage], names: set[str], moved: Sequence[str]
) -> Transaction[set[Triple]]:
    """Resolve statements of other pages again if they contain an added name or a removed page."""
    page_ids = {page.id for page in pages}
    rows: dict[tuple[str, int], Row] = {}
    for query, params in (
        (
            "statements_naming",
            {"account_id": account_id, "names": encode_json(sorted(names))} if names else None,
        ),
        ("statements_meaning", {"ids": encode_json(moved)} if moved else None),
    ):
        if params is not None:
            matching = yield Query(query, {**params, "limit": _MAX_WAITING})
            rows |= {
                (row["page_id"], row["number"]): row for row in matching if row["page_id"] not in page_ids
            }
    if not rows:
        return set()
    known = yield from _known(
        account_id, {row[end] for row in rows.values() for end in ("subject", "object")} - {""}
    )
    affected: set[Triple] = set()
    updates: list[tuple[object, ...]] = []
    for row in rows.values():
        statement = ExtractedRelation(
            row["relation"], row["pattern"], row["subject"], "", row["object"], "", row["said"],
            row["sentence"], row["start"], row["moment"],
        )  # fmt: skip
        relation = resolve(statement, MentionContext(row["slug"], _texts(row["collections"])), known, table())
        after = (
            (relation.subject_id, relation.object_id, relation.relation)
            if relation
            else (None, None, row["relation"])
        )
        if after == (row["subject_id"], row["object_id"], row["relation"]):
            continue
        updates.append((row["page_id"], row["number"], *after))
        before = _triple(row)
        affected |= {before} if before is not None else set()
        if after[0] is not None and after[1] is not None:
            affected.add((after[0], after[2], after[1]))
    if updates:
        yield Query("statements_settle", {"rows": encode_json(updates)})
    return affected


def _resting_on(pages: Sequence[MemoryPage]) -> Transaction[set[Triple]]:
    """Return the links of pages whose collections may have changed, to check their visibility again."""
    ids = [page.id for page in pages if page.version > 1]
    if not ids:
        return set()
    rows = yield Query("statements_kept", {"ids": encode_json(ids)})
    return {(row["page_id"], row["type"], row["target_id"]) for row in rows if row["target_id"] is not None}


def _draw(account_id: str, affected: set[Triple], moment: int, own: set[str]) -> Transaction[None]:
    """Update the links of these triples to the current statements; `own` pages are reindexed anyway."""
    if not affected:
        return
    subjects = encode_json(sorted({triple[0] for triple in affected}))
    objects = encode_json(sorted({triple[2] for triple in affected}))
    rows = yield Query(
        "statements_between", {"subjects": subjects, "objects": objects, "limit": _MAX_SUPPORT}
    )
    support: dict[Triple, list[Row]] = {}
    for row in rows:
        if _may_tell(row):
            support.setdefault((row["subject_id"], row["relation"], row["object_id"]), []).append(row)
    remaining = yield Query("statements_kept", {"ids": subjects})
    live = {(row["page_id"], row["type"], row["target_id"]): row for row in remaining}
    # There may be more statements than were read, so links do not end.
    if len(rows) == _MAX_SUPPORT:
        affected = affected & support.keys()
    removed, put = _differences(affected, support, live)
    if removed:
        yield Query("links_end", {"maker": "inference", "rows": encode_json(removed), "ended_at": moment})
    if put:
        yield Query("links_put", {"account_id": account_id, "rows": encode_json(put), "at": moment})
    changed = {str(row["id"]) for row in (*removed, *put)} - own
    # Search must read the links of a changed page again.
    if changed:
        change = yield from index.next_change(account_id)
        yield Query("statements_touch", {"ids": encode_json(sorted(changed)), "change": change})


def _differences(
    affected: set[Triple], support: Mapping[Triple, Sequence[Row]], live: Mapping[Triple, Row]
) -> tuple[list[dict[str, str]], list[dict[str, object]]]:
    """Return the links that end and those that begin; a link exists as long as its sentence."""
    removed: list[dict[str, str]] = []
    put: list[dict[str, object]] = []
    for triple in sorted(affected):
        reasons, row = support.get(triple, ()), live.get(triple)
        if row is not None:
            if row["origin"] == "confirmed" or any(why["sentence"] == row["context"] for why in reasons):
                continue
            removed.append({"id": row["page_id"], "type": row["type"], "target": row["target"]})
        if reasons:
            put.append(_link(triple, reasons[0]))
    return removed, put


def _may_tell(row: Row) -> bool:
    """Return whether every reader of the subject's page may read the sentence on another page."""
    if row["page_id"] == row["subject_id"]:
        return True
    return set(_texts(row["subject_collections"])) <= set(_texts(row["collections"]))


def _link(triple: Triple, reason: Row) -> dict[str, object]:
    subject, relation, other = triple
    return {
        "id": subject,
        "type": relation,
        "target": reason["object_slug"],
        "maker": "inference",
        "origin": "inferred",
        "context": reason["sentence"],
        "target_id": other,
        "by_name": 0,
    }


class Evidence(NamedTuple):
    """A statement of a page: the sentence, its position in the body, and the pattern that matched.

    `subject` and `object` are slugs, or names of missing pages, and then `resolved` is False. `origin` is the
    origin of the resulting link, or "".
    """

    relation: str
    pattern: str
    subject: str
    object: str
    sentence: str
    start: int
    moment: str
    resolved: bool
    origin: str


def evidence(caller: Caller, page: MemoryPage, limit: int = 500) -> Transaction[tuple[Evidence, ...]]:
    """Return the statements of a page in order; pages that the caller cannot see appear as names."""
    rows = yield Query(
        "statements_of_page", {"account_id": page.account_id, "page_id": page.id, "limit": limit}
    )
    result: list[Evidence] = []
    for row in rows:
        ends = [_visible_slug(caller, row, end) for end in ("subject", "object")]
        result.append(
            Evidence(
                relation=row["relation"],
                pattern=row["pattern"],
                subject=ends[0] or row["subject"].lstrip("/"),
                object=ends[1] or row["object"].lstrip("/") or row["said"],
                sentence=row["sentence"],
                start=row["start"],
                moment=row["moment"],
                resolved=bool(ends[0] and ends[1]),
                origin=(row["origin"] or "") if ends[0] and ends[1] else "",
            )
        )
    return tuple(result)


def _visible_slug(caller: Caller, row: Row, end: str) -> str:
    slug = row[f"{end}_slug"]
    return str(slug) if slug is not None and caller.sees(_texts(row[f"{end}_collections"])) else ""


class RelationAnswer(NamedTuple):
    """A page that answers a question, with a `score` from 0 to 1 and the sentence that states it."""

    page_id: str
    score: float
    sentence: str


_MAX_ANSWERS = 200
_SEPARATOR = "\n"


def answers(account_id: str, text: str, scope: Sequence[str] = ()) -> Transaction[tuple[RelationAnswer, ...]]:
    """Return the pages that answer a relational question such as "who works at Acme", best first.

    The result is empty if the text is not such a question or contains only unknown names. `scope` are the
    collections that the caller can see; empty means all.
    """
    questions = forms().read(text)
    if not questions:
        return ()
    known = yield from _known(account_id, {name for question in questions for name in question.names})
    best: dict[str, RelationAnswer] = {}
    for question in questions:
        means = [[page.id for page in _best(known.get(name, ()))] for name in question.names]
        if all(means):
            candidates = yield from _query_answers(account_id, question, means, _scope(scope))
            for answer in candidates:
                if answer.page_id not in best or best[answer.page_id].score < answer.score:
                    best[answer.page_id] = answer
    visible = yield from _visible(account_id, list(best), _scope(scope))
    return tuple(sorted((best[page_id] for page_id in visible), key=lambda answer: -answer.score))


@cache
def forms() -> question_parser.QuestionForms:
    """Return the questions of `data/relations.toml`."""
    return question_parser.QuestionForms(table())


def _scope(collections: Sequence[str]) -> str:
    return _SEPARATOR + _SEPARATOR.join(collections) + _SEPARATOR if collections else ""


def _best(pages: Sequence[KnownEntity]) -> list[KnownEntity]:
    """Return the pages with the best rank, at most three."""
    return [page for page in pages if page.rank == pages[0].rank][:3]


def _query_answers(
    account_id: str, question: question_parser.RelationQuestion, means: Sequence[Sequence[str]], scope: str
) -> Transaction[list[RelationAnswer]]:
    slug_set = set(means[0])
    sides = {"subject": ("object",), "object": ("subject",), "both": ("subject", "object")}[
        question.answer_side
    ]
    stated: list[Row] = []
    link_rows: list[Row] = []
    for side, page_id in ((side, page_id) for side in sides for page_id in sorted(slug_set)):
        params = {
            "account_id": account_id,
            "relations": encode_json(sorted(question.relations)),
            "id": page_id,
            "scope": scope,
            "sep": _SEPARATOR,
            "limit": _MAX_ANSWERS,
        }
        stated += yield Query(f"statements_of_{side}", params)
        link_rows += yield Query(f"links_of_{side}", params)
    result: list[RelationAnswer] = []
    saying = Counter((row["subject_id"], row["object_id"]) for row in stated if row["object_id"] is not None)
    for row in stated:
        if len(means) > 1 and not {row["subject_id"], row["object_id"]} & set(means[1]):
            continue
        fit = 1.0
        if question.moment:
            moment = row["moment"] or dates.of_slug(row["slug"])
            fit = 1.0 if dates.agree(moment, question.moment) else weights.RELATION_OTHER_TIME
        result += [
            RelationAnswer(end, weights.RELATION_ANSWER * fit, row["sentence"])
            for end in _answer_ids(row, question, slug_set)
        ]
        source_score = weights.RELATION_SOURCE * min(
            1.0, weights.RELATION_SOURCES / max(saying[row["subject_id"], row["object_id"]], 1)
        )
        result.append(RelationAnswer(row["page_id"], source_score * fit, row["sentence"]))
    for row in link_rows:
        fit = weights.RELATION_OTHER_TIME if question.moment else 1.0
        result += [
            RelationAnswer(end, weights.RELATION_ANSWER * fit, row["sentence"])
            for end in _answer_ids(row, question, slug_set)
        ]
    return result


def _answer_ids(row: Row, question: question_parser.RelationQuestion, slugs: set[str]) -> list[str]:
    """Return the page ids in a statement that answer the question, without the pages in the question."""
    ends = {
        "subject": [row["subject_id"]],
        "object": [row["object_id"]],
        "both": [row["subject_id"], row["object_id"]],
    }[question.answer_side]
    return [end for end in ends if end is not None and end not in slugs]


def _visible(account_id: str, ids: Sequence[str], scope: str) -> Transaction[list[str]]:
    if not ids:
        return []
    rows = yield Query(
        "pages_within", {"account_id": account_id, "ids": encode_json(ids), "scope": scope, "sep": _SEPARATOR}
    )
    return [row["id"] for row in rows]
