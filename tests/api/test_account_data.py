"""Export and deletion of an account: what they include, and what the ledger keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import sqlite3
import tracemalloc
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from sixfold.core.account_data import export
from sixfold.core.accounts import accounts, audit_log, keys, rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.database import Query, Transaction
from sixfold.store.postgres.database import PostgresDatabase
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_pages import signed_in

EXPORT, ACCOUNT = "/api/account/export", "/api/account"


async def use_everything(app: AppFixture) -> str:
    """Create some of everything for the first account; return the URL of one of its images."""
    response = await app.client.post(
        "/api/ra1-art-generator", json={"api_key": app.key, "prompt": "a lighthouse", "size": "1024x1024"}
    )
    url = str(response.json()["image_url"])
    upload = await app.client.post("/api/uploads", content=b"kept words", headers=app.bearer)
    assert upload.status_code == 201
    for slug, body in (
        ("people/ann", "# Ann\n\n- works_at [[companies/acme]]\n"),
        ("companies/acme", "# Acme\n"),
    ):
        await app.client.post("/api/pages", json={"slug": slug, "body": body}, headers=app.bearer)
    hero = {"api_key": app.key, "name": "Sailor", "description": "Salt", "greeting": "Ahoy"}
    assert (await app.client.post("/api/create-ai", json=hero)).status_code == 200
    post = {"api_key": app.key, "text": "My lighthouse", "media_url": url, "tags": ["sea"]}
    assert (await app.client.post("/api/create-post", json=post)).status_code == 200
    return url


def read_zip(answer: httpx.Response) -> zipfile.ZipFile:
    assert answer.status_code == 200
    result = zipfile.ZipFile(io.BytesIO(answer.content))
    assert result.testzip() is None
    return result


def lines(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(f"{name}.jsonl").splitlines()]


async def test_large_rows_are_read_in_small_batches(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, sizes = any_database_app, list[int]()
    many = export.many

    def record(query: str, **params: Any) -> Transaction[Any]:
        rows = yield from many(query, **params)
        if query == "export_audit":
            sizes.append(sum(len(row["detail"]) for row in rows))
        return rows

    monkeypatch.setattr(export, "many", record)
    # Small rows first: the size of a batch must not follow from the size of earlier rows.
    texts = ["x"] * 40 + ["x" * 400_000] * 20
    for text in texts:
        await app.database.write(audit_log.note(app.account.id, "test", text))
    result = read_zip(await app.client.get(EXPORT, headers=app.bearer))
    exported = [row["detail"] for row in lines(result, "audit") if row["action"] == "test"]
    assert sorted(exported) == sorted(texts)
    assert max(sizes) < export._BATCH_BYTES + len(texts[-1])
    assert len(sizes) <= (20 if isinstance(app.database, PostgresDatabase) else len(texts) + 8)


async def test_exports_that_wait_for_their_clients_hold_no_rows(app: AppFixture) -> None:
    text = "x" * 2**20
    for _ in range(4):
        await app.database.write(audit_log.note(app.account.id, "test", text))
    assert app.server is not None
    exports = [export.export_account(app.database, app.server.blobs, app.account.id) for _ in range(8)]
    tracemalloc.start()
    try:
        for _ in range(60):
            await asyncio.gather(*(anext(each, b"") for each in exports))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [await anext(each, b"") for each in exports] == [b""] * 8, "All rows have been read"
    assert peak < 16 * len(text)


async def test_export_has_all_data_of_its_account_only(any_database_app: AppFixture) -> None:
    app = any_database_app
    url = await use_everything(app)
    other = {"api_key": app.other, "prompt": "another's secret wish", "size": "1024x1024"}
    await app.client.post("/api/ra1-art-generator", json=other)
    response = await app.client.get(EXPORT, headers=app.bearer)
    assert "attachment" in response.headers["Content-Disposition"]
    result = read_zip(response)
    account = json.loads(result.read("account.json"))
    assert (account["email"], account["balance_usd"]) == ("ada@example.com", "4.96")
    assert [entry["amount_usd"] for entry in lines(result, "ledger")] == ["-0.04", "5.00"]
    assert lines(result, "predictions")[0]["inputs"]["prompt"] == "a lighthouse"
    assert lines(result, "posts")[0]["tags"] == ["sea"]
    assert lines(result, "characters")[0]["name"] == "Sailor"
    assert lines(result, "audit")[-1]["action"] == "account.export"
    name = url.rpartition("/")[2]
    with Image.open(io.BytesIO(result.read(f"media/{name}"))) as image:
        assert image.size == (16, 16)
    assert {row["id"] for row in lines(result, "media")} == {
        path.removeprefix("media/") for path in result.namelist() if path.startswith("media/")
    }
    assert b"works_at [[companies/acme]]" in result.read("memory/people/ann.md")
    content = b"".join(result.read(path) for path in result.namelist())
    for secret in (app.key.encode(), b"another's secret wish", b"ben@example.com", b"hash"):
        assert secret not in content


async def test_export_and_erasure_need_a_full_key_or_a_login_session(app: AppFixture) -> None:
    assert (await app.client.get(EXPORT)).status_code == 401
    for scope in (KeyLimits(read_only=True), KeyLimits(services=("ra1",)), KeyLimits(memory=True)):
        key = await app.limited_key(scope)
        assert (await app.client.get(EXPORT, headers=bearer(key))).status_code == 403
        assert (await app.client.request("DELETE", ACCOUNT, headers=bearer(key))).status_code == 403
    form = {"csrf": await signed_in(app)}
    assert (await app.client.post("/account/export", data={"csrf": "x"})).status_code == 403
    assert "account.json" in read_zip(await app.client.post("/account/export", data=form)).namelist()
    assert "Exported all data" in (await app.client.get("/account/security")).text


@pytest.fixture
async def brief(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server that erases deleted accounts at once."""
    async with running_app(tmp_path, deletion_days=0) as result:
        yield result


async def test_erasure_deletes_all_data_except_the_anonymous_ledger(brief: AppFixture) -> None:
    url = await use_everything(brief)
    ben = await brief.database.read(accounts.by_email("ben@example.com"))
    other_file = await use_everything(dataclasses.replace(brief, key=brief.other, account=ben))
    remaining = remains(brief, ben.id)
    assert {"media", "prediction", "page", "gallery_post", "gallery_character"} <= remaining.keys(), sorted(
        remaining
    )
    for wrong in ({}, {"confirm": "ben@example.com"}, {"confirm": 5}):
        assert (
            await brief.client.request("DELETE", ACCOUNT, json=wrong, headers=brief.bearer)
        ).status_code == 400
    sure = {"confirm": " Ada@example.com"}
    left = await brief.client.request("DELETE", ACCOUNT, json=sure, headers=brief.bearer)
    assert (left.status_code, left.json()["account_id"]) == (202, brief.account.id)
    assert (await brief.client.get(ACCOUNT, headers=brief.bearer)).status_code == 401
    assert (await brief.client.get(url)).status_code == 404
    assert len((await brief.client.get("/api/characters")).json()["characters"]) == 1
    assert len((await brief.client.get("/api/posts")).json()["posts"]) == 1
    assert await brief.faults() == ()
    rest = remains(brief, brief.account.id)
    assert rest.keys() <= {"account", "hold", "transfer", "media"}
    response = json.dumps(rest, default=str)
    for trace in ("ada@example.com", "lighthouse", "Sailor", "whsec_", "Ann"):
        assert trace not in response
    assert all(row["expires_at"] is not None for row in rest.get("media", ()))
    assert remains(brief, ben.id) == remaining, "another's is as it was"
    assert (await brief.client.get(other_file)).status_code == 200
    second_response = await brief.client.post("/signin", data={"email": "ada@example.com", "password": "x"})
    assert second_response.status_code == 401


def remains(app: AppFixture, account_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return every row of any table that still names an account; new tables are found by their column."""
    with sqlite3.connect(app.settings.data_dir / "sixfold.db") as database:
        database.row_factory = sqlite3.Row
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        result: dict[str, list[dict[str, Any]]] = {}
        for table in tables:
            rows = [dict(row) for row in database.execute(f"SELECT * FROM {table}")]  # noqa: S608 - its own names
            if named := [row for row in rows if account_id in row.values()]:
                result[table] = named
    return result


async def test_closed_account_can_be_reopened_within_the_grace_period(app: AppFixture) -> None:
    form = {"csrf": await signed_in(app)}
    wrong = await app.client.post("/account/close", data={**form, "confirm": "someone@else.example"})
    assert wrong.status_code == 400
    sure = {**form, "confirm": "ada@example.com"}
    assert (await app.client.post("/account/close", data=sure)).headers["Location"] == "/account/data"
    assert (await app.client.get(ACCOUNT, headers=app.bearer)).status_code == 401
    page = await app.client.get("/account/data")
    assert "This account will be erased on" in page.text
    assert await app.database.read(_due()) == []
    await app.client.post("/account/keep", data=form)
    assert (await app.client.get(ACCOUNT, headers=app.bearer)).status_code == 200


def _due() -> Transaction[list[str]]:
    rows = yield Query("account_deletion_due", {"limit": 9})
    return [row["id"] for row in rows]


async def test_operator_account_cannot_be_deleted(app: AppFixture) -> None:
    key = (await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key
    sure = {"confirm": "local@localhost"}
    assert (await app.client.request("DELETE", ACCOUNT, json=sure, headers=bearer(key))).status_code == 403
