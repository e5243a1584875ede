"""Opening of login sessions: the last step of each sign-in method."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginDetails, ProvenLogin
from sixfold.core.database import Transaction, now
from sixfold.ui.login import passwords, user_agent
from sixfold.ui.login.attempts import Attempt, SignInAttempts
from sixfold.web.services import WebServices

HOME = "/"


class LoginService:
    """Checks passwords and links, limits failed attempts and opens sessions."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self.attempts = SignInAttempts(services.trusted_hosts, services.trusted_browsers)

    async def check_password(
        self, request: Request, attempt: Attempt, password: str, stored: str | None
    ) -> bool:
        """Return whether a password matches; if so, the attempt is not counted as failed."""
        async with self.attempts.limit_checks(request, attempt):
            matches = await passwords.HASHING.run(passwords.verify, password[: passwords.MAX_CHARS], stored)
        if matches:
            attempt.succeed()
        return matches

    async def sign_in_with_link(self, request: Request, token: str) -> Response:
        """Sign in with a one-time link; raises `Unauthenticated`."""
        session = LoginDetails("link", user_agent.name(request))
        attempt = self.attempts.with_secret(request)
        moment = await self._services.database.read(now())
        response = await self._open(request, login_sessions.take_link(token, moment, session), HOME)
        attempt.succeed()
        return response

    async def open_session(
        self,
        request: Request,
        proof: Transaction[ProvenLogin],
        method: str,
        next_path: str,
        authenticated_at: int | None = None,
    ) -> Response:
        """Open a session for a user who has proved, now or at `authenticated_at`, to own an account.

        `proof` checks in the transaction that opens the session that the user's credential has not ended.
        """
        session = LoginDetails(method, user_agent.name(request), authenticated_at)
        moment = await self._services.database.read(now())
        transaction = login_sessions.new_session_with(proof, moment, session)
        return await self._open(request, transaction, next_path or HOME)

    async def _open(self, request: Request, transaction: Transaction[str], next_path: str) -> Response:
        previous = await self._services.sessions.of(request)
        token = await self._services.database.write(transaction)
        stored = await self._services.database.read(login_sessions.session(token))
        # A browser has one session; the previous one ends. A user who signs in again acts for the same
        # organization as before.
        if previous is not None:
            await self._services.database.write(login_sessions.end(previous.token))
            is_personal = stored is not None and stored.account.id == previous.person_id
            if is_personal and previous.account.id != previous.person_id:
                with contextlib.suppress(errors.NotFound):
                    transaction = login_sessions.act_for(token, previous.account.id)
                    token = await self._services.database.write(transaction)
        response = RedirectResponse(next_path, 303)
        self._services.sessions.set(response, token)
        if stored is not None:
            self._services.trusted_browsers.trust(response, stored.account)
        return response


def redirect_target(response: Response) -> Mapping[str, str]:
    """Return the target of a redirect, for scripts that navigate themselves."""
    return {"next": response.headers["location"]}
