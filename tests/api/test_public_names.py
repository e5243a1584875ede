"""Public data does not name an account: public routes, the gallery, and URLs of uploads."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import httpx
import pytest

from sixfold.core.accounts import accounts, keys
from sixfold.store import sql
from tests.api.app_fixture import ORIGIN, AppFixture, bearer, running_app
from tests.api.tenants import REMOTE_ADDRESS, create_objects, fill_path, routes
from tests.api.test_gallery import post
from tests.api.test_pages import signed_in

ACCOUNT_ID = re.compile(r"acct_[0-9a-z]")
SMALL = {"prompt": "x", "width": "64", "height": "64", "save_path": "draft.png"}
UPLOAD = "/create_and_upload_image"


async def test_public_routes_name_no_account(app: AppFixture) -> None:
    # Paths that the caller sends may be in the response.
    names = {**(await create_objects(app)), "account_id": "someone"}
    assert (await post(app)).status_code == 200
    upload = await app.client.get(UPLOAD, params=SMALL, headers=app.bearer)
    job = f"/api/media/status/{names['job_id']}"
    result: dict[str, httpx.Response] = {}
    async with app.visitor(REMOTE_ADDRESS) as other_client:
        for method, path in routes(app.asgi):
            if method in ("GET", "POST"):
                result[f"{method} {path}"] = await other_client.request(method, fill_path(path, names))
        for path in (job, "/api/posts", "/gallery", upload.json()["path"].removeprefix(ORIGIN)):
            result[path] = await other_client.get(path)
            assert result[path].status_code == 200, path
    open_routes = [name for name, response in result.items() if response.status_code < 300]
    assert len(open_routes) > 25
    named = [
        name
        for name, response in result.items()
        if ACCOUNT_ID.search(response.text) or ACCOUNT_ID.search(str(response.headers))
    ]
    assert named == []


async def test_upload_urls_cannot_be_guessed(any_database_app: AppFixture) -> None:
    app = any_database_app
    response = await app.client.get(UPLOAD, params=SMALL, headers=app.bearer)
    path = response.json()["path"].removeprefix(ORIGIN)
    folder = path.split("/")[2]
    assert re.fullmatch("[0-9a-f]{32}", folder)
    async with app.visitor(REMOTE_ADDRESS) as other_client:
        assert (await other_client.get(path)).content == (await app.client.get(path)).content
        for guess in (
            f"{'0' * 32}/draft.png",
            f"{folder}/other.png",
            f"{folder}",
            f"{folder}/",
            "_keyless/draft.png",
        ):
            assert (await other_client.get(f"/uploads/{guess}")).status_code == 404
    assert path in (await app.client.get(UPLOAD, params=SMALL, headers=app.bearer)).json()["path"]


async def test_url_of_a_keyless_file_is_for_this_machine_only(app: AppFixture) -> None:
    path = (await app.client.get(UPLOAD, params=SMALL)).json()["path"]
    assert path == f"{ORIGIN}/uploads/draft.png"
    assert (await app.client.get(path)).headers["Cache-Control"] == "private, no-cache"
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"X-Forwarded-For": "203.0.113.9"}, bearer(app.other)):
        assert (await app.client.get(path, headers=headers)).status_code == 404
    async with app.visitor(REMOTE_ADDRESS) as other_client:
        assert (await other_client.get("/uploads/draft.png")).status_code == 404
    key = (await app.database.write(keys.create(app.operator.id))).api_key
    keyed = {**SMALL, "save_path": "own.png"}
    assert (await app.client.get(UPLOAD, params=keyed, headers=bearer(key))).status_code == 200
    assert (await app.client.get(f"{ORIGIN}/uploads/own.png")).status_code == 404


async def test_old_upload_urls_are_for_their_owner_only(any_database_app: AppFixture) -> None:
    app = any_database_app
    key = (await app.database.write(keys.create(app.operator.id))).api_key
    rows = ((app.bearer, f"/uploads/{app.account.id}/draft.png"), (bearer(key), "/uploads/draft.png"))
    other_accounts = ({}, bearer(app.other), {"Authorization": "Bearer sf_x"})
    for owner, path in rows:
        assert (await app.client.get(UPLOAD, params=SMALL, headers=owner)).status_code == 200
        response = await app.client.get(path, headers=owner)
        assert (response.status_code, response.headers["Cache-Control"]) == (200, "private, no-cache")
        for other_account in other_accounts:
            assert (await app.client.get(path, headers=other_account)).status_code == 404
    async with app.visitor() as nobody:
        for _, path in rows:
            assert (await nobody.get(path)).status_code == 404
    await signed_in(app)
    assert [(await app.client.get(path)).status_code for _, path in rows] == [200, 404]


@pytest.mark.parametrize("name", ["acct_x.png", "_keyless/x.png"])
async def test_operator_cannot_save_into_reserved_folders(app: AppFixture, name: str) -> None:
    key = (await app.database.write(keys.create(app.operator.id))).api_key
    query = {**SMALL, "save_path": name}
    response = await app.client.get(UPLOAD, params=query, headers=bearer(key))
    assert response.status_code == 422


async def test_a_request_without_key_replaces_no_file_of_the_operator(app: AppFixture) -> None:
    key = bearer((await app.database.write(keys.create(app.operator.id))).api_key)
    mine = (await app.client.get(UPLOAD, params=SMALL, headers=key)).json()["path"]
    before = (await app.client.get(mine)).content
    response = await app.client.get(UPLOAD, params={**SMALL, "prompt": "another"})
    assert (response.status_code, "choose another path" in response.json()["detail"]) == (409, True)
    # A keyless file that an earlier version stored under the same name gives no right to the operator's.
    await app.server.uploads.put("_keyless/draft.png", before)
    assert (await app.client.get(UPLOAD, params=SMALL)).status_code == 409
    await app.server.uploads.delete("_keyless/draft.png")
    assert (await app.client.get(mine)).content == before
    assert (await app.client.get("/uploads/draft.png")).status_code == 404


async def test_keyless_file_is_stored_at_its_path(app: AppFixture) -> None:
    uploads, other = app.server.uploads, {**SMALL, "save_path": "a/b.png"}
    await app.client.get(UPLOAD, params=other)
    first = await uploads.get("a/b.png")
    await app.client.get(UPLOAD, params={**other, "prompt": "another"})
    assert await uploads.get("a/b.png") != first
    key = bearer((await app.database.write(keys.create(app.operator.id))).api_key)
    assert (await app.client.get(UPLOAD, params=other, headers=key)).status_code == 200
    assert (await app.client.get("/uploads/a/b.png")).status_code == 404
    await uploads.put("_keyless/old.png", first)
    assert (await app.client.get("/uploads/old.png")).content == first


async def test_accounts_of_the_previous_version_have_an_author_id(any_database_app: AppFixture) -> None:
    database = any_database_app.database
    account = await database.write(accounts.create("dan@example.com"))
    key = (await database.write(keys.create(account.id))).api_key
    result = await post(any_database_app, api_key=key)
    assert re.fullmatch("user_[0-9a-f]{32,}", result.json()["author_user_id"])


def test_a_migration_gives_every_account_an_author_id(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "steps.db")
    before = "INSERT INTO account (id, kind, email, created_at) VALUES (?, 'customer', ?, 0)"
    for step in sql.migrations("sqlite"):
        if step.name == "identities":
            connection.execute(before, ("acct_1", "a@example.com"))
        connection.executescript(step.up)
    connection.execute(before, ("acct_2", "b@example.com"))
    rows = connection.execute("SELECT author_id FROM account").fetchall()
    assert len(rows) == len(set(rows)) > 2
    assert all(re.fullmatch("user_[0-9a-f]{32}", row[0]) for row in rows)


async def test_https_public_url_sends_strict_transport_security(tmp_path: Path) -> None:
    public = "https://six.example"
    async with running_app(tmp_path, public_url=public) as app, app.visitor(base_url=public) as visitor:
        for path in ("/livez", "/signin", "/nowhere", "/api/account"):
            response = await visitor.get(path)
            assert response.headers["Strict-Transport-Security"] == "max-age=31536000"


async def test_loopback_sends_no_strict_transport_security(app: AppFixture) -> None:
    assert "Strict-Transport-Security" not in (await app.client.get("/signin")).headers


async def test_anonymous_callers_do_not_share_idempotency_keys(tmp_path: Path) -> None:
    settings = {"open_image_service": True, "previews": "allow"}
    async with running_app(tmp_path, public_url="https://six.example", **settings) as app:
        image = (await app.client.post("/api/ra1", json={"prompt": "x"}, headers=app.bearer)).json()
        body = {"source_image_url": image["image_url"], "style_prompt": "ukiyo-e"}
        headers = {"Idempotency-Key": "one", "Host": "six.example"}
        responses: list[httpx.Response] = []
        for peer in ("203.0.113.9", "203.0.113.9", "198.51.100.7"):
            async with app.visitor(peer) as other_client:
                responses.append(await other_client.post("/api/style-transfer", json=body, headers=headers))
        assert [response.status_code for response in responses] == [200] * 3
        assert ["idempotent-replayed" in response.headers for response in responses] == [False, True, False]
