"""Ids of other accounts and expired keys get the same response as unknown ones, on every route."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import now
from sixfold.core.predictions import repository as predictions
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.gateway import running_gateway

SESSIONS = "/api/containers/motion-model/sessions"


@pytest.mark.parametrize("days", [-1, 1])
async def test_key_works_on_every_api_until_it_expires(any_database_app: AppFixture, days: int) -> None:
    app = any_database_app
    moment = await app.database.read(now())
    row = await app.database.write(keys.create(app.account.id, expires_at=moment + days * DAY_US))
    request = {"prompt": "a hill", "width": 64, "height": 64}
    talk = {"model": "none", "messages": [{"role": "user", "content": "hello"}]}
    responses = [
        await app.client.get("/api/account", headers=bearer(row.api_key)),
        await app.client.post("/api/ra1", json={"api_key": row.api_key, "prompt": "a hill"}),
        await app.client.post(
            "/api/containers/run", json={"model": "ra2", "input": request}, headers=bearer(row.api_key)
        ),
        await app.client.get("/api/pages", headers=bearer(row.api_key)),
        await app.client.post("/v1/chat/completions", json=talk, headers=bearer(row.api_key)),
        await app.client.post(
            "/v1/messages", json={**talk, "max_tokens": 1}, headers={"x-api-key": row.api_key}
        ),
        await app.client.post("/mcp", json={}, headers=bearer(row.api_key)),
    ]
    refusals = [response.status_code == 401 for response in responses]
    assert refusals == [days < 0] * len(responses), [response.status_code for response in responses]


async def test_live_session_of_another_account_is_404(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        body = (await app.client.post(SESSIONS, json={}, headers=app.bearer)).json()
        path = f"/api/containers/sessions/{body['session_id']}"
        for method in ("GET", "DELETE"):
            assert (await app.client.request(method, path, headers=bearer(app.other))).status_code == 404
        document = (await app.client.get(path, headers=app.bearer)).json()
        assert document["status"] not in {"closing", "closed", "failed"}
        assert (await app.client.delete(path, headers=app.bearer)).json()["status"] == "closed"
        assert await app.faults() == ()


async def test_calls_and_equal_runs_of_other_accounts_are_hidden(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        client, other = gateway.app.client, bearer(gateway.app.other)
        assert (await gateway.chat("say 3 words")).status_code == 200
        assert len(await gateway.settled()) == 1
        assert (await client.get("/api/gateway/calls", headers=other)).json()["calls"] == []
        order = {"model": "ra2", "input": {"prompt": "a hill", "width": 64, "height": 64, "seed": 1}}
        run = [
            (await client.post("/api/containers/run", json=order, headers=headers)).json()["id"]
            for headers in (gateway.headers, other, other)
        ]
        ben = await gateway.app.database.read(accounts.by_email("ben@example.com"))
        second, third = [
            await gateway.app.database.read(predictions.get(each, Tenant(ben.id))) for each in run[1:]
        ]
        assert (second.origin_id, third.origin_id) == (run[1], run[1])
