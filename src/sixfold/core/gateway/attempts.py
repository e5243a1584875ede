"""Attempts at one server after another until one begins a usable response."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit
from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.core.failpoints import Action
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import gpu_calls
from sixfold.core.gateway.attachments.media_inlining import MediaInliner
from sixfold.core.gateway.chat import ChatRequest, ChatResponse
from sixfold.core.gateway.deadlines import Deadlines
from sixfold.core.gateway.health import HealthTracker
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.core.gateway.ports import (
    FREE_BYTES,
    TEXT_COMPLETIONS,
    GatewayRequest,
    UpstreamFailure,
    UpstreamRejection,
    UpstreamStream,
    WireProtocol,
    read_all,
)
from sixfold.core.gateway.pricing.token_rates import TokenRates
from sixfold.core.gateway.pricing.usage import TokenUsage, limit_parts
from sixfold.core.gateway.request_log import CallRecord
from sixfold.core.gateway.requirements.provider_tools import RequestTools
from sixfold.core.gateway.routing import RouteTarget, server_title
from sixfold.core.gpu.arbiter import GpuAccess, GpuLease
from sixfold.core.input_limits import json_limits
from sixfold.core.reachability import TRY_LATER

_LOG = logging.getLogger("sixfold.gateway")
REFUSED = frozenset({400, 404, 409, 413, 415, 422})
# The fault lies with the operator's key or account, not with the caller.
_KEY_REJECTED = frozenset({401, 402, 403})
_RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_MAX_PAUSE_SECONDS, _DAY_SECONDS = 2.0, 86400.0
_CHAT_PROTOCOLS = frozenset({"chat", "messages", "responses"})
# Protocols whose streams consist of events.
EVENT_PROTOCOLS = _CHAT_PROTOCOLS | {TEXT_COMPLETIONS}
# Protocols whose servers accept only the bytes of images.
_WITHOUT_URLS = frozenset({"converse", "gemini"})
# The path of the token count, below the path of the protocol.
COUNT_PATHS = {"messages": "/count_tokens", "responses": "/input_tokens"}
# Other responses are audio or plain text.
_JSON = re.compile(rb"\s*+[{\[]")

# The usage that a complete response reports, and its length in characters.
UsageAndLength = tuple[TokenUsage | None, int]
ReadResponse = Callable[[UpstreamStream, WireProtocol], Awaitable[tuple[bytes, UsageAndLength]]]


class RoutePlan(msgspec.Struct, frozen=True):
    """Targets of a request with their rates, in order, and the amount held for it (micro-dollars).

    `tools` are the tools of a chat that a provider runs.
    """

    targets: tuple[tuple[RouteTarget, TokenRates], ...]
    input_tokens: int
    held: int
    tools: RequestTools | None = None


class ActiveCall(msgspec.Struct):
    """A request in progress."""

    request: GatewayRequest
    plan: RoutePlan
    record: CallRecord
    started_at: float
    chat: ChatRequest | None = None

    def conversation(self) -> ChatRequest:
        """Return the parsed conversation; it is parsed only once."""
        if self.chat is None:
            self.chat = self.request.parse()
        return self.chat

    def estimated(self, reported: TokenUsage | None, output: int) -> TokenUsage:
        """Estimate the usage of a call if its server does not report tokens, and add the reported units."""
        units = None if reported is None else reported.units
        return TokenUsage(self.plan.input_tokens, output, reported=False, units=units)

    def billable(self, usage: TokenUsage, target: RouteTarget) -> TokenUsage:
        """Return the usage to charge, including tool uses at the prices of the request."""
        usage = limit_parts(usage)
        tools = self.plan.tools
        if tools is None or not target.accepts(self.request.wire):
            return usage
        return tools.used(target.model, usage)


def _build_body(active: ActiveCall, target: RouteTarget, wire: WireProtocol) -> bytes:
    request = active.request
    if wire.name == request.wire:
        return wire.rewrite_request(request.body, target.model)
    return wire.build_request(active.conversation(), target.model, stream=request.stream)


class UpstreamResponse(msgspec.Struct, frozen=True):
    """A successful response that has begun."""

    target: RouteTarget
    rates: TokenRates
    wire: WireProtocol
    stream: UpstreamStream
    first_block: bytes
    usage: UsageAndLength
    # The memory for the incomplete event of a stream.
    lease: MemoryLease


class CallFailure(msgspec.Struct, frozen=True):
    """A failed attempt.

    `error` is raised if this attempt was the last; `terminal` prevents attempts at other servers.
    """

    error: errors.SixfoldError
    retryable: bool = False
    terminal: bool = False
    retry_after: float | None = None
    # The GPU memory of the server was full.
    out_of_memory: bool = False


class FailoverClient:
    """Opens responses according to the policy: retries, other targets, circuit breakers."""

    def __init__(
        self,
        policy: GatewayPolicy,
        health: HealthTracker,
        media: MediaInliner,
        memory: MemoryLimit,
        failpoints: Mapping[str, Action] | None = None,
    ) -> None:
        self._policy = policy
        self._failpoints: Mapping[str, Action] = failpoints or {}
        self._memory = memory
        self.health = health
        self._media = media
        self._deadlines = Deadlines(policy.timeout_seconds)
        # Raises `Unauthenticated` if the credential of a request has ended since the request began.
        self.check_credential: Callable[[GatewayRequest], Awaitable[None]] | None = None

    def reconfigure(self, policy: GatewayPolicy) -> None:
        """Apply a new policy; timeouts do not change after the start."""
        self._policy = policy

    async def open(self, active: ActiveCall, read: ReadResponse) -> UpstreamResponse:
        """Return the first successful response; raises the error of the last attempt."""
        failure: CallFailure | None = None
        targets = self._least_busy_first(active.plan.targets)
        for target, rates in targets:
            for attempt in range(1 + self._policy.retries):
                if not self.health.allows(target.name) or (attempt and not self.health.may_retry()):
                    break
                result = await self._attempt_once(active, target, rates, read)
                if isinstance(result, UpstreamResponse):
                    return result
                failure = result
                if failure.terminal:
                    raise failure.error
                if not failure.retryable or attempt == self._policy.retries:
                    break
                pause = min(_MAX_PAUSE_SECONDS, 0.1 * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311 - jitter
                if failure.retry_after is not None and failure.retry_after > _MAX_PAUSE_SECONDS:
                    break
                await asyncio.sleep(failure.retry_after if failure.retry_after is not None else pause)
        if failure is not None:
            raise failure.error
        return await self._try_half_open(active, targets, read)

    async def complete(self, active: ActiveCall) -> UpstreamResponse:
        """Return the first successful response, read to its end; raises the error of the last attempt.

        The memory for a large response is reserved until the request has ended.
        """
        async with self._memory.lease(active.request.account_id) as lease:
            return await self.open(active, functools.partial(read_full_body, lease=lease))

    async def _try_half_open(
        self, active: ActiveCall, targets: Sequence[tuple[RouteTarget, TokenRates]], read: ReadResponse
    ) -> UpstreamResponse:
        """Make one attempt although the circuits of all targets are open, unless one is in progress."""
        names = [target.name for target, _ in targets]
        first = self.health.start_trial(names)
        if first is None:
            raise self._unavailable_error(names)
        target, rates = targets[names.index(first)]
        result = await self._attempt_once(active, target, rates, read)
        if isinstance(result, CallFailure):
            if not result.error.retry_after and not result.terminal:
                result.error.retry_after = self.health.seconds_until_half_open(names)
            raise result.error
        return result

    async def _attempt_once(
        self, active: ActiveCall, target: RouteTarget, rates: TokenRates, read: ReadResponse
    ) -> UpstreamResponse | CallFailure:
        active.record.attempts += 1
        gpu = target.upstream.gpu
        if gpu is None:
            return await self._attempt(active, target, rates, read)
        return await self._attempt_on_gpu(active, target, rates, read, gpu)

    def _least_busy_first(
        self, targets: tuple[tuple[RouteTarget, TokenRates], ...]
    ) -> tuple[tuple[RouteTarget, TokenRates], ...]:
        """Order the leading targets that share their load by their calls in progress."""
        if not targets[0][0].shared:
            return targets
        shared = list(itertools.takewhile(lambda rated: rated[0].shared, targets))
        if len(shared) < 2:
            return targets
        shared.sort(key=lambda rated: (self.health.is_open(rated[0].name), rated[0].upstream.in_flight))
        return (*shared, *targets[len(shared) :])

    def _unavailable_error(self, targets: Sequence[str]) -> errors.SixfoldError:
        """Return the error for a request whose targets all have an open circuit."""
        seconds = self.health.seconds_until_half_open(targets)
        if self.health.busy(targets):
            return errors.TooManyRequests("Every model server for this model is busy", retry_after=seconds)
        servers = " and ".join(dict.fromkeys(server_title(target.partition("/")[0]) for target in targets))
        error = errors.EngineFailed(f"Every model server for this model ({servers}) is failing: {TRY_LATER}")
        error.retry_after = seconds
        return error

    async def inline_media(
        self, request: GatewayRequest, target: RouteTarget, wire: WireProtocol, body: bytes
    ) -> bytes:
        """Return the request body, with media inlined for servers in the local network.

        Forms contain files instead of URLs.
        """
        if not target.upstream.in_local_network or "Content-Type" in request.headers:
            return body
        return await self._media.inline(request.tenant, body, is_chat=wire.name in _CHAT_PROTOCOLS)

    async def count_tokens(
        self, target: RouteTarget, wire: WireProtocol, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Request a token count from a server; return the status and the body of its response.

        Raises `UpstreamFailure` and `TimeoutError`.
        """
        path = wire.path + COUNT_PATHS[wire.name]
        async with asyncio.timeout(self._policy.timeout_seconds):
            stream = await target.upstream.open(wire, path, body, headers, stream=True)
            content = bytearray()
            try:
                while block := await stream.read():
                    content += block
                    if len(content) > LOOP_BYTES:
                        raise UpstreamFailure(f"returned a response of more than {LOOP_BYTES:,} bytes")
            finally:
                await stream.aclose()
        return stream.status, bytes(content)

    async def _attempt_on_gpu(
        self, active: ActiveCall, target: RouteTarget, rates: TokenRates, read: ReadResponse, gpu: GpuAccess
    ) -> UpstreamResponse | CallFailure:
        """Make an attempt when the server's GPU has enough memory for the model.

        If its memory is full nevertheless, make another attempt with the whole GPU. The wait does not affect
        the health of the server.
        """
        seconds = max(0.0, active.started_at + self._policy.call_seconds - time.perf_counter())
        lease: GpuLease | None = None
        try:
            lease = await gpu.acquire(target.model, seconds)
            result = await self._attempt(active, target, rates, read)
            if isinstance(result, CallFailure) and result.out_of_memory:
                await lease.take_all(seconds)
                result = await self._attempt(active, target, rates, read)
            if active.request.stream and isinstance(result, UpstreamResponse):
                lease.ready()
                stream = gpu_calls.LeasedStream(result.stream, lease)
                result, lease = replace(result, stream=stream), None
        except errors.GpuBusy as error:
            self.health.release_trial(target.name)
            return CallFailure(error)
        except BaseException:
            self.health.release_trial(target.name)
            raise
        finally:
            if lease is not None:
                lease.release()
        return result

    async def _attempt(
        self, active: ActiveCall, target: RouteTarget, rates: TokenRates, read: ReadResponse
    ) -> UpstreamResponse | CallFailure:
        request, name = active.request, target.name
        wire = target.upstream.wire(request.wire)
        try:
            size = request.size
            if wire.name in _WITHOUT_URLS:
                chat = await PARSER.run_large(size, active.conversation)
                active.chat = await self._media.inline_chat(request.tenant, chat)
            body = await PARSER.run_large(size, _build_body, active, target, wire)
            body = await self.inline_media(request, target, wire, body)
            # A guardrail's hook, another server or the wait for a GPU may have taken minutes.
            if self.check_credential is not None:
                await self.check_credential(request)
        except BaseException:
            self.health.release_trial(name)
            raise
        started_at = time.perf_counter()
        stream: UpstreamStream | None = None
        try:
            with self._deadlines.start():
                if self._failpoints:
                    await self._inject(request, name)
                path = wire.path_of(target.model, stream=request.stream)
                opening = target.upstream.open(wire, path, body, request.headers, stream=request.stream)
                # This copy of the request may have 32 MiB, and a response can take an hour.
                del body
                stream = await opening
                if stream.status >= 300:
                    return await self._classify_error_response(stream, wire, name)
                first_block, usage = await read(stream, wire)
        except (UpstreamFailure, TimeoutError) as error:
            if stream is not None:
                await stream.aclose()
            self.health.record_failure(name)
            reason = str(error) or "did not respond in time"
            title = server_title(target.upstream.name)
            return CallFailure(
                errors.EngineFailed(f"The model server {title} {reason}: {TRY_LATER}"),
                retryable=isinstance(error, UpstreamFailure),
                out_of_memory=gpu_calls.is_out_of_memory(reason.encode()),
            )
        except BaseException:
            if stream is not None:
                await stream.aclose()
            self.health.release_trial(name)
            raise
        seconds = time.perf_counter() - started_at
        self.health.record_success(name, seconds)
        active.record.target = name
        active.record.first_us = int((time.perf_counter() - active.started_at) * 1_000_000)
        lease = self._memory.lease(request.account_id)
        return UpstreamResponse(target, rates, wire, stream, first_block, usage, lease)

    async def _inject(self, request: GatewayRequest, target: str) -> None:
        """Fail, hang or disconnect like a model server, if a failpoint names the service or the model."""
        names = (*request.services[:1], request.model, target)
        actions: list[Action] = [self._failpoints[name] for name in names if name in self._failpoints]
        match actions[0] if actions else None:
            case "hang":
                await asyncio.Event().wait()
            case "fail":
                raise UpstreamFailure("failed (injected by a failpoint)")
            case "crash":
                raise UpstreamFailure("disconnected (injected by a failpoint)")
            case None:
                pass

    async def _classify_error_response(
        self, stream: UpstreamStream, wire: WireProtocol, name: str
    ) -> CallFailure:
        status, retry_after = stream.status, parse_retry_after(stream.retry_after)
        try:
            body = await _read_error(stream)
            rejection = await PARSER.run_large(len(body), _rejection, wire, body)
        finally:
            await stream.aclose()
        if rejection.filtered and status not in REFUSED:
            status = 400
        if status in REFUSED:
            self.health.release_trial(name)
            return CallFailure(rejection.error(status), terminal=status != 404)
        self.health.record_failure(name, busy=status == 429)
        server = f"The model server {server_title(name.partition('/')[0])}"
        if status == 429:
            busy = errors.TooManyRequests(f"{server} is busy", retry_after=max(1, int(retry_after or 1)))
            return CallFailure(busy, retryable=True, retry_after=retry_after)
        if status in _KEY_REJECTED:
            _LOG.warning("%s rejected the API key of this server: status %d", name, status)
            return CallFailure(errors.EngineFailed(f"{server} rejected the API key of this server"))
        return CallFailure(
            errors.EngineFailed(f"{server} failed: {TRY_LATER}"),
            retryable=status in _RETRYABLE,
            retry_after=retry_after,
            out_of_memory=gpu_calls.is_out_of_memory(body),
        )


async def read_first_chunk(stream: UpstreamStream, wire: WireProtocol) -> tuple[bytes, UsageAndLength]:
    """Return the first bytes of a stream; raises `UpstreamFailure` if it is empty or begins with an error."""
    block = await stream.read()
    if not block:
        raise UpstreamFailure("returned an empty response")
    if wire.name in EVENT_PROTOCOLS and block.lstrip()[:1] in (b"{", b"<"):
        raise UpstreamFailure("returned a response that is not an event stream")
    if wire.name not in EVENT_PROTOCOLS or b'"error"' in block or b":exception-type" in block:
        scanner = wire.scanner()
        scanner.forward(block, keep_usage=True)
        if scanner.error and not scanner.chars:
            raise UpstreamFailure(scanner.error.removeprefix("The model server "))
    return block, (None, 0)


async def read_full_body(
    stream: UpstreamStream, wire: WireProtocol, lease: MemoryLease | None = None
) -> tuple[bytes, UsageAndLength]:
    """Return the body of a response with its usage; raises `UpstreamFailure` if it cannot be parsed.

    Raises `TooManyRequests` if `lease` cannot reserve the memory for a large body.
    """
    try:
        body = await read_all(stream, lease)
        return body, await PARSER.run_large(len(body), _usage, wire, body)
    except errors.InputTooLarge as error:
        raise UpstreamFailure("returned a response with too many values") from error
    except (ValueError, RecursionError) as error:
        raise UpstreamFailure("returned a response that cannot be parsed") from error
    finally:
        await stream.aclose()


def parse_answer(wire: WireProtocol, body: bytes, chat: ChatRequest) -> ChatResponse:
    """Convert a complete response; raises `EngineFailed`."""
    try:
        answer = wire.parse_response(body, chat)
    except ValueError as error:
        raise errors.EngineFailed("The model server returned a response that cannot be parsed") from error
    if excess := chats.ResponseSize.of(answer).excess:
        raise errors.EngineFailed(f"The model server {excess}")
    return answer


async def _read_error(stream: UpstreamStream) -> bytes:
    """Return the body of an error; empty if it is too long, because a part of a document is unreadable."""
    body = bytearray()
    while block := await stream.read():
        body += block
        if len(body) > FREE_BYTES:
            return b""
    return bytes(body)


def _usage(wire: WireProtocol, body: bytes) -> UsageAndLength:
    if _JSON.match(body):
        wire.response_limits.check(body)
    return wire.usage(body)


def _rejection(wire: WireProtocol, body: bytes) -> UpstreamRejection:
    try:
        json_limits.DEFAULT.check(body)
    except errors.InputTooLarge:
        body = b""
    return wire.parse_error(body)


def parse_retry_after(text: str) -> float | None:
    """Return the seconds of a `Retry-After` value (a number or a date); None if invalid or over a day."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds <= _DAY_SECONDS else None
