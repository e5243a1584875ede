"""Events of a payment processor lead to the same balance and plan in any order and when repeated."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold import errors
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, ledger, ledger_queries, payments
from sixfold.core.database import Database, one
from sixfold.payments.stripe import StripeClient
from sixfold.settings import Settings
from tests.harness import backends, databases

SECRET, NOW = "whsec_of_the_test", 1_790_000_000
CENT = 10_000
_numbers = itertools.count()
Play = Callable[[Callable[[Database], Awaitable[None]]], None]


def signed(event: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the event's body and signature as the processor sends them."""
    body = json.dumps(event).encode()
    digest = hmac.new(SECRET.encode(), b"%d.%s" % (NOW, body), hashlib.sha256).hexdigest()
    return body, f"t={NOW},v1={digest}"


def event(kind: str, created: int = 0, **what: Any) -> dict[str, Any]:
    return {"id": f"evt_{next(_numbers)}", "type": kind, "created": created, "data": {"object": what}}


def paid(account_id: str, intent: str, cents: int = 2000) -> dict[str, Any]:
    session = {
        "id": f"cs_of_{intent}",
        "mode": "payment",
        "payment_status": "paid",
        "currency": "usd",
        "amount_total": cents,
        "payment_intent": intent,
        "metadata": {"account_id": account_id},
    }
    return event("checkout.session.completed", **session)


def refunded(intent: str, total: int, created: int = 0) -> dict[str, Any]:
    about = {"id": "ch_1", "payment_intent": intent, "currency": "usd", "amount_refunded": total}
    return event("charge.refunded", created, **about)


def failed(intent: str, name: str, cents: int, created: int, kind: str = "refund.failed") -> dict[str, Any]:
    about = {"payment_intent": intent, "currency": "usd", "amount": cents, "status": "failed"}
    return event(kind, created, id=name + intent, **about)


def dispute(
    step: str, intent: str, status: str, name: str = "dp_1", cents: int = 2000, created: int = 0
) -> dict[str, Any]:
    about = {
        "id": name + intent,
        "payment_intent": intent,
        "currency": "usd",
        "amount": cents,
        "status": status,
    }
    return event(f"charge.dispute.{step}", created, **about)


def lost(intent: str, **more: Any) -> list[dict[str, Any]]:
    steps = (("created", "needs_response"), ("funds_withdrawn", "needs_response"), ("closed", "lost"))
    return [dispute(step, intent, status, **more) for step, status in steps]


def won(intent: str, **more: Any) -> list[dict[str, Any]]:
    steps = (("created", "needs_response"), ("funds_withdrawn", "under_review"), ("funds_reinstated", "won"))
    return [
        *(dispute(step, intent, status, **more) for step, status in steps),
        dispute("closed", intent, "won", **more),
    ]


def won_and_lost(intent: str) -> list[dict[str, Any]]:
    return [
        dispute("created", intent, "needs_response", created=1),
        dispute("funds_withdrawn", intent, "needs_response", created=1),
        dispute("funds_reinstated", intent, "won", created=5),
        dispute("closed", intent, "won", created=5),
        dispute("funds_withdrawn", intent, "lost", created=9),
        dispute("closed", intent, "lost", created=9),
    ]


# Events in addition to a payment of 2000 cents, and how many cents the account then has.
EVENT_SEQUENCES: Mapping[str, tuple[Any, int]] = {
    "nothing": (lambda _intent: [], 2000),
    "refunded whole": (lambda intent: [refunded(intent, 2000)], 0),
    "refunded in parts": (lambda intent: [refunded(intent, total) for total in (300, 800, 1100)], 900),
    "dispute lost": (lost, 0),
    "dispute won": (won, 2000),
    "dispute over a part lost": (lambda intent: lost(intent, cents=500), 1500),
    "inquiry that ended well": (
        lambda intent: [
            dispute("created", intent, "warning_needs_response"),
            dispute("closed", intent, "warning_closed"),
        ],
        2000,
    ),
    "inquiry that ended well and became a dispute": (
        lambda intent: [
            dispute("created", intent, "warning_needs_response"),
            dispute("closed", intent, "warning_closed"),
            *lost(intent)[1:],
        ],
        0,
    ),
    "refunded in part, the rest disputed": (
        lambda intent: [refunded(intent, 700), *lost(intent, cents=1300)],
        0,
    ),
    "refunded whole and disputed as well": (lambda intent: [refunded(intent, 2000), *lost(intent)], 0),
    "dispute won, then lost": (won_and_lost, 0),
    "dispute won, lost and won again": (
        lambda intent: [*won_and_lost(intent), dispute("funds_reinstated", intent, "won", created=11)],
        2000,
    ),
    "refund failed": (
        lambda intent: [
            refunded(intent, 2000, 1),
            failed(intent, "re_1", 2000, 3),
            failed(intent, "re_1", 2000, 3, "charge.refund.updated"),
        ],
        2000,
    ),
    "one of two refunds failed": (
        lambda intent: [refunded(intent, 500, 1), refunded(intent, 800, 2), failed(intent, "re_1", 500, 3)],
        1700,
    ),
    "refunded again after a failed refund": (
        lambda intent: [
            refunded(intent, 2000, 1),
            failed(intent, "re_1", 2000, 3),
            refunded(intent, 300, 5),
            failed(intent, "re_1", 2000, 7, "refund.updated"),
        ],
        1700,
    ),
    "two disputes, one of them won": (
        lambda intent: [*won(intent, cents=600), *lost(intent, name="dp_2", cents=600)],
        1400,
    ),
}
PLANS: Mapping[str, tuple[Sequence[tuple[str, int, str]], str]] = {
    "bought": ([("bought", 1, ""), ("created", 1, "active")], "monthly"),
    "ended": ([("bought", 1, ""), ("updated", 2, "active"), ("deleted", 3, "canceled")], "free"),
    "unpaid": ([("bought", 1, ""), ("updated", 2, "past_due"), ("updated", 3, "unpaid")], "free"),
    "paid again": ([("bought", 1, ""), ("updated", 2, "unpaid"), ("updated", 3, "active")], "monthly"),
    "revived never": ([("bought", 5, ""), ("deleted", 3, "canceled")], "free"),
}


def plan_event(account_id: str, name: str, step: str, created: int, status: str) -> dict[str, Any]:
    about = {"account_id": account_id, "plan": "monthly"}
    if step == "bought":
        session = {"id": f"cs_{name}", "mode": "subscription", "payment_status": "paid", "subscription": name}
        return event("checkout.session.completed", created, **session, metadata=about)
    metadata = about if step == "created" else {}
    return event(f"customer.subscription.{step}", created, id=name, status=status, metadata=metadata)


Pages = Mapping[str, Any]


async def deliver(
    database: Database, events: Sequence[Mapping[str, Any]], pages: Pages | None = None
) -> None:
    """Deliver each event as a signed webhook; `pages` are responses of the processor by path."""

    def respond(request: httpx.Request) -> httpx.Response:
        assert request.headers["stripe-version"] == "2025-03-31.basil"
        page = (pages or {}).get(request.url.path.removeprefix("/v1/"), {"data": []})
        return httpx.Response(page, json={}) if isinstance(page, int) else httpx.Response(200, json=page)

    configured = Settings(
        data_dir=Path("/nonexistent"), stripe_webhook_secret=SECRET, stripe_secret_key="sk_test"
    )
    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as visitor:
        processor = StripeClient(visitor, configured)
        for each in events:
            body, signature = signed(each)
            content = processor.read(body, signature, NOW)
            if content is not None:
                await payments.receive(content, processor, database)


async def customer(database: Database) -> str:
    return (await database.write(accounts.create(f"a{next(_numbers)}@example.com"))).id


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_erased_account_is_only_charged_for_reversals(backend: str, tmp_path: Path) -> None:
    """A payment is not credited to it, but an earlier payment can still be refunded, in part and whole."""
    async with databases.OPENERS[backend](tmp_path, None) as database:
        account_id = await customer(database)
        await deliver(database, [paid(account_id, "pi_1", 2000)])
        account = await database.read(accounts.by_id(account_id))
        await database.write(deletion.close(account, -1))
        assert await database.write(deletion.erase(account_id))
        await deliver(database, [paid(account_id, "pi_2", 3000), refunded("pi_2", 3000)])
        assert await left(database, account_id) == 2000
        await deliver(database, [refunded("pi_1", 500, 1), refunded("pi_1", 2000, 2), *lost("pi_1")])
        assert await left(database, account_id) == 0


async def left(database: Database, account_id: str) -> int:
    assert await database.read(ledger_queries.verify()) == ()
    return (await database.read(accounts.by_id(account_id))).posted // CENT


@pytest.fixture(scope="module", params=databases.BACKENDS)
def ledger_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Return a database that all orders of events share, and its event loop."""
    loop = asyncio.new_event_loop()
    context = databases.OPENERS[request.param](tmp_path_factory.mktemp("payments"), None)
    database = loop.run_until_complete(context.__aenter__())
    yield lambda work: loop.run_until_complete(work(database))
    loop.run_until_complete(context.__aexit__(None, None, None))
    backends.forget()
    loop.close()


@pytest.mark.parametrize("story", EVENT_SEQUENCES)
def test_balance_is_independent_of_the_order_of_payment_events(ledger_of: Play, story: str) -> None:
    response, cents = EVENT_SEQUENCES[story]

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        async def play(database: Database) -> None:
            account_id, intent = await customer(database), f"pi_{next(_numbers)}"
            once = [paid(account_id, intent), *response(intent)]
            again = data.draw(st.lists(st.sampled_from(once), max_size=4))
            await deliver(database, data.draw(st.permutations([*once, *again])))
            assert await left(database, account_id) == cents

        ledger_of(play)

    each()


@pytest.mark.parametrize("story", PLANS)
def test_plan_is_independent_of_the_order_of_events(ledger_of: Play, story: str) -> None:
    steps, plan = PLANS[story]

    async def play(database: Database) -> None:
        for order in itertools.permutations(steps):
            account_id, name = await customer(database), f"sub_{next(_numbers)}"
            messages = [plan_event(account_id, name, *step) for step in order]
            await deliver(database, [*messages, *messages])
            assert (await database.read(accounts.by_id(account_id))).plan == plan, order

    ledger_of(play)


def test_negative_balance_blocks_runs_until_it_is_paid(ledger_of: Play) -> None:
    async def play(database: Database) -> None:
        account_id, intent = await customer(database), f"pi_{next(_numbers)}"
        await deliver(database, [paid(account_id, intent)])
        await database.write(ledger.hold(account_id, f"hold{intent}", 1500 * CENT))
        await database.write(
            ledger.capture(f"hold{intent}", 1500 * CENT, ledger.LedgerEntry("charge", "test"))
        )
        await deliver(database, [refunded(intent, 2000)])
        assert await left(database, account_id) == -1500
        for spend in (ledger.hold(account_id, f"more{intent}", 1), ledger.require_not_below_zero(account_id)):
            with pytest.raises(errors.InsufficientCredits):
                await database.write(spend)
        await deliver(database, [paid(account_id, f"{intent}_b", 1499)])
        with pytest.raises(errors.InsufficientCredits):
            await database.write(ledger.require_not_below_zero(account_id))
        await deliver(database, [paid(account_id, f"{intent}_c", 101)])
        assert await left(database, account_id) == 100
        row = await database.read(one("account_by_id", id=account_id))
        assert row is not None
        assert not row["can_go_negative"], "the database refuses a balance below zero again"
        await database.write(ledger.require_not_below_zero(account_id))
        with pytest.raises(errors.InsufficientCredits):
            await database.write(ledger.hold(account_id, f"most{intent}", 101 * CENT))
        await database.write(ledger.hold(account_id, f"some{intent}", 100 * CENT))

    ledger_of(play)


def bought(account_id: str, name: str) -> dict[str, Any]:
    """A subscription as the processor reports it, paid by its first invoice."""
    about = {"account_id": account_id, "plan": "monthly"}
    return {"id": name, "status": "active", "latest_invoice": f"in_1{name}", "metadata": about}


def origin_of_plan(account_id: str, name: str) -> Pages:
    """The processor's responses about the payment of a subscription's first invoice."""
    details = {"subscription_details": {"subscription": name}}
    paid_invoice = {"id": f"in_1{name}", "parent": details}
    paid = {"amount_paid": 800, "currency": "usd", "invoice": paid_invoice}
    return {"invoice_payments": {"data": [paid]}, f"subscriptions/{name}": bought(account_id, name)}


REVERSED: Mapping[str, tuple[Any, str]] = {
    "refunded": (lambda intent: [refunded(intent, 800, 5)], "free"),
    "refunded in part": (lambda intent: [refunded(intent, 799, 5)], "monthly"),
    "disputed": (lambda intent: lost(intent, cents=800), "free"),
    "dispute won": (lambda intent: won(intent, cents=800), "monthly"),
    "refund failed": (lambda intent: [refunded(intent, 800, 5), failed(intent, "re_1", 800, 6)], "monthly"),
}


@pytest.mark.parametrize("story", REVERSED)
def test_a_reversed_payment_of_a_plan_ends_it(ledger_of: Play, story: str) -> None:
    response, plan = REVERSED[story]

    async def play(database: Database) -> None:
        for order in range(4):
            account_id, name = await customer(database), f"sub_{next(_numbers)}"
            created = event("customer.subscription.created", 1, **bought(account_id, name))
            again = event("customer.subscription.updated", 9, **bought(account_id, name))
            pages = origin_of_plan(account_id, name)
            reversal = response(f"pi_{name}")
            orders = ([created, *reversal], [*reversal, created], [created, *reversal, again], reversal)
            await deliver(database, orders[order], pages)
            assert (await database.read(accounts.by_id(account_id))).plan == plan, order
            assert await left(database, account_id) == 0
            renewed = {**bought(account_id, name), "latest_invoice": f"in_2{name}"}
            await deliver(database, [event("customer.subscription.updated", 2**33, **renewed)], pages)
            assert (await database.read(accounts.by_id(account_id))).plan == "monthly"

    ledger_of(play)


def test_payment_without_a_stored_intent_is_reversed(ledger_of: Play) -> None:
    async def play(database: Database) -> None:
        account_id, intent = await customer(database), f"pi_{next(_numbers)}"
        purchase = paid(account_id, intent)
        # The version before credited the payment and recorded no intent.
        without = {**purchase, "data": {"object": {**purchase["data"]["object"], "payment_intent": None}}}
        await deliver(database, [without])
        assert await left(database, account_id) == 2000
        pages = {"checkout/sessions": {"data": [purchase["data"]["object"]]}}
        with pytest.raises(errors.EngineFailed):
            await deliver(database, [refunded(intent, 500)], {"checkout/sessions": 500})
        assert await left(database, account_id) == 2000
        await deliver(database, [refunded(intent, 500), purchase, refunded(intent, 500)], pages)
        assert await left(database, account_id) == 1500
        await deliver(database, lost(intent, cents=1500), {"checkout/sessions": 500})
        assert await left(database, account_id) == 0

    ledger_of(play)


@pytest.mark.parametrize("data", [None, 1, {}, [1], [[]]])
def test_malformed_list_of_the_processor_is_read_again(ledger_of: Play, data: Any) -> None:
    async def play(database: Database) -> None:
        account_id, intent = await customer(database), f"pi_{next(_numbers)}"
        with pytest.raises(errors.EngineFailed, match="did not return checkout/sessions"):
            await deliver(database, [refunded(intent, 500)], {"checkout/sessions": {"data": data}})
        await deliver(database, [refunded(intent, 500), paid(account_id, intent)])
        assert await left(database, account_id) == 1500

    ledger_of(play)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_key_without_payment_rights_does_not_fail_the_webhook(ledger_of: Play, status: int) -> None:
    async def play(database: Database) -> None:
        account_id, intent = await customer(database), f"pi_{next(_numbers)}"
        refused: Pages = {"checkout/sessions": status, "invoice_payments": status}
        await deliver(database, [refunded(intent, 500), paid(account_id, intent)], refused)
        assert await left(database, account_id) == 1500

    ledger_of(play)


def test_payment_of_another_shop_is_ignored(ledger_of: Play) -> None:
    async def play(database: Database) -> None:
        account_id, intent = await customer(database), f"pi_{next(_numbers)}"
        foreign = {**paid(account_id, intent)["data"]["object"], "metadata": {}}
        await deliver(database, [refunded(intent, 500)], {"checkout/sessions": {"data": [foreign]}})
        theirs = {**origin_of_plan(account_id, "sub_of_others")}
        theirs["subscriptions/sub_of_others"] = {**bought(account_id, "sub_of_others"), "metadata": {}}
        await deliver(database, [refunded(f"{intent}_2", 800)], theirs)
        assert await left(database, account_id) == 0
        assert (await database.read(accounts.by_id(account_id))).plan == "free"

    ledger_of(play)
