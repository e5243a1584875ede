"""Asking one server after another, until an answer begins well or none is left."""

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
LOOP_BYTES = 256 * 1024  # a larger request is read and written in a thread
REFUSED = frozenset({400, 404, 409, 413, 415, 422})
_OURS = frozenset({401, 402, 403})  # the operator's key or account is at fault, not the caller
_REPEATED = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_LONGEST_PAUSE, _DAY = 2.0, 86400.0
_SHOWN = frozenset({"chat", "messages", "responses"})  # protocols of conversations

UsageAndLength = tuple[TokenUsage | None, int]  # what a whole answer says that it used, and its characters
Take = Callable[[UpstreamStream, WireProtocol], Awaitable[tuple[bytes, UsageAndLength]]]


class RoutePlan(msgspec.Struct, frozen=True):
    """What a request may be asked of, at which price, and what is held for it."""

    targets: tuple[tuple[RouteTarget, TokenRates], ...]
    input_tokens: int
    held: int


class ActiveCall(msgspec.Struct):
    """A request under way."""

    ask: GatewayRequest
    plan: RoutePlan
    call: CallRecord
    began: float
    chat: ChatRequest | None = None

    def conversation(self) -> ChatRequest:
        """The request in no dialect, read once."""
        if self.chat is None:
            self.chat = self.ask.parse()
        return self.chat


def _written(asked: ActiveCall, target: RouteTarget, wire: WireProtocol) -> bytes:
    """What a server is sent."""
    ask = asked.ask
    if wire.name == ask.wire:
        return wire.pass_on(ask.body, target.model)
    return wire.ask(asked.conversation(), target.model, stream=ask.stream)


class UpstreamResponse(msgspec.Struct, frozen=True):
    """An answer that has begun well."""

    target: RouteTarget
    rates: TokenRates
    wire: WireProtocol
    stream: UpstreamStream
    first: bytes
    told: UsageAndLength = (None, 0)


@dataclass(frozen=True, slots=True)
class CallFailure:
    """An attempt that led to nothing: what to tell if it was the last, whether to ask again."""

    error: errors.SixfoldError
    retryable: bool = False
    terminal: bool = False
    retry_after: float | None = None


class FailoverClient:
    """Opens answers by the policy: retries, fallbacks, circuits."""

    def __init__(self, policy: GatewayPolicy, health: HealthTracker, showing: MediaInliner) -> None:
        self._policy = policy
        self.health = health
        self._showing = showing
        self._deadlines = Deadlines(policy.timeout_seconds)

    def reconfigure(self, policy: GatewayPolicy) -> None:
        """Retry by another policy from now on; its deadlines stay as they were at the start."""
        self._policy = policy

    async def open(self, asked: ActiveCall, take: Take) -> UpstreamResponse:
        """The first answer that begins well, of the servers in turn."""
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
        """What is told where every server is left alone for a while."""
        seconds = self.health.again_in(names)
        if self.health.busy(names):
            return errors.TooManyRequests("Every model server of this name is busy", retry_after=seconds)
        out = errors.EngineFailed("Every model server of this name is out of order; try again soon")
        out.retry_after = seconds
        return out

    async def inline_media(
        self, ask: GatewayRequest, target: RouteTarget, wire: WireProtocol, body: bytes
    ) -> bytes:
        """What a server is sent: one that stands near gets the bytes of what lies at addresses."""
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
        """What an answer of failure means."""
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
    """For a stream: what came first; raises `UpstreamFailure` where nothing did, or but an error."""
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
    """For a whole answer; raises `UpstreamFailure` for what is none."""
    try:
        body = await stream.whole()
        return body, wire.usage(body)
    except ValueError as error:
        raise UpstreamFailure("gave an answer that cannot be read") from error
    finally:
        await stream.aclose()


def parse_retry_after(text: str) -> float | None:
    """When to ask again, in seconds or as a date; None for what is neither, or further off than a day."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds <= _DAY else None
