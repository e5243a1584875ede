"""OAuth 2.1 endpoints for clients: metadata, registration and tokens.

The consent page is `ui/login/oauth_consent.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.authentication import oauth
from sixfold.web import bodies, responses
from sixfold.web.admission import Attempts
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
_FIVE_MINUTES = 300.0
_BODY_BYTES = 16_384
_MAX_FIELDS = 20
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_OPEN = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=3600"}


class OAuthRoutes:
    """Handlers for OAuth clients; they do not use cookies, so any origin may call them."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._base = services.settings.base_url
        self._registering = Attempts(20, _FIVE_MINUTES, time.monotonic)
        self._failing = Attempts(60, _FIVE_MINUTES, time.monotonic)

    async def resource(self, request: Request) -> Response:
        """Return the metadata of the protected resource (RFC 9728)."""
        del request
        document = {
            "resource": f"{self._base}/mcp",
            "authorization_servers": [self._base],
            "scopes_supported": list(oauth.SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "Sixfold",
            "resource_documentation": f"{self._base}/docs",
        }
        return responses.json(document, 200, _OPEN)

    async def server(self, request: Request) -> Response:
        """Return the metadata of the authorization server (RFC 8414)."""
        del request
        document = {
            "issuer": self._base,
            "authorization_endpoint": f"{self._base}/oauth/authorize",
            "token_endpoint": f"{self._base}/oauth/token",
            "registration_endpoint": f"{self._base}/oauth/register",
            "revocation_endpoint": f"{self._base}/oauth/revoke",
            "scopes_supported": list(oauth.SCOPES),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return responses.json(document, 200, _OPEN)

    async def register(self, request: Request) -> Response:
        """Register a client (RFC 7591)."""
        self._registering.spend(self._services.trusted_hosts.network(request))
        body = bodies.parse_object(await request.body())
        uris = body.get("redirect_uris")
        name = body.get("client_name")
        try:
            entries = cast("list[object]", uris) if isinstance(uris, list) else []
            text = name if isinstance(name, str) else ""
            client = await self._services.database.write(oauth.register(text, entries))
        except oauth.OAuthError as refused:
            return _refused(refused)
        document = {
            "client_id": client.id,
            "client_id_issued_at": client.created_at // 1_000_000,
            "client_name": client.name,
            "redirect_uris": list(client.redirect_uris),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return responses.json(document, 201, _NO_STORE)

    async def token(self, request: Request) -> Response:
        """Return tokens for a code or a refresh token."""
        try:
            form = await _form(request)
            tokens = await self._tokens(form)
        except oauth.OAuthError as refused:
            self._failing.spend(self._services.trusted_hosts.network(request))
            return _refused(refused)
        return responses.json(tokens.to_json(), 200, _NO_STORE)

    async def _tokens(self, form: Mapping[str, str]) -> oauth.Tokens:
        client_id = form.get("client_id", "")
        match form.get("grant_type"):
            case "authorization_code":
                code, uri, verifier = (form.get(n, "") for n in ("code", "redirect_uri", "code_verifier"))
                work = oauth.exchange(code, client_id, uri, verifier)
            case "refresh_token":
                work = oauth.refresh(form.get("refresh_token", ""), client_id)
            case _:
                raise oauth.OAuthError(
                    "unsupported_grant_type", "grant_type must be authorization_code or refresh_token"
                )
        try:
            tokens = await self._services.database.write(work)
        except errors.Conflict as error:
            raise oauth.OAuthError("invalid_grant", error.message) from error
        if tokens is None:
            raise oauth.OAuthError(
                "invalid_grant",
                "The code or token is invalid, expired, already used, or was issued to another client",
            )
        return tokens

    async def revoke(self, request: Request) -> Response:
        """End a grant (RFC 7009)."""
        try:
            form = await _form(request)
        except oauth.OAuthError as refused:
            return _refused(refused)
        await self._services.database.write(oauth.revoke(form.get("token", "")))
        return Response(status_code=200, headers=_NO_STORE)


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; raises `OAuthError` for repeated ones."""
    if bodies.media_type(request) != "application/x-www-form-urlencoded":
        raise oauth.OAuthError(
            "invalid_request", "The content type must be application/x-www-form-urlencoded"
        )
    try:
        text = (await request.body()).decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise oauth.OAuthError(
            "invalid_request", f"The form must be URL-encoded UTF-8 with at most {_MAX_FIELDS} fields"
        ) from error
    form = dict(pairs)
    if len(form) != len(pairs):
        raise oauth.OAuthError("invalid_request", "A field of the form must not be repeated")
    return form


def _refused(refused: oauth.OAuthError) -> Response:
    body: dict[str, Any] = {"error": refused.code, "error_description": str(refused)}
    return responses.json(body, 401 if refused.code == "invalid_client" else 400, _NO_STORE)


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    """Return the routes; RFC 9728 and RFC 8414 define the paths of the two documents."""
    handlers = OAuthRoutes(services)
    return (
        RouteEntry(RESOURCE, {"GET": handlers.resource}, access=rights.PUBLIC),
        RouteEntry(f"{RESOURCE}/mcp", {"GET": handlers.resource}, access=rights.PUBLIC),
        RouteEntry(SERVER, {"GET": handlers.server}, access=rights.PUBLIC),
        RouteEntry(f"{SERVER}/mcp", {"GET": handlers.server}, access=rights.PUBLIC),
        RouteEntry("/oauth/register", {"POST": handlers.register}, _BODY_BYTES, access=rights.PUBLIC),
        RouteEntry("/oauth/token", {"POST": handlers.token}, _BODY_BYTES, access=rights.PUBLIC),
        RouteEntry("/oauth/revoke", {"POST": handlers.revoke}, _BODY_BYTES, access=rights.PUBLIC),
    )
