"""`/api/account/guardrails`: masking and hooks for the gateway calls of an account and its keys."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import audit_log, rights
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import rfc3339
from sixfold.core.database import Transaction
from sixfold.core.gateway.guardrails import hooks, storage
from sixfold.core.gateway.guardrails import models as guardrails
from sixfold.core.gateway.guardrails.models import Guardrail
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

PATH = "/api/account/guardrails"
_MAX_KEY = 100


class GuardrailHookSchema(TypedDict, total=False):
    """An HTTP endpoint that allows, changes or blocks calls."""

    url: str
    stages: list[Literal["request", "response"]]
    timeout_seconds: float
    on_failure: Literal["block", "allow"]


class GuardrailFieldsSchema(TypedDict, total=False):
    """The fields to set; `key` is the id of a key, or null for the account."""

    key: str | None
    mask: list[Literal["secrets", "emails", "cards"]]
    mask_responses: bool
    hook: GuardrailHookSchema | None


class GuardrailSchema(TypedDict):
    """The guardrail of a key, or of the account if `key` is null."""

    key: str | None
    mask: list[Literal["secrets", "emails", "cards"]]
    mask_responses: bool
    hook: GuardrailHookSchema | None
    updated_at: str


class GuardrailRoutes(ServiceHandlers):
    """Handlers of an account's guardrails."""

    async def page(self, request: Request) -> Response:
        principal = await self._enter(request)
        rows = await self._services.database.read(storage.guardrails_of(principal.account_id))
        items = [
            to_json(row["key_id"], guardrails.decode(row["document"]), row["updated_at"]) for row in rows
        ]
        return responses.unstored_json({"guardrails": items})

    async def put(self, request: Request) -> Response:
        principal = await self._enter(request)
        fields = bodies.parse_object(await request.body())
        key_id = fields.pop("key", None) or ""
        if not isinstance(key_id, str):
            raise errors.InvalidInput.of("key", "key must be the id of a key, or null for the account")
        guardrail = guardrails.parse(fields)
        if guardrail.hook is not None:
            hooks.check_url(self._services.outbox.sender, guardrail.hook.url)
        moment = await self._write(principal, _set(principal, key_id, guardrail))
        return responses.unstored_json(to_json(key_id, guardrail, moment))

    async def delete(self, request: Request) -> Response:
        """Remove the guardrail of the key in the query, or of the account."""
        principal = await self._enter(request)
        key_id = requests.query_text(request, "key", _MAX_KEY)
        removal = access_checks.while_permitted(principal, _remove(principal.account_id, key_id))
        await self._services.database.write(removal)
        return Response(status_code=204)


def _set(principal: Principal, key_id: str, guardrail: Guardrail) -> Transaction[int]:
    account_id = principal.account_id
    yield from audit_log.note(account_id, "guardrail.set", key_id)
    return (yield from storage.set_guardrail(account_id, key_id, guardrail, principal.member_id))


def _remove(account_id: str, key_id: str) -> Transaction[None]:
    yield from storage.remove_guardrail(account_id, key_id)
    yield from audit_log.note(account_id, "guardrail.remove", key_id)


def to_json(key_id: str, guardrail: Guardrail, updated_at: int) -> dict[str, Any]:
    """Return a guardrail as the API shows it."""
    return {"key": key_id or None, **guardrail.document(), "updated_at": rfc3339(updated_at)}


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers = GuardrailRoutes(services)
    return (
        RouteEntry(
            PATH,
            {"GET": handlers.page, "PUT": handlers.put, "DELETE": handlers.delete},
            services.settings.json_body_bytes,
            access=rights.ADMIN,
        ),
    )
