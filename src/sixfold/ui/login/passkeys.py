"""Passkeys: endpoints for the scripts of the security page, which adds them, and the sign-in page."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.accounts.authentication import auth_challenges, login_sessions, passkeys
from sixfold.core.accounts.authentication.login_sessions import PASSKEY, ProvenLogin
from sixfold.core.accounts.authentication.passkeys import RelyingParty
from sixfold.core.database import Transaction
from sixfold.settings import Settings
from sixfold.ui import forms
from sixfold.ui.login.sessions import LoginService, redirect_target
from sixfold.web import bodies, requests, responses, sessions
from sixfold.web.connections.peers import is_loopback
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER, SessionCookie

# Responses of browsers have at most a few KiB. The time to parse numbers in their CBOR grows quadratically.
_BODY_BYTES = 16_384
_REGISTRATION, _SIGN_IN = "passkey.make", "passkey.use"
# The name of the challenge in stored records.
_CHALLENGE = "asked"
_UNSUPPORTED = "Passkeys require https with a domain name, or http://localhost on this machine"


def relying_party(settings: Settings) -> RelyingParty | None:
    """Return the WebAuthn relying party, or None if browsers refuse passkeys for the server's address."""
    parts = urlsplit(settings.base_url)
    host = parts.hostname or ""
    # Browsers do not create passkeys for 127.0.0.1.
    if is_loopback(host) and not settings.public_url:
        return RelyingParty("localhost", f"http://localhost:{parts.port}")
    if host == "localhost" or (parts.scheme == "https" and "." in host and not _is_address(host)):
        return RelyingParty(host, settings.base_url)
    return None


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


class PasskeyPages:
    """The endpoints that create, use and remove passkeys."""

    def __init__(self, services: WebServices, login: LoginService) -> None:
        self._services = services
        self._login = login
        self._relying_party = relying_party(services.settings)

    # -- registration ------------------------------------------------------------------------------

    async def registration_options(self, request: Request) -> Response:
        """Return the options with which the browser creates a passkey for a signed-in user."""
        session, webauthn, party = (
            await self._session(request),
            await self._webauthn(),
            self._require_relying_party(),
        )
        account, database = session.account, self._services.database
        stored = [bytes(row["credential"]) for row in await database.read(passkeys.of_account(account.id))]
        challenge = webauthn.new_challenge()
        await database.write(
            auth_challenges.create(_REGISTRATION, session.token, {_CHALLENGE: webauthn.encode(challenge)})
        )
        options = webauthn.registration_options(party, account.id, account.email or "you", challenge, stored)
        return responses.unstored_json(options, 200)

    async def register(self, request: Request) -> Response:
        """Store the passkey that the browser created; each challenge is valid once."""
        session, webauthn, party = (
            await self._session(request),
            await self._webauthn(),
            self._require_relying_party(),
        )
        body = bodies.parse_object(await request.body())
        transaction = auth_challenges.consume(_REGISTRATION, session.token)
        challenge = webauthn.decode((await self._services.database.write(transaction))[_CHALLENGE])
        try:
            passkey = webauthn.verify_registration(party, challenge, _credential(body))
        except webauthn.WebAuthnError as error:
            raise errors.BadRequest(f"The passkey cannot be stored: {error}") from error
        name = body.get("name")
        addition = passkeys.add(
            session.account.id,
            passkey.credential,
            passkey.public_key,
            passkey.sign_count,
            name if isinstance(name, str) else "",
        )
        transaction = login_sessions.while_active(session.token, addition)
        return responses.unstored_json({"id": await self._services.database.write(transaction)}, 201)

    async def remove(self, request: Request) -> Response:
        session, _ = await forms.read_with_session(request, self._services.sessions)
        transaction = passkeys.remove(
            session.account.id, requests.path_value(request, "passkey_id"), session.token
        )
        await self._services.database.write(transaction)
        return RedirectResponse("/account/security#passkeys", 303)

    # -- sign-in -----------------------------------------------------------------------------------

    async def sign_in_options(self, request: Request) -> Response:
        """Return the options with which the browser signs in by passkey."""
        self._services.sessions.check_csrf(request, None, None)
        self._login.attempts.count_challenge(request)
        webauthn, party = await self._webauthn(), self._require_relying_party()
        challenge, ticket = webauthn.new_challenge(), ids.secret("ticket")
        creation = auth_challenges.create(_SIGN_IN, ticket, {_CHALLENGE: webauthn.encode(challenge)})
        await self._services.database.write(creation, durable=False)
        response = responses.unstored_json(webauthn.authentication_options(party, challenge), 200)
        self._services.sessions.set_ticket(response, ticket)
        return response

    async def sign_in(self, request: Request) -> Response:
        """Verify the browser's response and open a session."""
        self._services.sessions.check_csrf(request, None, None)
        attempt = self._login.attempts.with_secret(request)
        webauthn, database = await self._webauthn(), self._services.database
        body = bodies.parse_object(await request.body())
        stored = await database.write(
            auth_challenges.consume(_SIGN_IN, self._services.sessions.ticket(request))
        )
        credential = _credential(body)
        try:
            proof = await self._verify(webauthn, webauthn.decode(stored[_CHALLENGE]), credential)
        except webauthn.WebAuthnError as error:
            raise errors.Unauthenticated("The passkey is not valid for this server") from error
        target = body.get("next")
        next_path = sessions.own_path(target if isinstance(target, str) else "")
        redirect = await self._login.open_session(request, proof, PASSKEY, next_path)
        attempt.succeed()
        response = responses.unstored_json(redirect_target(redirect), 200)
        response.raw_headers += [pair for pair in redirect.raw_headers if pair[0] == b"set-cookie"]
        return response

    async def _verify(
        self, webauthn: Any, challenge: bytes, credential: dict[str, Any]
    ) -> Transaction[ProvenLogin]:
        """Return the transaction that records the use of the passkey; raises `webauthn.WebAuthnError`."""
        database = self._services.database
        stored = await database.read(passkeys.get(webauthn.credential_id(credential)))
        if stored is None or webauthn.user_handle(credential) not in ("", stored.account_id):
            raise webauthn.WebAuthnError("it is not registered here")
        sign_count = webauthn.verify_authentication(
            self._require_relying_party(), challenge, credential, stored.public_key, stored.uses
        )
        return passkeys.record_use(stored, sign_count)

    # -- helpers -------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> SessionCookie:
        session = await self._services.sessions.of(request)
        self._services.sessions.check_csrf(request, session, request.headers.get(CSRF_HEADER))
        if session is None:
            raise errors.Unauthenticated("Sign in first")
        return session

    def _require_relying_party(self) -> RelyingParty:
        if self._relying_party is None:
            raise errors.NotConfigured(_UNSUPPORTED)
        return self._relying_party

    async def _webauthn(self) -> Any:
        # The first import takes 50 ms.
        return await asyncio.to_thread(importlib.import_module, "sixfold.ui.login.webauthn")


def _credential(body: dict[str, Any]) -> dict[str, Any]:
    credential = body.get("credential")
    if not isinstance(credential, dict):
        raise errors.InvalidInput.of("credential", "credential must be the object returned by the browser")
    return cast("dict[str, Any]", credential)


def routes(services: WebServices, login: LoginService) -> tuple[RouteEntry, ...]:
    endpoints = PasskeyPages(services, login)
    return (
        RouteEntry(
            "/account/passkeys/ask",
            {"POST": endpoints.registration_options},
            _BODY_BYTES,
            access=rights.PERSON,
        ),
        RouteEntry("/account/passkeys", {"POST": endpoints.register}, _BODY_BYTES, access=rights.PERSON),
        RouteEntry(
            "/account/passkeys/{passkey_id}/remove",
            {"POST": endpoints.remove},
            _BODY_BYTES,
            access=rights.PERSON,
        ),
        RouteEntry(
            "/signin/passkey/ask", {"POST": endpoints.sign_in_options}, _BODY_BYTES, access=rights.PUBLIC
        ),
        RouteEntry("/signin/passkey", {"POST": endpoints.sign_in}, _BODY_BYTES, access=rights.PUBLIC),
    )
