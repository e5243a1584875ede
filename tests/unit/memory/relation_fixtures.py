"""The fictional world of `tests/corpora/relations`, in a database."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.core.accounts import accounts
from sixfold.core.database import Database, Transaction, one
from sixfold.core.memory import links, pages
from sixfold.core.memory.models import Caller, Link, MemoryPage
from sixfold.core.memory.relation_extraction import service as inference
from sixfold.core.memory.relation_extraction.service import Evidence
from tests.harness import databases

CORPUS = Path(__file__).parents[2] / "corpora" / "relations"


def corpus(name: str) -> Mapping[str, Any]:
    return tomllib.loads((CORPUS / f"{name}.toml").read_text("utf-8"))


def name(slug: str) -> str:
    """Return the last segment of a slug, by which the corpus names a page."""
    return slug.rpartition("/")[2]


@dataclass
class RelationFixture:
    """Pages of one account; `writes` is the writer that saves them."""

    database: Database
    writes: Caller

    async def save(
        self,
        slug: str,
        body: str = "",
        title: str = "",
        kind: str = "note",
        aliases: tuple[str, ...] = (),
        collections: tuple[str, ...] = (),
    ) -> MemoryPage:
        head = f"---\naliases: [{', '.join(aliases)}]\n---\n" if aliases else ""
        draft = pages.PageDraft(slug, title or name(slug), head, body, kind, collections=collections)

        def work() -> Transaction[tuple[MemoryPage, ...]]:
            result = yield from pages.find_exact(self.writes.account_id, slug)
            plan = pages.PageWritePlan(result and result.page, draft, deleted=bool(result and result.deleted))
            return (yield from pages.save(self.writes, "write", (plan,)))

        return (await self.database.write(work()))[0]

    async def delete(self, slug: str) -> None:
        await self.database.write(pages.delete(await self.page(slug)))

    async def page(self, slug: str) -> MemoryPage:
        row = await self.database.read(pages.find_exact(self.writes.account_id, slug))
        assert row is not None, slug
        return row.page

    async def evidence(self, slug: str, caller: Caller | None = None) -> tuple[Evidence, ...]:
        return await self.database.read(inference.evidence(caller or self.writes, await self.page(slug)))

    async def links(self, slug: str, caller: Caller | None = None) -> dict[tuple[str, str], Link]:
        """Return the inferred links of a page, by type and target."""
        row = await self.database.read(links.of_page(caller or self.writes, await self.page(slug)))
        return {(link.type, link.target): link for link in row if link.origin != "explicit"}

    async def judge(self, slug: str, kind: str, target: str, verdict: Any) -> None:
        """Confirm, dismiss or reopen a link."""
        assert await self.database.write(links.judge(await self.page(slug), target, kind, verdict))

    async def answers(self, text: str, scope: tuple[str, ...] = ()) -> dict[str, float]:
        """Return the answers to a question: the last segments of slugs, each with its score."""
        result = await self.database.read(inference.answers(self.writes.account_id, text, scope))
        slugs: dict[str, float] = {}
        for answer in result:
            row = await self.database.read(
                one("page_by_id", account_id=self.writes.account_id, id=answer.page_id)
            )
            assert row is not None
            slugs[name(row["slug"])] = answer.score
        return slugs

    async def populate(self, texts: Mapping[str, str] | None = None) -> None:
        """Write every page of the world, with its text if it has one."""
        known = corpus("world")["pages"]
        slugs: list[str] = [*(texts or {}), *(slug for slug in known if slug not in (texts or {}))]
        for slug in slugs:
            title, kind, *aliases = known.get(slug, (name(slug).replace("-", " ").title(), "note"))
            await self.save(slug, (texts or {}).get(slug, ""), title, kind, tuple(aliases))


@asynccontextmanager
async def open_relations(backend: str | None, folder: Path) -> AsyncIterator[RelationFixture]:
    """An empty world on one of the databases."""
    async with databases.running_database(backend, folder) as database:
        account = await database.write(accounts.create("ada@example.com"))
        yield RelationFixture(database, Caller(account.id, "ada"))
