"""Passkeys: endpoints for the scripts of the security page, which adds them, and the sign-in page."""

from __future__ import annotations

import importlib
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, rights
from sixfold.core.accounts.authentication import auth_challenges, passkeys
from sixfold.core.accounts.authentication.passkeys import RelyingParty
from sixfold.settings import Settings
from sixfold.ui import forms
from sixfold.ui.login import sessions as login_session
from sixfold.ui.login.sessions import LoginSessions
from sixfold.web import bodies, requests, responses, sessions
from sixfold.web.connections.peers import is_loopback
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER, SessionCookie

_BODY_BYTES = 65_536
_MAKING, _USING = "passkey.make", "passkey.use"
_NO_STORE = {"Cache-Control": "no-store"}
_NO_PLACE = "Passkeys require https with a domain name, or http://localhost on this machine"


def place(settings: Settings) -> RelyingParty | None:
    """Return the WebAuthn relying party, or None if browsers refuse passkeys for the server's address."""
    parts = urlsplit(settings.base_url)
    host = parts.hostname or ""
    # Browsers create no passkeys for 127.0.0.1.
    if is_loopback(host) and not settings.public_url:
        return RelyingParty("localhost", f"http://localhost:{parts.port}")
    if host == "localhost" or (parts.scheme == "https" and "." in host and not _is_address(host)):
        return RelyingParty(host, settings.base_url)
    return None


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


class PasskeyPages:
    """The endpoints that create, use and remove passkeys."""

    def __init__(self, services: WebServices, entrance: LoginSessions) -> None:
        self._services = services
        self._entrance = entrance
        self._place = place(services.settings)

    # -- registration ------------------------------------------------------------------------------

    async def ask_new(self, request: Request) -> Response:
        """Return the options with which the browser creates a passkey for a signed-in user."""
        session, library, here = await self._owner(request), self._library(), self._here()
        account, database = session.account, self._services.database
        known = [bytes(row["credential"]) for row in await database.read(passkeys.of_account(account.id))]
        asked = library.challenge()
        await database.write(auth_challenges.create(_MAKING, session.token, {"asked": library.text(asked)}))
        options = library.creation(here, account.id, account.email or "you", asked, known)
        return responses.json(options, 200, _NO_STORE)

    async def keep_new(self, request: Request) -> Response:
        """Store the passkey that the browser created; each challenge is valid once."""
        session, library, here = await self._owner(request), self._library(), self._here()
        given = bodies.parse_object(await request.body())
        work = auth_challenges.consume(_MAKING, session.token)
        asked = library.unwrapped((await self._services.database.write(work))["asked"])
        try:
            made = library.made(here, asked, _answer(given))
        except library.WebAuthnError as error:
            raise errors.BadRequest(f"The passkey cannot be stored: {error}") from error
        name = given.get("name")
        added = passkeys.add(
            session.account.id,
            made.credential,
            made.public_key,
            made.uses,
            name if isinstance(name, str) else "",
        )
        return responses.json({"id": await self._services.database.write(added)}, 201, _NO_STORE)

    async def remove(self, request: Request) -> Response:
        """Remove a passkey of the signed-in user."""
        session, _ = await forms.signed(request, self._services.sessions)
        work = passkeys.remove(session.account.id, requests.path_value(request, "passkey_id"))
        await self._services.database.write(work)
        return RedirectResponse("/account/security#passkeys", 303)

    # -- sign-in -----------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        """Return the options with which the browser signs in by passkey."""
        self._services.sessions.check_csrf(request, None, None)
        self._entrance.attempts.ask(request)
        library, here = self._library(), self._here()
        asked, ticket = library.challenge(), ids.secret("ticket")
        begun = auth_challenges.create(_USING, ticket, {"asked": library.text(asked)})
        await self._services.database.write(begun, durable=False)
        response = responses.json(library.question(here, asked), 200, _NO_STORE)
        self._services.sessions.set_ticket(response, ticket)
        return response

    async def use(self, request: Request) -> Response:
        """Verify the browser's response and open a session."""
        self._services.sessions.check_csrf(request, None, None)
        attempt = self._entrance.attempts.with_secret(request)
        library, database = self._library(), self._services.database
        given = bodies.parse_object(await request.body())
        kept = await database.write(auth_challenges.consume(_USING, self._services.sessions.ticket(request)))
        answer = _answer(given)
        try:
            account_id = await self._holder(library, library.unwrapped(kept["asked"]), answer)
        except library.WebAuthnError as error:
            raise errors.Unauthenticated("The passkey is not valid for this server") from error
        attempt.succeed()
        following = given.get("next")
        wanted = sessions.own_path(following if isinstance(following, str) else "")
        entered = await self._entrance.enter(request, account_id, "passkey", wanted)
        response = responses.json(login_session.location(entered), 200, _NO_STORE)
        response.raw_headers += [pair for pair in entered.raw_headers if pair[0] == b"set-cookie"]
        return response

    async def _holder(self, library: Any, asked: bytes, answer: dict[str, Any]) -> str:
        """Return the account of the passkey; raises the library's `WebAuthnError`."""
        database = self._services.database
        known = await database.read(passkeys.get(library.credential(answer)))
        if known is None or library.holder(answer) not in ("", known.account_id):
            raise library.WebAuthnError("it is unknown")
        uses = library.used(self._here(), asked, answer, known.public_key, known.uses)
        await database.write(passkeys.record_use(known, uses))
        return (await database.read(accounts.by_id(known.account_id))).id

    # -- helpers -------------------------------------------------------------------------------------

    async def _owner(self, request: Request) -> SessionCookie:
        session = await self._services.sessions.of(request)
        self._services.sessions.check_csrf(request, session, request.headers.get(CSRF_HEADER))
        if session is None:
            raise errors.Unauthenticated("Sign in first")
        return session

    def _here(self) -> RelyingParty:
        if self._place is None:
            raise errors.NotConfigured(_NO_PLACE)
        return self._place

    def _library(self) -> Any:
        return importlib.import_module("sixfold.ui.login.webauthn")


def _answer(given: dict[str, Any]) -> dict[str, Any]:
    credential = given.get("credential")
    if not isinstance(credential, dict):
        raise errors.InvalidInput.of("credential", "credential must be the object returned by the browser")
    return cast("dict[str, Any]", credential)


def routes(services: WebServices, entrance: LoginSessions) -> tuple[RouteEntry, ...]:
    """Return the routes of the passkey endpoints."""
    keys = PasskeyPages(services, entrance)
    return (
        RouteEntry(
            "/account/passkeys/ask", {"POST": keys.ask_new}, _BODY_BYTES, access=rights.ACCOUNT_MANAGE
        ),
        RouteEntry("/account/passkeys", {"POST": keys.keep_new}, _BODY_BYTES, access=rights.ACCOUNT_MANAGE),
        RouteEntry(
            "/account/passkeys/{passkey_id}/remove",
            {"POST": keys.remove},
            _BODY_BYTES,
            access=rights.ACCOUNT_MANAGE,
        ),
        RouteEntry("/signin/passkey/ask", {"POST": keys.ask}, _BODY_BYTES, access=rights.PUBLIC),
        RouteEntry("/signin/passkey", {"POST": keys.use}, _BODY_BYTES, access=rights.PUBLIC),
    )
