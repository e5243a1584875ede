"""The last step of every way to sign in: a new session, and the page that was asked for."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold.core.accounts import signins
from sixfold.core.accounts.signins import Visit
from sixfold.core.database import Transaction, now
from sixfold.ui import browsers, passwords
from sixfold.web.limits import Attempts
from sixfold.web.services import Services

HOME = "/account"
_FIVE_MINUTES = 300.0
_PER_ADDRESS, _PER_PEER = 5, 30
_CHECKS = 4
MAX_PASSWORD = 1024


class Entrance:
    """Begins sessions, and counts those who try."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._by_address = Attempts(_PER_ADDRESS, _FIVE_MINUTES, time.monotonic)
        self._by_peer = Attempts(_PER_PEER, _FIVE_MINUTES, time.monotonic)
        self._checking = asyncio.Semaphore(_CHECKS)

    def count(self, request: Request, email: str | None = None) -> None:
        """One try of a caller, at an address where one is named; raises `TooManyRequests`."""
        self._by_peer.spend(self._services.origins.caller(request))
        if email is not None:
            self._by_address.spend(hashlib.sha256(email.encode()).hexdigest())

    async def knows(self, password: str, stored: str | None) -> bool:
        """Whether a password is the stored one; a few at a time, for each check takes 64 MB of memory."""
        async with self._checking:
            return await asyncio.to_thread(passwords.verify, password[:MAX_PASSWORD], stored)

    async def by_link(self, request: Request, token: str) -> Response:
        """Use a one-time link up; raises `Unauthenticated`."""
        visit = Visit("link", browsers.name(request))
        moment = await self._services.database.read(now())
        return await self._begin(request, signins.take_link(token, moment, visit), HOME)

    async def enter(self, request: Request, account_id: str, way: str, following: str) -> Response:
        """A session for whoever has shown that he is this account's owner."""
        visit = Visit(way, browsers.name(request))
        moment = await self._services.database.read(now())
        return await self._begin(request, signins.new_session(account_id, moment, visit), following or HOME)

    async def _begin(self, request: Request, work: Transaction[str], following: str) -> Response:
        before = await self._services.sessions.of(request)
        token = await self._services.database.write(work)
        if before is not None:  # one browser, one session: what was there cannot be gone back to
            await self._services.database.write(signins.end(before.token))
        response = RedirectResponse(following, 303)
        self._services.sessions.set(response, token)
        return response


def location(response: Response) -> Mapping[str, str]:
    """Where an entrance leads, for a script that follows by itself."""
    return {"next": response.headers["location"]}
