"""A response that is streamed to the caller, and its cost for each way in which it can end.

`_close` and `_usage` implement the table under "Look up what a response costs" in docs/howto/gateway.md. A
stream ends as `succeeded`, as `failed`, which is free, or as `left` if the caller disconnected or read too
slowly, or if the response exceeded a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.concurrency.loop_turns import TURNS
from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.attempts import EVENT_PROTOCOLS, ActiveCall, UpstreamResponse
from sixfold.core.gateway.chat import Event
from sixfold.core.gateway.ports import FREE_BYTES, StreamFilter, UpstreamFailure, UsageScanner
from sixfold.core.gateway.pricing.usage import TokenUsage, merge_usage
from sixfold.core.gateway.request_log import CallOutcome

# Seconds for which a stream is read after its caller has disconnected.
_END_SECONDS = 0.5
# Maximum bytes that are read from a stream of events; collecting or converting them needs as much memory.
MAX_BYTES = 128 * 2**20
_UNREAD = "The caller disconnected before the response began"
_SLOW_CALLER = "The caller did not read the response in time; the part that was delivered is charged"
# Some formats collect the text, and repeat it in several events at the end.
_TEXT_COPIES = 6
# A large event, and a copy that is scanned or sent.
_EVENT_COPIES = 2
# Events that are converted in one iteration of the event loop, about 5 ms.
_TURN_EVENTS = 200
T = TypeVar("T")
OnEnd = Callable[[ActiveCall, UpstreamResponse, TokenUsage | None, CallOutcome], Awaitable[CallOutcome]]


class _CallerTooSlow(Exception):
    """The time limit of the call has passed because its caller read slowly."""


class _ResponseLimit(UpstreamFailure):
    """The response has exceeded a limit of size or time, and the rest is not sent."""


class ResponseStream:
    """A streamed response, which must be read to its end or closed to settle the charge."""

    def __init__(
        self, active: ActiveCall, response: UpstreamResponse, call_seconds: float, on_end: OnEnd
    ) -> None:
        self.target = response.target.name
        self.raw = response.wire.name == active.request.wire
        self.filter: StreamFilter | None = None
        self._is_closed = False
        # Bytes that are reserved for the text of a converted response.
        self._retained = 0
        self._call_seconds = call_seconds
        self._on_end = on_end
        self._active = active
        self._response = response
        # The outcome and charge of the call, once it is settled.
        self.outcome: CallOutcome | None = None

    def blocks(self) -> AsyncGenerator[bytes]:
        """Yield the server's bytes of a `raw` stream; raises `EngineFailed` if the server fails."""
        return self._blocks() if self.filter is None else self.filter.blocks(self._blocks())

    def events(self) -> AsyncGenerator[Event]:
        """Yield protocol-independent events of a stream that is not `raw`; raises `EngineFailed`."""
        return self._events() if self.filter is None else self.filter.events(self._events())

    async def _blocks(self) -> AsyncGenerator[bytes]:
        scanner = self._response.wire.scanner()
        keep_usage = self._active.request.keep_usage
        outcome = CallOutcome("left")
        try:
            async for block in self._read():
                output = await self._step(scanner, block, partial(scanner.forward, keep_usage=keep_usage))
                if output:
                    await TURNS.next(len(output))
                    yield output
                    # The client has received it. It would stay in memory until the next one.
                    del output
                    self._shrink(scanner.buffered)
            last_chunk = await self._step(scanner, b"", partial(scanner.forward, keep_usage=keep_usage))
            final = _outcome(scanner)
            # After an incomplete event, clients would not recognize the error that follows.
            if last_chunk and final.state == "succeeded":
                yield last_chunk
            outcome = final
        except (_CallerTooSlow, UpstreamFailure, errors.TooManyRequests) as error:
            outcome = _early_end(error, scanner.chars)
        finally:
            await self._close(scanner, outcome, lambda block: scanner.forward(block, keep_usage=True))
        if outcome.error:
            raise errors.EngineFailed(outcome.error)

    async def _events(self) -> AsyncGenerator[Event]:
        parser = self._response.wire.stream_parser(self._active.conversation())
        outcome = CallOutcome("left")
        try:
            count, reserved, size = 0, 0, chats.ResponseSize()
            async for block in self._read():
                events = await self._step(parser, block, parser.events)
                await TURNS.next(len(block))
                for event in events:
                    _count(size, event)
                    if size.memory >= reserved + FREE_BYTES:
                        reserved = size.memory
                        await self._retain(reserved, parser)
                    yield event
                    count += 1
                    if not count % _TURN_EVENTS:
                        # A block may contain thousands of small events, between which neither side waits.
                        await TURNS.next(LOOP_BYTES)
            for event in await self._step(parser, b"", parser.events):
                yield event
            outcome = _outcome(parser)
            if outcome.state == "succeeded":
                usage = _usage(self._active, parser, parser.chars, complete=True)
                end = parser.end()
                yield replace(end, usage=usage) if isinstance(end, chats.MessageEnd) else end
        except (_CallerTooSlow, UpstreamFailure, errors.TooManyRequests) as error:
            outcome = _early_end(error, parser.chars)
        finally:
            await self._close(parser, outcome, parser.events)
        if outcome.error:
            raise errors.EngineFailed(outcome.error)

    async def _step(self, scanner: UsageScanner, block: bytes, scan: Callable[[bytes], T]) -> T:
        """Return the result of `scan` for a block.

        A large event is scanned in a thread, and while it is incomplete, it counts against the memory for
        responses of model servers.
        """
        size = scanner.buffered + len(block)
        if size <= LOOP_BYTES:
            await TURNS.next(size)
            return scan(block)
        if size > FREE_BYTES:
            await self._response.lease.resize(self._retained + _EVENT_COPIES * size)
        scanning = asyncio.ensure_future(PARSER.run(scan, block))
        sending = 0
        try:
            result = await asyncio.shield(scanning)
        except asyncio.CancelledError:
            # The rest of the stream may be scanned, but not by two threads at once.
            await asyncio.wait({scanning})
            raise
        else:
            # The complete events of a raw stream are in memory until the client has received them.
            sending = len(result) if isinstance(result, bytes) else 0
            return result
        finally:
            # An exception refers to this frame, and the task to the exception.
            del scanning
            self._shrink(max(sending, scanner.buffered))

    def _shrink(self, size: int) -> None:
        """Release the memory that is not needed for `size` bytes of events."""
        lease = self._response.lease
        lease.shrink(min(lease.size, self._retained + _counted(size)))

    async def _retain(self, text_bytes: int, scanner: UsageScanner) -> None:
        """Reserve memory for a long response that is converted; raises `TooManyRequests`."""
        self._retained = _TEXT_COPIES * text_bytes
        await self._response.lease.resize(self._retained + _counted(scanner.buffered))

    async def abandon(self) -> None:
        """Close a stream whose caller disconnected before it was read."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._response.stream.aclose()
        finally:
            self.outcome = await self._on_end(
                self._active, self._response, None, CallOutcome("left", error=_UNREAD)
            )

    async def _close(
        self, scanner: UsageScanner, outcome: CallOutcome, scan: Callable[[bytes], object]
    ) -> None:
        self._is_closed = True
        chars, is_chat = scanner.chars, self._active.request.expected_usage is None
        # A caller that has received the last part of a text has received all of it.
        complete = outcome.state == "succeeded" or (is_chat and scanner.complete)
        try:
            if outcome.state == "left" and chars and is_chat and self._is_paid:
                await self._read_end(scanner, scan)
        finally:
            self._response.lease.release()
            await self._response.stream.aclose()
            usage = (
                None if outcome.state == "failed" else _usage(self._active, scanner, chars, complete=complete)
            )
            self.outcome = await self._on_end(self._active, self._response, usage, outcome)

    @property
    def _is_paid(self) -> bool:
        return bool(self._response.rates.output) and not self._response.target.upstream.local

    async def _read_end(self, scanner: UsageScanner, scan: Callable[[bytes], object]) -> None:
        """Continue reading briefly, for the usage of an answer that was ending when its caller left.

        Otherwise a caller that disconnects just before the end would not pay for hidden reasoning.
        """
        with contextlib.suppress(UpstreamFailure, TimeoutError, errors.TooManyRequests):
            async with asyncio.timeout(_END_SECONDS):
                while block := await self._response.stream.read():
                    await self._step(scanner, block, scan)
                await self._step(scanner, b"", scan)

    async def _read(self) -> AsyncGenerator[bytes]:
        stream, deadline = self._response.stream, self._active.started_at + self._call_seconds
        # The same, without the time in which the caller did not read.
        server_deadline = deadline
        block = self._response.first_block
        remaining = MAX_BYTES if self._response.wire.name in EVENT_PROTOCOLS else math.inf
        while block:
            remaining -= len(block)
            if remaining < 0:
                raise _ResponseLimit(f"sent a stream of more than {MAX_BYTES // 2**20} MiB")
            yielded_at = time.perf_counter()
            yield block
            moment = time.perf_counter()
            server_deadline += moment - yielded_at
            if moment > server_deadline:
                raise _ResponseLimit("did not finish in time")
            if moment > deadline:
                raise _CallerTooSlow
            block = await stream.read()


def _counted(event_bytes: int) -> int:
    """Return the bytes that a large event takes of the memory for responses of model servers."""
    return _EVENT_COPIES * event_bytes if event_bytes > FREE_BYTES else 0


def _count(size: chats.ResponseSize, event: Event) -> None:
    """Count an event; raises `_ResponseLimit`. Some protocols repeat the whole response at the end."""
    size.add(event)
    if size.excess:
        raise _ResponseLimit(size.excess)


def _early_end(
    error: _CallerTooSlow | UpstreamFailure | errors.TooManyRequests, delivered: int
) -> CallOutcome:
    match error:
        case _CallerTooSlow():
            return CallOutcome("left", error=_SLOW_CALLER)
        case _ResponseLimit():
            # A prompt can request a response that exceeds a limit, so the caller pays for the delivered part.
            return CallOutcome("left", error=f"The model server {error}; the part before is charged")
        case UpstreamFailure():
            return CallOutcome("failed", error=f"The model server {error}")
        case errors.TooManyRequests() if delivered:
            return CallOutcome("left", error=f"{error.message}; the part before is charged")
        case errors.TooManyRequests():
            return CallOutcome("failed", error=error.message)


def _outcome(scanner: UsageScanner) -> CallOutcome:
    if scanner.error:
        return CallOutcome("failed", error=scanner.error)
    if scanner.complete:
        return CallOutcome("succeeded")
    return CallOutcome("failed", error="The model server disconnected before the response was complete")


def _usage(active: ActiveCall, scanner: UsageScanner, chars: int, *, complete: bool) -> TokenUsage:
    """Return the usage to charge for the delivered `chars`, or for the whole text if `complete`.

    The input is charged in full. The output of a part is estimated, as its share of the reported usage if the
    server reported one.
    """
    reported = scanner.usage
    expected = active.request.expected_usage
    if expected is not None:
        # If nothing was delivered, only the input is charged.
        return (
            merge_usage(reported, expected)
            if complete or chars
            else TokenUsage(expected.input, reported=False)
        )
    is_counted = reported is not None and reported.reported
    if reported is not None and is_counted and complete:
        return reported
    delivered = chats.tokens_of(chars)
    if reported is not None and is_counted and chars and scanner.complete:
        delivered = _share(reported, chars, scanner.chars)
    if reported is not None and reported.input:
        return msgspec.structs.replace(reported, output=delivered, reported=False)
    return active.estimated(reported, delivered)


def _share(usage: TokenUsage, delivered: int, chars: int) -> int:
    """Return the output tokens of the delivered part of a text, including all hidden reasoning."""
    # A text has at most one token per character.
    hidden = min(usage.output, max(usage.reasoning, usage.output - chars))
    return hidden + math.ceil((usage.output - hidden) * delivered / chars)
