"""The relay: a request is priced and held, asked of one server after another, passed on and captured.

Whatever ends it ends its money, too: a whole answer is charged by what the server says it used; of an answer
whose caller left, what was delivered; a server that fails is free. Nothing of a stream is kept back longer
than the event that it is a part of.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from sixfold import errors
from sixfold.core.accounts import limits
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits import Payer
from sixfold.core.accounts.limits import Rates as Limiter
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, now
from sixfold.core.relay import chat as chats
from sixfold.core.relay import requestlog
from sixfold.core.relay.cache import Cache
from sixfold.core.relay.chat import Answer, Chat, Event
from sixfold.core.relay.health import Health
from sixfold.core.relay.policy import Policy
from sixfold.core.relay.ports import Ask, Broken, Scan, Stream, Wire
from sixfold.core.relay.requestlog import Call, Ending
from sixfold.core.relay.routing import Router, Target
from sixfold.core.relay.usage import FREE, PriceBook, Rates, Usage

_LOG = logging.getLogger("sixfold.relay")
_COUNTED = re.compile(rb'"input_tokens":\s*(\d{1,12})')
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{1024,}={0,2}")
_REFUSED = frozenset({400, 404, 409, 413, 415, 422})
_OURS = frozenset({401, 402, 403})  # the operator's key or account is at fault, not the caller
_REPEATED = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_LONGEST_PAUSE = 2.0
_KEPT_CHARS = 100_000  # of a body that the log keeps


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: `raw` as the server gave it where it speaks the caller's dialect, else `answer`."""

    target: str
    model: str
    usage: Usage
    cost: int
    raw: bytes | None = None
    answer: Answer | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a request may be asked of, at which price, and what is held for it."""

    targets: tuple[tuple[Target, Rates], ...]
    input_tokens: int
    held: int


@dataclass(slots=True)
class _Asked:
    """A request under way."""

    ask: Ask
    plan: _Plan
    call: Call
    began: float
    chat: Chat | None = None

    def conversation(self) -> Chat:
        """The request in no dialect, read once."""
        if self.chat is None:
            self.chat = self.ask.parse()
        return self.chat


@dataclass(frozen=True, slots=True)
class _Opened:
    """An answer that has begun well."""

    target: Target
    rates: Rates
    wire: Wire
    stream: Stream
    first: bytes


@dataclass(frozen=True, slots=True)
class _Failure:
    """An attempt that led to nothing: what to tell if it was the last, whether to ask again."""

    error: errors.SixfoldError
    again: bool = False
    final: bool = False
    after: float | None = None


@dataclass
class Counts:
    """What Prometheus is told of; by target and ending."""

    calls: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    tokens: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    spent: dict[str, int] = field(default_factory=dict[str, int])


class Relay:
    """Calls model servers for accounts; one for each running server."""

    def __init__(
        self, database: Database, router: Router, health: Health, prices: PriceBook, policy: Policy
    ) -> None:
        self.policy = policy
        self.router = router
        self.counts = Counts()
        self.boot = ""
        self._database = database
        self._health = health
        self._prices = prices
        self._limiter = Limiter(time.monotonic)
        self._cache: Cache[Reply] | None = None
        if policy.cache:
            self._cache = Cache(policy.cache_bytes, policy.cache_seconds, time.monotonic)
        self._settling: set[asyncio.Task[None]] = set()

    # -- what is asked -----------------------------------------------------------------------------

    async def whole(self, ask: Ask, payer: Payer | None = None) -> Reply:
        """One answer, once it is whole and paid.

        Raises `UnknownModel`, `UnpricedModel`, `TooManyRequests`, `InsufficientCredits`, `UpstreamRefused`
        for what the server finds wrong with the request, `EngineFailed` when every server failed; nothing is
        charged then.
        """
        kept = self._cache.get(ask) if self._cache is not None else None
        if kept is not None:
            await self._log_hit(ask, kept)
            return replace(kept, cost=0, cached=True)
        asked = await self._begin(ask, payer)
        try:
            opened, reply = await self._answered(asked)
        except BaseException as error:
            await self._shielded(self._settle(asked, None, Ending("failed", error=_told(error))))
            raise
        ending = Ending("succeeded", reply.usage, reply.cost, counted_by=_counted_by(reply.usage))
        await self._shielded(self._settle(asked, opened, ending))
        if self._cache is not None:
            self._cache.put(ask, reply, len(reply.raw or b"") + len(ask.body) + 1024)
        return reply

    async def flow(self, ask: Ask, payer: Payer | None = None) -> Flow:
        """An answer that has begun: its first bytes are there. Raises what `whole` raises."""
        asked = await self._begin(ask, payer)
        try:
            opened = await self._open(asked, _first_block)
        except BaseException as error:
            await self._shielded(self._settle(asked, None, Ending("failed", error=_told(error))))
            raise
        return Flow(self, asked, opened)

    async def complete(
        self, principal: Principal, request_id: str, chat: Chat, model: str = "", face: str = "service"
    ) -> Reply:
        """Ask a model and wait for its whole answer: the way in for what is no `/v1` face.

        `chat` is the conversation: `Chat((Message("user", (Text("…"), Picture(url="…"))),), system="…")`, or
        `Picture(media_type="image/png", data=base64)` where a picture has no address. `model` is a name as in
        `/v1/models`, or empty for the default. The caller is charged as on `/v1` and sees the call in his
        log under `request_id`, which must be new. Of the reply, `answer.text` is what was said,
        `answer.calls` the tools that were asked for, `cost` the micro-dollars charged, `usage` the tokens,
        `target` who served (`NAME/model`). Raises what `whole` raises, and `EngineUnavailable` with the way
        out where no model server is known.
        """
        ask = self._plain(principal, request_id, chat, model, face)
        return await self.whole(ask, limits.payer_of(principal))

    async def converse(
        self, principal: Principal, request_id: str, chat: Chat, model: str = "", face: str = "service"
    ) -> Flow:
        """The same as it comes: `flow.events()` gives `Said`, `Calling`, … as they come, and then `Ended`."""
        ask = self._plain(principal, request_id, chat, model, face)
        return await self.flow(replace(ask, stream=True), limits.payer_of(principal))

    def _plain(self, principal: Principal, request_id: str, chat: Chat, model: str, face: str) -> Ask:
        return Ask(
            account_id=principal.account_id,
            request_id=request_id,
            face=face,
            wire="",
            model=model or "default",
            body=b"",
            parse=lambda: chat,
            max_tokens=chat.max_tokens,
            tpm=principal.scope.tpm,
            key_id=principal.key_id,
        )

    async def count(self, ask: Ask) -> int:
        """How many tokens of input a request has, by its server's count or else an estimate; free."""
        for target in self.router.resolve(ask.model):
            wire = target.upstream.wire(ask.wire)
            if wire.name != ask.wire or ask.wire != "messages":
                continue
            body = wire.pass_on(ask.body, target.model)
            try:
                async with asyncio.timeout(self.policy.timeout_seconds):
                    stream = await target.upstream.open(wire, f"{wire.path}/count_tokens", body, ask.headers)
                    answer = await _whole_body(stream)
            except (Broken, TimeoutError):
                continue
            if stream.status in _REFUSED and stream.status != 404:
                message, param = wire.refusal(answer)
                raise errors.UpstreamRefused(message, status=stream.status, param=param)
            found = _COUNTED.search(answer)
            if stream.status == 200 and found is not None:
                return int(found[1])
        return chats.estimate(ask.parse())

    async def sweep(self, *, alone: bool) -> None:
        """Free what calls of servers that are gone still hold, and forget old calls."""
        moment = await self._database.read(now())
        before = moment - int(self.policy.call_seconds * 1_000_000) - requestlog.CALL_US
        await self._database.write(requestlog.sweep(self.boot, before, alone=alone))
        if self.policy.log_days:
            old = moment - self.policy.log_days * DAY_US
            await self._database.write(requestlog.forget(old), durable=False)

    async def drain(self) -> None:
        """Wait until the money of every call that has ended is booked."""
        await asyncio.gather(*self._settling, return_exceptions=True)

    # -- before a server is asked ------------------------------------------------------------------

    async def _begin(self, ask: Ask, payer: Payer | None) -> _Asked:
        plan = self._plan(ask)
        if ask.tpm is not None and ask.key_id is not None:
            self._limiter.spend(ask.key_id, ask.tpm, plan.input_tokens)
        call = Call(
            id=ask.request_id,
            account_id=ask.account_id,
            key_id=ask.key_id,
            face=ask.face,
            model=ask.model[:200],
            target=plan.targets[0][0].name,
            streamed=ask.stream,
            held=plan.held,
        )
        if self.policy.log_bodies:
            call.request = ask.body[:_KEPT_CHARS].decode("utf-8", "replace")
        if plan.held:
            # Only what is acknowledged is durable: with the machine's power the call is lost, and its hold.
            await self._database.write(requestlog.begin(call, self.boot, payer), durable=False)
        return _Asked(ask, plan, call, time.perf_counter())

    def _plan(self, ask: Ask) -> _Plan:
        targets = self.router.resolve(ask.model)
        priced = [(target, self._rates(target)) for target in targets]
        allowed = tuple((target, rates) for target, rates in priced if rates is not None)
        if not allowed:
            raise errors.UnpricedModel(
                f"{targets[0].name} has no price: an operator can set one in "
                f'[gateway.prices."{targets[0].name}"], or allow_unpriced'
            )
        expected = _estimate(ask)
        most = Usage(expected, ask.max_tokens or self.policy.max_tokens)
        return _Plan(allowed, expected, max(rates.cost(most) for _, rates in allowed))

    def _rates(self, target: Target) -> Rates | None:
        """A target's price: the operator's, nothing for what runs here, the bundled one; else None."""
        upstream, model = target.upstream, target.model
        if upstream.local:
            return self._prices.own(upstream.name, model) or FREE
        return self._prices.find(upstream.name, model) or (FREE if self.policy.allow_unpriced else None)

    # -- asking ------------------------------------------------------------------------------------

    async def _answered(self, asked: _Asked) -> tuple[_Opened, Reply]:
        opened = await self._open(asked, _whole_body)
        wire, body = opened.wire, opened.first
        try:
            if wire.name == asked.ask.wire:
                usage, chars = wire.usage(body)
                answer = None
            else:
                answer = wire.read(body, asked.conversation())
                usage, chars = answer.usage if answer.usage.reported else None, len(answer.text)
        except ValueError as error:
            self._health.failed(opened.target.name)
            raise errors.EngineFailed("The model server gave an answer that cannot be read") from error
        if usage is None:
            usage = Usage(asked.plan.input_tokens, chats.tokens_of(chars), reported=False)
        cost = min(opened.rates.cost(usage), asked.plan.held)
        raw = body if answer is None else None
        if self.policy.log_bodies:
            asked.call.response = body[:_KEPT_CHARS].decode("utf-8", "replace")
        return opened, Reply(opened.target.name, opened.target.model, usage, cost, raw, answer)

    async def _open(self, asked: _Asked, take: Any) -> _Opened:
        """The first answer that begins well, of the servers in turn."""
        failure = _Failure(
            errors.EngineFailed("Every model server of this name is out of order; try again soon")
        )
        for target, rates in asked.plan.targets:
            for attempt in range(1 + self.policy.retries):
                if not self._health.allows(target.name) or (attempt and not self._health.may_retry()):
                    break
                asked.call.attempts += 1
                got = await self._attempt(asked, target, rates, take)
                if isinstance(got, _Opened):
                    return got
                failure = got
                if failure.final:
                    raise failure.error
                if not failure.again or attempt == self.policy.retries:
                    break
                pause = min(_LONGEST_PAUSE, 0.1 * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311 - jitter
                if failure.after is not None and failure.after > _LONGEST_PAUSE:
                    break
                await asyncio.sleep(failure.after if failure.after is not None else pause)
        raise failure.error

    async def _attempt(self, asked: _Asked, target: Target, rates: Rates, take: Any) -> _Opened | _Failure:
        ask, name = asked.ask, target.name
        wire = target.upstream.wire(ask.wire)
        if wire.name == ask.wire:
            body = wire.pass_on(ask.body, target.model)
        else:
            try:
                body = wire.ask(asked.conversation(), target.model, stream=ask.stream)
            except errors.SixfoldError:
                self._health.untried(name)
                raise
        began = time.perf_counter()
        stream: Stream | None = None
        try:
            async with asyncio.timeout(self.policy.timeout_seconds):
                stream = await target.upstream.open(wire, wire.path, body, ask.headers)
                if stream.status >= 300:
                    return await self._understood(stream, wire, name)
                first = await take(stream)
        except (Broken, TimeoutError) as error:
            if stream is not None:
                await stream.aclose()
            self._health.failed(name)
            said = str(error) or "did not answer in time"
            return _Failure(errors.EngineFailed(f"The model server {said}"), again=isinstance(error, Broken))
        except BaseException:
            if stream is not None:
                await stream.aclose()
            self._health.untried(name)
            raise
        seconds = time.perf_counter() - began
        self._health.succeeded(name, seconds)
        asked.call.target = name
        asked.call.first_us = int((time.perf_counter() - asked.began) * 1_000_000)
        return _Opened(target, rates, wire, stream, first)

    async def _understood(self, stream: Stream, wire: Wire, name: str) -> _Failure:
        """What an answer of failure means."""
        status, after = stream.status, _seconds(stream.retry_after)
        try:
            message, param = wire.refusal(await stream.whole())
        finally:
            await stream.aclose()
        if status in _REFUSED:
            self._health.untried(name)
            error = errors.UpstreamRefused(message, status=status, param=param)
            return _Failure(error, final=status != 404)
        self._health.failed(name)
        if status == 429:
            busy = errors.TooManyRequests("The model server is busy", retry_after=max(1, int(after or 1)))
            return _Failure(busy, again=True, after=after)
        if status in _OURS:
            _LOG.warning("%s does not take this server's key: %d", name, status)
            return _Failure(errors.EngineFailed("The model server does not take this server's key"))
        return _Failure(
            errors.EngineFailed("The model server failed"), again=status in _REPEATED, after=after
        )

    # -- money -------------------------------------------------------------------------------------

    async def _settle(self, asked: _Asked, opened: _Opened | None, ending: Ending) -> None:
        """Book how a call ended; what a broken store keeps from that, the next sweep does."""
        call, ask = asked.call, asked.ask
        call.total_us = int((time.perf_counter() - asked.began) * 1_000_000)
        self._count(call, ending)
        if ask.tpm is not None and ask.key_id is not None:
            self._limiter.add(ask.key_id, ask.tpm, ending.usage.output)
        if call.held:
            await self._database.write(requestlog.finish(call, ending))
        else:
            await self._database.write(requestlog.insert(call, ending, self.boot), durable=False)

    def _count(self, call: Call, ending: Ending) -> None:
        counts, target = self.counts, call.target
        key = (target, ending.state)
        counts.calls[key] = counts.calls.get(key, 0) + 1
        for kind, tokens in (("input", ending.usage.input), ("output", ending.usage.output)):
            counts.tokens[target, kind] = counts.tokens.get((target, kind), 0) + tokens
        counts.spent[target] = counts.spent.get(target, 0) + ending.cost

    async def _log_hit(self, ask: Ask, kept: Reply) -> None:
        call = Call(
            ask.request_id, ask.account_id, ask.key_id, ask.face, ask.model[:200], kept.target, streamed=False
        )
        ending = Ending("succeeded", kept.usage, counted_by="cache")
        await self._database.write(requestlog.insert(call, ending, self.boot), durable=False)

    async def _shielded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` to its end, even when whoever waits for it goes away."""
        task = asyncio.ensure_future(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        await asyncio.shield(task)

    async def end(self, asked: _Asked, opened: _Opened, scan: Scan, ending: tuple[str, str]) -> None:
        """End a flow: `ending` is its state and its error."""
        state, error = ending
        await opened.stream.aclose()
        if state == "failed":
            self._health.failed(opened.target.name)
            await self._shielded(self._settle(asked, opened, Ending("failed", error=error)))
            return
        usage = _used(asked, scan, whole=state == "succeeded")
        cost = min(opened.rates.cost(usage), asked.plan.held)
        done = Ending(state, usage, cost, counted_by=_counted_by(usage))
        await self._shielded(self._settle(asked, opened, done))


class Flow:
    """An answer as it comes. Read it to its end, or close the iterator: that is when its money is booked."""

    def __init__(self, relay: Relay, asked: _Asked, opened: _Opened) -> None:
        self.target = opened.target.name
        self.raw = opened.wire.name == asked.ask.wire
        self._relay = relay
        self._asked = asked
        self._opened = opened

    async def blocks(self) -> AsyncGenerator[bytes]:
        """The server's own bytes, for a flow that is `raw`; raises `EngineFailed` when it fails midway."""
        scan = self._opened.wire.scan()
        keep_usage = self._asked.ask.keep_usage
        ending = ("left", "")
        try:
            async for block in self._read():
                passed = scan.pass_on(block, keep_usage=keep_usage)
                if passed:
                    yield passed
            rest = scan.pass_on(b"", keep_usage=keep_usage)
            if rest:
                yield rest
            ending = _verdict(scan)
        except Broken as error:
            ending = ("failed", f"The model server {error}")
        finally:
            await self._relay.end(self._asked, self._opened, scan, ending)
        if ending[0] == "failed":
            raise errors.EngineFailed(ending[1])

    async def events(self) -> AsyncGenerator[Event]:
        """What is said, in no dialect; for a flow that is not `raw`."""
        listener = self._opened.wire.listen(self._asked.conversation())
        ending = ("left", "")
        try:
            async for block in self._read():
                for event in listener.events(block):
                    yield event
            ending = _verdict(listener)
            if ending[0] == "succeeded":
                usage = _used(self._asked, listener, whole=True)
                ended = listener.end()
                yield replace(ended, usage=usage) if isinstance(ended, chats.Ended) else ended
        except Broken as error:
            ending = ("failed", f"The model server {error}")
        finally:
            await self._relay.end(self._asked, self._opened, listener, ending)
        if ending[0] == "failed":
            raise errors.EngineFailed(ending[1])

    async def abandon(self) -> None:
        """For a flow that nobody will read: its caller left before it began."""
        await self._relay.end(
            self._asked, self._opened, self._opened.wire.scan(), ("failed", "Nobody waited")
        )

    async def _read(self) -> AsyncGenerator[bytes]:
        stream, last = self._opened.stream, self._asked.began + self._relay.policy.call_seconds
        block = self._opened.first
        while block:
            yield block
            if time.perf_counter() > last:
                raise Broken("took too long")
            block = await stream.read()


async def _first_block(stream: Stream) -> bytes:
    block = await stream.read()
    if not block:
        raise Broken("gave an empty answer")
    return block


async def _whole_body(stream: Stream) -> bytes:
    try:
        return await stream.whole()
    finally:
        await stream.aclose()


def _verdict(scan: Scan) -> tuple[str, str]:
    if scan.error:
        return "failed", scan.error
    return ("succeeded", "") if scan.complete else ("failed", "The model server broke off its answer")


def _used(asked: _Asked, scan: Scan, *, whole: bool) -> Usage:
    """What a flow used, as its server says, else as much as was delivered, by estimate."""
    told = scan.usage
    if whole and told is not None:
        return told
    delivered = chats.tokens_of(scan.chars)
    if told is not None and told.input:
        return replace(told, output=delivered, reported=False)
    return Usage(asked.plan.input_tokens, delivered, reported=False)


def _counted_by(usage: Usage) -> str:
    return "server" if usage.reported else "estimate"


def _estimate(ask: Ask) -> int:
    """About how many tokens of input; what is base64 counts as a picture."""
    body = ask.body
    if not body:
        return chats.estimate(ask.parse())
    size, pictures = len(body), 0
    if size > 1024:
        for found in _BASE64.finditer(body):
            size -= found.end() - found.start()
            pictures += 1
    return chats.tokens_of(size) + 1500 * pictures


def _seconds(text: str) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def _told(error: BaseException) -> str:
    return error.message if isinstance(error, errors.SixfoldError) else type(error).__name__
