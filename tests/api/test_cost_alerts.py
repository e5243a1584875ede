"""Cost alerts: counted by the sweep, sent once for each period, signed and retried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sixfold.app import bootstrap
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.authentication import key_changes
from sixfold.core.accounts.keys import NewKey
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.webhook_secrets import signature
from sixfold.core.alerts.sweep import period_of
from sixfold.core.clock import DAY_US
from sixfold.core.database import many, now
from sixfold.core.gateway import request_log
from sixfold.core.predictions.webhooks import RetrySchedule
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway
from tests.fakes import fault_server
from tests.harness.waiting import wait_until

PATH = "/api/account/alerts"
# What `say 3 words` costs: 10 tokens of input, 4 of them cached, and 3 of output.
COST = "0.0038"


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either, settings={"fetch_allow": "127.0.0.0/8"}) as result:
        yield result


class Receiver:
    """Takes webhooks; those in `statuses` are answered first."""

    def __init__(self) -> None:
        self.url = ""
        self.statuses: list[int] = []
        # Responds only when this number of requests is waiting.
        self.together: asyncio.Barrier | None = None
        self.requests: list[tuple[dict[str, str], bytes]] = []

    async def hear(self, request: Request) -> Response:
        if self.together is not None:
            await self.together.wait()
        self.requests.append((dict(request.headers), await request.body()))
        return Response(status_code=self.statuses.pop(0) if self.statuses else 204)

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    result = Receiver()
    async with fault_server.serve([Route("/alert", result.hear, methods=["POST"])]) as port:
        result.url = f"http://127.0.0.1:{port}/alert"
        yield result


async def create(gateway: Gateway, url: str, usd: str, **more: Any) -> dict[str, Any]:
    body = {"period": "day", "threshold_usd": usd, "url": url, **more}
    response = await gateway.app.client.post(PATH, json=body, headers=gateway.headers)
    assert response.status_code == 201, response.text
    return response.json()


async def sweep(gateway: Gateway, schedule: RetrySchedule | None = None) -> list[dict[str, Any]]:
    """Count without delay and send; return the alerts."""
    await gateway.settled()
    alerts = bootstrap.cost_alerts(gateway.app.server)
    alerts.schedule = schedule or alerts.schedule
    await alerts.sweep(lag_us=0)
    await alerts.sent()
    response = await gateway.app.client.get(PATH, headers=gateway.headers)
    return response.json()["alerts"]


async def test_an_alert_is_sent_once_when_its_threshold_is_reached(gateway: Gateway) -> None:
    app = gateway.app
    async with receiver() as messages:
        alert = await create(gateway, messages.url, "0.005")
        assert (await gateway.chat()).headers["x-sixfold-cost"] == COST
        (row,) = await sweep(gateway)
        assert (row["spent_usd"], row["sent_for"], messages.requests) == (COST, None, [])
        await gateway.chat()
        await gateway.settled(2)
        (row,) = await sweep(gateway)
        day, _ = period_of("day", await app.database.read(now()))
        assert (row["spent_usd"], row["sent_for"], row["error"]) == ("0.0076", day, None)
        (response,) = messages.documents
        assert response.pop("reached_at").startswith(day)
        assert response == {
            "type": "cost.threshold_reached",
            "alert_id": alert["id"],
            "account_id": app.account.id,
            "key_id": None,
            "period": "day",
            "period_start": day,
            "threshold_usd": "0.005",
            "spent_usd": "0.0076",
        }
        headers, body = messages.requests[0]
        secret = await app.server.webhook_secrets.of(app.account.id)
        signed = signature(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body)
        assert headers["webhook-signature"] == signed
        await gateway.chat()
        await gateway.settled(3)
        await sweep(gateway)
        assert len(messages.requests) == 1


async def test_key_has_its_own_alert(gateway: Gateway) -> None:
    app = gateway.app
    second = await app.database.write(keys.create(app.account.id))
    async with receiver() as each:
        await create(gateway, each.url, "0.003", key=second.id, period="month")
        await gateway.chat()
        assert [row["spent_usd"] for row in await sweep(gateway)] == ["0.00"]
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
        await app.client.post("/v1/chat/completions", json=body, headers=bearer(second.api_key))
        await gateway.settled(2)
        assert [row["spent_usd"] for row in await sweep(gateway)] == [COST]
        assert [document["key_id"] for document in each.documents] == [second.id]


async def test_alert_of_a_key_counts_its_media_calls_and_their_refunds(gateway: Gateway) -> None:
    app = gateway.app
    key = await app.database.write(keys.create(app.account.id))
    async with receiver() as each:
        await create(gateway, each.url, "1", key=key.id)
        vectors = await app.client.post(
            "/v1/embeddings", json={"model": "acme/small", "input": "a"}, headers=bearer(key.api_key)
        )
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
        chat = await app.client.post("/v1/chat/completions", json=body, headers=bearer(key.api_key))
        await gateway.settled(2)
        await app.database.write(request_log.refund(chat.headers["x-request-id"], "of no use"))
        (row,) = await sweep(gateway)
        assert row["spent_usd"] == vectors.headers["x-sixfold-cost"]


async def test_both_keys_count_during_the_overlap_of_a_roll(gateway: Gateway) -> None:
    app = gateway.app
    scope = keys.KeyLimits(budget_day=13_000)
    old = await app.database.write(keys.create(app.account.id, scope))
    new = await app.database.write(key_changes.roll(app.account.id, old.id, keep_us=DAY_US))
    body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}], "max_tokens": 9}

    async def chat(key: NewKey) -> httpx.Response:
        return await app.client.post("/v1/chat/completions", json=body, headers=bearer(key.api_key))

    async with receiver() as each:
        await create(gateway, each.url, "1", key=new.id, period="month")
        assert (await chat(old)).status_code == 200
        await gateway.settled()
        response = await chat(new)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "budget_exceeded")
        assert [row["spent_usd"] for row in await sweep(gateway)] == [COST]


async def test_a_failed_delivery_is_repeated_with_the_same_id(gateway: Gateway) -> None:
    soon = RetrySchedule(first_seconds=0.05)
    async with receiver() as messages:
        messages.statuses = [500]
        await create(gateway, messages.url, "0.001")
        await gateway.chat()
        (row,) = await sweep(gateway, soon)
        assert row["error"] == "The receiver returned status 500"

        async def is_sent() -> bool:
            (row,) = await sweep(gateway)
            return row["error"] is None

        await wait_until(is_sent)
        assert len({headers["webhook-id"] for headers, _ in messages.requests}) == 1
        assert len(messages.requests) == 2


async def test_hanging_receivers_do_not_delay_other_accounts(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = gateway.app
    async with receiver() as messages, receiver() as hung:
        hung.together = asyncio.Barrier(1000)
        for _ in range(60):
            await create(gateway, hung.url, "0.001")
        body = {"period": "day", "threshold_usd": "0.001", "url": messages.url}
        other = await app.client.post(PATH, json=body, headers=bearer(app.other))
        assert other.status_code == 201
        chat = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
        for key in (app.key, app.other):
            await app.client.post("/v1/chat/completions", json=chat, headers=bearer(key))
        await gateway.settled()
        alerts = bootstrap.cost_alerts(app.server)
        monkeypatch.setattr(alerts, "sweep", partial(alerts.sweep, lag_us=0))
        sweeping = asyncio.create_task(alerts.run(0.05))
        try:
            # The limit is shorter than one message to a receiver that does not respond.
            await wait_until(lambda: messages.requests, 10)
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        assert hung.requests == []


async def test_a_slow_receiver_does_not_delay_the_others(gateway: Gateway) -> None:
    async with receiver() as messages:
        messages.together = asyncio.Barrier(2)
        for _ in range(2):
            await create(gateway, messages.url, "0.001")
        await gateway.chat()
        rows = await sweep(gateway)
        assert [row["error"] for row in rows] == [None, None]
        assert len(messages.requests) == 2


async def test_alerts_belong_to_their_account_and_are_validated(gateway: Gateway) -> None:
    app = gateway.app
    alert = await create(gateway, "https://example.com/", "1")
    for key in (alert["id"], "alert_none"):
        strange = await app.client.delete(f"{PATH}/{key}", headers=bearer(app.other))
        assert strange.status_code == 404
    assert (await app.client.get(PATH, headers=bearer(app.other))).json() == {"alerts": []}
    reader = await app.database.write(keys.create(app.account.id, granted=rights.Rights.ACCOUNT_READ))
    assert (await app.client.get(PATH, headers=bearer(reader.api_key))).status_code == 403
    valid = {"period": "day", "threshold_usd": "1", "url": "https://example.com/"}
    for wrong in (
        {"period": "week"},
        {"threshold_usd": 0},
        {"threshold_usd": "x"},
        {"url": "file:///etc"},
        {"url": "http://10.0.0.1/"},
        {"more": 1},
    ):
        response = await app.client.post(PATH, json={**valid, **wrong}, headers=app.bearer)
        assert response.status_code == 400, wrong
    unknown = await app.client.post(PATH, json={**valid, "key": "key_none"}, headers=app.bearer)
    assert unknown.status_code == 404
    removal = await app.client.delete(f"{PATH}/{alert['id']}", headers=app.bearer)
    assert removal.status_code == 204
    await create(gateway, "https://example.com/", "1")
    await app.database.write(deletion.close(app.account, -1))
    await app.database.write(deletion.erase(app.account.id))
    assert not await app.database.read(many("alerts_of", account_id=app.account.id, operators=1))


async def test_the_alert_of_a_suspended_admin_waits(gateway: Gateway) -> None:
    app, write = gateway.app, gateway.app.database.write
    eve = await write(accounts.create("eve@example.com"))
    admin = await write(members.add(app.account.id, eve.id, "admin", "operator"))
    key = await write(keys.create(app.account.id, holder=keys.Holder(admin.id, None)))
    async with receiver() as messages:
        body = {"period": "day", "threshold_usd": "0.001", "url": messages.url}
        created = await app.client.post(PATH, json=body, headers=bearer(key.api_key))
        assert created.status_code == 201, created.text
        await write(customers.suspend(app.operator.owner, eve.id, suspended=True))
        await gateway.chat()
        await sweep(gateway)
        assert messages.requests == []
        await write(customers.suspend(app.operator.owner, eve.id, suspended=False))
        await sweep(gateway)
        assert len(messages.requests) == 1
