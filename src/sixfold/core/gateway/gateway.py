"""The relay: a request is priced and held, asked of one server after another, passed on and captured.

Whatever ends it ends its money, too: a whole answer is charged by what the server says it used; of an answer
whose caller left, what was delivered; a server that fails is free. Nothing of a stream is kept back longer
than the event that it is a part of.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.accounts import charges, limits
from sixfold.core.accounts.charges import CostBreakdown
from sixfold.core.accounts.keys import Principal, covers, shown
from sixfold.core.accounts.limits import Payer
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, now
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway import request_log
from sixfold.core.gateway.attempts import (
    LOOP_BYTES,
    REFUSED,
    ActiveCall,
    FailoverClient,
    RoutePlan,
    UpstreamResponse,
    read_first_chunk,
    read_full_body,
)
from sixfold.core.gateway.billing import BillingBatcher
from sixfold.core.gateway.cache import ResponseCache
from sixfold.core.gateway.chat import ChatRequest, ChatResponse
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.core.gateway.ports import GatewayRequest, UpstreamFailure
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.routing import ModelRouter, RouteTarget
from sixfold.core.gateway.usage import FREE, PriceBook, TokenRates, TokenUsage, merge_usage

_COUNTED = re.compile(rb'"input_tokens":\s*(\d{1,12})')
_SLICE_BYTES = 256 * 1024
_BASE64 = re.compile(rb"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1024,}={0,2}")
_MOST_TOKENS = 1_000_000_000  # of output that a call may ask for, and be reckoned with
_KEPT_CHARS = 100_000  # of a body that the log keeps
_KNOWN_SECONDS = 0.25  # that whom a name leads to is believed: a server's news take no longer
_MAX_KNOWN = 1024


class GatewayReply(msgspec.Struct, frozen=True):
    """A whole answer: `raw` as the server gave it where it speaks the caller's dialect, else `answer`.

    `charge` has the lines that add up to `cost`.
    """

    target: str
    model: str
    usage: TokenUsage
    cost: int
    charge: CostBreakdown
    raw: bytes | None = None
    answer: ChatResponse | None = None
    cached: bool = False
    list_price: int | None = None


@dataclass
class TokenCounts:
    """What Prometheus is told: calls by server and ending, tokens by server and kind, micro-dollars."""

    calls: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    tokens: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    charged: dict[str, int] = field(default_factory=dict[str, int])


class Gateway:
    """Calls model servers for accounts; one for each running server."""

    def __init__(
        self,
        database: Database,
        router: ModelRouter,
        attempts: FailoverClient,
        prices: PriceBook,
        policy: GatewayPolicy,
        limiter: limits.RateLimits,
    ) -> None:
        self.policy = policy
        self.router = router
        self.counts = TokenCounts()
        self.watch: Callable[[CallRecord, CallOutcome], None] | None = (
            None  # is told of every call that has ended
        )
        self._billing = BillingBatcher(database, trusting=True)
        self._database = database
        self.health = attempts.health
        self._attempts = attempts
        self._prices = prices
        self._limiter = limiter
        self._known: dict[
            tuple[str, str | None], tuple[float, tuple[tuple[RouteTarget, TokenRates], ...]]
        ] = {}
        self._suspects: frozenset[str] | None = None  # servers that were gone at the last look
        self._cache: ResponseCache[GatewayReply] | None = None
        if policy.cache:
            self._cache = ResponseCache(policy.cache_bytes, policy.cache_seconds, time.monotonic)

    @property
    def boot(self) -> str:
        """The name of the running server, by which its calls are known."""
        return self._billing.holder

    @boot.setter
    def boot(self, name: str) -> None:
        self._billing.holder = name

    def reconfigure(self, policy: GatewayPolicy, prices: PriceBook) -> None:
        """Call by another policy and other prices from now on; calls in flight keep what they were quoted."""
        self.policy, self._prices = policy, prices
        self._attempts.reconfigure(policy)
        self._known.clear()

    # -- what is asked -----------------------------------------------------------------------------

    async def complete(self, ask: GatewayRequest, payer: Payer | None = None) -> GatewayReply:
        """One answer, once it is whole and paid.

        Raises `Forbidden`, `UnknownModel`, `UnpricedModel`, `TooManyRequests`, `InsufficientCredits`,
        `UpstreamRefused` for what the server finds wrong with the request, `EngineFailed` when every server
        failed; nothing is charged then.
        """
        _permit(ask)
        kept = self._cache.get(ask) if self._cache is not None else None
        if kept is not None:
            free = charges.of(FREE.lines(kept.usage))
            await self._log_hit(ask, kept, free)
            return replace(kept, cost=0, charge=free, list_price=None, cached=True)
        asked = await self._begin(ask, payer)
        try:
            reply = await self._complete(asked)
        except BaseException as error:
            await self._settle(asked, CallOutcome("failed", error=_error_text(error)))
            raise
        await self._settle(asked, _ending("succeeded", reply.usage, reply.charge))
        if self._cache is not None:
            self._cache.put(ask, reply, _size(ask, reply))
        return reply

    async def paid_before(self, scope: str, call_id: str) -> int | None:
        """What a request with this Idempotency-Key has cost already, where nobody heard its answer."""
        asked = gateway_idempotency.paid_before(scope, call_id)
        return await self._database.write(asked, durable=False)

    async def stream(self, ask: GatewayRequest, payer: Payer | None = None) -> ResponseStream:
        """An answer that has begun: its first bytes are there. Raises what `whole` raises."""
        _permit(ask)
        asked = await self._begin(ask, payer)
        try:
            opened = await self._attempts.open(asked, read_first_chunk)
            await self._stand(asked, opened)
        except BaseException as error:
            await self._settle(asked, CallOutcome("failed", error=_error_text(error)))
            raise
        return ResponseStream(asked, opened, self.policy.call_seconds, self._end)

    async def complete_chat(
        self,
        principal: Principal,
        request_id: str,
        chat: ChatRequest,
        model: str = "",
        face: str = "service",
        services: tuple[str, ...] = (),
    ) -> GatewayReply:
        """Ask a model and wait for its whole answer: the way in for what is no `/v1` face.

        `chat` is the conversation: `ChatRequest((Message("user", (Text("…"), Picture(url="…"))),),
        system="…")`, or
        `ImagePart(media_type="image/png", data=base64)` where a picture has no address. `model` is a name as
        in
        `/v1/models`, or empty for the default. The caller is charged as on `/v1` and sees the call in its
        log under `request_id`, which must be new. Of the reply, `answer.text` is what was said,
        `answer.calls` the tools that were asked for, `cost` the micro-dollars charged, `usage` the tokens,
        `target` who served (`NAME/model`). Raises what `whole` raises, and `EngineUnavailable` with the way
        out where no model server is known.
        """
        ask = replace(self._plain(principal, request_id, chat, model, face), services=services)
        return await self.complete(ask, limits.payer_of(principal))

    async def complete_prepaid(
        self, account_id: str, request_id: str, chat: ChatRequest, model: str, held: int = 0
    ) -> GatewayReply:
        """The same for a run: nothing is charged here, and the call is logged.

        Its `cost` is what the run owes for it: no more than the run has `held` for it.
        """
        ask = self._plain(Principal(account_id, "", ""), request_id, chat, model, "hosting")
        return await self.complete(replace(ask, held=held))

    def max_cost(self, chat: ChatRequest, model: str) -> int:
        """What an answer can cost at most, in micro-dollars; raises what `complete` does of its model."""
        ask = self._plain(Principal("", "", ""), "", chat, model, "")
        return self._plan(ask, _estimate(ask)).held

    async def check_rate_limit(self, principal: Principal, chat: ChatRequest) -> None:
        """Count what will be asked later against a key's tokens a minute; raises `TooManyRequests`."""
        tpm = principal.scope.tpm
        if tpm is not None and principal.key_id is not None:
            tokens = chats.estimate(chat) + (chat.max_tokens or 0)
            await self._limiter.spend(principal.key_id, tpm, tokens)

    async def stream_chat(
        self, principal: Principal, request_id: str, chat: ChatRequest, model: str = "", face: str = "service"
    ) -> ResponseStream:
        """The same as it comes: `flow.events()` gives `TextDelta`, `ToolCallStart`, … as they come, and then
        `MessageEnd`.
        """
        ask = self._plain(principal, request_id, chat, model, face)
        return await self.stream(replace(ask, stream=True), limits.payer_of(principal))

    def _plain(
        self, principal: Principal, request_id: str, chat: ChatRequest, model: str, face: str
    ) -> GatewayRequest:
        return GatewayRequest(
            account_id=principal.account_id,
            request_id=request_id,
            face=face,
            wire="",
            model=model or "default",
            body=b"",
            parse=lambda: chat,
            max_tokens=chat.max_tokens,
            limited_to=principal.scope.services,
            below_zero=principal.below_zero,
            tpm=principal.scope.tpm,
            key_id=principal.key_id,
            credential_id=principal.credential_id,
        )

    async def count_tokens(self, ask: GatewayRequest) -> int:
        """How many tokens of input a request has, by its server's count or else an estimate; free."""
        _permit(ask)
        for target in self.router.resolve(ask.model):
            wire = target.upstream.wire(ask.wire)
            if wire.name != ask.wire or ask.wire != "messages":
                continue
            body = await self._attempts.inline_media(ask, target, wire, wire.pass_on(ask.body, target.model))
            try:
                async with asyncio.timeout(self.policy.timeout_seconds):
                    stream = await target.upstream.open(
                        wire, f"{wire.path}/count_tokens", body, ask.headers, stream=False
                    )
                    answer = await stream.whole()
                    await stream.aclose()
            except (UpstreamFailure, TimeoutError):
                continue
            if stream.status in REFUSED and stream.status != 404:
                raise wire.refusal(answer).error(stream.status)
            found = _COUNTED.search(answer)
            if stream.status == 200 and found is not None:
                return int(found[1])
        return chats.estimate(ask.parse())

    async def sweep(self) -> None:
        """Free what calls of servers that are gone still hold, and forget old calls."""
        moment = await self._database.read(now())
        before = moment - int(self.policy.call_seconds * 1_000_000) - request_log.CALL_US
        sweeping = request_log.sweep(self.boot, before, self._suspects)
        self._suspects = await self._database.write(sweeping)
        await self._database.write(gateway_idempotency.sweep(), durable=False)
        if self.policy.log_days:
            old = moment - self.policy.log_days * DAY_US
            await self._database.write(request_log.forget(old), durable=False)

    async def drain(self) -> None:
        """Wait until the money of every call that has ended is booked."""
        await self._billing.flush()

    # -- before a server is asked ------------------------------------------------------------------

    async def _begin(self, ask: GatewayRequest, payer: Payer | None) -> ActiveCall:
        if not 0 <= (ask.max_tokens or 0) <= _MOST_TOKENS:
            raise errors.InvalidInput.of("max_tokens", f"max_tokens must be from 1 to {_MOST_TOKENS}")
        large = len(ask.body) > LOOP_BYTES and ask.most is None
        plan = self._plan(ask, await asyncio.to_thread(_estimate, ask) if large else _estimate(ask))
        if ask.tpm is not None and ask.key_id is not None:
            await self._limiter.spend(ask.key_id, ask.tpm, plan.input_tokens)
        call = CallRecord(
            id=ask.request_id,
            account_id=ask.account_id,
            key_id=ask.key_id,
            face=ask.face,
            model=ask.model[:200],
            target=plan.targets[0][0].name,
            streamed=ask.stream,
            held=plan.held if ask.held is None else 0,
        )
        if self.policy.log_bodies:
            call.request = ask.body[:_KEPT_CHARS].decode("utf-8", "replace")
        if call.held:
            await self._billing.hold(call, payer)
        return ActiveCall(ask, plan, call, time.perf_counter())

    def _plan(self, ask: GatewayRequest, estimate: int) -> RoutePlan:
        allowed = self._allowed(ask)
        expected = estimate + ask.recalled if ask.most is None else ask.most.input
        most = ask.most or TokenUsage(expected, ask.max_tokens or self.policy.max_tokens)
        held = max([rates.cost(most) for _, rates in allowed]) if ask.held is None else ask.held
        return RoutePlan(allowed, expected, held)

    def _allowed(self, ask: GatewayRequest) -> tuple[tuple[RouteTarget, TokenRates], ...]:
        """Whom a name leads to, each at its price; what was found is true for a moment while all are well."""
        name = ask.model, None if ask.most is None else ask.wire
        moment = time.monotonic()
        known = self._known.get(name)
        if known is not None and moment < known[0] and not self.health.out:
            return known[1]
        if ask.most is None:
            targets = self.router.for_chat(ask.model)
        else:
            targets = tuple(each for each in self.router.resolve(ask.model) if each.speaks(ask.wire))
        priced = [(target, self._rates(target)) for target in targets]
        allowed = tuple([(target, rates) for target, rates in priced if rates is not None])
        if not allowed:
            raise errors.UnpricedModel(
                f"{targets[0].name} has no price: an operator can set one in "
                f'[gateway.prices."{targets[0].name}"], or allow_unpriced'
            )
        if not self.router.draws(ask.model):
            if len(self._known) >= _MAX_KNOWN:  # whoever asks may make up names
                self._known.clear()
            self._known[name] = moment + _KNOWN_SECONDS, allowed
        return allowed

    def _rates(self, target: RouteTarget) -> TokenRates | None:
        """A target's price: the operator's, nothing for what runs here, the bundled one; else None."""
        upstream, model = target.upstream, target.model
        if upstream.local:
            return self._prices.local(upstream.name, model)
        return self._prices.find(upstream.name, model) or (FREE if self.policy.allow_unpriced else None)

    # -- asking ------------------------------------------------------------------------------------

    async def _complete(self, asked: ActiveCall) -> GatewayReply:
        opened = await self._attempts.open(asked, read_full_body)
        wire, body, (usage, chars) = opened.wire, opened.first, opened.told
        if asked.ask.most is not None:
            usage = merge_usage(usage, asked.ask.most)
        elif usage is None:
            usage = TokenUsage(asked.plan.input_tokens, chats.tokens_of(chars), reported=False)
        answer = None
        if wire.name != asked.ask.wire:
            try:
                found = wire.read(body, asked.conversation())
            except ValueError as error:
                raise errors.EngineFailed("The model server gave an answer that cannot be read") from error
            answer = ChatResponse(found.id, found.model, found.parts, found.stop, usage)
        charge = charges.of(opened.rates.lines(usage), asked.plan.held)
        raw = body if answer is None else None
        if self.policy.log_bodies:
            asked.call.response = body[:_KEPT_CHARS].decode("utf-8", "replace")
        listed = opened.rates.list_price(usage)
        target, cost = opened.target, charge.amount
        return GatewayReply(target.name, target.model, usage, cost, charge, raw, answer, list_price=listed)

    # -- money -------------------------------------------------------------------------------------

    async def _stand(self, asked: ActiveCall, opened: UpstreamResponse) -> None:
        """Nothing of an answer is passed on before its money is held."""
        try:
            await self._billing.ensure_held(asked.call)
        except BaseException:
            await opened.stream.aclose()
            raise

    async def _settle(self, asked: ActiveCall, ending: CallOutcome) -> None:
        """Book how a call ended, whoever still waits; what a broken store keeps from that the sweep does."""
        call, ask = asked.call, asked.ask
        call.total_us = int((time.perf_counter() - asked.began) * 1_000_000)
        booked = self._billing.settle(call, ending)
        try:
            if ask.tpm is not None and ask.key_id is not None:
                await self._limiter.add(ask.key_id, ask.tpm, ending.usage.output)
            await booked
        except (errors.InsufficientCredits, errors.BudgetExceeded) as error:  # of a call that was trusted
            ending = CallOutcome("failed", error=error.message)
            raise
        finally:
            self._count(call, ending)
            if self.watch is not None:
                self.watch(call, ending)

    def _count(self, call: CallRecord, ending: CallOutcome) -> None:
        counts, server = (
            self.counts,
            call.target.partition("/")[0],
        )  # a model's name is the caller's to choose
        key = (server, ending.state)
        counts.calls[key] = counts.calls.get(key, 0) + 1
        for kind, tokens in (("input", ending.usage.input), ("output", ending.usage.output)):
            counts.tokens[server, kind] = counts.tokens.get((server, kind), 0) + tokens
        counts.charged[server] = counts.charged.get(server, 0) + ending.cost

    async def _log_hit(self, ask: GatewayRequest, kept: GatewayReply, free: CostBreakdown) -> None:
        call = CallRecord(
            ask.request_id, ask.account_id, ask.key_id, ask.face, ask.model[:200], kept.target, streamed=False
        )
        ending = CallOutcome("succeeded", kept.usage, counted_by="cache", charge=charges.encode(free))
        await self._billing.settle(call, ending)

    async def _end(
        self, asked: ActiveCall, opened: UpstreamResponse, usage: TokenUsage | None, state: str, error: str
    ) -> None:
        """End a flow; without usage it failed."""
        if usage is None:
            self.health.failed(opened.target.name)
            ending = CallOutcome(state, error=error)
        else:
            ending = _ending(state, usage, charges.of(opened.rates.lines(usage), asked.plan.held))
        await self._settle(asked, ending)


def _permit(ask: GatewayRequest) -> None:
    """Raise `Forbidden` where a limit on services covers neither the model nor what it is asked for as.

    Raises `InsufficientCredits` for an account below zero, to which free models are closed as well.
    """
    if ask.below_zero:
        raise errors.InsufficientCredits
    allowed = ask.limited_to
    if allowed and ask.model not in allowed and not covers(allowed, ask.services):
        raise errors.Forbidden(f"This key may not use {ask.model[:100]}: it is limited to {shown(allowed)}")


def _ending(state: str, usage: TokenUsage, charge: CostBreakdown) -> CallOutcome:
    counted_by = "server" if usage.reported else "estimate"
    return CallOutcome(state, usage, charge.amount, counted_by=counted_by, charge=charges.encode(charge))


def _estimate(ask: GatewayRequest) -> int:
    """About how many tokens of input; what is base64 counts as a picture."""
    body = ask.body
    if not body:
        return chats.estimate(ask.parse())
    size, pictures = len(body), 0
    goes_on = False  # a picture, beyond the end of a slice
    for start in range(0, len(body), _SLICE_BYTES):  # other threads run between two slices
        piece = body[start : start + _SLICE_BYTES]
        went_on, goes_on = goes_on, False
        for found in _BASE64.finditer(piece):
            size -= found.end() - found.start()
            pictures += not (went_on and found.start() == 0)
            goes_on = found.end() == len(piece)
    return chats.tokens_of(size) + 1500 * pictures


def _size(ask: GatewayRequest, reply: GatewayReply) -> int:
    """About how many bytes of memory a kept answer takes."""
    said = reply.raw or b"" if reply.answer is None else repr(reply.answer.parts)
    return len(said) + len(ask.body) + 1024


def _error_text(error: BaseException) -> str:
    return error.message if isinstance(error, errors.SixfoldError) else type(error).__name__
