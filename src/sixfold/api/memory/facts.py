"""Routes of `remember` and `answer`, which call a chat model that the caller's account pays for."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sixfold.api.memory import schemas
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.memory.facts import requests as fact_requests
from sixfold.web import responses
from sixfold.web.idempotency import ONCE
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

REMEMBER = schemas.fields(*fact_requests.REMEMBER)
UNDO = schemas.fields(*fact_requests.UNDO)
BATCHES = schemas.fields(*fact_requests.BATCHES)
ANSWER = schemas.fields(*fact_requests.ANSWER)


class FactRoutes:
    """Handlers of facts and answers."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._facts = services.memory_facts

    async def remember(self, request: Request, principal: Principal) -> Response:
        """Write the facts of a source on pages."""
        arguments = await schemas.from_body(REMEMBER, request)
        document = await fact_requests.remember(self._facts, principal, arguments, await _once(request))
        return responses.unstored_json(document)

    async def undo(self, request: Request) -> Response:
        """Undo the changes of a batch."""
        caller = await schemas.caller_of(self._services, request)
        arguments = await schemas.from_body(UNDO, request)
        return responses.unstored_json(await fact_requests.undo(self._facts, caller, arguments))

    async def list(self, request: Request) -> Response:
        """List batches, newest first."""
        caller = await schemas.caller_of(self._services, request)
        arguments = schemas.from_query(BATCHES, request)
        return responses.unstored_json(await fact_requests.list_batches(self._facts, caller, arguments))

    async def answer(self, request: Request, principal: Principal) -> Response:
        arguments = await schemas.from_body(ANSWER, request)
        base_url = self._services.settings.base_url
        document = await fact_requests.answer(
            self._facts, principal, arguments, base_url, await _once(request)
        )
        return responses.unstored_json(document)


async def _once(request: Request) -> str:
    """Return the id of a request with an Idempotency-Key, otherwise an empty string."""
    scope = request.scope[ONCE]
    return "" if scope is None else await gateway_idempotency.once_id(scope, await request.body())


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    facts, small = FactRoutes(services), services.settings.json_body_bytes
    once = partial(services.idempotency.once, services.authenticator.memory)
    return (
        RouteEntry(
            "/api/remember",
            {"GET": facts.list, "POST": once(facts.remember)},
            small,
            access={"GET": rights.MEMORY_READ, "POST": rights.RUN_MEMORY_EDIT},
        ),
        RouteEntry("/api/remember/undo", {"POST": facts.undo}, small, access=rights.MEMORY_WRITE),
        RouteEntry("/api/answer", {"POST": once(facts.answer)}, small, access=rights.RUN_MEMORY_READ),
    )
