"""fal's keys, and its uploads: in one request, or to a URL that is requested first."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting.fal import schemas
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import SECOND_US, rfc3339, steady_clock
from sixfold.core.database import TransactionConflict
from sixfold.core.media import media
from sixfold.core.media.media import MEDIA_PATH
from sixfold.web import bodies, requests, responses, uploads
from sixfold.web.services import WebServices
from sixfold.web.uploads import ReceivedUpload

_LIFE_SECONDS = 3600
_MAX_TICKET_CHARS = 300
_USED = "The upload URL has already been used: request another one"


_SCHEMES = frozenset({"key", "bearer"})


def key_of(request: Request) -> str | None:
    """Return the key in `Authorization: Key sf_…` or `Bearer`, or None if it is missing."""
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() in _SCHEMES else None


async def authenticate(services: WebServices, request: Request) -> Principal:
    """Return the principal of a request; raises `Unauthenticated`, `Forbidden` and `TooManyRequests`."""
    return await services.authenticator.key(key_of(request))


async def _body(request: Request) -> dict[str, Any]:
    return bodies.parse_object(await request.body() or b"{}")


class FalFiles:
    """Handlers for uploads, whose URLs can be inputs of any model."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._base_url = services.settings.base_url
        self._clock = steady_clock()

    async def token(self, request: Request) -> Response:
        """Return the caller's key as the credential of uploads, which fal's client requests first."""
        await authenticate(self._services, request)
        await _body(request)
        body: schemas.FalTokenSchema = {
            "token": key_of(request) or "",
            "token_type": "Bearer",
            "base_url": f"{self._base_url}{schemas.BASE}",
            "expires_at": rfc3339(self._clock() + _LIFE_SECONDS * SECOND_US),
        }
        return responses.json(body, headers={"Cache-Control": "no-store"})

    async def upload(self, request: Request) -> Response:
        principal = await authenticate(self._services, request)

        async def work(received: ReceivedUpload) -> Response:
            stored = await self._services.media.upload(principal.tenant, received.path, received.content_type)
            body: schemas.FalFileSchema = {"access_url": self._url(stored.name)}
            return responses.json(body)

        return await uploads.receive_once(
            self._services, request, principal, work, error_format=schemas.error
        )

    async def initiate(self, request: Request) -> Response:
        """Return the URL for a file, and where to PUT it within an hour with the same account's key."""
        principal = await authenticate(self._services, request)
        name = media.new_name(str((await _body(request)).get("content_type")))
        text = _ticket_text(principal, self._clock() + _LIFE_SECONDS * SECOND_US)
        query = urlencode({"ticket": self._services.upload_tickets.encrypt(name, text)})
        content: schemas.FalUploadSchema = {
            "upload_url": f"{self._base_url}{schemas.BASE}/storage/upload/{name}?{query}",
            "file_url": self._url(name),
        }
        return responses.json(content)

    async def put(self, request: Request) -> Response:
        """Store a file under the name that `initiate` returned."""
        principal = await authenticate(self._services, request)
        name = requests.path_value(request, "name")
        ticket = requests.query_text(request, "ticket", _MAX_TICKET_CHARS)
        try:
            account_id, _, expires = self._services.upload_tickets.decrypt(name, ticket).partition(" ")
        except ValueError:
            account_id, expires = "", ""
        if account_id != principal.account_id:
            raise errors.NotFound("The upload URL was not issued to this account")
        if int(expires) < self._clock():
            raise errors.BadRequest("The upload URL has expired: request another one")
        try:
            await self._services.media.find(name)
        except errors.NotFound:
            return await self._store(request, principal, name)
        raise errors.Conflict(_USED)

    async def _store(self, request: Request, principal: Principal, name: str) -> Response:
        async def work(received: ReceivedUpload) -> Response:
            try:
                await self._services.media.upload(
                    principal.tenant, received.path, received.content_type, name
                )
            except TransactionConflict:
                # A concurrent request has stored a file under this name.
                raise errors.Conflict(_USED) from None
            return Response(status_code=200)

        return await uploads.receive_once(
            self._services, request, principal, work, error_format=schemas.error
        )

    def _url(self, name: str) -> str:
        return f"{self._base_url}{MEDIA_PATH}{name}"


def _ticket_text(principal: Principal, expires_at: int) -> str:
    """Return the text of a ticket, which proves that this server issued a name to an account."""
    return f"{principal.account_id} {expires_at}"
