"""Purchases of credit and memory plans, and the webhook of the payment processor."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.accounts import payments, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import SECOND_US
from sixfold.core.database import now
from sixfold.errors import EngineFailed
from sixfold.web import bodies, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_MESSAGE_BYTES = 1 << 20
# A call to the payment processor that failed has changed nothing, so the client may repeat the request.
_RETRIED = frozenset({EngineFailed.status})


class PaymentRoutes(ServiceHandlers):
    """Handlers that start a payment, and the webhook, which accepts signed messages only."""

    async def checkout(self, request: Request, principal: Principal) -> Response:
        """Return the URL to pay for credit by card."""
        micros = payments.parse_amount(bodies.parse_object(await request.body()).get("amount_usd"))
        url = await self._services.checkout.top_up(principal.account_id, principal.email, micros)
        return responses.json({"checkout_url": url})

    async def plan(self, request: Request, principal: Principal) -> Response:
        """Return the URL to pay for a memory plan by card."""
        plan = payments.parse_plan(bodies.parse_object(await request.body()).get("plan"))
        url = await self._services.checkout.subscribe(principal.account_id, principal.email, plan)
        return responses.json({"checkout_url": url})

    async def deposit(self, request: Request) -> Response:
        """Return the account's deposit address for tokens."""
        principal = await self._enter(request)
        bodies.parse_object(await request.body() or b"{}")
        return responses.json(await self._services.deposits.address(principal.account_id))

    async def webhook(self, request: Request) -> Response:
        """Process a message of the payment processor.

        An irrelevant message is also answered with 200, so that the processor does not repeat it.
        """
        body = await request.body()
        signature = request.headers.get("stripe-signature", "")
        # Use the database's clock, because the clock of one of several servers may be wrong.
        moment = await self._services.database.read(now(), snapshot=False)
        event = self._services.checkout.read(body, signature, moment / SECOND_US)
        if event is not None:
            self._services.predictions.failpoints.hit("payment.before")
            await payments.receive(event, self._services.checkout, self._services.database)
            self._services.predictions.failpoints.hit("payment.after")
        return responses.json({"received": True})


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    """Return the payment routes of accounts, and the webhook."""
    pay, small, manage = PaymentRoutes(services), services.settings.json_body_bytes, rights.ACCOUNT_MANAGE
    once = partial(services.idempotency.once, services.authenticator.bearer, retried=_RETRIED)
    return (
        RouteEntry("/api/account/checkout", {"POST": once(pay.checkout)}, small, access=manage),
        RouteEntry("/api/account/plan", {"POST": once(pay.plan)}, small, access=manage),
        RouteEntry("/api/account/deposits", {"POST": pay.deposit}, small, access=manage),
        RouteEntry("/api/webhooks/stripe", {"POST": pay.webhook}, _MESSAGE_BYTES, access=rights.PUBLIC),
    )
