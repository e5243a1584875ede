"""Fills tables with many rows, and reads which tables and indexes a query plan scans fully."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sixfold.core.database import Value
from sixfold.store import sql
from sixfold.store.postgres.binding import translate

ROWS = 50_000
COUNT = "SELECT COUNT(*) FROM {}"
_INSERT = "INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT DO NOTHING"
_NUMBERS = "WITH RECURSIVE rows (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM rows WHERE n < {}) "
# The bytes of a text in PostgreSQL.
_BYTES = "convert_to({}, 'UTF8')"
_NAMES = re.compile(r"(?<!:):([a-z_]\w*)")
_SCAN = re.compile(r"SCAN (?P<table>\w+)(?: USING (?:COVERING )?INDEX (?P<index>\w+))?")
_SLOTS = re.compile(r"\$(\d+)::(text|bigint|bytea)")

# Partial indexes of rows in progress: a scan is as short as the list of these rows.
LIVE = {
    "archive_account_erasing",
    "archive_segment_staged",
    "account_closing",
    "account_operator",
    "batch_line_running",
    "batch_open",
    "hold_pending",
    "memory_index_waiting",
    "prediction_leased",
    "prediction_queue",
    "prediction_waiting",
    "prediction_withheld",
    "session_open",
    "vector_store_file_waiting",
    "webhook_due",
}

# Tables that grow with use and that unattended statements read.
SWEPT_TABLES = {
    "account",
    "account_file",
    "batch",
    "batch_line",
    "ceremony",
    "file_part",
    "file_upload",
    "graph_file",
    "graph_outcome",
    "graph_source",
    "hold",
    "idempotency",
    "media",
    "memory_index",
    "oauth_client",
    "oauth_grant",
    "page",
    "page_version",
    "prediction",
    "relay_call",
    "relay_conversation",
    "relay_object",
    "relay_once",
    "relay_response",
    "session",
    "signin",
    "transfer",
    "vector_store",
    "vector_store_chunk",
    "vector_store_file",
    "webhook_outbox",
}

# Values of parameters: about one row in a thousand is due.
_DUE = ROWS // 1000
_VALUES: Mapping[str, Value] = {
    "now": _DUE,
    "before": _DUE,
    "life": 0,
    "lease": 1,
    "limit": 200,
    "offset": 0,
    "version": 1,
    "free_runs": 2,
    "length": 3,
    "delay": 1,
    "attempt": 1,
    "seq": 1,
    "standing": b"x",
    "vectors": b"x",
    "of_change": 1,
    "block": 1,
    "change": 1,
    "most": 1000,
    "ids": '["id-100001"]',
    "keyless": 0,
    "prompt_id": "prompt-4",
    "prompt_ids": '["prompt-4"]',
    "response": 0,
    "root": "id-100001",
    "boots": '["boot-1"]',
    "after": "page_id-100001",
    "last": "page_id-100201",
    "account_id": "account-2",
    "id": "id-100050",
    "media": "name-100001",
    "model": "model-1",
    "batch_id": "id-100005",
    "engine": "engine-1",
    "before_at": ROWS,
    "before_id": "",
    "since": ROWS - 500,
    "pattern": "%%",
    "state": "",
    "key_id": "",
}

_OF_QUERY: Mapping[str, Mapping[str, Value]] = {
    "alert_count": {"counted_until": 1, "amount": 1, "is_due": 1},
    "alert_sent": {"due_at": 1},
    "alert_spending": {"until": ROWS, "start": ROWS - 500, "key_id": "key-1"},
    "batch_line_sizes": {"after": 1},
    "batch_lines_page": {"after": 1},
    "outbox_claim": {"busy": '["account-1"]', "window": 500, "share": 8},
    "archive_charges_page": {"after_at": ROWS - 500, "after_id": "", "before": ROWS},
    "gateway_call_page": {"before": "id-150000", "model": ""},
    "gateway_run_page": {"before": "id-150000", "model": ""},
    "prediction_page": {"before": "id-150000", "model": ""},
    "prediction_page_unfinished": {"before": "id-150000", "model": "", "state": "queued"},
    "prompts_under_way": {"credential_id": "", "keyless": 0},
    "prediction_page_unsuccessful": {"before": "id-150000", "model": "", "state": "failed"},
    "retention_predictions": {"before": "id-150000", "after": "id-100000"},
    "retention_sessions": {"before": "id-150000", "after": "id-100000"},
    "retention_audit": {"before": "id-150000", "after": "id-100000"},
    "retention_calls": {"before": "id-150000", "after": "id-100000"},
    "retention_holds": {"before": "id-150000", "after": "id-100000"},
    "retention_media": {"before": "id-150000", "after": "id-100000"},
    "retention_operators": {"before": "id-150000", "after": "id-100000"},
    "history_window": {"before": "id-150000", "credential_id": "", "texts": 1},
    "history_sessions": {"before": "id-150000", "after": "id-100000", "credential_id": "", "model": ""},
    "history_window_of_credential": {"before": "id-150000", "credential_id": "key-2", "texts": 1},
    "prompt_named": {"credential_id": ""},
    "prompts_named": {"credential_id": ""},
    "uploads_before": {"bound": "id-150000", "credential_id": ""},
    "history_sessions_by_id": {"credential_id": ""},
    "history_recordings": {
        "credential_id": "",
        "sessions": '[{"id": "s", "after": "id-100000", "before": "id-150000", "pattern": "%%"}]',
    },
}

# Columns whose values matter to a plan, as SQL over the row's number `n`; of the others each row has its own.
_COLUMNS = {
    # One account owns a fifth of the rows; the others have a few each.
    "account_id": "CASE WHEN n % 5 = 0 THEN 'account-1' ELSE 'account-' || (n % 10000) END",
    "engine": "'engine-' || (n % 50)",
    "holder": "'boot-' || (n % 3)",
    "model": "'model-' || (n % 50)",
    "account.id": "'account-' || n",
    "account.kind": "CASE WHEN n = 1 THEN 'operator' ELSE 'customer' END",
    "account.closing_at": "CASE WHEN n % 5000 = 0 THEN n END",
    "account.subscription": "CASE WHEN n % 2 = 0 THEN 'plan-' || n END",
    "account.held": "0",
    "account.can_go_negative": "0",
    "account_file.expires_at": "CASE WHEN n % 2 = 0 THEN n END",
    "batch.dialect": "'openai'",
    "batch.ended_at": "CASE WHEN n % 5000 <> 0 THEN n END",
    "batch.state": "'completed'",
    "batch_line.batch_id": "'id-' || (100000 + n / 100)",
    "batch_line.state": "CASE n % 5000 WHEN 0 THEN 'pending' WHEN 1 THEN 'running' ELSE 'done' END",
    "file_upload.state": "'completed'",
    "graph_file.kind": "'output'",
    "graph_outcome.media": "'name-' || (100000 + n)",
    "hold.captured": "0",
    "hold.state": "CASE WHEN n % 5000 = 0 THEN 'pending' ELSE 'captured' END",
    "media.expires_at": "CASE WHEN n % 2 = 0 THEN n END",
    "media.kind": "'output'",
    "memory_index.embedded": "CASE WHEN n % 5000 = 0 THEN '' ELSE 'model-1' END",
    "memory_statement.subject_id": "'page_id-' || (100000 + n)",
    "own_model.name": "'name-' || n",
    "page.id": "'page_id-' || (100000 + n)",
    "page_link.maker": "'body'",
    "page_link.origin": "'explicit'",
    "page_version.version": "1",
    "prediction.completed_at": "n",
    "prediction.keyless": "0",
    "prediction.withheld": "0",
    "prediction.lease_until": "CASE WHEN n % 5000 = 1 THEN n END",
    "prediction.meter": "'fixed'",
    "prediction.credential_id": "CASE WHEN n % 2 = 0 THEN 'key-' || (n % 1000) END",
    "prediction.prompt_id": "CASE WHEN n % 4 = 0 THEN 'prompt-' || n END",
    "prediction.parent_id": "CASE WHEN n % 100 = 0 THEN 'id-' || (100000 + n - 1) END",
    "prediction.state": "CASE n % 5000 WHEN 0 THEN 'queued' WHEN 1 THEN 'running' ELSE 'succeeded' END",
    "relay_call.state": "'succeeded'",
    "relay_conversation.root": "CASE WHEN n % 10 = 0 THEN 'id-' || (100000 + n - 1) ELSE '' END",
    "relay_response.previous": "CASE WHEN n % 2 = 0 THEN 'id-' || (100000 + n - 1) END",
    "session.closed_at": "CASE WHEN n % 5000 <> 0 THEN n END",
    "signin.kind": "'session'",
    "timeline_entry.maker": "'body'",
    "transfer.credit": "CASE WHEN n % 2 = 0 THEN 'revenue' ELSE 'account-' || (n % 10000) END",
    "transfer.debit": "CASE WHEN n % 2 = 0 THEN 'account-' || (n % 10000) ELSE 'world' END",
    "upload_folder.keyless": "0",
    "vector_store.expired": "0",
    "vector_store.expires_days": "1",
    "vector_store.last_active_at": "86400000000 + n",
    "vector_store_chunk.file_id": "'id-' || (100000 + n)",
    "vector_store_file.file_id": "'id-' || (100000 + n)",
    "vector_store_file.status": "CASE WHEN n % 5000 = 0 THEN 'in_progress' ELSE 'completed' END",
    "webhook_outbox.ended_at": "CASE WHEN n % 5000 <> 0 THEN n END",
    "webhook_outbox.event": "'completed'",
    "webhook_outbox.prediction_id": "'id-' || (100000 + n)",
}
_ONE_TO_AN_ACCOUNT = {"deposit_address", "memory_change", "memory_usage", "upload_folder"}


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    needed: bool


def values(table: str, columns: list[Column], blob: str) -> str:
    """Return the SQL values of row `n`; `blob` is the SQL of a binary value for a text."""
    return ", ".join(_value(table, column, blob) for column in columns)


def _value(table: str, column: Column, blob: str) -> str:
    known = _COLUMNS.get(f"{table}.{column.name}", _COLUMNS.get(column.name))
    if known is not None and not (table in _ONE_TO_AN_ACCOUNT and column.name == "account_id"):
        return known
    if not column.needed:
        return "NULL"
    if column.type.upper() in ("BLOB", "BYTEA"):
        return blob.format(f"'{column.name}-' || n")
    return f"'{column.name}-' || (100000 + n)" if column.type.upper() == "TEXT" else "n"


def fill_sqlite(connection: sqlite3.Connection) -> None:
    """Fill each of `SWEPT_TABLES`, and create the statistics of SQLite."""
    connection.execute("PRAGMA foreign_keys = OFF")
    for table in sorted(SWEPT_TABLES):
        result = connection.execute(f"PRAGMA table_info({table})").fetchall()
        columns = [Column(name, kind, bool(needed or key)) for _, name, kind, needed, _, key in result]
        column_names = ", ".join(column.name for column in columns)
        row = values(table, columns, "CAST({} AS BLOB)")
        connection.execute(
            _NUMBERS.format(ROWS) + _INSERT.format(table, column_names, row, "rows WHERE true")
        )
    connection.execute("ANALYZE")


def walked_on_sqlite(connection: sqlite3.Connection, name: str) -> set[str]:
    """Return the tables and indexes that a statement reads completely, except those of `LIVE`."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    text = sql.queries("sqlite")[name].sql
    walked: set[str] = set()
    for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {text}", params(name, text)):
        scan = _SCAN.match(step)
        if scan is not None and scan["index"] not in LIVE:
            alias = re.compile(rf"\b(\w+)\s+(?:AS\s+)?{re.escape(scan['table'])}\b")
            walked |= tables & {scan["table"], *alias.findall(text)}
    return walked


async def fill_postgres(connection: Any) -> None:
    """Fill each of `SWEPT_TABLES`, and create the statistics of PostgreSQL."""
    result = await connection.fetch(
        "SELECT c.table_name, c.column_name, c.data_type, c.is_nullable FROM information_schema.columns c "
        "JOIN information_schema.tables t USING (table_schema, table_name) "
        "WHERE t.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER' "
        "ORDER BY c.table_name, c.ordinal_position"
    )
    tables: dict[str, list[Column]] = {}
    for table, name, kind, nullable in result:
        tables.setdefault(table, []).append(Column(name, kind, nullable == "NO"))
    # The role disables foreign keys and triggers.
    await connection.execute("SET session_replication_role = replica")
    for table in sorted(SWEPT_TABLES):
        columns = tables[table]
        column_names = ", ".join(column.name for column in columns)
        row = values(table, columns, _BYTES)
        rows = f"generate_series(1, {ROWS}) AS rows (n)"
        await connection.execute(_INSERT.format(table, column_names, row, rows))
    await connection.execute("SET session_replication_role = DEFAULT")
    await connection.execute("ANALYZE")


async def walked_on_postgres(connection: Any, name: str) -> set[str]:
    """Return the tables and indexes that PostgreSQL reads completely if one row in a thousand is due."""
    return set(_walks(await _plan(connection, name))) - LIVE


async def indexes_on_postgres(connection: Any, name: str) -> set[str]:
    """Return the indexes that PostgreSQL reads for a statement about the account with the most rows."""
    return set(_indexes(await _plan(connection, name, account_id="account-1")))


async def _plan(connection: Any, name: str, **known: Value) -> Mapping[str, Any]:
    text = sql.queries("postgres")[name].sql
    values_of = {**params(name, text), **known}
    prepared = translate(text, values_of)
    inputs = [_literal(values_of[param]) for param in prepared.names]
    bound = _SLOTS.sub(lambda slot: f"{inputs[int(slot[1]) - 1]}::{slot[2]}", prepared.text)
    return json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {bound}"))[0]["Plan"]


def params(name: str, text: str) -> dict[str, Value]:
    """Return a value for each parameter of a statement."""
    known = {**_VALUES, **_OF_QUERY.get(name, {})}
    return {param: known.get(param, 1 if param.endswith("_us") else "x") for param in _NAMES.findall(text)}


def _literal(value: Value) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _walks(node: Mapping[str, Any]) -> Iterator[str]:
    kind = node["Node Type"]
    if kind == "Seq Scan" and node["Relation Name"] in SWEPT_TABLES:
        yield node["Relation Name"]
    elif "Index Name" in node and "Index Cond" not in node:
        yield node["Index Name"]
    for below in node.get("Plans", ()):
        yield from _walks(below)


def _indexes(node: Mapping[str, Any]) -> Iterator[str]:
    if "Index Name" in node:
        yield node["Index Name"]
    for below in node.get("Plans", ()):
        yield from _indexes(below)
