"""Limits on attempts to sign in, which count failures only.

An address that a stranger keeps trying stays open to its owner: failures count for the pair of address and
peer, and a browser that signed in to the account before counts by itself. The counts are in the memory of
this server and begin anew with it.
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
from sixfold.web.admission import Attempts, Spent
from sixfold.web.sessions import TrustedBrowsers
from sixfold.web.trusted_hosts import TrustedHosts

_FIVE_MINUTES, _HOUR = 300.0, 3600.0
_PER_PAIR, _PER_BROWSER, _PER_PEER, _PER_ADDRESS = 5, 10, 30, 100
_QUESTIONS = 30  # to authenticators and providers, of one peer
_CHECKS = 4  # of passwords at a time
_MAX_WAITING = 64


class Attempt:
    """One attempt to sign in. It counts as a failure until it succeeds."""

    def __init__(self, counted: list[tuple[Attempts, Spent]], *, trusted: bool) -> None:
        self._counted = counted
        self.trusted = trusted

    def succeed(self) -> None:
        """Take the attempt off the counts."""
        for attempts, spent in self._counted:
            attempts.give_back(spent)
        self._counted.clear()


class SignInAttempts:
    """The counts of one server."""

    def __init__(self, origins: TrustedHosts, browsers: TrustedBrowsers) -> None:
        self._origins = origins
        self._browsers = browsers
        self._by_pair = Attempts(_PER_PAIR, _FIVE_MINUTES, time.monotonic)
        self._by_browser = Attempts(_PER_BROWSER, _FIVE_MINUTES, time.monotonic)
        self._by_peer = Attempts(_PER_PEER, _FIVE_MINUTES, time.monotonic)
        self._by_address = Attempts(_PER_ADDRESS, _HOUR, time.monotonic)
        self._questions = Attempts(_QUESTIONS, _FIVE_MINUTES, time.monotonic)
        self._checks = {trusted: asyncio.Semaphore(1 if trusted else _CHECKS) for trusted in (False, True)}
        self._waiting = 0

    def ask(self, request: Request) -> None:
        """Count a question that is kept for its answer; raises `TooManyRequests`."""
        self._count(request, [(self._questions, self._origins.network(request))])

    def with_secret(self, request: Request) -> Attempt:
        """Begin an attempt by what cannot be guessed: a link or a passkey; raises `TooManyRequests`."""
        return self._count(request, [(self._by_peer, self._origins.network(request))])

    def with_password(self, request: Request, email: str, account: Account | None) -> Attempt:
        """Begin an attempt by address and password; `account` is the address's; raises `TooManyRequests`."""
        browser = self._browsers.name(request, account)
        if browser is not None:
            return self._count(request, [(self._by_browser, browser)], trusted=True)
        address, peer = hashlib.sha256(email.encode()).hexdigest(), self._origins.network(request)
        keys = [(self._by_peer, peer), (self._by_pair, f"{address} {peer}"), (self._by_address, address)]
        return self._count(request, keys)

    def with_session(self, request: Request, account: Account) -> Attempt:
        """Begin a repetition of the password by somebody signed in; raises `TooManyRequests`."""
        return self._count(request, [(self._by_pair, account.id)], trusted=True)

    @asynccontextmanager
    async def checking(self, request: Request, attempt: Attempt) -> AsyncGenerator[None]:
        """Wait for one's turn to check a password; raises `TooManyRequests` where too many wait.

        A few are checked at a time, as each takes 64 MB of memory. Strangers do not delay known browsers.
        """
        if attempt.trusted:
            async with self._checks[True]:
                yield
            return
        if self._waiting >= _MAX_WAITING:
            self._record(request)
            raise errors.TooManyRequests("Too many people sign in at this moment: ask again soon")
        self._waiting += 1
        try:
            async with self._checks[False]:
                yield
        finally:
            self._waiting -= 1

    def _count(self, request: Request, keys: list[tuple[Attempts, str]], *, trusted: bool = False) -> Attempt:
        attempt = Attempt(counted := [], trusted=trusted)
        try:
            for attempts, key in keys:
                counted.append((attempts, attempts.spend(key)))
        except errors.TooManyRequests:
            attempt.succeed()
            self._record(request)
            raise
        return attempt

    def _record(self, request: Request) -> None:
        refusals.recorder().add("sign_in", self._origins.network(request))
