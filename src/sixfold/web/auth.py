"""Authentication of requests: by API key, or without a key for clients on the same machine."""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from starlette.requests import HTTPConnection, Request
from starlette.types import Receive

from sixfold import errors
from sixfold.core.accounts import accounts, connections, keys, rights
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.authentication.key_use import KeyUse
from sixfold.core.accounts.connections import Credential
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits import rate_limits
from sixfold.core.concurrency import fair_threads
from sixfold.core.database import Database, Transaction
from sixfold.core.memory.sharing import folders
from sixfold.settings import Settings
from sixfold.web.admission import RequestRates
from sixfold.web.bodies import BodyBudget
from sixfold.web.trusted_hosts import TrustedHosts, host_of, is_forwarded, is_loopback

# Names the shared folder whose memory a request addresses, as the query parameter `memory` does.
MEMORY_HEADER = "x-sixfold-memory"
_MAX_KEY_CHARS = 512
_RECORD = "forwarded.txt"


def bearer_token(request: Request) -> str | None:
    """Return the token in `Authorization: Bearer`, None without the header, or "" for another scheme."""
    return token_of(request.headers.get("authorization"))


def token_of(header: str | None) -> str | None:
    """Return the token in the value of an `Authorization` header, as `bearer_token` does."""
    if header is None:
        return None
    scheme, _, token = header.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


_TOO_MANY_BYTES = (
    "Too many large request bodies without a key at a time: retry, or send the key in the header "
    "Authorization"
)


class Authenticator:
    """Turns the credential of a request into a `Principal`; raises `Unauthenticated`."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        origins: TrustedHosts,
        per_account: RequestRates,
        local_token: str | None = None,
        key_use: KeyUse | None = None,
    ) -> None:
        """Set up the checks; `local_token` identifies the operator and never leaves this process."""
        self._key_use = KeyUse(database) if key_use is None else key_use
        self._database = database
        self._per_account = per_account
        self._local_token = None if local_token is None else keys.hash_of(local_token)
        self.keyless = KeylessAccess(origins, record=settings.data_dir / _RECORD)
        self._open_image_service = settings.open_image_service
        self._origins = origins
        self._bodies = BodyBudget(
            settings.unauthenticated_body_bytes, "unauthenticated_body", _TOO_MANY_BYTES
        )
        self.request_rates = rate_limits.build(database, "requests", shared=settings.is_shared)
        # Begins the credentials of requests that this process makes for a key; it never leaves the process.
        self._own_prefix = f"{secrets.token_urlsafe(32)}/"

    async def key(self, api_key: Any) -> Principal:
        """Return the principal of a key, checked by `admit`; raises `Unauthenticated` if it is unknown."""
        return await self.admit(await self.find(api_key))

    async def find(self, api_key: Any) -> Principal:
        """Return the principal of a key; raises `Unauthenticated` unless it is a string and known."""
        if api_key is None:
            raise errors.Unauthenticated(_KEY_NEEDED)
        if not isinstance(api_key, str) or not 0 < len(api_key) <= _MAX_KEY_CHARS:
            raise errors.Unauthenticated
        if self._local_token is not None and hmac.compare_digest(keys.hash_of(api_key), self._local_token):
            return await self._operator()
        if hmac.compare_digest(
            api_key[: len(self._own_prefix)].encode("utf-8", "replace"), self._own_prefix.encode()
        ):
            return await self._key_owner(api_key.removeprefix(self._own_prefix))
        return await self._database.read(keys.authenticate(api_key), snapshot=False)

    def delegate(self, key_id: str) -> str:
        """Return a credential with the rights of a key, valid in this process; empty for the operator's own.

        The caller checks that the key is valid.
        """
        return f"{self._own_prefix}{key_id}"

    async def _key_owner(self, key_id: str) -> Principal:
        if not key_id:
            return await self._operator()
        principal = await self._database.read(keys.by_id(key_id), snapshot=False)
        if principal is None:
            raise errors.Unauthenticated
        return principal

    async def admit(self, principal: Principal) -> Principal:
        """Check a credential against the access that the route declares.

        Every request with a credential passes through here. Raises `Forbidden` or `TooManyRequests`.
        """
        principal.require(rights.declared.get())
        await self.count_request(principal)
        if principal.key_id is not None:
            self._key_use.note(principal.key_id)
        connections.authenticate(principal)
        fair_threads.owner.set(principal.account_id)
        return principal

    async def count_request(self, principal: Principal) -> None:
        """Count a request against the rates of its account and its key; raises `TooManyRequests`."""
        if principal.kind != "operator":
            self._per_account.spend(principal.account_id)
        if principal.scope.rpm is not None and principal.rate_id is not None:
            await self.request_rates.spend(principal.rate_id, principal.scope.rpm)

    async def again(self, principal: Principal) -> Principal:
        """Return a principal with its current rights for a further step of its request, and count the step.

        Raises `Unauthenticated` and `TooManyRequests`, and `NotFound` if its shared folder has ended.
        """
        found = await self._database.read(_current(principal), snapshot=False)
        await self.count_request(found)
        return found

    def unauthenticated(self, request: Request) -> AbstractContextManager[Receive]:
        """Return a `receive` that reads a body before its key is known, within the budget for such bodies."""
        return self._bodies.track(self._origins.network(request), request.receive)

    async def bearer(self, request: Request) -> Principal:
        # An empty token means another scheme: its error names the scheme that is required.
        return await self.key(bearer_token(request) or None)

    async def memory(self, request: Request) -> Principal:
        """Authenticate a request, for the shared folder that its header or query names, if any.

        Raises `NotFound` if the folder is not shared with the principal.
        """
        principal = await self.bearer(request)
        share_id = request.headers.get(MEMORY_HEADER) or request.query_params.get("memory")
        if share_id is None:
            return principal
        access = await self._database.read(folders.access(principal, share_id), snapshot=False)
        connections.shared_folder.set(Credential("folder", share_id))
        return replace(principal, memory=access)

    async def image_kit(self, request: Request) -> Principal:
        """Authenticate a request to the Image utility API.

        A key is not required on this machine, or anywhere if that API is open.
        """
        token = bearer_token(request)
        if token is not None:
            return await self.key(token or None)
        return await self.without_key(request, is_open=self._open_image_service)

    async def without_key(self, connection: HTTPConnection, *, is_open: bool = False) -> Principal:
        """Return the operator's principal, without charges, for a request without a key from this machine.

        Raises `Unauthenticated` for a request from elsewhere, unless the route `is_open` to all.
        """
        if not is_open:
            self.keyless.require(connection)
        return await self.admit((await self._operator()).without_key())

    async def _operator(self) -> Principal:
        account = await self._database.read(accounts.operator(), snapshot=False)
        if account is None:
            raise errors.Unauthenticated(
                "This server has no operator yet: create one with `sixfold account create EMAIL --operator`"
            )
        return account.owner


def _current(principal: Principal) -> Transaction[Principal]:
    found = yield from access_checks.current(principal)
    if principal.memory is None:
        return found
    return replace(found, memory=(yield from folders.access(found, principal.memory.id)))


_LOG = logging.getLogger("sixfold.server")
# The interval between two log lines.
_LOG_SECONDS = 60.0
_RECORD_SECONDS = 24 * 3600.0
_OLD_HTTP = frozenset({"0.9", "1.0"})
_KEY_NEEDED = "This request requires the header Authorization: Bearer <API_KEY>"
_OLD_HTTP_REFUSED = (
    "HTTP/1.0 requests without a key are refused, because proxies send them: use the header Authorization: "
    "Bearer <API_KEY>"
)


class KeylessAccess:
    """Admits requests without a key from this machine, and counts those that seem forwarded by a proxy.

    A program that forwards plain bytes cannot be detected, so only harmless operations are allowed.
    `record` is a file with the last warning, for the other processes of the server.
    """

    def __init__(
        self, origins: TrustedHosts, clock: Callable[[], float] = time.monotonic, record: Path | None = None
    ) -> None:
        self._origins = origins
        self._record = record
        self._clock = clock
        self._signs: Mapping[str, Callable[[HTTPConnection], bool]] = {
            "a forwarding header": is_forwarded,
            "HTTP/1.0": _is_http_1_0,
            "a public URL": lambda _connection: origins.has_public_url,
        }
        self._forwarded: Counter[str] = Counter()
        self._quiet_until = 0.0

    def require(self, connection: HTTPConnection) -> None:
        """Raise `Unauthenticated` unless the request comes directly from a client on this machine."""
        peer, host = connection.client, host_of(connection)
        if peer is None or not is_loopback(peer.host):
            raise errors.Unauthenticated(_KEY_NEEDED)
        signs = [name for name, applies in self._signs.items() if applies(connection)]
        if signs:
            self._warn(signs)
            raise errors.Unauthenticated(_OLD_HTTP_REFUSED if signs == ["HTTP/1.0"] else _KEY_NEEDED)
        if host is None or not is_loopback(host) or not self._origins.trusts_origin(connection):
            raise errors.Unauthenticated(_KEY_NEEDED)

    def admits(self, connection: HTTPConnection) -> bool:
        """Return whether a request needs no key."""
        try:
            self.require(connection)
        except errors.Unauthenticated:
            return False
        return True

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if requests without a key have looked forwarded.

        This process counts such requests since its start; a warning of another process of this machine
        expires after a day.
        """
        if not self._forwarded:
            return self._recorded()
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(self._forwarded.items()))
        return (
            f"Requests without a key seem to come from a proxy and were refused ({counts}): "
            "set SIXFOLD_PUBLIC_URL where a proxy stands in front, and send a key",
        )

    def _warn(self, signs: list[str]) -> None:
        self._forwarded.update(signs)
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _LOG_SECONDS
            _LOG.warning("%s", self.warnings[0])
            if self._record is not None:
                with contextlib.suppress(OSError):
                    self._record.write_text(self.warnings[0])

    def _recorded(self) -> tuple[str, ...]:
        if self._record is not None:
            with contextlib.suppress(OSError):
                if time.time() - self._record.stat().st_mtime < _RECORD_SECONDS:
                    return (self._record.read_text(),)
        return ()


def _is_http_1_0(connection: HTTPConnection) -> bool:
    return connection.scope.get("http_version") in _OLD_HTTP
