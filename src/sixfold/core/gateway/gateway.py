"""Chat gateway: price and hold a request, try servers in order, return the response, charge for it.

A complete response is charged by the usage that the server reports. If the caller disconnects, only what was
delivered is charged. A call whose servers all fail costs nothing. A stream is passed on without buffering
beyond the current event.
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
_MOST_TOKENS = 1_000_000_000
_KEPT_CHARS = 100_000
# Health and discovery changes take effect within this time.
_KNOWN_SECONDS = 0.25
_MAX_KNOWN = 1024


class GatewayReply(msgspec.Struct, frozen=True):
    """A complete response: `raw` if the server speaks the caller's protocol, else `answer`.

    The lines of `charge` add up to `cost` (micro-dollars).
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
    """Counters for Prometheus: calls by server and state, tokens by server and kind, micro-dollars by
    server.
    """

    calls: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    tokens: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    charged: dict[str, int] = field(default_factory=dict[str, int])


class Gateway:
    """Calls model servers for accounts. Each server process has one."""

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
        # Called once for every call that has ended.
        self.watch: Callable[[CallRecord, CallOutcome], None] | None = None
        self._billing = BillingBatcher(database, trusting=True)
        self._database = database
        self.health = attempts.health
        self._attempts = attempts
        self._prices = prices
        self._limiter = limiter
        self._known: dict[
            tuple[str, str | None], tuple[float, tuple[tuple[RouteTarget, TokenRates], ...]]
        ] = {}
        # Server processes that were missing at the last sweep; None before the first one.
        self._suspects: frozenset[str] | None = None
        self._cache: ResponseCache[GatewayReply] | None = None
        if policy.cache:
            self._cache = ResponseCache(policy.cache_bytes, policy.cache_seconds, time.monotonic)

    @property
    def boot(self) -> str:
        """Id of this server process, stored with its calls."""
        return self._billing.holder

    @boot.setter
    def boot(self, name: str) -> None:
        self._billing.holder = name

    def reconfigure(self, policy: GatewayPolicy, prices: PriceBook) -> None:
        """Apply another policy and other prices; calls in flight keep their prices."""
        self.policy, self._prices = policy, prices
        self._attempts.reconfigure(policy)
        self._known.clear()

    async def complete(self, ask: GatewayRequest, payer: Payer | None = None) -> GatewayReply:
        """Return the complete response after it has been charged.

        Raises `Forbidden`, `UnknownModel`, `UnpricedModel`, `TooManyRequests`, `InsufficientCredits`,
        `UpstreamRefused` if the server rejects the request, and `EngineFailed` if every server failed. After
        an error nothing is charged.
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
        """Return the cost that an earlier request with this Idempotency-Key has paid, or None if it has
        not.
        """
        asked = gateway_idempotency.paid_before(scope, call_id)
        return await self._database.write(asked, durable=False)

    async def stream(self, ask: GatewayRequest, payer: Payer | None = None) -> ResponseStream:
        """Return a response whose first bytes have arrived; raises what `complete` raises."""
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
        """Run a chat completion for internal callers (all but the `/v1` endpoints) and return the full reply.

        `chat` is for example `ChatRequest((ChatMessage("user", (TextPart("…"), ImagePart(url="…"))),),
        system="…")`; `ImagePart(media_type="image/png", data=base64)` is an image without a URL. `model` is a
        name from `/v1/models`, or empty for the default. The caller is charged as on `/v1` and sees the call
        in the log under `request_id`, which must be new.

        In the reply, `answer.text` is the text, `answer.calls` are the tool calls, `cost` is in micro-dollars
        and `target` is the `NAME/model` that served the request. Raises what `complete` raises, and
        `EngineUnavailable` with instructions if no model server is known.
        """
        ask = replace(self._plain(principal, request_id, chat, model, face), services=services)
        return await self.complete(ask, limits.payer_of(principal))

    async def complete_prepaid(
        self, account_id: str, request_id: str, chat: ChatRequest, model: str, held: int = 0
    ) -> GatewayReply:
        """Run a chat completion that its prediction pays for: the call is logged, but not charged here.

        The prediction owes the `cost` of the reply, which is at most what it has `held`.
        """
        ask = self._plain(Principal(account_id, "", ""), request_id, chat, model, "hosting")
        return await self.complete(replace(ask, held=held))

    def max_cost(self, chat: ChatRequest, model: str) -> int:
        """Return the maximum cost of a response in micro-dollars; raises what `complete` raises for the
        model.
        """
        ask = self._plain(Principal("", "", ""), "", chat, model, "")
        return self._plan(ask, _estimate(ask)).held

    async def check_rate_limit(self, principal: Principal, chat: ChatRequest) -> None:
        """Count a later request against the key's tokens per minute; raises `TooManyRequests`."""
        tpm = principal.scope.tpm
        if tpm is not None and principal.key_id is not None:
            tokens = chats.estimate(chat) + (chat.max_tokens or 0)
            await self._limiter.spend(principal.key_id, tpm, tokens)

    async def stream_chat(
        self, principal: Principal, request_id: str, chat: ChatRequest, model: str = "", face: str = "service"
    ) -> ResponseStream:
        """Stream a chat completion for internal callers; see `complete_chat`.

        The stream's `events()` yields `TextDelta`, `ToolCallStart` and so on, and finally `MessageEnd`.
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
        """Return the input tokens of a request, counted by its server or estimated; free of charge."""
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
        """Release the holds of calls whose server process is gone, and delete old log rows."""
        moment = await self._database.read(now())
        before = moment - int(self.policy.call_seconds * 1_000_000) - request_log.CALL_US
        sweeping = request_log.sweep(self.boot, before, self._suspects)
        self._suspects = await self._database.write(sweeping)
        await self._database.write(gateway_idempotency.sweep(), durable=False)
        if self.policy.log_days:
            old = moment - self.policy.log_days * DAY_US
            await self._database.write(request_log.forget(old), durable=False)

    async def drain(self) -> None:
        """Wait until every call that has ended is booked."""
        await self._billing.flush()

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
        """Return the targets of a model name with their rates, cached briefly while all targets are
        healthy.
        """
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
            # Callers may send any number of different names.
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[name] = moment + _KNOWN_SECONDS, allowed
        return allowed

    def _rates(self, target: RouteTarget) -> TokenRates | None:
        """Return the operator's rates, zero for local servers, else the bundled rates; None if there are
        none.
        """
        upstream, model = target.upstream, target.model
        if upstream.local:
            return self._prices.local(upstream.name, model)
        return self._prices.find(upstream.name, model) or (FREE if self.policy.allow_unpriced else None)

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

    async def _stand(self, asked: ActiveCall, opened: UpstreamResponse) -> None:
        """Wait for the hold: no part of a response may be passed on before it is written."""
        try:
            await self._billing.ensure_held(asked.call)
        except BaseException:
            await opened.stream.aclose()
            raise

    async def _settle(self, asked: ActiveCall, ending: CallOutcome) -> None:
        """Book the outcome of a call. If the database fails, `sweep` releases the hold later."""
        call, ask = asked.call, asked.ask
        call.total_us = int((time.perf_counter() - asked.began) * 1_000_000)
        booked = self._billing.settle(call, ending)
        try:
            if ask.tpm is not None and ask.key_id is not None:
                await self._limiter.add(ask.key_id, ask.tpm, ending.usage.output)
            await booked
        except (errors.InsufficientCredits, errors.BudgetExceeded) as error:
            # The hold of this call was deferred, and the ledger has refused it now.
            ending = CallOutcome("failed", error=error.message)
            raise
        finally:
            self._count(call, ending)
            if self.watch is not None:
                self.watch(call, ending)

    def _count(self, call: CallRecord, ending: CallOutcome) -> None:
        # Callers choose the model's name, so only the server's becomes a label.
        counts, server = self.counts, call.target.partition("/")[0]
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
        """Book the end of a stream; a stream without usage failed."""
        if usage is None:
            self.health.failed(opened.target.name)
            ending = CallOutcome(state, error=error)
        else:
            ending = _ending(state, usage, charges.of(opened.rates.lines(usage), asked.plan.held))
        await self._settle(asked, ending)


def _permit(ask: GatewayRequest) -> None:
    """Raise `Forbidden` if the key's limit on services covers neither the model nor `services`.

    Raises `InsufficientCredits` for an account with a negative balance, even if the model is free.
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
    """Estimate the input tokens; a base64 run counts as one image."""
    body = ask.body
    if not body:
        return chats.estimate(ask.parse())
    size, pictures = len(body), 0
    # Whether an image continues in the next slice.
    goes_on = False
    # The regular expression holds the interpreter's lock, so other threads run between two slices.
    for start in range(0, len(body), _SLICE_BYTES):
        piece = body[start : start + _SLICE_BYTES]
        went_on, goes_on = goes_on, False
        for found in _BASE64.finditer(piece):
            size -= found.end() - found.start()
            pictures += not (went_on and found.start() == 0)
            goes_on = found.end() == len(piece)
    return chats.tokens_of(size) + 1500 * pictures


def _size(ask: GatewayRequest, reply: GatewayReply) -> int:
    """Estimate the bytes of memory that a cached reply takes."""
    said = reply.raw or b"" if reply.answer is None else repr(reply.answer.parts)
    return len(said) + len(ask.body) + 1024


def _error_text(error: BaseException) -> str:
    return error.message if isinstance(error, errors.SixfoldError) else type(error).__name__
