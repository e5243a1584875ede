"""`Idempotency-Key`: the first request with a key runs, and repeated ones get its response."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from python_multipart.multipart import parse_options_header
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import idempotency
from sixfold.core.accounts.idempotency import ClaimedRequest, RequestInProgress, StoredReply
from sixfold.core.database import Database
from sixfold.web import requests
from sixfold.web.routing import Dialect

Work = Callable[[str | None], Awaitable[Response]]
_KEPT_HEADERS = ("content-type", "location", "x-sixfold-engine", "x-sixfold-quality", "retry-after")
# Hashing a body of this size takes 1 ms.
_LOOP_BYTES = 2**20
# The interval of polling for a first request that another server runs.
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request that may be repeated; `said` are bytes that differ whenever its content does."""

    account_id: str
    said: bytes
    dialect: Dialect


class UncachedResponse(Response):
    """A response that is not stored for repeated requests, since a later attempt may have another result."""


class _Waiters:
    """The number of current requests with one key, and an event that is set when one of them ends."""

    def __init__(self) -> None:
        self.size = 0
        self.ended = asyncio.Event()


class IdempotencyGuard:
    """Runs each request once per idempotency key; all requests of a server share one guard."""

    def __init__(self, database: Database, boot: str, wait_seconds: float) -> None:
        self._database = database
        self._boot = boot
        self._wait_seconds = wait_seconds
        self._crowds: weakref.WeakValueDictionary[str, _Waiters] = weakref.WeakValueDictionary()

    async def run(self, request: Request, once: IdempotentRequest, work: Work) -> Response:
        """Return the response of `work`, or the stored response of an earlier request with the same key.

        Without a key, `work(None)` runs. Raises `BadRequest` for an invalid key, `IdempotencyMismatch`, and
        `InProgress`.
        """
        key = _key(request)
        if key is None:
            return await work(None)
        scope = idempotency.scope_id(once.account_id, request.method, request.scope["path"], key)
        query = request.scope.get("query_string", b"")
        content_type = request.headers.get("content-type")
        hashing = functools.partial(_hash, query, content_type, once.said)
        said = await asyncio.to_thread(hashing) if len(once.said) > _LOOP_BYTES else hashing()
        deadline = asyncio.get_running_loop().time() + self._wait_seconds
        crowd = self._crowds.setdefault(scope, _Waiters())
        crowd.size += 1
        try:
            while True:
                verdict = await self._database.write(idempotency.begin(scope, said, self._boot))
                match verdict:
                    case ClaimedRequest():
                        return await self._first(request, once, scope, work)
                    case StoredReply():
                        return _replayed(verdict)
                    case RequestInProgress() if verdict.boot == self._boot and crowd.size == 1:
                        # No request here runs it, so its response could not be stored. The work finds its
                        # earlier result by its id.
                        return await self._first(request, once, scope, work)
                    case RequestInProgress():
                        await _wait(crowd.ended, deadline)
                        crowd.ended.clear()
        finally:
            crowd.size -= 1
            crowd.ended.set()

    async def _first(self, request: Request, once: IdempotentRequest, scope: str, work: Work) -> Response:
        response = await self._answer(request, once, scope, work)
        if isinstance(response, UncachedResponse):
            await self._database.write(idempotency.forget(scope))
            return response
        kept = StoredReply(response.status_code, _kept_headers(response), bytes(response.body))
        await self._database.write(idempotency.finish(scope, kept))
        return response

    async def _answer(self, request: Request, once: IdempotentRequest, scope: str, work: Work) -> Response:
        try:
            return await work(scope)
        except errors.SixfoldError as error:
            return once.dialect(error, requests.request_id(request))
        except Exception as error:
            await self._database.write(idempotency.forget(scope))
            raise error from None


async def _wait(ended: asyncio.Event, deadline: float) -> None:
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise errors.InProgress
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(left, _LOOK_AGAIN_SECONDS)):
            await ended.wait()


def _key(request: Request) -> str | None:
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not 0 < len(values[0]) <= idempotency.MAX_KEY_CHARS:
        raise errors.BadRequest(f"Idempotency-Key must have 1 to {idempotency.MAX_KEY_CHARS} characters")
    return values[0]


def _hash(query: bytes, content_type: str | None, said: bytes) -> bytes:
    return hashlib.sha256(query + b"\0" + _unbounded(content_type, said)).digest()


def _unbounded(content_type: str | None, said: bytes) -> bytes:
    """Remove the form boundary from a body, because clients choose another one when they repeat a request."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    return said.replace(b"--" + boundary, b"--") if boundary else said


def _kept_headers(response: Response) -> dict[str, str]:
    return {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}


def _replayed(kept: StoredReply) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, "Idempotent-Replayed": "true"})
