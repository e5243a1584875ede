"""The last step of each sign-in method: open a session and redirect to the requested page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginSession
from sixfold.core.database import Transaction, now
from sixfold.ui.login import passwords, user_agent
from sixfold.ui.login.attempts import Attempt, SignInAttempts
from sixfold.web.services import WebServices

HOME = "/account"
MAX_PASSWORD = 1024


class LoginSessions:
    """Opens sessions and limits failed attempts."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self.attempts = SignInAttempts(services.trusted_hosts, services.trusted_browsers)

    async def knows(self, request: Request, attempt: Attempt, password: str, stored: str | None) -> bool:
        """Return whether a password matches; if so, the attempt is not counted as failed."""
        async with self.attempts.checking(request, attempt):
            right = await asyncio.to_thread(passwords.verify, password[:MAX_PASSWORD], stored)
        if right:
            attempt.succeed()
        return right

    async def by_link(self, request: Request, token: str) -> Response:
        """Sign in with a one-time link; raises `Unauthenticated`."""
        visit = LoginSession("link", user_agent.name(request))
        attempt = self.attempts.with_secret(request)
        moment = await self._services.database.read(now())
        response = await self._begin(request, login_sessions.take_link(token, moment, visit), HOME)
        attempt.succeed()
        return response

    async def enter(
        self,
        request: Request,
        account_id: str,
        way: str,
        following: str,
        authenticated_at: int | None = None,
    ) -> Response:
        """Open a session for a user who has proved, now or at `authenticated_at`, to own this account."""
        visit = LoginSession(way, user_agent.name(request), authenticated_at)
        moment = await self._services.database.read(now())
        return await self._begin(
            request, login_sessions.new_session(account_id, moment, visit), following or HOME
        )

    async def _begin(self, request: Request, work: Transaction[str], following: str) -> Response:
        before = await self._services.sessions.of(request)
        token = await self._services.database.write(work)
        # A browser has one session; the previous one ends.
        if before is not None:
            await self._services.database.write(login_sessions.end(before.token))
        response = RedirectResponse(following, 303)
        self._services.sessions.set(response, token)
        signed_in = await self._services.database.read(login_sessions.session(token))
        if signed_in is not None:
            self._services.trusted_browsers.trust(response, signed_in.account)
        return response


def location(response: Response) -> Mapping[str, str]:
    """Return the target of a redirect, for scripts that navigate themselves."""
    return {"next": response.headers["location"]}
