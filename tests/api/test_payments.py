"""Payments by card: checkout pages, and webhook events that count once and only with a valid signature."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
import stripe
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sixfold.app import bootstrap
from sixfold.core.accounts import accounts
from sixfold.core.accounts.keys import KeyLimits
from sixfold.web import refusals
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.mcp.loopback import serve

SECRET = "whsec_of_the_test"
CHECKOUT, PLAN, TOLD = "/api/account/checkout", "/api/account/plan", "/api/webhooks/stripe"


class Processor:
    """Fake payment processor for checkouts."""

    def __init__(self) -> None:
        self.requests: list[dict[str, str]] = []
        self.keys: list[str] = []
        self.status = 200
        self.canceled_ids: list[str] = []

    async def session(self, request: Request) -> JSONResponse:
        self.requests.append(dict(parse_qsl((await request.body()).decode())))
        self.keys.append(request.headers["authorization"])
        return JSONResponse({"id": "cs_1", "url": "https://pay.example/cs_1"}, self.status)

    async def end(self, request: Request) -> JSONResponse:
        if self.status == 200:
            self.canceled_ids.append(request.path_params["id"])
        return JSONResponse({"id": request.path_params["id"], "status": "canceled"}, self.status)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/checkout/sessions", self.session, methods=["POST"]),
                Route("/v1/subscriptions/{id}", self.end, methods=["DELETE"]),
            ]
        )


@pytest.fixture
async def payment_app(tmp_path: Path) -> AsyncIterator[tuple[AppFixture, Processor]]:
    async with running_payment_app(tmp_path) as both:
        yield both


@asynccontextmanager
async def running_payment_app(folder: Path, **changes: Any) -> AsyncIterator[tuple[AppFixture, Processor]]:
    processor = Processor()
    async with serve(processor.app) as origin:
        pays: dict[str, Any] = {
            "stripe_secret_key": "sk_test",
            "stripe_webhook_secret": SECRET,
            "stripe_url": origin,
        }
        async with running_app(folder, **pays, **changes) as app:
            yield app, processor


def session(app: AppFixture, event: str = "evt_1", **changes: Any) -> dict[str, Any]:
    """Return the event of a paid checkout."""
    what = {
        "id": "cs_1",
        "object": "checkout.session",
        "mode": "payment",
        "payment_status": "paid",
        "currency": "usd",
        "amount_total": 2050,
        "metadata": {"account_id": app.account.id, "micros": "20500000"},
        **changes,
    }
    kind = "checkout.session.completed"
    return {"id": event, "object": "event", "type": kind, "data": {"object": what}}


async def deliver_event(app: AppFixture, event: Mapping[str, Any], **changes: Any) -> httpx.Response:
    """Deliver an event as the processor does, signed by its own library."""
    body = json.dumps(event)
    moment = changes.get("at", int(time.time()))
    # The library has no public function for signatures.
    sign = stripe.WebhookSignature._compute_signature
    signature = f"t={moment},v1={sign(f'{moment}.{body}', changes.get('secret', SECRET))}"
    headers = {"Stripe-Signature": changes.get("signature", signature)}
    return await app.visitor().post(TOLD, content=changes.get("body", body), headers=headers)


async def test_credit_checkout_returns_a_page_of_the_processor(
    payment_app: tuple[AppFixture, Processor],
) -> None:
    app, processor = payment_app
    response = await app.client.post(CHECKOUT, json={"amount_usd": "20.50"}, headers=app.bearer)
    assert (response.status_code, response.json()) == (200, {"checkout_url": "https://pay.example/cs_1"})
    request = processor.requests[0]
    assert (request["mode"], request["line_items[0][price_data][unit_amount]"]) == ("payment", "2050")
    assert request["metadata[account_id]"] == app.account.id
    assert processor.keys == ["Bearer sk_test"]
    assert await app.balance() == ("5.00", "0.00"), "nothing is credited before it is paid"


async def test_plan_checkout_creates_a_subscription(payment_app: tuple[AppFixture, Processor]) -> None:
    app, processor = payment_app
    response = await app.client.post(PLAN, json={"plan": "yearly"}, headers=app.bearer)
    assert response.status_code == 200
    request = processor.requests[0]
    assert request["line_items[0][price_data][unit_amount]"] == "8000"
    assert request["line_items[0][price_data][recurring][interval]"] == "year"
    assert request["subscription_data[metadata][plan]"] == "yearly"


@pytest.mark.parametrize("amount", [0, -1, "x", None, True, "1.005", 10_001, 0.99, "1e400", "1e999999", [1]])
async def test_invalid_payment_amount_is_refused(
    payment_app: tuple[AppFixture, Processor], amount: Any
) -> None:
    app, processor = payment_app
    response = await app.client.post(CHECKOUT, json={"amount_usd": amount}, headers=app.bearer)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
    assert "amount_usd" in response.json()["error"]
    assert processor.requests == []


async def test_repeated_checkout_events_credit_once(
    payment_app: tuple[AppFixture, Processor],
) -> None:
    app, _ = payment_app
    responses = await asyncio.gather(*(deliver_event(app, session(app, f"evt_{n % 2}")) for n in range(6)))
    assert [response.status_code for response in responses] == [200] * 6
    assert await app.balance() == ("25.50", "0.00")
    assert await app.faults() == ()
    entries = await app.client.get("/api/account/ledger", headers=app.bearer)
    newest = entries.json()["entries"][0]
    assert (newest["amount_usd"], newest["kind"]) == ("20.50", "top_up")


async def test_plan_starts_with_payment_and_ends_with_subscription(
    payment_app: tuple[AppFixture, Processor],
) -> None:
    app, _ = payment_app
    about = {"account_id": app.account.id, "plan": "monthly"}
    bought = session(app, mode="subscription", subscription="sub_1", metadata=about)
    await deliver_event(app, bought)
    assert (await app.database.read(accounts.by_id(app.account.id))).plan == "monthly"
    over = {"id": "evt_2", "type": "customer.subscription.deleted", "data": {"object": {"id": "sub_1"}}}
    await deliver_event(app, over)
    assert (await app.database.read(accounts.by_id(app.account.id))).plan == "free"
    await deliver_event(app, bought)
    assert (await app.database.read(accounts.by_id(app.account.id))).plan == "free"


async def test_account_erasure_first_cancels_the_plan_at_the_processor(tmp_path: Path) -> None:
    async with running_payment_app(tmp_path, deletion_days=0) as (app, processor):
        about = {"account_id": app.account.id, "plan": "yearly"}
        await deliver_event(app, session(app, mode="subscription", subscription="sub_7", metadata=about))
        read, account_id = app.database.read, app.account.id
        processor.status = 500
        left = await app.client.request(
            "DELETE", "/api/account", json={"confirm": "ada@example.com"}, headers=app.bearer
        )
        assert left.status_code == 202
        remaining = await read(accounts.by_id(account_id))
        assert (remaining.email, remaining.plan, processor.canceled_ids) == ("ada@example.com", "yearly", [])
        processor.status = 200
        assert await bootstrap.account_deletion(app.server).sweep() == 1
        assert processor.canceled_ids == ["sub_7"]
        over = {"id": "evt_9", "type": "customer.subscription.deleted", "data": {"object": {"id": "sub_7"}}}
        assert (await deliver_event(app, over)).status_code == 200


async def test_closing_an_account_cancels_its_plan(payment_app: tuple[AppFixture, Processor]) -> None:
    app, processor = payment_app
    about = {"account_id": app.account.id, "plan": "monthly"}
    await deliver_event(app, session(app, mode="subscription", subscription="sub_1", metadata=about))
    sure = {"confirm": "ada@example.com"}
    await app.client.request("DELETE", "/api/account", json=sure, headers=app.bearer)
    assert processor.canceled_ids == ["sub_1"]
    assert (await app.database.read(accounts.by_id(app.account.id))).plan == "free"


@pytest.mark.parametrize(
    "changes",
    [
        {"secret": "whsec_of_another"},
        {"at": 0},
        {"at": 4_000_000_000},
        {"signature": ""},
        {"signature": "t=1,v1=abc"},
        {"signature": "t=x,v1=abc"},
        {"body": "{}"},
    ],
)
async def test_webhook_event_with_an_invalid_signature_is_400(
    payment_app: tuple[AppFixture, Processor], changes: Any
) -> None:
    app, _ = payment_app
    response = await deliver_event(app, session(app), **changes)
    assert response.status_code == 400
    assert await app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize(
    "changes",
    [
        {"payment_status": "unpaid"},
        {"currency": "jpy"},
        {"metadata": {}},
        {"metadata": {"account_id": "acct_of_nobody"}},
        {"metadata": None},
    ],
)
async def test_unpaid_or_foreign_checkout_adds_no_credit(
    payment_app: tuple[AppFixture, Processor], changes: Any
) -> None:
    app, _ = payment_app
    response = await deliver_event(app, session(app, **changes))
    assert response.status_code == 200, "or the processor would tell it again"
    assert await app.balance() == ("5.00", "0.00")
    assert await app.faults() == ()


async def test_events_with_impossible_amounts_change_nothing(either: Path) -> None:
    async with running_payment_app(either) as (app, processor):
        await app.client.post(CHECKOUT, json={"amount_usd": 20}, headers=app.bearer)
        assert processor.requests[0]["adaptive_pricing[enabled]"] == "false"
        for number, cents in enumerate((0, -100, True, 10**15, 10**30, "2050", None)):
            response = await deliver_event(app, session(app, id=f"cs_{number}", amount_total=cents))
            assert response.status_code == 200, cents
        for number, account_id in enumerate(("world", "revenue")):
            metadata = {"account_id": account_id}
            response = await deliver_event(
                app, session(app, id=f"cs_{account_id}{number}", metadata=metadata)
            )
            assert response.status_code == 200, account_id
        await deliver_event(app, session(app, payment_intent="pi_1"))
        for changes in ({"amount_refunded": 10**30}, {"amount_refunded": -1}, {"amount_refunded": True}):
            charge = {"payment_intent": "pi_1", "currency": "usd", **changes}
            event = {"id": "evt_2", "type": "charge.refunded", "created": 5, "data": {"object": charge}}
            assert (await deliver_event(app, event)).status_code == 200, changes
        event = {"id": "evt_3", "type": "charge.refunded", "created": 10**30, "data": {"object": charge}}
        assert (await deliver_event(app, event)).status_code == 400
        assert await app.balance() == ("25.50", "0.00")
        assert await app.faults() == ()


async def test_the_age_of_an_event_is_by_the_database(
    payment_app: tuple[AppFixture, Processor], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = payment_app
    monkeypatch.setattr(time, "time", lambda moment=time.time: moment() + 600)
    assert (await deliver_event(app, session(app), at=time.time_ns() // 10**9)).status_code == 200
    assert (await deliver_event(app, session(app), at=int(time.time()))).status_code == 400


async def test_rejection_by_the_payment_processor_responds_502(
    payment_app: tuple[AppFixture, Processor],
) -> None:
    app, processor = payment_app
    processor.status = 402
    response = await app.client.post(CHECKOUT, json={"amount_usd": 5}, headers=app.bearer)
    assert (response.status_code, response.json()["code"]) == (502, "generation_failed")


@pytest.mark.parametrize(("path", "body"), [(CHECKOUT, {"amount_usd": 5}), (PLAN, {"plan": "monthly"})])
async def test_a_failed_checkout_can_be_repeated_with_its_key(
    payment_app: tuple[AppFixture, Processor], path: str, body: dict[str, Any]
) -> None:
    app, processor = payment_app
    headers = {**app.bearer, "Idempotency-Key": "one"}
    processor.status = 503
    assert (await app.client.post(path, json=body, headers=headers)).status_code == 502
    processor.status = 200
    responses = [await app.client.post(path, json=body, headers=headers) for _ in range(2)]
    assert [response.json() for response in responses] == [{"checkout_url": "https://pay.example/cs_1"}] * 2
    assert [response.headers.get("idempotent-replayed") for response in responses] == [None, "true"]
    assert len(processor.requests) == 2


async def test_missing_payment_settings_are_503_and_named(
    app: AppFixture, caplog: pytest.LogCaptureFixture
) -> None:
    before = refusals.recorder().totals["not_configured"]
    for path, body in ((CHECKOUT, {"amount_usd": 5}), (PLAN, {"plan": "monthly"}), (TOLD, {})):
        response = await app.client.post(path, json=body, headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (503, "not_configured"), path
        assert "SIXFOLD_STRIPE_" in response.json()["error"]
    # One log line per minute reports all refusals.
    assert refusals.recorder().totals["not_configured"] == before + 3
    assert not [record for record in caplog.records if "SIXFOLD_STRIPE_" in record.getMessage()]


async def test_deposits_without_chain_and_with_limited_key_are_refused(app: AppFixture) -> None:
    answer = await app.client.post("/api/account/deposits", headers=app.bearer)
    assert (answer.status_code, answer.json()["code"]) == (503, "not_configured")
    reader = await app.limited_key(KeyLimits(read_only=True))
    response = await app.client.post("/api/account/deposits", headers=bearer(reader))
    assert response.status_code == 403
