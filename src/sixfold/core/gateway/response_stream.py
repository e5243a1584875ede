"""A response that is streamed to the caller."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace

import msgspec

from sixfold import errors
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.attempts import ActiveCall, UpstreamResponse
from sixfold.core.gateway.chat import Event
from sixfold.core.gateway.ports import UpstreamFailure, UsageScanner
from sixfold.core.gateway.usage import TokenUsage, merge_usage

End = Callable[[ActiveCall, UpstreamResponse, TokenUsage | None, str, str], Awaitable[None]]


class ResponseStream:
    """A streamed response. Read it to its end or close the iterator: that books the charge."""

    def __init__(self, asked: ActiveCall, opened: UpstreamResponse, call_seconds: float, end: End) -> None:
        self.target = opened.target.name
        self.raw = opened.wire.name == asked.ask.wire
        self._call_seconds = call_seconds
        self._end = end
        self._asked = asked
        self._opened = opened

    async def blocks(self) -> AsyncGenerator[bytes]:
        """Yield the server's bytes, for a `raw` stream; raises `EngineFailed` if the server fails."""
        scan = self._opened.wire.scan()
        keep_usage = self._asked.ask.keep_usage
        ending = ("left", "")
        try:
            async for block in self._read():
                passed = scan.pass_on(block, keep_usage=keep_usage)
                if passed:
                    yield passed
            rest, verdict = scan.pass_on(b"", keep_usage=keep_usage), _verdict(scan)
            # After an incomplete event, clients would not recognize the error that follows.
            if rest and verdict[0] == "succeeded":
                yield rest
            ending = verdict
        except UpstreamFailure as error:
            ending = ("failed", f"The model server {error}")
        finally:
            await self._close(scan, *ending)
        if ending[0] == "failed":
            raise errors.EngineFailed(ending[1])

    async def events(self) -> AsyncGenerator[Event]:
        """Yield protocol-independent events, for a stream that is not `raw`; raises `EngineFailed`."""
        listener = self._opened.wire.listen(self._asked.conversation())
        ending = ("left", "")
        try:
            async for block in self._read():
                for event in listener.events(block):
                    yield event
            for event in listener.events(b""):
                yield event
            ending = _verdict(listener)
            if ending[0] == "succeeded":
                usage = _used(self._asked, listener, whole=True)
                ended = listener.end()
                yield replace(ended, usage=usage) if isinstance(ended, chats.MessageEnd) else ended
        except UpstreamFailure as error:
            ending = ("failed", f"The model server {error}")
        finally:
            await self._close(listener, *ending)
        if ending[0] == "failed":
            raise errors.EngineFailed(ending[1])

    async def abandon(self) -> None:
        """Close a stream whose caller disconnected before it was read."""
        await self._close(self._opened.wire.scan(), "failed", "Nobody waited")

    async def _close(self, scan: UsageScanner, state: str, error: str) -> None:
        await self._opened.stream.aclose()
        usage = None if state == "failed" else _used(self._asked, scan, whole=state == "succeeded")
        await self._end(self._asked, self._opened, usage, state, error)

    async def _read(self) -> AsyncGenerator[bytes]:
        stream, last = self._opened.stream, self._asked.began + self._call_seconds
        block = self._opened.first
        while block:
            yield block
            if time.perf_counter() > last:
                raise UpstreamFailure("took too long")
            block = await stream.read()


def _verdict(scan: UsageScanner) -> tuple[str, str]:
    if scan.error:
        return "failed", scan.error
    return ("succeeded", "") if scan.complete else ("failed", "The model server broke off its answer")


def _used(asked: ActiveCall, scan: UsageScanner, *, whole: bool) -> TokenUsage:
    """Return the usage reported by the server, else an estimate of what was delivered."""
    told = scan.usage
    most = asked.ask.most
    if most is not None:
        # If nothing was delivered, only the input is charged.
        return merge_usage(told, most) if whole or scan.chars else TokenUsage(most.input, reported=False)
    if whole and told is not None:
        return told
    delivered = chats.tokens_of(scan.chars)
    if told is not None and told.input:
        return msgspec.structs.replace(told, output=delivered, reported=False)
    return TokenUsage(asked.plan.input_tokens, delivered, reported=False)
