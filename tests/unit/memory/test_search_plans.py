"""SQLite reads what a search shows by its ids, however many pages the account has."""

from __future__ import annotations

import sqlite3

from sixfold.store import sql, sqlite


def test_results_are_fetched_by_their_ids() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite.migrate(connection)
    statement = sql.queries("sqlite")["memory_results"].sql
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", {"ids": "[]", "account_id": "a"}).fetchall()
    steps = [row[3] for row in plan]
    assert any(step.startswith("SEARCH p") and "(id=?)" in step for step in steps), steps
    assert not any("account_id=?" in step for step in steps), steps
