"""Any sequence of changes gives the result of a simple model of pages, links and redirects."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sixfold import errors
from sixfold.core.database import now, one
from sixfold.core.memory import queries
from sixfold.core.memory.commands import FREELY, WriteTerms
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import PageFilter
from tests.harness import databases, mutants
from tests.harness.mutants import Mutant, statement
from tests.unit.memory.fixtures import MemoryFixture, open_memory

pytestmark = pytest.mark.slow

T = TypeVar("T")
SLUGS = st.sampled_from(["a", "b", "x/a", "x/d", "y/long/b", "y/z/a", "y/long/z/a"])
FREE = st.sampled_from(["a", "b", "x/a", "c", "x/c", "y/d", "y/b", "z/a"])
NAMED = st.sampled_from(["a", "b", "x/a", "c", "d", "z/a"])
BODIES = st.lists(NAMED.map(lambda name: f"[[{name}]]"), max_size=3).map(" and ".join)
LINK = re.compile(r"\[\[(.*?)\]\]")


@dataclass
class ModelPage:
    """A page of the model: its slug, the text of each version, the targets of its links."""

    slug: str
    versions: list[str] = field(default_factory=list)
    deleted: bool = False
    leads: dict[str, tuple[int, bool] | None] = field(default_factory=dict)

    @property
    def body(self) -> str:
        return self.versions[-1]


def folders_of(slug: str) -> list[str]:
    """Return the slug prefixes of the folders of a page, the outermost first."""
    steps = slug.split("/")[:-1]
    return ["/".join(steps[:depth]) + "/" for depth in range(1, len(steps) + 1)]


class PagesMachine(RuleBasedStateMachine):
    """Writes, edits, renames, deletions and restores against a model in plain Python."""

    backend = "sqlite"
    mutant: Mutant | None = None

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.ticks = itertools.count(1_800_000_000_000_000, 1_000)
        opener = self.stack.enter_async_context(open_memory(self.backend, lambda: next(self.ticks)))
        self.memory: MemoryFixture = self.loop.run_until_complete(opener)
        if self.mutant is not None:
            self.mutant(self.memory.service.database)
        self.pages: list[ModelPage] = []
        self.redirects: dict[str, int] = {}
        self.past: list[tuple[int, dict[int, tuple[str, str]]]] = []

    def run_(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def at(self, slug: str) -> int | None:
        return next((n for n, page in enumerate(self.pages) if page.slug == slug), None)

    def located(self, slug: str) -> int | None:
        result = self.at(slug)
        return self.redirects.get(slug) if result is None else result

    def resolve(self, name: str, source: str) -> tuple[int, bool] | None:
        """Return the page that a name refers to, and whether it was found by the end of its slug alone."""
        exact = self.located(name)
        if exact is not None:
            return exact, False
        if "/" in name:
            around = (f"{folder}{name}" for folder in folders_of(source))
            within = next((result for slug in around if (result := self.at(slug)) is not None), None)
            return None if within is None else (within, True)
        beside = self.at(f"{source.rpartition('/')[0]}/{name}")
        if beside is not None:
            return beside, True
        named = [p for p in self.pages if p.slug.rpartition("/")[2] == name and not p.deleted]
        if not named:
            return None
        best = min(named, key=lambda p: (len(p.slug), p.slug))
        return self.pages.index(best), True

    def reads(self, number: int, body: str) -> None:
        """Change the text of a page: links in both texts keep their targets."""
        page = self.pages[number]
        page.versions.append(body)
        leads: dict[str, tuple[int, bool] | None] = {}
        for name in LINK.findall(body):
            before = page.leads.get(name)
            if name in page.leads:
                leads[name] = before
            else:
                leads[name] = self.resolve(name, page.slug)
        page.leads = leads

    def arrives(self, number: int) -> None:
        """Resolve the links that waited for the slug of a new page."""
        slug = self.pages[number].slug
        self.redirects.pop(slug, None)
        name = slug.rpartition("/")[2]
        for page in self.pages:
            for written, lead in page.leads.items():
                if written == slug and (lead is None or lead[1]):
                    page.leads[written] = (number, False)
            for written, lead in page.leads.items():
                named = written == name and name != slug
                around = any(f"{folder}{written}" == slug for folder in folders_of(page.slug))
                if lead is None and (named or ("/" in written and around)):
                    page.leads[written] = (number, True)

    @rule(slug=SLUGS, body=BODIES)
    def write(self, slug: str, body: str) -> None:
        self.run_(self.memory.service.write(self.memory.ann, PageWrite(slug, body), FREELY))
        number = self.at(slug)
        if number is None:
            self.pages.append(ModelPage(slug))
            number = len(self.pages) - 1
            self.arrives(number)
            self.reads(number, body)
        elif self.pages[number].deleted:
            self.pages[number].deleted = False
            self.arrives(number)
            self.reads(number, body)
        elif self.pages[number].body != body:
            self.reads(number, body)

    @rule(slug=SLUGS, body=BODIES, guess=st.sampled_from([None, 0, 1]))
    def append(self, slug: str, body: str, guess: int | None) -> None:
        number = self.located(slug)
        page = self.pages[number] if number is not None else None
        if page is None or page.deleted:
            version = 1 if guess is not None else None
        else:
            version = None if guess is None else len(page.versions) + guess
        work = self.memory.service.edit(
            self.memory.ann, slug, PageEdit("append", body), WriteTerms(if_version=version)
        )
        if number is None or page is None or page.deleted:
            with pytest.raises(errors.NotFound):
                self.run_(work)
            return
        if guess == 1:
            with pytest.raises(errors.PreconditionFailed):
                self.run_(work)
            return
        self.run_(work)
        joined = f"{page.body}\n{body}" if page.body and body else page.body + body
        if joined != page.body:
            self.reads(number, joined)

    @rule(slug=SLUGS, to=FREE)
    def rename(self, slug: str, to: str) -> None:
        number = self.located(slug)
        work = self.memory.service.rename(self.memory.ann, slug, to, WriteTerms())
        if number is None or self.pages[number].deleted:
            with pytest.raises(errors.NotFound):
                self.run_(work)
            return
        page = self.pages[number]
        if page.slug != to and self.at(to) is not None:
            with pytest.raises(errors.Conflict):
                self.run_(work)
            return
        self.run_(work)
        if page.slug != to:
            old, page.slug = page.slug, to
            page.versions.append(page.body)
            self.redirects[old] = number
            self.arrives(number)

    @rule(slug=SLUGS)
    def delete(self, slug: str) -> None:
        number = self.located(slug)
        work = self.memory.service.delete(self.memory.ann, slug, WriteTerms())
        if number is None or self.pages[number].deleted:
            with pytest.raises(errors.NotFound):
                self.run_(work)
            return
        self.run_(work)
        self.pages[number].deleted = True

    @rule(slug=SLUGS, steps=st.integers(1, 4))
    def restore(self, slug: str, steps: int) -> None:
        number = self.located(slug)
        work = self.memory.service.restore(self.memory.ann, slug, steps, WriteTerms())
        if number is None or steps > len(self.pages[number].versions):
            with pytest.raises(errors.NotFound):
                self.run_(work)
            return
        self.run_(work)
        page = self.pages[number]
        if page.deleted:
            page.deleted = False
            self.arrives(number)
        self.reads(number, page.versions[steps - 1])

    @invariant()
    def pages_equal_the_model(self) -> None:
        rows = self.run_(self.memory.service.list(self.memory.ann, PageFilter(), 100)).rows
        alive = {page.slug: page for page in self.pages if not page.deleted}
        assert [row["slug"] for row in rows] == sorted(alive)
        for slug, page in alive.items():
            view = self.run_(self.memory.service.read(self.memory.ann, slug))
            assert (view.page.body, view.page.version) == (page.body, len(page.versions))
            assert {(link.target, link.resolved) for link in view.links} == self.leading(page)

    def leading(self, page: ModelPage) -> set[tuple[str, bool]]:
        """Return the targets of a page's links as the memory shows them."""
        names: set[tuple[str, bool]] = set()
        for name, lead in page.leads.items():
            target = self.pages[lead[0]] if lead is not None else None
            names.add((name, False) if target is None else (target.slug, not target.deleted))
        return {(slug, ok) for slug, ok in names if ok or (slug, True) not in names}

    @invariant()
    def pages_and_bytes_are_counted(self) -> None:
        row = self.run_(
            self.memory.service.database.read(one("memory_used", account_id=self.memory.ann.account_id))
        )
        assert row is not None
        versions = [version for page in self.pages for version in page.versions]
        assert row["pages"] == sum(not page.deleted for page in self.pages)
        assert row["bytes"] >= 512 * len(versions)

    @invariant()
    def old_slugs_redirect_to_their_pages(self) -> None:
        for slug, number in self.redirects.items():
            page = self.pages[number]
            if page.deleted:
                continue
            view = self.run_(self.memory.service.read(self.memory.ann, slug))
            assert (view.moved, view.page.slug) == (True, page.slug)

    @invariant()
    def folders_count_their_pages(self) -> None:
        slugs = [page.slug for page in self.pages if not page.deleted]
        for prefix in ("", "x/", "y/", "y/long/"):
            below = [slug.removeprefix(prefix) for slug in slugs if slug.startswith(prefix)]
            inside = Counter(slug.partition("/")[0] for slug in below if "/" in slug)
            folder = self.run_(self.memory.service.database.read(queries.folder(self.memory.ann, prefix, 50)))
            assert {row["name"]: row["count"] for row in folder.folders} == inside
            assert [row["slug"] for row in folder.pages if prefix] == (
                sorted(prefix + slug for slug in below if "/" not in slug) if prefix else []
            )

    @invariant()
    def earlier_versions_do_not_change(self) -> None:
        moment = self.run_(self.memory.service.database.read(now()))
        alive = {n: (page.slug, page.body) for n, page in enumerate(self.pages) if not page.deleted}
        self.past.append((moment, alive))
        for moment, alive in self.past[-1::-3][:4]:
            for slug in ("a", "x/a", "c"):
                then = next((n for n, (named, _) in alive.items() if named == slug), self.located(slug))
                work = self.memory.service.read(self.memory.ann, slug, moment)
                if then is None or then not in alive:
                    with pytest.raises(errors.NotFound):
                        self.run_(work)
                else:
                    view = self.run_(work)
                    assert (view.page.slug, view.page.body) == alive[then]

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.run_(self.stack.aclose())
            self.loop.close()


def play(backend: str, examples: int, steps: int, mutant: Mutant | None = None) -> bool:
    """Try sequences; return whether all agreed with the model. A mutant changes the statements first."""
    output = {"backend": backend, "mutant": staticmethod(mutant) if mutant else None}
    case: Any = type("Machine", (PagesMachine,), output).TestCase()
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return mutants.passes(case, mutant)


MUTANTS = {
    "no link waits": statement("links_arrive", "target_id IS NULL OR", "0 OR"),
    "a link found by name is not better than none": statement("links_arrive", "OR by_name = 1", ""),
    "every link to a slug moves to its new page": statement(
        "links_arrive", "(target_id IS NULL OR by_name = 1)", "1"
    ),
    "no link waits for a path": statement("links_arrive_within", "l.target_id IS NULL", "0"),
    "a path is found from anywhere": statement("links_arrive_within", "AND SUBSTR", "OR 1 < SUBSTR"),
    "names are not looked up": statement("link_names", "place = 1", "0"),
    "old slugs are not looked up": statement("link_targets", "r.account_id = :account_id", "0"),
    "links that left the text stay": statement("links_end", "ended_at IS NULL AND", "0 AND"),
    "deleted pages stay resolved": statement("links_out", "AND t.deleted_at IS NULL", ""),
    "versions do not end": statement("versions_end", "ended_at IS NULL", "0"),
    "folders forget what they had": statement("folders_changed", "memory_folder.pages +", ""),
    "a version ends before it does": statement("versions_end", ":ended_at", ":ended_at - 20000"),
}


@pytest.mark.parametrize("backend", databases.BACKENDS)
def test_any_sequence_of_changes_agrees_with_the_model(backend: str) -> None:
    assert play(backend, 5 if backend == "postgres" else 25, 20)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTANTS)
def test_known_fault_of_the_memory_is_detected(name: str) -> None:
    assert not play("sqlite", 240, 40, MUTANTS[name])


@pytest.mark.nightly
def test_long_sequences_of_changes_agree_with_the_model() -> None:
    assert play("sqlite", 120, 60)
