"""The archive: rows that retention removed can be read and verified, and erasure applies to it."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.account_data import deletion, retention
from sixfold.core.account_data.archive import ledger as ledger_archive
from sixfold.core.account_data.archive import segments
from sixfold.core.account_data.archive.reader import ArchiveCheck, ArchiveReader
from sixfold.core.account_data.archive.segments import SegmentDamaged, SegmentHeader
from sixfold.core.account_data.archive.writer import ArchiveWriter
from sixfold.core.account_data.export import export_account
from sixfold.core.account_data.retention import Retention, SweepLeaseLost
from sixfold.core.accounts import ledger
from sixfold.core.accounts.ledger import LedgerEntry
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Transaction, TransactionConflict, many, now, one
from sixfold.core.media.blob_keys import blob_key
from tests.api.app_fixture import AppFixture, running_app, small_models
from tests.api.test_retention import run_image

ALL = {"predictions_days": 30, "audit_days": 30, "ledger_days": 400, "archive": True}
PREDICTION = "/api/containers/predictions/{}"


@pytest.fixture
async def app(either: Path) -> AsyncIterator[AppFixture]:
    """A server with dot engines, on both databases."""
    async with running_app(either, small_models()) as fixture:
        yield fixture


def sweeper(app: AppFixture, table: dict[str, Any], boot: str = "boot_a") -> Retention:
    return Retention(ArchiveWriter(app.database, app.server.blobs), retention.policy(table), boot)


async def sweep(app: AppFixture, table: dict[str, Any], days: float) -> dict[str, int]:
    time_us = await app.database.read(now()) + round(days * DAY_US)
    return dict(await sweeper(app, table).sweep(time_us))


async def verify(app: AppFixture) -> ArchiveCheck:
    return await ArchiveReader(app.database, app.server.blobs).verify()


async def find_entries(app: AppFixture, record_id: str) -> list[dict[str, Any]]:
    reader = ArchiveReader(app.database, app.server.blobs)
    return [record async for record in reader.find(record_id)]


async def ledger_of(app: AppFixture, limit: int = 50) -> list[dict[str, Any]]:
    """Return all entries of the ledger, read in pages."""
    entries: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        query = {"limit": str(limit), "cursor": cursor}
        page = (await app.client.get("/api/account/ledger", params=query, headers=app.bearer)).json()
        assert len(page["entries"]) <= limit
        entries += page["entries"]
        cursor = page["next_cursor"]
    return entries


async def test_archived_runs_are_read_from_the_archive(app: AppFixture) -> None:
    run = await run_image(app, app.key)
    assert (await sweep(app, ALL, 30.5))["predictions"] == 0, "a small batch waits for a day"
    assert (await sweep(app, ALL, 31.5))["predictions"] == 1
    records = await find_entries(app, run["id"])
    assert [record["table"] for record in records] == ["prediction", "media"]
    assert records[0]["row"]["state"] == "succeeded"
    assert "a mill" in records[0]["row"]["inputs"]
    response = await app.client.get(PREDICTION.format(run["id"]), headers=app.bearer)
    assert response.status_code == 404
    assert "only the operator can read the archive" in response.text
    other = await app.client.get(
        PREDICTION.format(run["id"]), headers={"Authorization": f"Bearer {app.other}"}
    )
    assert "archived" not in other.text
    check = await verify(app)
    assert (check.faults, check.segments, check.charges) == ([], 2, 0)
    assert check.records > 2


async def test_the_ledger_is_verified_from_closing_balances(app: AppFixture) -> None:
    for key in (app.key, app.key, app.other):
        await run_image(app, key)
    before = await app.balance()
    entries = len(await ledger_of(app))
    assert (await sweep(app, ALL, 399))["ledger"] == 0, "not yet"
    assert (await sweep(app, ALL, 402))["ledger"] == 3
    *left, closing = await ledger_of(app)
    assert len(left) == entries - 2
    assert (closing["kind"], closing["amount_usd"]) == ("archived", "-0.08")
    assert sum(Decimal(entry["amount_usd"]) for entry in (*left, closing)) == Decimal(before[0])
    assert await ledger_of(app, limit=len(left)) == [*left, closing], "on a separate page"
    assert await app.balance() == before
    assert await app.faults() == ()
    check = await verify(app)
    assert (check.faults, check.charges) == ([], 3)
    run = await run_image(app, app.key)
    assert await app.faults() == ()
    assert (await sweep(app, ALL, 402))["ledger"] == 1
    assert (await verify(app)).charges == 4
    [record] = [line for line in await find_entries(app, run["id"]) if line["table"] == "transfer"]
    assert (record["row"]["hold_id"], record["row"]["kind"]) == (run["id"], "charge")
    assert await app.faults() == ()


async def test_charges_are_archived_only_after_their_runs(app: AppFixture) -> None:
    await run_image(app, app.key)
    limits = {**ALL, "predictions_days": 0}
    assert (await sweep(app, limits, 500))["ledger"] == 0
    assert await app.faults() == ()
    with pytest.raises(TransactionConflict):
        await app.database.write(delete_charges())
    assert (await sweep(app, ALL, 500))["ledger"] == 1


def delete_charges() -> Transaction[None]:
    rows = yield from many("archive_charges_page", after_at=-1, after_id="", before=2**60, limit=10)
    assert rows
    yield Query("archive_charge_delete", {}, [{"id": row["id"]} for row in rows])


async def test_released_holds_are_removed_with_old_charges(app: AppFixture) -> None:
    hold_id = f"pred_{1:036}"

    def spend() -> Transaction[None]:
        yield from ledger.hold(app.account.id, hold_id, 7)
        yield from ledger.release(hold_id)

    await app.database.write(spend())
    assert (await sweep(app, ALL, 500))["holds"] == 1
    assert await app.database.read(one("hold_by_id", id=hold_id)) is None
    assert await app.faults() == ()


async def test_changed_archive_is_reported_as_a_fault(app: AppFixture) -> None:
    await run_image(app, app.key)
    await sweep(app, ALL, 500)
    [row, *_] = [row async for row in ArchiveReader(app.database, app.server.blobs).rows()]
    blobs, key = app.server.blobs, str(row["blob"])
    data = await blobs.get(key)
    await blobs.delete(key)
    assert "its file is missing" in (await verify(app)).faults[0]
    await blobs.put(key, gzip.compress(gzip.decompress(data).replace(b"a mill", b"a hill")))
    assert "does not match its hash" in (await verify(app)).faults[0]
    await blobs.delete(key)
    await blobs.put(key, data)
    assert (await verify(app)).faults == []


async def test_closing_balances_must_follow_from_the_charges(app: AppFixture) -> None:
    await run_image(app, app.key)
    await sweep(app, ALL, 500)
    change = {"account_id": app.account.id, "balance": -1, "entries": 1}
    await app.database.write(many("closing_balance_set", **change))
    faults = (await verify(app)).faults
    assert f"{app.account.id}: the closing balance differs from the archived charges" in faults
    assert any("balance differs from the sum" in fault for fault in await app.faults())


async def test_an_export_has_the_archived_records_of_its_account(app: AppFixture) -> None:
    run, other = await run_image(app, app.key), await run_image(app, app.other)
    await sweep(app, ALL, 500)
    application = app.server
    data = b"".join(
        [piece async for piece in export_account(application.database, application.blobs, app.account.id)]
    )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        text = archive.read("archive.jsonl")
    rows = [segments.msgspec.json.decode(line) for line in text.splitlines()]
    [prediction] = [row for row in rows if row["record"] == "prediction"]
    assert (prediction["id"], prediction["cost_usd"]) == (run["id"], "0.04")
    assert [row["amount_usd"] for row in rows if row["record"] == "transfer"] == ["0.04"]
    assert other["id"].encode() not in text
    assert not {"upstream_cost", "fingerprint", "holder", "task"} & prediction.keys()


async def test_erasure_reaches_the_archive(app: AppFixture) -> None:
    for key in (app.key, app.other):
        await run_image(app, key)
    account_id = app.account.id
    await sweep(app, ALL, 500)
    database = app.database
    await database.write(many("account_deletion_set", id=account_id, closing_at=1, by_operator=0))
    assert await database.write(deletion.erase(account_id))
    head = (await verify(app)).head
    assert await sweeper(app, ALL).erase() > 0
    check = await verify(app)
    assert (check.faults, check.head, check.charges) == ([], head, 2)
    texts = [gzip.decompress(data) async for data in files(app)]
    assert sum(text.count(b'"erased"') for text in texts) > 0
    personal = [line for text in texts for line in text.splitlines() if account_id.encode() in line]
    assert {segments.msgspec.json.decode(line)["table"] for line in personal} == {"transfer", "closing"}
    assert b"a mill" in b"".join(texts), "the other account's run stays"
    assert not await database.read(many("archive_staged", limit=1))
    assert await sweeper(app, ALL).erase() == 0


async def files(app: AppFixture) -> AsyncIterator[bytes]:
    async for row in ArchiveReader(app.database, app.server.blobs).rows():
        yield await app.server.blobs.get(str(row["blob"]))


async def test_record_changed_during_the_sweep_is_not_deleted(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await run_image(app, app.key)
    retaining = sweeper(app, {"predictions_days": 1, "archive": True})
    write = ArchiveWriter.write
    stored = []

    async def change_first(writer: ArchiveWriter, plan: Any) -> bool:
        await app.database.write(many("retention_media_expire", id=run["id"]))
        stored.append(plan)
        return await write(writer, plan)

    monkeypatch.setattr(ArchiveWriter, "write", change_first)
    assert (await retaining.sweep(await app.database.read(now()) + 9 * DAY_US))["predictions"] == 0
    assert stored
    assert (await app.client.get(PREDICTION.format(run["id"]), headers=app.bearer)).status_code == 200
    check = await verify(app)
    assert (check.segments, check.faults) == (0, [])
    assert not await app.database.read(many("archive_staged", limit=1))


@pytest.mark.parametrize("either", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_one_server_sweeps_at_a_time(app: AppFixture) -> None:
    await run_image(app, app.key)
    first, second = sweeper(app, ALL, app.server.scheduler.boot), sweeper(app, ALL)
    await first.keep_lease()
    time_us = await app.database.read(now()) + 500 * DAY_US
    with pytest.raises(SweepLeaseLost):
        await second.sweep(time_us)
    assert (await first.sweep(time_us))["predictions"] == 1
    assert (await second.sweep(time_us))["predictions"] == 0, "the lease was ended"


async def test_shared_runs_are_kept_and_media_have_their_own_retention(app: AppFixture) -> None:
    run, other = await run_image(app, app.key), await run_image(app, app.other)
    share = {"kind": "run", "id": run["id"]}
    response = await app.client.post("/api/shares", json=share, headers=app.bearer)
    assert response.status_code == 201, response.text
    assert (await sweep(app, {"media_days": 7}, 8))["media"] == 2
    assert (await app.client.get(run["output"]["url"])).status_code == 404
    assert (await app.client.get(PREDICTION.format(run["id"]), headers=app.bearer)).status_code == 200
    assert (await sweep(app, {"predictions_days": 7}, 8))["predictions"] == 1
    assert (await app.client.get(PREDICTION.format(other["id"]), headers=app.bearer)).status_code == 404
    await app.client.delete(f"/api/shares/{response.json()['id']}", headers=app.bearer)
    assert (await sweep(app, {"predictions_days": 7}, 8))["predictions"] == 1


async def test_batches_are_bounded(app: AppFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_archive, "BATCH", 4)
    entry = LedgerEntry("chat", "a chat")

    def charge() -> Transaction[None]:
        for number in range(10):
            hold_id = f"req_{number:036}"
            yield from ledger.hold(app.account.id, hold_id, 7)
            yield from ledger.capture(hold_id, 7, entry)

    await app.database.write(charge())
    assert (await sweep(app, ALL, 500))["ledger"] == 10
    rows = [row async for row in ArchiveReader(app.database, app.server.blobs).rows()]
    assert [row["records"] for row in rows if row["kind"] == "ledger"] == [10, 10, 6]
    assert (await verify(app)).faults == []
    assert await app.faults() == ()


def test_a_segment_keeps_its_hash_when_lines_are_erased() -> None:
    header = SegmentHeader(segments.FORMAT, 1, "audit", "")
    lines = [segments.line_of("audit", name, {"id": name, "detail": b"x"}) for name in ("a", "b", "c")]
    segment = segments.build(header, lines)
    erased, count = segments.erase(segment, {"b"})
    second_segment = segments.parse(erased.data)
    assert (count, second_segment.hash, blob_key(second_segment.data) == blob_key(segment.data)) == (
        1,
        segment.hash,
        False,
    )
    assert [bool(line.erased) for line in second_segment.lines] == [False, True, False]
    assert segments.erase(second_segment, {"b"})[1] == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"text", gzip.compress(b""), gzip.compress(b'{"format":"x"}\n')],
    ids=["empty", "no gzip", "no header", "another format"],
)
def test_damaged_segment_raises_segment_damaged(data: bytes) -> None:
    with pytest.raises(SegmentDamaged):
        segments.parse(data)
