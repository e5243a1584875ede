"""`Idempotency-Key`: the first request with a key runs, and repeated ones get its response."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import weakref
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sixfold import errors
from sixfold.core.accounts import connections, idempotency
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.idempotency import ClaimedRequest, ClaimResult, RequestInProgress, StoredReply
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency import background
from sixfold.core.database import Database, Transaction
from sixfold.web import multipart, requests
from sixfold.web.responses import error_response
from sixfold.web.routing import ErrorFormat, Handler

# Marks the ASGI scope of a request that is a line of a batch.
BATCH_LINE = "sixfold.batch_line"
# The id of a request with a key in its ASGI scope.
ONCE = "sixfold.once"
Work = Callable[[str | None], Awaitable[Response]]
Authenticate = Callable[[Request], Awaitable[Principal]]
PrincipalHandler = Callable[[Request, Principal], Awaitable[Response]]
# A replayed response gets new values of these headers.
_OWN_HEADERS = frozenset({"content-length", "x-request-id"})
# Hashing a body of this size takes 1 ms.
_LOOP_BYTES = 2**20
# The size of the responses of one account that are stored within 24 hours.
MAX_REPLY_BYTES = 2**30
# The interval of polling for a first request that another server runs.
_POLL_SECONDS = 1.0


class IdempotentRequest(msgspec.Struct, frozen=True):
    """A request that may be repeated; `content` are bytes that differ whenever the request does.

    Responses with a status of `retried` are not stored, in addition to those in `idempotency.NOT_STORED`.
    """

    account_id: str
    content: bytes
    error_format: ErrorFormat
    retried: frozenset[int] = frozenset()


class UncachedResponse(Response):
    """A response that is not stored for repeated requests, since a later attempt may have another result."""


class UncachedStream(StreamingResponse, UncachedResponse):
    """A stream of stored files, which are not stored again: a repeated request finds the same predictions."""


class _Waiters:
    """The number of requests in progress with one key, and an event that is set when one of them ends.

    While `repetitions` is not 0, the end of a claim is being repeated, and no request may claim the key.
    """

    def __init__(self) -> None:
        self.size = self.repetitions = 0
        self.ended = asyncio.Event()


class IdempotencyGuard:
    """Runs each request once per idempotency key; all requests of a server share one guard."""

    def __init__(self, database: Database, boot: str, wait_seconds: float) -> None:
        self._database = database
        self._boot = boot
        self._wait_seconds = wait_seconds
        self.max_reply_bytes = MAX_REPLY_BYTES
        self._waiters: weakref.WeakValueDictionary[str, _Waiters] = weakref.WeakValueDictionary()
        self._repetitions: set[asyncio.Task[None]] = set()

    def once(
        self,
        authenticate: Authenticate,
        handler: PrincipalHandler,
        error_format: ErrorFormat = error_response,
        retried: frozenset[int] = frozenset(),
    ) -> Handler:
        """Return a POST handler that authenticates, then runs `handler` once per idempotency key.

        The id of the request is in its scope as `ONCE`, or None without a key.
        """

        async def handle(request: Request) -> Response:
            principal = await authenticate(request)
            repeatable = IdempotentRequest(principal.replays, await request.body(), error_format, retried)

            async def work(scope: str | None) -> Response:
                request.scope[ONCE] = scope
                return await handler(request, principal)

            return await self.run(request, repeatable, work)

        return handle

    async def run(self, request: Request, repeatable: IdempotentRequest, work: Work) -> Response:
        """Return the response of `work`, or the stored response of an earlier request with the same key.

        Without a key, `work(None)` runs. Raises `BadRequest` for an invalid key, `IdempotencyMismatch`, and
        `InProgress`.
        """
        key = _key(request)
        if key is None:
            return await work(None)
        method = idempotency.BATCH_LINE if BATCH_LINE in request.scope else request.method
        scope = idempotency.scope_id(repeatable.account_id, method, request.scope["path"], key)
        query = request.scope.get("query_string", b"")
        content_type = request.headers.get("content-type")
        hashing = functools.partial(_hash, query, content_type, repeatable.content)
        digest = await asyncio.to_thread(hashing) if len(repeatable.content) > _LOOP_BYTES else hashing()
        deadline = asyncio.get_running_loop().time() + self._wait_seconds
        waiters = self._waiters.setdefault(scope, _Waiters())
        waiters.size += 1
        try:
            while True:
                claim = await self._claim(scope, digest, waiters)
                match claim:
                    case ClaimedRequest():
                        await self._require_space(request, scope, claim)
                        return await self._run_first(request, repeatable, (scope, claim), work)
                    case StoredReply():
                        return _replayed(claim)
                    case RequestInProgress() if claim.boot == self._boot and waiters.size == 1:
                        # No request here runs it, so its response could not be stored. The work finds its
                        # earlier result by its id.
                        return await self._run_first(request, repeatable, (scope, claim.claim), work)
                    case RequestInProgress():
                        await _wait(waiters.ended, deadline)
                        waiters.ended.clear()
                        # The credential may have ended during the wait.
                        await self._database.read(access_checks.unchanged(), snapshot=False)
        finally:
            waiters.size -= 1
            waiters.ended.set()

    async def _claim(self, scope: str, digest: bytes, waiters: _Waiters) -> ClaimResult:
        if waiters.repetitions:
            return RequestInProgress(ClaimedRequest())
        try:
            return await self._database.write(idempotency.begin(scope, digest, self._boot))
        except errors.StoreFailed:
            if waiters.size == 1:
                # The claim may be stored, and no request runs under it.
                self._end_later(
                    waiters, functools.partial(idempotency.abandon, scope, ClaimedRequest(self._boot))
                )
            raise

    async def _require_space(self, request: Request, scope: str, claim: ClaimedRequest) -> None:
        """Release the key and raise `TooManyRequests` if the response could not be stored."""
        principal = connections.authenticated.get()
        if principal is None or not _is_counted(request, principal):
            return
        usage = idempotency.require_space(principal.account_id, self.max_reply_bytes)
        try:
            await self._database.read(usage, snapshot=False)
        except errors.SixfoldError:
            await self._end_claim(scope, functools.partial(idempotency.forget, scope, claim))
            raise

    async def _run_first(
        self, request: Request, repeatable: IdempotentRequest, claimed: tuple[str, ClaimedRequest], work: Work
    ) -> Response:
        scope, claim = claimed
        forget = functools.partial(idempotency.forget, scope, claim)
        try:
            response = await work(scope)
        except errors.StoreFailed as error:
            await self._end_claim(scope, functools.partial(idempotency.abandon, scope, claim))
            return repeatable.error_format(error, requests.request_id(request))
        except errors.SixfoldError as error:
            response = repeatable.error_format(error, requests.request_id(request))
        except Exception:
            await self._end_claim(scope, forget)
            raise
        if isinstance(response, UncachedResponse) or response.status_code in repeatable.retried:
            await self._end_claim(scope, forget)
            return response
        reply = StoredReply(response.status_code, _stored_headers(response), bytes(response.body))
        principal = connections.authenticated.get()
        account_id = None if principal is None else principal.account_id
        counted = principal is not None and _is_counted(request, principal)
        end = functools.partial(idempotency.finish, scope, reply, account_id, claim, counted=counted)
        await self._end_claim(scope, end)
        return response

    async def _end_claim(self, scope: str, end: Callable[[], Transaction[None]]) -> None:
        """Store a response or release its key; if the database fails, do it later and raise `StoreFailed`."""
        try:
            await self._database.write(end())
        except errors.StoreFailed:
            self._end_later(self._waiters[scope], end)
            raise

    def _end_later(self, waiters: _Waiters, end: Callable[[], Transaction[None]]) -> None:
        """End a claim when the database responds again; otherwise other servers would wait for this one."""

        async def repeat() -> None:
            await background.store_later("idempotency", lambda: self._database.write(end()), _POLL_SECONDS)
            waiters.repetitions -= 1
            waiters.ended.set()

        waiters.repetitions += 1
        task = asyncio.create_task(repeat(), name="idempotency")
        self._repetitions.add(task)
        task.add_done_callback(self._repetitions.discard)


def _is_counted(request: Request, principal: Principal) -> bool:
    # The responses to lines of a batch are part of its files, which have their own limits.
    return BATCH_LINE not in request.scope and (principal.keyless or not principal.is_operator)


async def _wait(ended: asyncio.Event, deadline: float) -> None:
    remaining = deadline - asyncio.get_running_loop().time()
    if remaining <= 0:
        raise errors.InProgress
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(remaining, _POLL_SECONDS)):
            await ended.wait()


def refused(authenticate: Authenticate, handler: Handler) -> Handler:
    """Return a POST handler whose response contains a secret that is stored only as a hash.

    Its response cannot be repeated, so a request with an `Idempotency-Key` is refused after authentication.
    """

    async def handle(request: Request) -> Response:
        if "idempotency-key" in request.headers:
            await authenticate(request)
            raise errors.BadRequest(
                "The response has a secret that is not stored, so it cannot be repeated: omit Idempotency-Key"
            )
        return await handler(request)

    return handle


def _key(request: Request) -> str | None:
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not 0 < len(values[0]) <= idempotency.MAX_KEY_CHARS:
        raise errors.BadRequest(f"Idempotency-Key must have 1 to {idempotency.MAX_KEY_CHARS} characters")
    return values[0]


def _hash(query: bytes, content_type: str | None, content: bytes) -> bytes:
    return hashlib.sha256(query + b"\0" + _without_boundary(content_type, content)).digest()


def _without_boundary(content_type: str | None, content: bytes) -> bytes:
    """Remove the form boundary from a body, because clients choose another one when they repeat a request."""
    _, options = multipart.parameters(content_type or "")
    boundary = options.get(b"boundary")
    return content.replace(b"--" + boundary, b"--") if boundary else content


def _stored_headers(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in _OWN_HEADERS}


def _replayed(reply: StoredReply) -> Response:
    return Response(reply.body, reply.status, {**reply.headers, "Idempotent-Replayed": "true"})
