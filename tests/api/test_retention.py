"""Retention: rows that `[retention]` deletes and rows that it keeps, on both databases."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.app import catalog as app_catalog
from sixfold.core.account_data import retention
from sixfold.core.account_data.archive.writer import ArchiveWriter
from sixfold.core.account_data.retention import Retention
from sixfold.core.accounts import audit_log
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import many, now
from sixfold.settings import InvalidSetting
from tests.api.app_fixture import AppFixture, running_app, small_models

RUN = "/api/containers/run"
GRAPH = "/api/graph/spaces/turbo-text-to-image/run"
SMALL = {"width": 64, "height": 64}
SOURCE = Path(settings.__file__).parent


@pytest.fixture
async def app(either: Path) -> AsyncIterator[AppFixture]:
    """A server whose models paint dots and whose workflows are real, on both databases."""
    document = small_models()
    graph = app_catalog.models_document()["engines"]["graph"]
    async with running_app(
        either, {**document, "engines": {**document["engines"], "graph": graph}}
    ) as fixture:
        yield fixture


async def run_image(app: AppFixture, key: str) -> dict[str, Any]:
    body = {"model": "ra2", "input": {"prompt": "a mill", **SMALL}}
    response = await app.client.post(RUN, json=body, headers={"Authorization": f"Bearer {key}"})
    return response.json()


async def sweep(app: AppFixture, table: dict[str, Any], days: float) -> dict[str, int]:
    database = app.database
    time_us = await database.read(now()) + round(days * DAY_US)
    writer = ArchiveWriter(database, app.server.blobs)
    return dict(await Retention(writer, retention.policy(table), "boot_a").sweep(time_us))


async def runs(app: AppFixture) -> set[str]:
    rows = await app.database.read(many("retention_predictions", after="", before="q", limit=1000))
    return {str(row["id"]) for row in rows}


async def test_old_runs_are_deleted_with_parts_and_files(app: AppFixture) -> None:
    first = await run_image(app, app.key)
    body = {"input": {"prompt": "a mill", **SMALL}}
    graph = (await app.client.post(GRAPH, json=body, headers=app.bearer)).json()
    file = first["output"]["url"]
    balance = await app.balance()
    assert (await app.client.get(file)).status_code == 200
    assert len(await runs(app)) > 2, "the workflow has parts"

    assert (await sweep(app, {"predictions_days": 30}, 29.9))["predictions"] == 0
    assert {first["id"], graph["id"]} <= await runs(app)
    assert (await sweep(app, {"predictions_days": 30}, 30.1))["predictions"] == 2
    assert await runs(app) == set()
    assert (await app.client.get(file)).status_code == 404
    assert (
        await app.client.get(f"/api/containers/predictions/{first['id']}", headers=app.bearer)
    ).status_code == 404
    assert await app.balance() == balance
    assert await app.faults() == ()


async def test_accounts_have_their_own_retention_days(app: AppFixture) -> None:
    mine, other = await run_image(app, app.key), await run_image(app, app.other)
    longer = {"predictions_days": 7, "accounts": {"ada@example.com": {"predictions_days": 90}}}
    assert (await sweep(app, longer, 8))["predictions"] == 1
    assert await runs(app) == {mine["id"]}, other["id"]
    remaining = {"predictions_days": 7, "accounts": {"ada@example.com": {"predictions_days": 0}}}
    assert (await sweep(app, remaining, 1000))["predictions"] == 0
    only = {"accounts": {"ada@example.com": {"predictions_days": 7}, "nobody@example.com": {"audit_days": 1}}}
    assert (await sweep(app, only, 8))["predictions"] == 1
    assert await runs(app) == set()


async def test_runs_that_have_not_ended_stay(app: AppFixture) -> None:
    await app.server.scheduler.stop()
    body = {"model": "ra2", "input": {"prompt": "a mill", **SMALL}, "wait": 0}
    queued = (await app.client.post(RUN, json=body, headers=app.bearer)).json()
    assert (await sweep(app, {"predictions_days": 1}, 50))["predictions"] == 0
    await app.predictions.cancel(queued["id"], Tenant(app.account.id))
    assert (await sweep(app, {"predictions_days": 1}, 50))["predictions"] == 1
    assert await app.balance() == ("5.00", "0.00")


async def test_audit_entries_are_deleted_in_batches(app: AppFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)

    def note() -> Any:
        for _ in range(8):
            yield from audit_log.note(app.account.id, "test.entry")

    await app.database.write(note())
    assert (await sweep(app, {"audit_days": 2}, 1))["audit"] == 0
    assert (await sweep(app, {"audit_days": 2}, 3))["audit"] >= 8
    assert (await app.database.read(audit_log.page(app.account.id, 10, None))).entries == ()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"predictions_days": -1}, "predictions_days must be a whole number from 0 to 36500 (got -1)"),
        ({"sessions_days": 1.5}, "sessions_days must be a whole number"),
        ({"audit_days": True}, "audit_days must be a whole number"),
        ({"jobs_days": 3}, "unknown setting 'jobs_days': use predictions_days, media_days, sessions_days"),
        ({"archive": "yes"}, "archive must be true or false (got 'yes')"),
        ({"ledger_days": 30}, "ledger_days must be 0 or at least 400 (got 30)"),
        (
            {"accounts": {"a@b.c": {"ledger_days": 500}}},
            "unknown setting 'ledger_days': use predictions_days",
        ),
        ({"accounts": 3}, "[retention.accounts] must be a table"),
        ({"accounts": {"a@b.c": 3}}, '"a@b.c" must be a table'),
    ],
)
def test_invalid_tables_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        retention.policy(table)


def test_every_table_that_is_read_can_be_loaded(tmp_path: Path) -> None:
    read = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'\.tables\.get\("(\w+)"', path.read_text("utf-8"))
    }
    assert read == settings.TABLES
    (tmp_path / "sixfold.toml").write_text("".join(f"[{name}]\n" for name in sorted(read)))
    assert set(settings.load({}, data_dir=str(tmp_path)).tables) == read
    (tmp_path / "sixfold.toml").write_text("retention = 3\n")
    with pytest.raises(InvalidSetting, match=r"\[retention\] must be a table"):
        settings.load({}, data_dir=str(tmp_path))
