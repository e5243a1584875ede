"""Stripe Checkout: payment pages for cards, and signed webhooks about payments.

The protocol is forms and JSON (docs.stripe.com/api). A signature is `t=<seconds>,v1=<hex>`, where `<hex>` is
the HMAC-SHA256 of `<seconds>.<body>` with the endpoint's secret.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Any, cast
from urllib.parse import quote

import httpx
import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts.payment_records import (
    DisputeEvent,
    InvoicePaid,
    RefundEvent,
    RefundFailed,
    State,
    Subscription,
)
from sixfold.core.accounts.payments import PLANS, PaymentEvent, PaymentReceived, Plan
from sixfold.net import limited_responses
from sixfold.settings import Settings

_LOG = logging.getLogger("sixfold.payments")
# Maximum age of a webhook, in the past or future.
_MAX_AGE_SECONDS = 300
_CENT = money.MICROS_PER_USD // 100
# Above every amount that Stripe accepts.
_MAX_CENTS = 10**11
_MAX_SIGNATURES = 8
# Of a response; a page of a list has up to 10 objects of a few KB.
_MAX_BYTES, _SECONDS = 4 * 2**20, 80.0
_INTERVALS: Mapping[Plan, str] = {"monthly": "month", "yearly": "year"}
_STATES: Mapping[str, State] = {
    "trialing": "live",
    "active": "live",
    "past_due": "live",
    "unpaid": "paused",
    "paused": "paused",
    "canceled": "over",
    "incomplete_expired": "over",
}
# Version of the API in which invoices and their payments are read.
_VERSION = "2025-03-31.basil"
_SUBSCRIPTION = "customer.subscription."
_REFUND_UPDATES = ("refund.failed", "refund.updated", "charge.refund.updated")
_DISPUTE = "charge.dispute."
# Prefix of the status of disputes that have not withdrawn anything yet.
_WARNING = "warning_"


class StripeClient:
    """The implementation of `payments.Checkout` with Stripe; raises `NotConfigured` without its settings."""

    def __init__(self, client: httpx.AsyncClient, settings: Settings) -> None:
        self._client = client
        self._key = settings.stripe_secret_key
        self._secret = settings.stripe_webhook_secret
        self._origin = settings.stripe_url
        self._back = settings.base_url

    async def top_up(self, account_id: str, email: str, micros: int) -> str:
        """Return the URL of a payment page for an amount of credit."""
        metadata = {"account_id": account_id, "micros": str(micros)}
        item = {"unit_amount": str(micros // _CENT), "product_data[name]": "Sixfold credit"}
        return await self._session("payment", email, item, metadata)

    async def subscribe(self, account_id: str, email: str, plan: Plan) -> str:
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
            # Otherwise customers may pay in another currency, which older versions of the API report.
            "adaptive_pricing[enabled]": "false",
            "line_items[0][quantity]": "1",
            "line_items[0][price_data][currency]": "usd",
            **{f"line_items[0][price_data]{_nested_key(name)}": value for name, value in item.items()},
            **{f"metadata[{name}]": value for name, value in metadata.items()},
        }
        if mode == "subscription":
            form |= {f"subscription_data[metadata][{name}]": value for name, value in metadata.items()}
        if "." in email.rpartition("@")[2]:
            form["customer_email"] = email
        status, payload = await self._request("POST", "checkout/sessions", form)
        url = payload.get("url")
        if status != 200 or not isinstance(url, str):
            raise errors.EngineFailed(
                f"The payment processor did not create a checkout page (status {status}): try again"
            )
        return url

    async def end(self, subscription: str, account_id: str) -> None:
        status, _ = await self._request("DELETE", f"subscriptions/{quote(subscription, safe='')}")
        if status not in (200, 404):
            raise errors.EngineFailed(f"The payment processor did not cancel the plan of {account_id}")

    async def origin(self, payment: str) -> tuple[PaymentEvent, ...]:
        """Return the events of the checkout, or of the subscription and the invoice, that a payment paid."""
        if not self._key:
            return ()
        for session in await self._list("checkout/sessions", {"payment_intent": payment}):
            purchase = _purchase(_StripeEvent("", "", _Data(session)), session)
            return () if purchase is None else (purchase,)
        fields = {"payment[type]": "payment_intent", "payment[payment_intent]": payment}
        for paid in await self._list("invoice_payments", {**fields, "expand[]": "data.invoice"}):
            invoice = _object(paid, "invoice")
            details = _object(_object(invoice, "parent"), "subscription_details")
            name, number = _text(details, "subscription"), _text(invoice, "id")
            micros = _micros(paid, "amount_paid")
            if name is None or number is None or micros is None:
                continue
            data = await self._get(f"subscriptions/{quote(name, safe='')}")
            event = _StripeEvent("", f"{_SUBSCRIPTION}updated", _Data(dict(data)), int(time.time()))
            subscription = _subscription(event, data)
            if subscription is not None and subscription.account_id is not None:
                return subscription, InvoicePaid(payment, number, micros)
        return ()

    async def _list(self, path: str, params: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the objects of the first page of a list; raises `EngineFailed` if it is malformed."""
        try:
            return msgspec.convert((await self._get(path, params)).get("data", []), list[dict[str, Any]])
        except msgspec.ValidationError as error:
            raise errors.EngineFailed(f"The payment processor did not return {path}: try again") from error

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return an object, empty if the key may not read it; raises `EngineFailed` if a retry may help."""
        status, payload = await self._request("GET", path, params=params)
        if status == 200:
            return payload
        if 400 <= status < 500 and status != 429:
            _LOG.warning("Stripe refused to return %s with status %d: the payment is unknown", path, status)
            return {}
        raise errors.EngineFailed(f"The payment processor did not return {path}: try again")

    async def _request(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, Any]]:
        """Return the status and the JSON object of a response."""
        if not self._key:
            raise errors.NotConfigured("Card payments are not configured: set SIXFOLD_STRIPE_SECRET_KEY")
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": secrets.token_hex(16)}
        if method == "GET":
            headers = {"Authorization": f"Bearer {self._key}", "Stripe-Version": _VERSION}
        try:
            response = await limited_responses.request(
                self._client,
                method,
                f"{self._origin}/v1/{path}",
                headers=headers,
                data=form,
                params=params,
                max_bytes=_MAX_BYTES,
                seconds=_SECONDS,
            )
            return response.status, await limited_responses.json_object(response.body)
        except httpx.HTTPError as error:
            raise errors.EngineFailed("The payment processor could not be reached: try again") from error

    def read(self, body: bytes, signature: str, now_seconds: float) -> PaymentEvent | None:
        """Parse a signed webhook; raises `BadRequest` if it is forged, old or unreadable."""
        if not self._secret:
            raise errors.NotConfigured("Card payments are not configured: set SIXFOLD_STRIPE_WEBHOOK_SECRET")
        self._check(body, signature, now_seconds)
        try:
            event = msgspec.json.decode(body, type=_StripeEvent)
        except msgspec.MsgspecError as error:
            raise errors.BadRequest("The body is not a Stripe event") from error
        return _parse_event(event)

    def _check(self, body: bytes, signature: str, now_seconds: float) -> None:
        pairs = [part.partition("=")[::2] for part in signature.split(",")[: _MAX_SIGNATURES + 1]]
        times = [value for name, value in pairs if name.strip() == "t"]
        if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) < 13):
            raise errors.BadRequest("The Stripe-Signature header must contain exactly one t=<seconds>")
        content = times[0].encode() + b"." + body
        expected = hmac.new(self._secret.encode(), content, hashlib.sha256).hexdigest().encode()
        signatures = [value.encode() for name, value in pairs if name.strip() == "v1"]
        if not any(hmac.compare_digest(expected, signature) for signature in signatures):
            raise errors.BadRequest(
                "The Stripe-Signature header does not match the body: check SIXFOLD_STRIPE_WEBHOOK_SECRET"
            )
        if abs(now_seconds - int(times[0])) > _MAX_AGE_SECONDS:
            raise errors.BadRequest(
                f"The timestamp differs from the current time by more than {_MAX_AGE_SECONDS} seconds"
            )


class _Data(msgspec.Struct):
    object: dict[str, Any]


class _StripeEvent(msgspec.Struct):
    id: str
    type: str
    data: _Data
    created: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0


def _parse_event(event: _StripeEvent) -> PaymentEvent | None:
    data = event.data.object
    match event.type:
        case "checkout.session.completed" | "checkout.session.async_payment_succeeded":
            return _purchase(event, data)
        case "charge.refunded":
            return _refund(event, data)
        case kind if kind in _REFUND_UPDATES:
            return _failed_refund(event, data)
        case kind if kind.startswith(_DISPUTE):
            return _dispute(event, data)
        case kind if kind.startswith(_SUBSCRIPTION):
            return _subscription(event, data)
        case _:
            return None


def _purchase(event: _StripeEvent, session: Mapping[str, Any]) -> PaymentEvent | None:
    """Parse a paid checkout session; None if it is unpaid or was not created by this server."""
    account_id, plan = _metadata(session)
    if session.get("payment_status") != "paid" or account_id is None:
        return None
    if session.get("mode") == "payment":
        micros, payment = _micros(session, "amount_total"), _text(session, "id")
        if not micros or payment is None:
            _LOG.warning(
                "a payment was not credited, because its amount is not a positive amount in USD",
                extra={"payment": payment, "account_id": account_id},
            )
            return None
        return PaymentReceived(event.id, payment, account_id, micros, _text(session, "payment_intent"))
    subscription = _text(session, "subscription")
    if session.get("mode") == "subscription" and plan is not None and subscription is not None:
        invoice = _text(session, "invoice")
        return Subscription(subscription, "live", event.created, account_id, plan, invoice)
    return None


def _refund(event: _StripeEvent, charge: Mapping[str, Any]) -> RefundEvent | None:
    payment, total = _text(charge, "payment_intent"), _micros(charge, "amount_refunded")
    if payment is None or total is None:
        return None
    return RefundEvent(payment, total, event.created)


def _failed_refund(event: _StripeEvent, refund: Mapping[str, Any]) -> RefundFailed | None:
    """Parse a refund that failed or was canceled; None in any other state."""
    payment, name, micros = _text(refund, "payment_intent"), _text(refund, "id"), _micros(refund, "amount")
    if payment is None or name is None or micros is None:
        return None
    if refund.get("status") not in ("failed", "canceled"):
        return None
    return RefundFailed(payment, name, micros, event.created)


def _dispute(event: _StripeEvent, dispute: Mapping[str, Any]) -> DisputeEvent | None:
    """Parse an event of a dispute, and whether it withdrew or reinstated the amount; None if incomplete."""
    step = event.type.removeprefix(_DISPUTE)
    payment, name, micros = _text(dispute, "payment_intent"), _text(dispute, "id"), _micros(dispute, "amount")
    status = str(dispute.get("status"))
    if payment is None or name is None or micros is None:
        return None
    closed = step == "closed"
    withdrawn = step == "funds_withdrawn" or (closed and status == "lost")
    withdrawn = withdrawn or (step == "created" and not status.startswith(_WARNING))
    reinstated = step == "funds_reinstated" or (closed and status == "won")
    return DisputeEvent(payment, name, micros, withdrawn, reinstated, event.created)


def _subscription(event: _StripeEvent, data: Mapping[str, Any]) -> Subscription | None:
    name = _text(data, "id")
    state = _STATES.get(str(data.get("status")), "unknown")
    if event.type == f"{_SUBSCRIPTION}deleted":
        state = "over"
    if name is None or state == "unknown":
        return None
    account_id, plan = _metadata(data)
    return Subscription(name, state, event.created, account_id, plan, _text(data, "latest_invoice"))


def _metadata(data: Mapping[str, Any]) -> tuple[str | None, Plan | None]:
    """Return the account and plan in the metadata that this server set."""
    metadata = _object(data, "metadata")
    plan = metadata.get("plan")
    return _text(metadata, "account_id"), plan if plan in PLANS else None


def _object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _micros(data: Mapping[str, Any], name: str) -> int | None:
    """Return an amount in micro-dollars; None if it is not a possible amount in USD."""
    cents = data.get(name)
    if data.get("currency") != "usd" or type(cents) is not int or not 0 <= cents <= _MAX_CENTS:
        return None
    return cents * _CENT


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return value if isinstance(value, str) and value else None


def _nested_key(name: str) -> str:
    """Return `recurring[interval]` as a nested form key, `[recurring][interval]`."""
    first, bracket, rest = name.partition("[")
    return f"[{first}]{bracket}{rest}"
