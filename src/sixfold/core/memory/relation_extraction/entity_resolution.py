"""Resolution of names to pages: nearby pages take precedence, and ambiguous names remain unresolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sixfold.core.memory.relation_extraction.extraction import ExtractedRelation
from sixfold.core.memory.relation_extraction.patterns import PatternTable

_PERSON = frozenset({"person"})
# Lower ranks are whole names; this rank is the first or last name of a person.
_WHOLE = 4


class KnownEntity(NamedTuple):
    """A page to which a name may refer."""

    id: str
    rank: int
    slug: str
    kind: str
    collections: tuple[str, ...]


class ResolvedRelation(NamedTuple):
    """The two pages of a statement, with an id of None if a page is unknown.

    `relation` is the stated relation, or its alternative (`otherwise`) if only that fits the pages' kinds.
    """

    relation: str
    subject: str
    subject_id: str | None
    object: str
    object_id: str | None


class MentionContext(NamedTuple):
    """The page of a statement; nearby pages are preferred."""

    slug: str
    collections: tuple[str, ...]


def resolve(
    statement: ExtractedRelation,
    where: MentionContext,
    known: Mapping[str, Sequence[KnownEntity]],
    table: PatternTable,
) -> ResolvedRelation | None:
    """Return the pages of a statement, or None if their kinds do not fit the relation."""
    stated_relation = table.relations[statement.relation]
    subject, first = _candidate(
        statement.subject, statement.near_subject, stated_relation.subjects, where, known
    )
    other, last = _candidate(statement.object, statement.near_object, stated_relation.objects, where, known)
    if first is not None and last is not None and first.id == last.id:
        return None
    relation = statement.relation
    if not (_fits(first, stated_relation.subjects) and _fits(last, stated_relation.objects)):
        otherwise = table.relations.get(stated_relation.otherwise)
        if otherwise is None or not (_fits(first, otherwise.subjects) and _fits(last, otherwise.objects)):
            return None
        relation = otherwise.name
    return ResolvedRelation(relation, subject, first and first.id, other, last and last.id)


def _fits(page: KnownEntity | None, kinds: frozenset[str]) -> bool:
    return page is None or not page.kind or not kinds or page.kind in kinds


def _candidate(
    name: str,
    near: str,
    kinds: frozenset[str],
    where: MentionContext,
    known: Mapping[str, Sequence[KnownEntity]],
) -> tuple[str, KnownEntity | None]:
    """Return the name to look up, and the only page to which it may refer, or None."""
    entity = _chosen([page for page in known.get(name, ()) if page.rank < _WHOLE], kinds, where)
    if entity is not None or not name:
        return name, entity
    if near:
        nearer = _chosen(known.get(near, ()), kinds, where)
        if nearer is not None and nearer.kind == "person":
            return near, nearer
        if kinds == _PERSON:
            return near, nearer
    return name, _chosen(known.get(name, ()), kinds, where)


def _chosen(pages: Sequence[KnownEntity], kinds: frozenset[str], where: MentionContext) -> KnownEntity | None:
    """Return the page with the best rank, or the only nearby one of these pages, or None."""
    fitting = [page for page in pages if not page.kind or not kinds or page.kind in kinds] or list(pages)
    if not fitting:
        return None
    rank = min(page.rank for page in fitting)
    best = [page for page in fitting if page.rank == rank]
    for near in (_same_folder, _same_collection):
        if len(best) > 1:
            best = [page for page in best if near(page, where)] or best
    return best[0] if len(best) == 1 else None


def _same_folder(page: KnownEntity, where: MentionContext) -> bool:
    return page.slug.rpartition("/")[0] == where.slug.rpartition("/")[0]


def _same_collection(page: KnownEntity, where: MentionContext) -> bool:
    return not set(page.collections).isdisjoint(where.collections)
