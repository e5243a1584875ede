"""Webhooks: signatures, retries, server restarts, and no requests to internal addresses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sixfold.app import asgi, bootstrap
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.authentication import oauth
from sixfold.core.accounts.organizations import members
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.accounts.webhook_secrets import signature
from sixfold.core.database import Row, Transaction
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.webhooks import RetrySchedule
from sixfold.net.addresses import AllowList
from sixfold.net.fetch import Fetcher
from tests.api.app_fixture import AppFixture, bearer, client, running_app, small_models
from tests.api.test_oauth import OAuthClient
from tests.fakes import fault_server
from tests.fakes.fault_server import Faults

RUN = "/api/containers/run"
INSIDE: dict[str, Any] = {"fetch_allow": "127.0.0.0/8"}


@asynccontextmanager
async def webhook_url(faults: Faults, port: int = 0) -> AsyncIterator[str]:
    async def hear(request: Request) -> Response:
        raw = await request.body()
        return await faults.take("webhook", request, raw) or Response(status_code=204)

    async with fault_server.serve([Route("/hook", hear, methods=["POST"])], port) as result:
        yield f"http://127.0.0.1:{result}/hook"


def run_body(webhook: str, prompt: str = "a fox", **more: Any) -> dict[str, Any]:
    inputs = {"prompt": prompt, "width": 64, "height": 64}
    return {"model": "ra2", "input": inputs, "webhook": webhook, **more}


async def stored_messages(app: AppFixture, prediction_id: str) -> list[Row]:
    return list(await app.database.read(webhooks.of_prediction(prediction_id)))


async def wait_for_messages(
    app: AppFixture, prediction_id: str, condition: Callable[[list[Row]], bool]
) -> list[Row]:
    """Wait until the messages satisfy a condition, and return them."""
    async with asyncio.timeout(120):
        while not condition(rows := await stored_messages(app, prediction_id)):  # noqa: ASYNC110 - a row has no event
            await asyncio.sleep(0.01)
    return rows


def has_start_and_end(rows: list[Row]) -> bool:
    """Return whether start and end were delivered, and no message is pending."""
    return len(rows) == 2 and all(row["ended_at"] for row in rows)


def test_signature_equals_the_example_of_the_standard() -> None:
    """The example of the standard's own libraries."""
    signed = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_webhooks_of_start_and_end_are_ordered_and_signed(tmp_path: Path) -> None:
    faults = Faults()
    async with running_app(tmp_path, **INSIDE) as app, webhook_url(faults) as url:
        run = (await app.client.post(RUN, json=run_body(url), headers=app.bearer)).json()
        await wait_for_messages(app, run["id"], has_start_and_end)
        body = (await app.client.get("/api/account", headers=app.bearer)).json()
        secret = body["webhook_secret"]
        assert secret.startswith("whsec_")
        documents = [json.loads(request.document) for request in faults.steps("webhook")]
        assert [message["type"] for message in documents] == ["prediction.started", "prediction.completed"]
        assert all(set(message) == {"type", "timestamp", "data"} for message in documents)
        assert documents[1]["data"] == run
        for request in faults.steps("webhook"):
            sent_at = int(request.headers["webhook-timestamp"])
            expected = signature(secret, request.headers["webhook-id"], sent_at, request.document)
            assert request.headers["webhook-signature"] == expected
        assert len({request.headers["webhook-id"] for request in faults.steps("webhook")}) == 2


async def test_failure_sends_a_webhook_only_if_one_was_requested(tmp_path: Path) -> None:
    faults = Faults()
    async with running_app(tmp_path, **INSIDE) as app, webhook_url(faults) as url:
        failed = (await app.client.post(RUN, json=run_body(url, "FAIL"), headers=app.bearer)).json()
        await wait_for_messages(app, failed["id"], has_start_and_end)
        quiet = {**run_body(url)}
        del quiet["webhook"]
        silent = (await app.client.post(RUN, json=quiet, headers=app.bearer)).json()
        assert await stored_messages(app, silent["id"]) == []
        last = json.loads(faults.steps("webhook")[-1].document)
        assert (last["type"], last["data"]["status"]) == ("prediction.completed", "failed")


async def test_failed_webhook_delivery_is_retried_with_the_same_id(tmp_path: Path) -> None:
    faults = Faults()
    faults.add(
        "webhook",
        fault_server.answer(500, {}),
        fault_server.answer(302, {}, {"location": "http://127.0.0.1/"}),
    )
    async with running_app(tmp_path, **INSIDE) as app, webhook_url(faults) as url:
        app.server.outbox.schedule = RetrySchedule(first_seconds=0.01)
        run = (await app.client.post(RUN, json=run_body(url), headers=app.bearer)).json()
        rows = await wait_for_messages(app, run["id"], has_start_and_end)
        assert [row["error"] for row in rows] == [None, None]
        assert sum(row["attempts"] for row in rows) == len(faults.steps("webhook")) == 4
        assert len({request.headers["webhook-id"] for request in faults.steps("webhook")}) == 2


async def test_late_webhook_has_the_state_at_the_time_of_the_step(tmp_path: Path) -> None:
    faults = Faults()
    faults.add("webhook", *[fault_server.answer(500, {})] * 3)
    async with running_app(tmp_path, **INSIDE) as app, webhook_url(faults) as url:
        app.server.outbox.schedule = RetrySchedule(first_seconds=0.01)
        run = (await app.client.post(RUN, json=run_body(url), headers=app.bearer)).json()
        await wait_for_messages(app, run["id"], has_start_and_end)
        bodies: dict[str, set[bytes]] = {}
        for request in faults.steps("webhook"):
            bodies.setdefault(request.headers["webhook-id"], set()).add(request.document)
        assert [len(same) for same in bodies.values()] == [1, 1], "one id, one body"
        documents = [json.loads(body) for (body,) in bodies.values()]
        states = {message["type"]: message["data"]["status"] for message in documents}
        assert states == {"prediction.started": "running", "prediction.completed": "succeeded"}
        began = next(message["data"] for message in documents if message["type"] == "prediction.started")
        assert (began["output"], began["completed_at"], began["cost"]) == (None, None, "0.00")


async def test_receiver_that_responds_410_is_not_retried(tmp_path: Path) -> None:
    faults = Faults()
    faults.add("webhook", fault_server.answer(410, {}), fault_server.answer(410, {}))
    async with running_app(tmp_path, **INSIDE) as app, webhook_url(faults) as url:
        run = (await app.client.post(RUN, json=run_body(url), headers=app.bearer)).json()
        rows = await wait_for_messages(app, run["id"], has_start_and_end)
        assert [(row["attempts"], row["error"]) for row in rows] == [
            (1, "The receiver returned status 410")
        ] * 2


async def test_pending_webhook_is_delivered_after_a_restart(tmp_path: Path) -> None:
    faults = Faults()
    async with running_app(tmp_path, **INSIDE) as app:
        # The port is closed after the block, so nothing listens there.
        async with webhook_url(Faults()) as url:
            pass
        app.server.outbox.schedule = RetrySchedule(first_seconds=0.2)
        run = (await app.client.post(RUN, json=run_body(url), headers=app.bearer)).json()
        rows = await wait_for_messages(
            app, run["id"], lambda rows: len(rows) == 2 and all(r["error"] for r in rows)
        )
        assert not any(row["ended_at"] for row in rows)
        settings = app.settings
    port = int(url.rpartition(":")[2].removesuffix("/hook"))
    application = bootstrap.build(settings, small_models())
    async with (
        webhook_url(faults, port),
        bootstrap.running(application),
        client(asgi.create_app(application)),
    ):
        async with asyncio.timeout(120):
            while len(faults.steps("webhook")) < 2:
                await faults.event("webhook").wait()
                faults.event("webhook").clear()
    messages = {
        json.loads(request.document)["type"]: json.loads(request.document)
        for request in faults.steps("webhook")
    }
    assert set(messages) == {"prediction.started", "prediction.completed"}
    assert messages["prediction.completed"]["data"]["output"] == run["output"]


async def test_webhook_urls_of_private_addresses_are_rejected(tmp_path: Path) -> None:
    faults = Faults()
    async with running_app(tmp_path) as app, webhook_url(faults) as url:
        for address in (url, "http://169.254.169.254/latest", "http://[::1]/", "http://a.localhost./"):
            response = await app.client.post(RUN, json=run_body(address), headers=app.bearer)
            assert response.status_code == 400
            assert [each["input"] for each in response.json()["errors"]] == ["webhook"]
            assert "may not be fetched" in response.text
        assert faults.steps("webhook") == []


async def test_webhook_to_an_internal_address_is_refused_at_delivery(tmp_path: Path) -> None:
    async def inside(_host: str, _port: int) -> list[str]:
        return ["10.0.0.1"]

    async with running_app(tmp_path) as app:
        app.server.outbox.sender = Fetcher(AllowList(), lookup=inside)
        address = "https://hook.example.com/"
        run = (await app.client.post(RUN, json=run_body(address), headers=app.bearer)).json()
        rows = await wait_for_messages(app, run["id"], has_start_and_end)
        assert all("may not be fetched" in row["error"] for row in rows)


async def test_deliveries_are_retried_for_a_day() -> None:
    schedule = RetrySchedule()
    waits = [schedule.delay_us(attempt) / 1e6 for attempt in range(1, 20)]
    assert waits[:4] == [5, 15, 45, 135]
    assert max(waits) == 4 * 3600
    assert schedule.life_us == 24 * 3600 * 1_000_000


@pytest.mark.parametrize("end", ["member", "program"])
async def test_webhooks_of_a_removed_member_or_program_are_not_sent(either: Path, end: str) -> None:
    faults = Faults()
    async with running_app(either, **INSIDE) as app, webhook_url(faults) as url:
        read, write = app.database.read, app.database.write
        ending: Transaction[Any] = oauth.end_all(app.account.id)
        if end == "member":
            ben = await read(accounts.by_email("ben@example.com"))
            member = await write(members.add(app.account.id, ben.id, "member", "operator"))
            key = (await write(keys.create(app.account.id, holder=keys.Holder(member.id)))).api_key
            ending = members.remove(app.account.id, member.id)
        else:
            key = (await (await OAuthClient.registered(app)).tokens(scope="models"))["access_token"]
        body = {**run_body(url, "SLOW"), "wait": 0}
        run = (await app.client.post(RUN, json=body, headers=bearer(key))).json()
        await wait_for_messages(app, run["id"], lambda rows: bool(rows and rows[0]["ended_at"]))
        await write(ending)
        await app.client.delete(f"/api/containers/predictions/{run['id']}", headers=app.bearer)
        (_, last) = await wait_for_messages(app, run["id"], has_start_and_end)
        assert "no access any more" in last["error"]
        assert len(faults.steps("webhook")) == 1


async def test_webhooks_of_a_closed_account_wait_until_it_is_kept(either: Path) -> None:
    faults = Faults()
    async with running_app(either, **INSIDE) as app, webhook_url(faults) as url:
        app.server.outbox.schedule = RetrySchedule(first_seconds=0.01)
        body = {**run_body(url, "SLOW"), "wait": 0}
        run = (await app.client.post(RUN, json=body, headers=app.bearer)).json()
        await wait_for_messages(app, run["id"], lambda rows: bool(rows and rows[0]["ended_at"]))
        await app.database.write(deletion.close(app.account, 7))
        await app.predictions.cancel(run["id"], Tenant(app.account.id))
        await wait_for_messages(app, run["id"], lambda rows: len(rows) == 2 and rows[1]["error"] is not None)
        assert len(faults.steps("webhook")) == 1
        await app.database.write(deletion.reopen(app.account.id))
        await wait_for_messages(app, run["id"], has_start_and_end)
        assert len(faults.steps("webhook")) == 2
