"""Try one server after another until one begins a usable response."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import msgspec

from sixfold import errors
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.deadlines import Deadlines
from sixfold.core.gateway.health import HealthTracker
from sixfold.core.gateway.media_inlining import MediaInliner
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.core.gateway.ports import GatewayRequest, UpstreamFailure, UpstreamStream, WireProtocol
from sixfold.core.gateway.request_log import CallRecord
from sixfold.core.gateway.routing import RouteTarget
from sixfold.core.gateway.usage import TokenRates, TokenUsage

_LOG = logging.getLogger("sixfold.relay")
# Larger requests are parsed and serialized in a thread.
LOOP_BYTES = 256 * 1024
REFUSED = frozenset({400, 404, 409, 413, 415, 422})
# The operator's key or account is at fault, not the caller.
_OURS = frozenset({401, 402, 403})
_REPEATED = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_LONGEST_PAUSE, _DAY = 2.0, 86400.0
_SHOWN = frozenset({"chat", "messages", "responses"})

# The usage that a complete response reports, and its length in characters.
UsageAndLength = tuple[TokenUsage | None, int]
Take = Callable[[UpstreamStream, WireProtocol], Awaitable[tuple[bytes, UsageAndLength]]]


class RoutePlan(msgspec.Struct, frozen=True):
    """Targets of a request with their rates, in order, and the amount held for it (micro-dollars)."""

    targets: tuple[tuple[RouteTarget, TokenRates], ...]
    input_tokens: int
    held: int


class ActiveCall(msgspec.Struct):
    """A request in progress."""

    ask: GatewayRequest
    plan: RoutePlan
    call: CallRecord
    began: float
    chat: ChatRequest | None = None

    def conversation(self) -> ChatRequest:
        """Return the parsed conversation; it is parsed only once."""
        if self.chat is None:
            self.chat = self.ask.parse()
        return self.chat


def _written(asked: ActiveCall, target: RouteTarget, wire: WireProtocol) -> bytes:
    ask = asked.ask
    if wire.name == ask.wire:
        return wire.pass_on(ask.body, target.model)
    return wire.ask(asked.conversation(), target.model, stream=ask.stream)


class UpstreamResponse(msgspec.Struct, frozen=True):
    """A successful response that has begun."""

    target: RouteTarget
    rates: TokenRates
    wire: WireProtocol
    stream: UpstreamStream
    first: bytes
    told: UsageAndLength = (None, 0)


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A failed attempt. `error` is raised if no further attempt is made; `terminal` forbids other servers."""

    error: errors.SixfoldError
    retryable: bool = False
    terminal: bool = False
    retry_after: float | None = None


class FailoverClient:
    """Opens responses according to the policy: retries, other targets, circuit breakers."""

    def __init__(self, policy: GatewayPolicy, health: HealthTracker, showing: MediaInliner) -> None:
        self._policy = policy
        self.health = health
        self._showing = showing
        self._deadlines = Deadlines(policy.timeout_seconds)

    def reconfigure(self, policy: GatewayPolicy) -> None:
        """Apply another policy; timeouts stay as they were at the start."""
        self._policy = policy

    async def open(self, asked: ActiveCall, take: Take) -> UpstreamResponse:
        """Return the first successful response; raises the error of the last attempt."""
        failure: CallFailure | None = None
        for target, rates in asked.plan.targets:
            for attempt in range(1 + self._policy.retries):
                if not self.health.allows(target.name) or (attempt and not self.health.may_retry()):
                    break
                asked.call.attempts += 1
                got = await self._attempt(asked, target, rates, take)
                if isinstance(got, UpstreamResponse):
                    return got
                failure = got
                if failure.terminal:
                    raise failure.error
                if not failure.retryable or attempt == self._policy.retries:
                    break
                pause = min(_LONGEST_PAUSE, 0.1 * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311 - jitter
                if failure.retry_after is not None and failure.retry_after > _LONGEST_PAUSE:
                    break
                await asyncio.sleep(failure.retry_after if failure.retry_after is not None else pause)
        if failure is None:
            raise self._alone([target.name for target, _ in asked.plan.targets])
        raise failure.error

    def _alone(self, names: Sequence[str]) -> errors.SixfoldError:
        """Return the error for a request whose targets all have an open circuit."""
        seconds = self.health.again_in(names)
        if self.health.busy(names):
            return errors.TooManyRequests("Every model server of this name is busy", retry_after=seconds)
        out = errors.EngineFailed("Every model server of this name is out of order; try again soon")
        out.retry_after = seconds
        return out

    async def inline_media(
        self, ask: GatewayRequest, target: RouteTarget, wire: WireProtocol, body: bytes
    ) -> bytes:
        """Return the request body; for servers in the local network, media URLs are replaced with their
        bytes.
        """
        if target.upstream.near and wire.name in _SHOWN:
            return await self._showing.inline(ask.tenant, body)
        return body

    async def _attempt(
        self, asked: ActiveCall, target: RouteTarget, rates: TokenRates, take: Take
    ) -> UpstreamResponse | CallFailure:
        ask, name = asked.ask, target.name
        wire = target.upstream.wire(ask.wire)
        try:
            if len(ask.body) > LOOP_BYTES:
                body = await asyncio.to_thread(_written, asked, target, wire)
            else:
                body = _written(asked, target, wire)
            body = await self.inline_media(ask, target, wire, body)
        except BaseException:
            self.health.untried(name)
            raise
        began = time.perf_counter()
        stream: UpstreamStream | None = None
        try:
            with self._deadlines.start():
                stream = await target.upstream.open(wire, wire.path, body, ask.headers, stream=ask.stream)
                if stream.status >= 300:
                    return await self._classify_error_response(stream, wire, name)
                first, told = await take(stream, wire)
        except (UpstreamFailure, TimeoutError) as error:
            if stream is not None:
                await stream.aclose()
            self.health.failed(name)
            said = str(error) or "did not answer in time"
            return CallFailure(
                errors.EngineFailed(f"The model server {said}"), retryable=isinstance(error, UpstreamFailure)
            )
        except BaseException:
            if stream is not None:
                await stream.aclose()
            self.health.untried(name)
            raise
        seconds = time.perf_counter() - began
        self.health.succeeded(name, seconds)
        asked.call.target = name
        asked.call.first_us = int((time.perf_counter() - asked.began) * 1_000_000)
        return UpstreamResponse(target, rates, wire, stream, first, told)

    async def _classify_error_response(
        self, stream: UpstreamStream, wire: WireProtocol, name: str
    ) -> CallFailure:
        status, after = stream.status, parse_retry_after(stream.retry_after)
        try:
            objection = wire.refusal(await stream.whole())
        finally:
            await stream.aclose()
        if status in REFUSED:
            self.health.untried(name)
            return CallFailure(objection.error(status), terminal=status != 404)
        self.health.failed(name, busy=status == 429)
        if status == 429:
            busy = errors.TooManyRequests("The model server is busy", retry_after=max(1, int(after or 1)))
            return CallFailure(busy, retryable=True, retry_after=after)
        if status in _OURS:
            _LOG.warning("%s does not take this server's key: %d", name, status)
            return CallFailure(errors.EngineFailed("The model server does not take this server's key"))
        return CallFailure(
            errors.EngineFailed("The model server failed"), retryable=status in _REPEATED, retry_after=after
        )


async def read_first_chunk(stream: UpstreamStream, wire: WireProtocol) -> tuple[bytes, UsageAndLength]:
    """Return the first bytes of a stream; raises `UpstreamFailure` if it is empty or begins with an error."""
    block = await stream.read()
    if not block:
        raise UpstreamFailure("gave an empty answer")
    if wire.name in _SHOWN and block.lstrip()[:1] in (b"{", b"<"):
        raise UpstreamFailure("gave an answer that is no stream")
    if b'"error"' in block:
        scan = wire.scan()
        scan.pass_on(block, keep_usage=True)
        if scan.error and not scan.chars:
            raise UpstreamFailure(scan.error.removeprefix("The model server "))
    return block, (None, 0)


async def read_full_body(stream: UpstreamStream, wire: WireProtocol) -> tuple[bytes, UsageAndLength]:
    """Return the body of a response with its usage; raises `UpstreamFailure` if it cannot be parsed."""
    try:
        body = await stream.whole()
        return body, wire.usage(body)
    except ValueError as error:
        raise UpstreamFailure("gave an answer that cannot be read") from error
    finally:
        await stream.aclose()


def parse_retry_after(text: str) -> float | None:
    """Return the seconds of a `Retry-After` value, a number or a date; None if invalid or over a day."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds <= _DAY else None
