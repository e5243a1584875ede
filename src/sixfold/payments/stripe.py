"""Stripe Checkout: pages on which people pay by card, and the signed messages that tell of it.

Its protocol is plain forms and JSON (docs.stripe.com/api); a signature is `t=<seconds>,v1=<hex>`, where the
hex is HMAC-SHA256 of `<seconds>.<body>` under the endpoint's secret.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

import httpx
import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.payments import PLANS, Ended, Paid, Plan, Subscribed
from sixfold.settings import Settings

_AGE_SECONDS = 300  # of a message, past or future
_CENT = money.MICROS_PER_USD // 100
_MAX_SIGNATURES = 8
_INTERVALS: Mapping[Plan, str] = {"monthly": "month", "yearly": "year"}
_OVER = frozenset({"canceled", "unpaid", "incomplete_expired"})


class Stripe:
    """`payments.Checkout` on Stripe; says what is missing while it is not configured."""

    def __init__(self, client: httpx.AsyncClient, settings: Settings) -> None:
        self._client = client
        self._key = settings.stripe_secret_key
        self._secret = settings.stripe_webhook_secret
        self._origin = settings.stripe_url
        self._back = settings.base_url

    async def top_up(self, account_id: str, email: str, micros: int) -> str:
        """The address of a page on which so much credit is paid."""
        metadata = {"account_id": account_id, "micros": str(micros)}
        item = {"unit_amount": str(micros // _CENT), "product_data[name]": "Sixfold credit"}
        return await self._session("payment", email, item, metadata)

    async def subscribe(self, account_id: str, email: str, plan: Plan) -> str:
        """The address of a page on which a memory plan is paid from now on."""
        metadata = {"account_id": account_id, "plan": plan}
        item = {
            "unit_amount": str(PLANS[plan] // _CENT),
            "product_data[name]": f"Sixfold memory, {plan}",
            "recurring[interval]": _INTERVALS[plan],
        }
        return await self._session("subscription", email, item, metadata)

    async def _session(
        self, mode: str, email: str, item: Mapping[str, str], metadata: Mapping[str, str]
    ) -> str:
        form = {
            "mode": mode,
            "success_url": f"{self._back}/account?paid=1",
            "cancel_url": f"{self._back}/account",
            "client_reference_id": metadata["account_id"],
            "line_items[0][quantity]": "1",
            "line_items[0][price_data][currency]": "usd",
            **{f"line_items[0][price_data]{_bracketed(name)}": value for name, value in item.items()},
            **{f"metadata[{name}]": value for name, value in metadata.items()},
        }
        if mode == "subscription":
            form |= {f"subscription_data[metadata][{name}]": value for name, value in metadata.items()}
        if "." in email.rpartition("@")[2]:
            form["customer_email"] = email
        status, told = await self._asked("POST", "checkout/sessions", form)
        url = told.get("url")
        if status != 200 or not isinstance(url, str):
            raise errors.EngineFailed("The payment processor refused this")
        return url

    async def end(self, subscription: str, account_id: str) -> None:
        """Take no more money for a subscription; one that is over already is no fault."""
        status, _ = await self._asked("DELETE", f"subscriptions/{quote(subscription, safe='')}")
        if status not in (200, 404):
            raise errors.EngineFailed(f"The payment processor did not end the plan of {account_id}")

    async def _asked(
        self, method: str, path: str, form: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """The status and the object of an answer."""
        if not self._key:
            raise errors.NotConfigured("Card payments are off here: set SIXFOLD_STRIPE_SECRET_KEY")
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": secrets.token_hex(16)}
        try:
            answer = await self._client.request(
                method, f"{self._origin}/v1/{path}", data=form, headers=headers
            )
            return answer.status_code, msgspec.json.decode(answer.content, type=dict[str, Any])
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            raise errors.EngineFailed("The payment processor could not be reached. Try again") from error

    def read(self, body: bytes, signature: str, now_seconds: float) -> Paid | Subscribed | Ended | None:
        """What a signed message says; raises `BadRequest` for a forged, old or unreadable one."""
        if not self._secret:
            raise errors.NotConfigured("Card payments are off here: set SIXFOLD_STRIPE_WEBHOOK_SECRET")
        self._check(body, signature, now_seconds)
        try:
            event = msgspec.json.decode(body, type=_Event)
        except msgspec.MsgspecError as error:
            raise errors.BadRequest("This is no event") from error
        return _told(event)

    def _check(self, body: bytes, signature: str, now_seconds: float) -> None:
        pairs = [part.partition("=")[::2] for part in signature.split(",")[: _MAX_SIGNATURES + 1]]
        times = [value for name, value in pairs if name.strip() == "t"]
        if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) < 13):
            raise errors.BadRequest("The signature cannot be read")
        signed = times[0].encode() + b"." + body
        right = hmac.new(self._secret.encode(), signed, hashlib.sha256).hexdigest().encode()
        given = [value.encode() for name, value in pairs if name.strip() == "v1"]
        if not any(hmac.compare_digest(right, one) for one in given):
            raise errors.BadRequest("The signature is not right")
        if abs(now_seconds - int(times[0])) > _AGE_SECONDS:
            raise errors.BadRequest("The message is too old, or from the future")


class _Data(msgspec.Struct):
    object: dict[str, Any]


class _Event(msgspec.Struct):
    id: str
    type: str
    data: _Data


def _told(event: _Event) -> Paid | Subscribed | Ended | None:
    what = event.data.object
    match event.type:
        case "checkout.session.completed" | "checkout.session.async_payment_succeeded":
            return _bought(event.id, what)
        case "customer.subscription.deleted":
            return Ended(event.id, str(what.get("id")))
        case "customer.subscription.updated" if what.get("status") in _OVER:
            return Ended(event.id, str(what.get("id")))
        case _:
            return None


def _bought(event_id: str, session: Mapping[str, Any]) -> Paid | Subscribed | None:
    """What a checkout session bought, once it is paid; what was made for others is nothing to us."""
    given = session.get("metadata")
    metadata = cast("Mapping[str, Any]", given) if isinstance(given, dict) else {}
    account_id, plan = metadata.get("account_id"), metadata.get("plan")
    if session.get("payment_status") != "paid" or not isinstance(account_id, str):
        return None
    if session.get("mode") == "payment" and isinstance(session.get("amount_total"), int):
        if session.get("currency") != "usd":
            return None
        return Paid(event_id, str(session.get("id")), account_id, int(session["amount_total"]) * _CENT)
    if session.get("mode") == "subscription" and plan in PLANS:
        return Subscribed(event_id, account_id, plan, str(session.get("subscription")))
    return None


def _bracketed(name: str) -> str:
    """`recurring[interval]` as what stands in a form behind its parent's name."""
    first, bracket, rest = name.partition("[")
    return f"[{first}]{bracket}{rest}"
