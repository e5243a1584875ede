"""Kill −9 while a payment is recorded and a saved file is marked: each counts once."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import stripe

from sixfold.core.failpoints import PAYMENT_POINTS, SAVE_POINTS
from tests.e2e import servers
from tests.e2e.servers import Reply, Server
from tests.harness import backends
from tests.harness.cases import nightly_after

SECRET = "whsec_of_the_test"
LOST = (http.client.HTTPException, ConnectionError)


def failing(point: str) -> dict[str, str]:
    return {
        "SIXFOLD_TESTING": "1",
        "SIXFOLD_FAILPOINTS": f"{point}=crash",
        "SIXFOLD_STRIPE_SECRET_KEY": "sk_test",
        "SIXFOLD_STRIPE_WEBHOOK_SECRET": SECRET,
    }


def cases(points: Sequence[str]) -> list[Any]:
    """Return each point on SQLite and the last one on PostgreSQL; the others are nightly."""
    sqlite, postgres = backends.EACH_DATABASE
    each = [pytest.param(*sqlite.values, point) for point in points]
    each += [pytest.param(*postgres.values, point, marks=postgres.marks) for point in reversed(points)]
    return nightly_after(len(points) + 1, each)


async def restart(server: Server) -> None:
    await server.wait_for_exit()
    server.environ["SIXFOLD_FAILPOINTS"] = ""
    await server.restart()


async def tell(server: Server, account_id: str) -> Reply:
    """Send the message of a payment of 20.50 USD, as the processor repeats it until it is answered."""
    paid = {
        "id": "cs_1",
        "object": "checkout.session",
        "mode": "payment",
        "payment_status": "paid",
        "currency": "usd",
        "amount_total": 2050,
        "payment_intent": "pi_1",
        "metadata": {"account_id": account_id, "micros": "20500000"},
    }
    event = {"id": "evt_1", "object": "event", "type": "checkout.session.completed", "data": {"object": paid}}
    moment = int(time.time())
    # The library has no public function for signatures.
    sign = stripe.WebhookSignature._compute_signature
    # The client writes the body with the same function.
    signature = f"t={moment},v1={sign(f'{moment}.{json.dumps(event)}', SECRET)}"
    return await server.call("POST", "/api/webhooks/stripe", event, **{"Stripe-Signature": signature})


@pytest.mark.parametrize(("either", "point"), cases(PAYMENT_POINTS), indirect=["either"])
async def test_payment_counts_once_after_a_kill_at(either: Path, point: str) -> None:
    async with servers.serving(either, **failing(point)) as server:
        bearer = {"Authorization": f"Bearer {server.key}"}
        _, text = await server.command("account", "show", "local@localhost", "--json")
        account = json.loads(text)
        with pytest.raises(LOST):
            await tell(server, account["account_id"])
        await restart(server)
        assert [(await tell(server, account["account_id"])).status for _ in range(2)] == [200, 200]
        paid = (await server.call("GET", "/api/account", **bearer)).json
        assert float(paid["balance_usd"]) == float(account["balance_usd"]) + 20.5
        status, text = await server.command("ledger", "verify")
        assert status == 0, text


@pytest.mark.parametrize(("either", "point"), cases(SAVE_POINTS), indirect=["either"])
async def test_saved_file_is_charged_once_after_a_kill_at(either: Path, point: str) -> None:
    async with servers.serving(either, **failing(point)) as server:
        bearer = {"Authorization": f"Bearer {server.key}"}
        before = (await server.call("GET", "/api/account", **bearer)).json
        path = "/create_and_upload_image?prompt=hill&width=64&height=64&save_path=hills/"
        with pytest.raises(LOST):
            await server.call("GET", f"{path}one.png", **bearer)
        await restart(server)
        predictions = (await server.call("GET", "/api/containers/predictions", **bearer)).json["predictions"]
        assert [each["status"] for each in predictions] == ["succeeded"]
        after = (await server.call("GET", "/api/account", **bearer)).json
        spent = float(before["balance_usd"]) - float(after["balance_usd"])
        assert (round(spent, 6), float(after["held_usd"])) == (float(predictions[0]["cost"]), 0)
        second_response = await server.call("GET", f"{path}two.png", **bearer)
        assert second_response.status == 200, second_response.body
        status, text = await server.command("ledger", "verify")
        assert status == 0, text
