"""The sums of an account change once for each statement that deletes rows, on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.store.postgres import connection as connections
from tests.harness import backends, postgres

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]
ROWS = 30
_ROWS = "generate_series(1, {}) AS rows (n)"
_INSERT = "INSERT INTO {} (account_id, {}) SELECT 'acct_' || (1 + n % 2), {} FROM {}"
_DELETE = "DELETE FROM {}"
_SUMS = "SELECT {} FROM storage_usage ORDER BY account_id"
_CHANGES = "SELECT pg_stat_get_xact_tuples_updated('storage_usage'::regclass)"
# A table, the columns and values of row `n` whose size is 10, and the sum from which its rows are removed.
TABLES = {
    "graph_outcome": ("key, shown, expires_at, size", "'k' || n, '[]', 1, 10", "cached_bytes"),
    "idempotency": (
        "id, body_hash, boot, created_at, size",
        "'i' || n, ''::bytea, 'b', 1, 10",
        "reply_bytes",
    ),
    "media": (
        "name, blob, kind, content_type, created_at, is_cached, size",
        "'m' || n, 'b' || n, 'output', 'image/png', 1, 1, 10",
        "cached_bytes",
    ),
    "prediction": (
        "id, request_id, face, model, engine, quality, output_kind, inputs, task, fingerprint, origin_id, "
        "state, price, credits, created_at, stored_bytes",
        "'p' || n, 'r', 'f', 'm', 'e', 'q', 'image', '{}', '{}', ''::bytea, 'p', 'failed', 0, 0, 1, 10",
        "free_bytes",
    ),
}


async def _filled(connection: Any, table: str) -> None:
    columns, values, _ = TABLES[table]
    for account in ("acct_1", "acct_2"):
        await connection.execute(
            "INSERT INTO account (id, kind, created_at) VALUES ($1, 'customer', 1)", account
        )
        await connection.execute(
            "INSERT INTO storage_usage (account_id, free_bytes, cached_bytes, reply_bytes) "
            "VALUES ($1, 1000, 1000, 1000)",
            account,
        )
    await connection.execute(_INSERT.format(table, columns, values, _ROWS.format(ROWS)))


@pytest.mark.parametrize("table", TABLES)
async def test_deletion_changes_each_sum_once(tmp_path: Path, table: str) -> None:
    connection: Any = await connections.connect(backends.database_url(tmp_path, "postgres"))
    try:
        await _filled(connection, table)
        async with connection.transaction():
            await connection.execute(_DELETE.format(table))
            changes = await connection.fetchval(_CHANGES)
        sums = await connection.fetch(_SUMS.format(TABLES[table][2]))
    finally:
        await connections.close(connection)
    assert [row[0] for row in sums] == [1000 - 10 * ROWS // 2] * 2
    assert changes == len(sums)


async def test_deletion_without_sizes_changes_no_sum(tmp_path: Path) -> None:
    connection: Any = await connections.connect(backends.database_url(tmp_path, "postgres"))
    try:
        await _filled(connection, "idempotency")
        await connection.execute("UPDATE idempotency SET size = 0")
        before = await connection.fetch(_SUMS.format("*"))
        await connection.execute("DELETE FROM idempotency")
        assert await connection.fetch(_SUMS.format("*")) == before
    finally:
        await connections.close(connection)
