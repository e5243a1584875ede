"""The transactions of a batch, which write facts to the pages of one folder or remove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.clock import MINUTE_US
from sixfold.core.database import Transaction, now, one
from sixfold.core.memory import commands, page_edits, pages, slugs
from sixfold.core.memory.commands import FREELY, PageWriter
from sixfold.core.memory.facts import batches, fact_pages
from sixfold.core.memory.facts.batches import BatchPage
from sixfold.core.memory.facts.fact_pages import PageFact, SupersededFact
from sixfold.core.memory.facts.model_replies import DroppedFact
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.page_edits import PageWrite

_SUBJECT_CHARS = 80
# A batch that is still running after this time was interrupted.
_MAX_RUN_US = 15 * MINUTE_US
# Number of a page's newest facts with which new facts are compared.
MAX_KNOWN = 30


class FactTarget(msgspec.Struct, frozen=True):
    """The destination of facts: a folder, and the collections of new pages in it."""

    folder: str
    collections: tuple[str, ...] | None = None

    def slug(self, subject: str) -> str | None:
        """Return the slug of a subject's page in the folder, or None without a usable character."""
        name = slugs.loosely(subject.replace("/", "-").replace(".", " ")[:_SUBJECT_CHARS])
        return None if name is None else f"{self.folder}/{name}"[: slugs.MAX_CHARS].rstrip("-/")


class NewFact(msgspec.Struct, frozen=True):
    """A fact for the page of its subject, and the known facts that it contradicts."""

    subject: str
    fact: PageFact
    contradicts: tuple[PageFact, ...] = ()


class WrittenFacts(msgspec.Struct, frozen=True):
    """The facts that a transaction has written to one page."""

    page: MemoryPage
    created: bool
    added: tuple[PageFact, ...]
    superseded: tuple[SupersededFact, ...]


class PartResult(msgspec.Struct, frozen=True):
    """The result for the facts of one part."""

    written: tuple[WrittenFacts, ...] = ()
    known: int = 0
    dropped: tuple[DroppedFact, ...] = ()


class UndoResult(msgspec.Struct, frozen=True):
    """The slugs of restored pages, and of new pages that were deleted."""

    restored: tuple[str, ...]
    deleted: tuple[str, ...]


class _FullPage(errors.TooLarge):
    """A page already has the maximum number of facts."""


def known_facts(
    writer: PageWriter, target: FactTarget, subjects: Sequence[str]
) -> Transaction[dict[str, tuple[PageFact, ...]]]:
    """Return the newest facts on the pages of subjects; subjects without facts are absent."""
    by_page: dict[str, tuple[PageFact, ...]] = {}
    for subject in dict.fromkeys(subjects):
        slug = target.slug(subject)
        location = None if slug is None else (yield from pages.locate(writer.caller.account_id, slug))
        if location is not None and not location.deleted and _is_in(target, location.page, writer):
            facts = sorted(fact_pages.facts_of(location.page.body), key=lambda fact: fact.date)[-MAX_KNOWN:]
            by_page |= {subject: tuple(facts)} if facts else {}
    return by_page


def _is_in(target: FactTarget, page: MemoryPage, writer: PageWriter) -> bool:
    return page.slug.startswith(f"{target.folder}/") and writer.caller.sees(page.collections)


def write(
    writer: PageWriter, batch_id: str, target: FactTarget, facts: Sequence[NewFact]
) -> Transaction[PartResult]:
    """Add facts to the pages of their subjects in the folder, and record the versions for `undo`."""
    by_slug: dict[str, list[NewFact]] = {}
    dropped: list[DroppedFact] = []
    for new in facts:
        slug = target.slug(new.subject)
        if slug is None:
            dropped.append(DroppedFact(new.fact.statement, "its subject has no letter or digit"))
        else:
            by_slug.setdefault(slug, []).append(new)
    written_facts: list[WrittenFacts] = []
    for slug, group in by_slug.items():
        try:
            page = yield from _write_page(writer, target, slug, group)
        except (errors.Forbidden, _FullPage) as error:
            dropped += [DroppedFact(new.fact.statement, error.message) for new in group]
            continue
        if page is None:
            continue
        written_facts.append(page)
        before = 0 if page.created else page.page.version - 1
        yield from batches.add_pages(batch_id, [BatchPage(page.page.id, before, page.page.version)])
    added = sum(len(page.added) for page in written_facts)
    return PartResult(tuple(written_facts), len(facts) - len(dropped) - added, tuple(dropped))


def _write_page(
    writer: PageWriter, target: FactTarget, slug: str, group: Sequence[NewFact]
) -> Transaction[WrittenFacts | None]:
    """Return the written facts, or None if the page contains all of them.

    Errors are raised before any change.
    """
    location = yield from pages.locate(writer.caller.account_id, slug)
    if location is not None and not location.page.slug.startswith(f"{target.folder}/"):
        raise errors.Forbidden(f"{slug} was renamed to {location.page.slug}, which is outside the folder")
    is_new = location is None or location.deleted
    slug = slug if location is None else location.page.slug
    title = group[0].subject
    body = f"# {title}\n" if location is None or location.deleted else location.page.body
    extended = fact_pages.extend(body, [(new.fact, new.contradicts) for new in group])
    if not extended.added:
        return None
    # Other limits are checked after the account's usage was counted, so they end the transaction.
    if len(extended.body.encode()) > writer.limits.page_bytes:
        raise _FullPage(f"The page {slug} has reached the limit of {writer.limits.page_bytes:,} bytes")
    collections = target.collections if is_new else None
    request = PageWrite(slug, extended.body, title if is_new else None, collections=collections)
    saved_page = yield from commands.write(writer, request, FREELY, "remember")
    return WrittenFacts(saved_page.page, saved_page.created, extended.added, extended.superseded)


def undo(writer: PageWriter, batch_id: str) -> Transaction[UndoResult]:
    """Remove the facts that a batch has written; later changes of other text are kept.

    Raises `NotFound`, and `Conflict` if the batch was already undone or is running.
    """
    writer.check()
    row = yield from batches.find(writer.caller, batch_id)
    if row["state"] == "undone":
        raise errors.Conflict(f"The batch {batch_id} was already undone")
    if row["state"] == "running" and (yield from now()) < row["created_at"] + _MAX_RUN_US:
        raise errors.Conflict(f"The batch {batch_id} is still running: undo it when it has ended")
    outcomes: Mapping[str, list[str]] = {"restored": [], "deleted": []}
    for page in (yield from batches.pages_of(batch_id)):
        current = yield from one("page_by_id", account_id=writer.caller.account_id, id=page.page_id)
        if current is not None and current["deleted_at"] is None:
            outcome = yield from _undo_page(writer, pages.of(current), page)
            outcomes[outcome].append(str(current["slug"]))
    yield from batches.mark_undone(batch_id)
    return UndoResult(**{name: tuple(sorted(slugs)) for name, slugs in outcomes.items()})


def _undo_page(writer: PageWriter, current: MemoryPage, page: BatchPage) -> Transaction[str]:
    writer.check_page(current.slug, pages.FoundPage(current))
    after = yield from _body(current, page.after)
    before = (yield from _body(current, page.before)) if page.before else ""
    # If the batch wrote the page more than once, another change may have come between the writes.
    exact = page.after == page.before + 1 and current.body == after
    body = before if exact else fact_pages.revert(current.body, before, after)
    if not page.before and body.strip() in ("", f"# {current.title}"):
        yield from pages.delete(current)
        return "deleted"
    yield from commands.change(writer, "undo", current, replace(page_edits.of(current), body=body))
    return "restored"


def _body(page: MemoryPage, version: int) -> Transaction[str]:
    row = yield from one("version_by_number", account_id=page.account_id, page_id=page.id, version=version)
    return "" if row is None else str(row["body"])
