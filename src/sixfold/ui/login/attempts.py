"""Rate limits on failed sign-in attempts.

Attempts by others do not lock out the owner of an account: failures are counted per email and client address,
and a browser that has signed in to the account before has a separate count. Counts are stored in the memory
of this server and lost when it stops.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import Request

from sixfold import errors
from sixfold.core.accounts.accounts import Account
from sixfold.web import refusals
from sixfold.web.admission import Attempts, CountedAttempt
from sixfold.web.sessions import TrustedBrowsers
from sixfold.web.trusted_hosts import TrustedHosts

_FIVE_MINUTES, _HOUR = 300.0, 3600.0
_PER_PAIR, _PER_BROWSER, _PER_PEER, _PER_ADDRESS = 5, 10, 30, 100
# Challenges for passkeys and identity providers per peer in five minutes.
_CHALLENGES = 30
# Requests for a new link per peer in five minutes.
_LINK_REQUESTS = 10
# Maximum number of concurrent password checks.
_CHECKS = 4
_MAX_WAITING = 64


class Attempt:
    """An attempt to sign in, counted as a failure until it succeeds."""

    def __init__(self, counts: list[tuple[Attempts, CountedAttempt]], *, trusted: bool) -> None:
        self._counts = counts
        self.trusted = trusted

    def succeed(self) -> None:
        """Remove the attempt from the counts of failures."""
        for attempts, attempt in self._counts:
            attempts.release(attempt)
        self._counts.clear()


class SignInAttempts:
    """The counts of failed attempts on this server."""

    def __init__(self, hosts: TrustedHosts, browsers: TrustedBrowsers) -> None:
        self._hosts = hosts
        self._browsers = browsers
        self._by_pair = Attempts(_PER_PAIR, _FIVE_MINUTES, time.monotonic)
        self._by_browser = Attempts(_PER_BROWSER, _FIVE_MINUTES, time.monotonic)
        self._by_peer = Attempts(_PER_PEER, _FIVE_MINUTES, time.monotonic)
        self._by_address = Attempts(_PER_ADDRESS, _HOUR, time.monotonic)
        self._challenges = Attempts(_CHALLENGES, _FIVE_MINUTES, time.monotonic)
        self._link_requests = Attempts(_LINK_REQUESTS, _FIVE_MINUTES, time.monotonic)
        self._checks = {trusted: asyncio.Semaphore(1 if trusted else _CHECKS) for trusted in (False, True)}
        self._waiting = 0

    def count_challenge(self, request: Request) -> None:
        """Count a challenge that must be stored; raises `TooManyRequests`."""
        self._count(request, [(self._challenges, self._hosts.network(request))])

    def count_link_request(self, request: Request) -> None:
        """Count a request for a new sign-in link; raises `TooManyRequests`."""
        self._count(request, [(self._link_requests, self._hosts.network(request))])

    def with_secret(self, request: Request) -> Attempt:
        """Start an attempt with a link or passkey, which cannot be guessed; raises `TooManyRequests`."""
        return self._count(request, [(self._by_peer, self._hosts.network(request))])

    def with_password(self, request: Request, email: str, account: Account | None) -> Attempt:
        """Start an attempt with email and password; raises `TooManyRequests`."""
        browser = self._browsers.name(request, account)
        if browser is not None:
            return self._count(request, [(self._by_browser, browser)], trusted=True)
        address, peer = hashlib.sha256(email.encode()).hexdigest(), self._hosts.network(request)
        keys = [(self._by_peer, peer), (self._by_pair, f"{address} {peer}"), (self._by_address, address)]
        return self._count(request, keys)

    def with_session(self, request: Request, account: Account) -> Attempt:
        """Start a password confirmation by a signed-in user; raises `TooManyRequests`."""
        return self._count(request, [(self._by_pair, account.id)], trusted=True)

    @asynccontextmanager
    async def limit_checks(self, request: Request, attempt: Attempt) -> AsyncGenerator[None]:
        """Limit concurrent password checks; raises `TooManyRequests` if too many are waiting.

        Each check takes 64 MB of memory. Checks for known browsers do not wait for others.
        """
        if attempt.trusted:
            async with self._checks[True]:
                yield
            return
        if self._waiting >= _MAX_WAITING:
            self._record(request)
            raise errors.TooManyRequests("Too many sign-ins at the moment: try again shortly")
        self._waiting += 1
        try:
            async with self._checks[False]:
                yield
        finally:
            self._waiting -= 1

    def _count(self, request: Request, keys: list[tuple[Attempts, str]], *, trusted: bool = False) -> Attempt:
        attempt = Attempt(counts := [], trusted=trusted)
        try:
            for attempts, key in keys:
                counts.append((attempts, attempts.spend(key)))
        except errors.TooManyRequests:
            attempt.succeed()
            self._record(request)
            raise
        return attempt

    def _record(self, request: Request) -> None:
        refusals.recorder().add("sign_in", self._hosts.network(request))
