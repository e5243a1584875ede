"""Lookups by id read by id, however many pages the account has."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.memory import commands, pages, queries
from sixfold.core.memory.commands import FREELY, PageWriter, WriteTerms
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.links import LinkPath
from sixfold.core.memory.models import Caller
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store import sql
from sixfold.store.search.index import PageIndex
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends, databases, postgres
from tests.unit.memory.query_plans import Explained

PAGES = 10_000
FEW = 60


def test_results_are_fetched_by_their_ids() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite.migrate(connection)
    statement = sql.queries("sqlite")["memory_results"].sql
    inputs = {"ids": "[]", "account_id": "a", "most": 1}
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", inputs).fetchall()
    steps = [row[3] for row in plan]
    assert any(step.startswith("SEARCH p") and "(id=?)" in step for step in steps), steps
    assert not any("account_id=?" in step for step in steps), steps


_FILL = f"""
INSERT INTO page SELECT 'p' || n, $1, 'log/' || n, n::text, 'Day', 'note', '[]', '[]', 1, n, n, 'ada', NULL
FROM generate_series(1, {PAGES}) AS n;
INSERT INTO page_version
SELECT id, 1, account_id, slug, title, type, '[]', '[]', '', 'write', 'ada', created_at, NULL, 5, '', 'Quiet'
FROM page;
INSERT INTO memory_name SELECT account_id, 'day ' || name, id, 0 FROM page;
INSERT INTO memory_index (page_id, account_id, change, entry) SELECT id, account_id, 1, '[' FROM page;
INSERT INTO memory_change SELECT account_id, 1 FROM page LIMIT 1;
INSERT INTO page_link (page_id, type, target, maker, created_at, account_id, target_id, origin, context)
SELECT id, 'links_to', 'log/1', 'body', 1, account_id, 'p' || 1 + mod(created_at * 7, {PAGES}), 'explicit', ''
FROM page WHERE mod(created_at, 6) = 0
"""  # noqa: S608 - a number of ours


@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_postgresql_page_queries_never_scan_the_account(tmp_path: Path) -> None:
    """After an import, tables have no statistics, so the planner may prefer the account's index."""
    import asyncpg  # noqa: PLC0415 - an extra

    async with databases.running_database("postgres", tmp_path) as database:
        account = await database.write(accounts.create("ada@example.com"))
        caller = Caller(account.id, "ada")
        connection: Any = await asyncpg.connect(backends.database_url(tmp_path))
        for statement in _FILL.split(";"):
            await connection.execute(statement.replace("$1", f"'{account.id}'"))
        explained = Explained(connection)
        index_cache = IndexCache(database, PageIndex)
        finder = SearchService(explained, index_cache)
        writer = PageWriter(caller, MemoryLimits())
        # After the first search, the index is only updated.
        assert not (await finder.search(caller, SearchRequest("anvils"))).hits
        body = "Ann Lee works at Acme. See [[log/7]] and [[8]].\n\n## Timeline\n\n- 2026-05-08: met [[log/9]]"
        for slug, text in (("people/ann", body), ("companies/acme", "It makes anvils."), ("x", "[[ann]]")):
            await explained.write(commands.write(writer, PageWrite(slug, text), FREELY))
        for text in ("[[ann]] again", "Nobody."):
            await explained.write(commands.write(writer, PageWrite("x", text), WriteTerms(overwrite=True)))
        hits = (await finder.search(caller, SearchRequest("who works at Acme?"))).hits
        assert hits[0].slug == "people/ann"
        await explained.read(queries.get_with_relations(caller, "people/ann"))
        await explained.read(queries.get_neighborhood(caller, "x", LinkPath(depth=3)))
        await explained.read(pages.list_rows(caller, pages.PageFilter(prefix="log/2"), 10))
        await explained.write(commands.rename(writer, "people/ann", "people/ann-lee", FREELY))
        await explained.write(commands.delete(writer, "x", FREELY))
        await connection.close()
    assert {name: most for name, most in explained.rows.items() if most > FEW} == {}
