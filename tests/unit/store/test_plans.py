"""Background queries use indexes, however many other rows there are."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.app import bootstrap
from sixfold.app.gateway import runtime as app_gateway
from sixfold.core.account_data import deletion
from sixfold.core.predictions import webhooks
from sixfold.core.workers import scheduler
from sixfold.store import sql
from sixfold.store.sqlite import database as sqlite
from tests.harness import backends, postgres
from tests.harness.waiting import wait_until
from tests.unit.store import plans

# Every statement that a timer, a start, a heartbeat, the outbox or a scrape of /metrics runs.
UNATTENDED = {
    "the configuration reloader, once a second": ("configuration_entries",),
    "assembly: media": ("media_expired", "media_delete", "media_blob_names", "graph_files_of_media"),
    "uploads and inputs": ("media_leaving",),
    "assembly: accounts": (
        "idempotency_sweep",
        "auth_challenge_sweep",
        "login_session_sweep",
        "oauth_sweep_grants",
        "oauth_sweep_spent",
        "oauth_sweep_clients",
        "key_rate_sweep",
        "invitation_sweep",
        "keys_end_derived",
    ),
    "key use": ("keys_used",),
    "assembly: graphs": ("graph_outcomes_sweep", "graph_sources_sweep"),
    "assembly: batches": ("batches_sweep",),
    "batches": (
        "batches_open",
        "batch_credential",
        "batch_touch",
        "batch_lines_claim",
        "batch_lines_renew",
        "batch_lines_reclaim",
        "batch_decide_done",
        "batch_line_sizes",
        "batch_lines_page",
        "batch_lines_delete",
    ),
    "assembly: files": (
        "files_expired",
        "file_drop",
        "file_stores_changed",
        "file_chunks_delete",
        "file_stores_leave",
        "file_parts_sweep",
        "file_uploads_sweep",
    ),
    "assembly: cost alerts": (
        "alerts_page",
        "alert_spending",
        "alert_count",
        "alerts_due_accounts",
        "alerts_claim",
        "alert_sent",
    ),
    "assembly: closed accounts": (
        "account_deletion_plans",
        "account_deletion_due",
        "account_deletion_predictions",
        "account_deletion_sessions",
        "account_deletion_held",
        *deletion.ERASURES,
    ),
    "outbox": (
        "outbox_due",
        "outbox_claim",
        "outbox_again",
        "outbox_end",
        "outbox_sweep",
        "prediction_by_id",
        "webhook_secret",
        "webhook_secret_first",
    ),
    "assembly: reversals": (
        "predictions_refunded_in_place",
        "predictions_withheld_for_good",
        "predictions_withheld_though_paid",
        "upload_paths_over",
    ),
    "assembly: shared folders": (
        "shared_folders_limited",
        "credential_valid",
        "shared_folder_sweep",
        "folders_leaving",
        "folder_left",
        "pages_to_leave",
    ),
    "assembly: secrets of webhooks": ("webhook_secrets_open", "webhook_secret_seal"),
    "supervisor": (
        "clock",
        "prediction_orphans",
        "prediction_engines_waiting",
        "prediction_stale",
        "prediction_lapsed",
        "prediction_heartbeat",
        "prediction_claim",
        "prediction_claim_on",
        "prediction_claim_shared",
        "prediction_requeue",
        "prediction_put_back",
        "prediction_end",
        "prediction_children",
        "servers_living",
    ),
    "neighbors": ("predictions_by_id", "predictions_ended"),
    "sessions": ("session_heartbeat", "session_lost", "session_note", "session_end", "session_forget"),
    "gateway": (
        "find_orphaned_holds",
        "gateway_call_abandon",
        "gateway_call_once_sweep",
        "gateway_call_forget",
        "content_sweep",
        "response_sweep",
        "objects_sweep",
        "delete_excess_responses",
    ),
    "memory": (
        "memory_in_use",
        "memory_index_batch",
        "memory_index_outdated",
        "memory_embed_anew",
        "memory_waiting",
        "memory_embedded",
        "memory_vector_put",
    ),
    "own models": ("custom_models_after", "custom_models_sizes", "account_operator", "custom_models_page"),
    "retention": (
        "account_by_email",
        "retention_predictions",
        "history_delete_messages",
        "history_delete_files",
        "history_delete_prompts",
        "history_delete_shares",
        "history_delete_predictions",
        "retention_sessions",
        "retention_standings_delete",
        "retention_sessions_delete",
        "retention_audit",
        "retention_audit_delete",
        "retention_media",
        "retention_media_expire",
        "retention_calls",
        "retention_calls_delete",
        "retention_operators",
        "retention_operators_delete",
        "retention_holds",
        "retention_holds_delete",
        "archive_predictions",
        "archive_media",
        "archive_sessions",
        "archive_audit",
        "archive_calls",
        "archive_operators",
        "archive_charges_page",
        "archive_charges",
        "archive_charge_delete",
        "archive_hold_delete",
        "archive_head",
        "archive_staged",
        "archive_erasing",
        "closing_balances",
    ),
    "deposits": ("deposit_addresses", "deposit_scan", "deposit_scan_set"),
    "vector stores": ("vector_store_claim", "vector_stores_expired", "vector_store_files_after"),
    "/metrics": ("prediction_states", "ledger_held"),
}

# Unattended statements that read a whole table, and why that stays short.
WHOLE = {
    "archive_head": "reads one row, the last one of the key",
    "webhook_secrets_open": "an index of what the version before left open, which is soon empty",
    "configuration_count": "when an operator adds an entry, of which there are at most 1,000",
    "configuration_entries": "every server reads all entries, at most 1,000, once a second",
    "deposit_addresses": "every address is sent to the chain's node, and only where [deposits] is set",
    "folders_leaving": "a row for each share that ended within the last minute",
    "key_rate_sweep": "a row for each key that asked within the hour; an index would be written by each call",
    "memory_in_use": "reads one row",
    "oauth_sweep_spent": "used refresh tokens of programs with access: one an hour for 30 days",
    "predictions_refunded_in_place": "an index that holds refunds only, which are few beside transfers",
}

# Statements that read a whole table and run only on request of a user.
ATTENDED = {
    "access_folders_end": "sixfold key revoke --all",
    "access_grants_end": "sixfold key revoke --all",
    "access_invitations_end": "sixfold key revoke --all",
    "access_keys_revoke": "sixfold key revoke --all",
    "access_shares_end": "sixfold key revoke --all",
    "access_sign_ins_end": "sixfold key revoke --all",
    "account_people": "sixfold account list",
    "ledger_drift_held": "sixfold ledger verify",
    "ledger_drift_posted": "sixfold ledger verify",
    "ledger_holds_without_transfer": "sixfold ledger verify",
    "ledger_overdrawn": "sixfold ledger verify",
    "ledger_parts_before_payment": "sixfold ledger verify",
    "ledger_refunds_with_results": "sixfold ledger verify",
    "ledger_predictions_unsettled": "sixfold ledger verify",
    "ledger_sessions_unsettled": "sixfold ledger verify",
    "ledger_sum_posted": "sixfold ledger verify",
    "admin_keepers": "the operator's page",
    "admin_storage": "the operator's page",
    "prediction_upstream_costs": "the operator's page",
    "predictions_orphaned": "once when a server starts",
}
# First pages of long lists, which people wait for.
PAGES = (
    "gateway_call_page",
    "gateway_run_page",
    "ledger_page",
    "prediction_page",
    "prediction_page_unfinished",
    "prediction_page_unsuccessful",
    "prompts_under_way",
    "spending",
    "history_window",
    "history_entries",
    "history_files",
    "history_parts",
    "history_sessions",
    "history_sessions_by_id",
    "history_recordings",
)
# Statements about few of the many rows of an account, each with the index that PostgreSQL must read.
SELECTIVE = {
    "prompt_named": "prediction_prompt",
    "prompts_named": "prediction_prompt",
    "history_window": "prediction_account",
    "history_window_of_credential": "prediction_credential",
    "uploads_before": "media_uploads",
    "media_withdraw_copies": "media_blob",
    "media_withdrawn": "media_blob",
    "pages_titled": "page_pkey",
    "chat_versions": "relay_conversation_pkey",
    "chat_rename": "relay_conversation_pkey",
}
SWEPT = [name for names in UNATTENDED.values() for name in names]


@pytest.fixture(scope="module")
def empty() -> sqlite3.Connection:
    """A database of this schema without statistics, as SQLite's planner sees it in a server."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function("server_lives", 1, lambda _: False)
    sqlite.migrate(connection)
    return connection


def test_sqlite_without_statistics_scans_only_listed_tables(empty: sqlite3.Connection) -> None:
    walked = {name: plans.walked_on_sqlite(empty, name) for name in sql.queries("sqlite")}
    assert {name for name, tables in walked.items() if tables} == WHOLE.keys() | ATTENDED.keys(), walked


def test_sqlite_reads_no_unlisted_posts_of_the_gallery(empty: sqlite3.Connection) -> None:
    statement = f"EXPLAIN QUERY PLAN {sql.queries('sqlite')['gallery_posts'].sql}"
    first, *_ = empty.execute(statement, {"before": "post_1", "limit": 20})
    assert first[-1] == "SEARCH p USING INDEX gallery_post_listed (id<?)"


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("keys_of", "SEARCH k USING INDEX api_key_account (account_id=?)"),
        ("keys_live", "SEARCH k USING INDEX api_key_live (account_id=?)"),
        ("keys_revoke", "SEARCH api_key USING INDEX api_key_live (account_id=?)"),
        ("vector_store_by_id", "COVERING INDEX vector_store_file_order"),
        ("vector_store_bytes", "COVERING INDEX vector_store_file_order"),
        ("vector_store_batch_counts", "COVERING INDEX vector_store_file_order"),
        ("vector_store_usage", "COVERING INDEX vector_store_file_account"),
        ("prompts_under_way", "SCAN prediction USING INDEX prediction_queue"),
        ("prompts_under_way", "SCAN prediction USING INDEX prediction_leased"),
        # The other rows of an account may be many.
        ("prompt_named", "INDEX prediction_prompt (account_id=? AND prompt_id=?)"),
        ("prompts_named", "INDEX prediction_prompt (account_id=? AND prompt_id=?)"),
        ("prompts_ended", "INDEX prediction_prompts (account_id=?)"),
        ("prompts_forget", "INDEX prediction_prompt"),
        ("history_window_of_credential", "INDEX prediction_credential (credential_id=? AND id<?)"),
        ("trainings_to_adopt", "INDEX own_model_training (account_id=? AND training_id=?)"),
        ("training_model", "INDEX own_model_training (account_id=? AND training_id=?)"),
        ("session_count", "INDEX session_unended (account_id=?)"),
        ("account_deletion_sessions", "INDEX session_unended (account_id=?)"),
        ("batches_unfinished", "INDEX batch_unended (account_id=?)"),
        ("batches_before", "INDEX batch_listed (account_id=? AND dialect=? AND id<?)"),
        ("batches_after", "INDEX batch_listed (account_id=? AND dialect=? AND id>?)"),
        ("file_usage", "COVERING INDEX account_file_usage (account_id=?)"),
        ("file_usage", "INDEX file_upload_pending (account_id=?)"),
        ("file_usage", "INDEX batch_unended (account_id=?)"),
        ("media_usage", "INDEX media_uploads (account_id=?)"),
        ("uploads_before", "INDEX media_uploads (account_id=? AND upload_id<?)"),
        ("export_media", "INDEX media_account (account_id=? AND name>?)"),
        ("media_origins", "(account_id=? AND name=?)"),
        ("media_withdraw", "INDEX graph_file_media (media=?)"),
        ("media_withdraw_copies", "SEARCH media USING INDEX media_blob (blob=?)"),
        ("media_withdraw_copies", "SEARCH o USING INDEX media_blob (blob=?)"),
        ("media_withdrawn", "SEARCH m USING INDEX media_blob (blob=?)"),
        ("gallery_original", "SEARCH media USING INDEX media_blob (blob=?)"),
        ("gallery_withdraw_copies", "SEARCH media USING INDEX sqlite_autoindex_media_1 (name=?)"),
        ("chat_rename", "(account_id=? AND id=?)"),
        ("chat_delete", "(account_id=? AND id=?)"),
        ("chat_versions", "(account_id=? AND id=?)"),
        ("shares_end_chat", "INDEX relay_conversation_versions (account_id=? AND root=?)"),
        ("memory_batches_list", "INDEX memory_batch_remembered (account_id=? AND id<?)"),
        ("pages_titled", "INDEX sqlite_autoindex_page_1 (id=?)"),
        ("pages_within", "INDEX sqlite_autoindex_page_1 (id=?)"),
        ("redirects_of", "INDEX page_redirect_page (page_id=?)"),
        ("shared_folders_limited", "INDEX shared_folder_limited (id>?)"),
        # Exports read one of these rows at a time.
        ("export_posts", "INDEX gallery_post_account (account_id=? AND id>?)"),
        ("export_conversation_items", "(account_id=? AND (conversation_id,place)>(?,?))"),
        (
            "vector_store_files_after_bound",
            "vector_store_file_order (store_id=? AND (created_at,file_id)>",
        ),
        (
            "vector_store_files_before_bound",
            "vector_store_file_order (store_id=? AND (created_at,file_id)<",
        ),
    ],
)
def test_sqlite_lists_and_counts_rows_of_an_index(empty: sqlite3.Connection, name: str, index: str) -> None:
    statement = sql.queries("sqlite")[name].sql
    plan = empty.execute(f"EXPLAIN QUERY PLAN {statement}", plans.params(name, statement)).fetchall()
    assert any(index in step[-1] for step in plan), plan


@pytest.mark.nightly
@pytest.mark.slow
def test_sqlite_with_statistics_scans_no_large_table() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function("server_lives", 1, lambda _: False)
    sqlite.migrate(connection)
    plans.fill_sqlite(connection)
    for table in plans.SWEPT_TABLES:
        (rows,) = connection.execute(plans.COUNT.format(table)).fetchone()
        assert rows >= plans.ROWS, table
    walked = {
        name: plans.walked_on_sqlite(connection, name) for name in (*SWEPT, *PAGES) if name not in WHOLE
    }
    assert {name: tables for name, tables in walked.items() if tables} == {}


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_postgresql_with_statistics_scans_no_large_table(tmp_path: Path) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    connection: Any = await asyncpg.connect(backends.database_url(tmp_path, "postgres"))
    try:
        await plans.fill_postgres(connection)
        for table in plans.SWEPT_TABLES:
            assert await connection.fetchval(plans.COUNT.format(table)) >= plans.ROWS, table
        walked = {
            name: await plans.walked_on_postgres(connection, name)
            for name in (*SWEPT, *PAGES)
            if name not in WHOLE
        }
        read = {name: await plans.indexes_on_postgres(connection, name) for name in SELECTIVE}
    finally:
        await connection.close()
    assert {name: tables for name, tables in walked.items() if tables} == {}
    assert {name: indexes for name, indexes in read.items() if SELECTIVE[name] not in indexes} == {}


@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_postgresql_indexes_of_originals_have_collation_c(tmp_path: Path) -> None:
    """Check this because PostgreSQL finds no rows for `blob` with an index of another collation."""
    import asyncpg  # noqa: PLC0415 - an extra

    connection: Any = await asyncpg.connect(backends.database_url(tmp_path, "postgres"))
    try:
        rows = await connection.fetch(
            "SELECT i.indexrelid::regclass::text AS name, c.collname FROM pg_index i "
            "JOIN pg_collation c ON c.oid = ANY (i.indcollation) "
            "WHERE i.indexrelid IN ('gallery_post_original'::regclass,"
            " 'gallery_character_original'::regclass)"
        )
    finally:
        await connection.close()
    assert sorted(map(tuple, rows)) == [("gallery_character_original", "C"), ("gallery_post_original", "C")]


class Recorded(dict[str, sql.SqlStatement]):
    """Named statements that record which of them were used."""

    def __init__(self, statements: Mapping[str, sql.SqlStatement]) -> None:
        super().__init__(statements)
        self.names: Counter[str] = Counter()

    def __getitem__(self, name: str) -> sql.SqlStatement:
        self.names[name] += 1
        return super().__getitem__(name)


async def test_an_idle_server_runs_only_statements_that_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (bootstrap, "SWEEP_SECONDS"),
        (bootstrap, "REFRESH_SECONDS"),
        (scheduler, "SWEEP_SECONDS"),
        (webhooks, "LOOK_SECONDS"),
        (app_gateway, "SWEEP_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.02)
    application = bootstrap.build(settings.Settings(data_dir=tmp_path, probe=False, lease_seconds=0.1))
    assert isinstance(application.database, sqlite.SqliteDatabase)
    recorded = Recorded(application.database.queries)
    application.database.queries = recorded
    loops = {"account_deletion_due", "prediction_stale", "outbox_due", "response_sweep", "session_heartbeat"}
    async with bootstrap.running(application), asyncio.timeout(60):
        await wait_until(lambda: not any(recorded.names[name] < 3 for name in loops))
    assert set(recorded.names) - set(SWEPT) == {"predictions_orphaned"}, "which runs once, at the start"
    assert recorded.names["predictions_orphaned"] == 1
