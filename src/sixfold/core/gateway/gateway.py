"""The chat gateway: prices and holds of requests, attempts at servers, responses and charges.

A complete response is charged according to the usage that the server reports, even if the caller has
disconnected while waiting for it. If the caller leaves a stream, the input and the delivered part of the
output are charged. A call is free if all servers fail. A stream is forwarded without buffering beyond the
current event.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable

from msgspec.structs import replace

from sixfold import errors
from sixfold.core.accounts import charges
from sixfold.core.accounts.charges import CostBreakdown
from sixfold.core.accounts.keys import Principal, covers, format_limit
from sixfold.core.accounts.limits import budgets, rate_limits
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.clock import DAY_US
from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.core.database import Database, now
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway import request_log
from sixfold.core.gateway.attempts import (
    COUNT_PATHS,
    REFUSED,
    ActiveCall,
    FailoverClient,
    RoutePlan,
    UpstreamResponse,
    parse_answer,
    read_first_chunk,
)
from sixfold.core.gateway.billing import BillingBatcher
from sixfold.core.gateway.cache import ResponseCache
from sixfold.core.gateway.chat import ChatRequest, ChatResponse
from sixfold.core.gateway.content_log.recorder import ContentRecorder
from sixfold.core.gateway.guardrails.service import GuardrailService
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest, PredictionPayment, UpstreamFailure
from sixfold.core.gateway.pricing.price_book import PriceBook
from sixfold.core.gateway.pricing.service_prices import ServicePrices
from sixfold.core.gateway.pricing.token_rates import FREE, TokenRates
from sixfold.core.gateway.pricing.usage import TokenUsage, merge_usage
from sixfold.core.gateway.request_log import CallOutcome, CallRecord, CallState, TokenCounts
from sixfold.core.gateway.requirements import output_limits
from sixfold.core.gateway.requirements.requirements import RequestNeeds, meeting
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.routing import ModelRouter, RouteTarget

_INPUT_TOKENS = re.compile(rb'"input_tokens":\s*(\d{1,12})')
_DELETE_SECONDS = 30.0
_MAX_OUTPUT_TOKENS, _MAX_LOG_CHARS = 1_000_000_000, 100_000
# Changes of health and discovery take effect within this time.
_ROUTE_CACHE_SECONDS, _MAX_CACHED_ROUTES = 0.25, 1024
_PAID_BEFORE = PredictionPayment()


class Gateway:
    """Calls model servers for accounts. Each server process has one gateway."""

    def __init__(
        self,
        database: Database,
        router: ModelRouter,
        attempts: FailoverClient,
        prices: PriceBook,
        policy: GatewayPolicy,
        limiter: rate_limits.RateLimits,
    ) -> None:
        self.policy = policy
        self.router = router
        self.counts = TokenCounts()
        self.service_prices = ServicePrices()
        # Called once for every call that has ended.
        self.on_call_end: Callable[[CallRecord, CallOutcome], None] | None = None
        self.guardrails: GuardrailService | None = None
        self.contents: ContentRecorder | None = None
        self._billing = BillingBatcher(database, defer_holds=True)
        # Refunds calls whose results are lost, also if the database fails now.
        self.refund = self._billing.refund
        self._database = database
        self.health = attempts.health
        self._attempts = attempts
        self._prices = prices
        self.token_rates = limiter
        self._route_cache: dict[
            tuple[str, str | None], tuple[float, tuple[tuple[RouteTarget, TokenRates], ...]]
        ] = {}
        # Server processes that were missing at the last sweep; None before the first one.
        self._missing_servers: frozenset[str] | None = None
        cache = ResponseCache(database, policy.cache_bytes, policy.cache_seconds, time.monotonic)
        self._cache = cache if policy.cache else None

    @property
    def boot(self) -> str:
        """The id of this server process, which is stored with its calls."""
        return self._billing.holder

    @boot.setter
    def boot(self, name: str) -> None:
        self._billing.holder = name

    def reconfigure(self, policy: GatewayPolicy, prices: PriceBook) -> None:
        """Apply a new policy and new prices; calls in progress keep their prices."""
        self.policy, self._prices = policy, prices
        self._attempts.reconfigure(policy)
        self._route_cache.clear()

    async def complete(self, request: GatewayRequest, payer: Payer | None = None) -> GatewayReply:
        """Return the complete response after it has been charged.

        Raises `Forbidden`, `UnknownModel`, `UnpricedModel`, `TooManyRequests`, `InsufficientCredits`,
        `UpstreamRefused` if the server rejects the request, and `EngineFailed` if every server failed. If an
        error is raised, nothing is charged.
        """
        guard = None if self.guardrails is None else self.guardrails.of(request)
        if guard is not None:
            request, reply = await guard.complete(request, payer, self._serve)
        else:
            reply = await self._serve(request, payer)
        if request.content_days and self.contents is not None:
            self.contents.record(request, reply)
        return reply

    async def _serve(self, request: GatewayRequest, payer: Payer | None) -> GatewayReply:
        _check_allowed(request)
        cached_reply = await self._cache.get(request) if self._cache is not None else None
        if cached_reply is not None:
            free_charge = charges.calculate(FREE.lines(cached_reply.usage))
            await self._log_cache_hit(request, cached_reply, free_charge)
            return replace(cached_reply, cost=0, charge=free_charge, list_price=None, cached=True)
        active = await self._begin(request, payer)
        try:
            reply = await self._complete(active)
        except BaseException as error:
            await self._settle(active, CallOutcome("failed", error=_error_text(error)))
            raise
        await self._settle(active, _outcome("succeeded", reply.usage, reply.charge))
        if self._cache is not None:
            self._cache.put(request, reply)
        return reply

    async def paid_before(self, once: str, call_id: str) -> int | None:
        """Return the amount paid by an earlier request with this `gateway_idempotency.once_id`, or None."""
        return await self._database.write(gateway_idempotency.paid_before(once, call_id), durable=False)

    async def stream(self, request: GatewayRequest, payer: Payer | None = None) -> ResponseStream:
        """Return a response whose first bytes have arrived. Raises the errors of `complete`."""
        guard = None if self.guardrails is None else self.guardrails.of(request)
        if guard is not None:
            request, stream = await guard.stream(request, payer, self._open)
        else:
            stream = await self._open(request, payer)
        if request.content_days and self.contents is not None:
            self.contents.follow(request, stream)
        return stream

    async def _open(self, request: GatewayRequest, payer: Payer | None) -> ResponseStream:
        _check_allowed(request)
        active = await self._begin(request, payer)
        try:
            response = await self._attempts.open(active, read_first_chunk)
            await self._ensure_held(active, response)
        except BaseException as error:
            await self._settle(active, CallOutcome("failed", error=_error_text(error)))
            raise
        return ResponseStream(active, response, self.policy.call_seconds, self._end)

    async def complete_chat(
        self,
        principal: Principal,
        request_id: str,
        chat: ChatRequest,
        model: str = "",
        endpoint: str = "service",
        services: tuple[str, ...] = (),
    ) -> GatewayReply:
        """Run a chat completion for internal callers (all but the `/v1` endpoints) and return the full reply.

        `chat` is for example `ChatRequest((ChatMessage("user", (TextPart("…"), ImagePart(url="…"))),),
        system="…")`; `ImagePart(media_type="image/png", data=base64)` is an image without a URL. `model` is a
        name from `/v1/models`, or empty for the default. The caller is charged as on `/v1`, and the log lists
        the call under `request_id`, which must be new.

        In the reply, `answer.text` is the text, `answer.calls` are the tool calls, `cost` is in micro-dollars
        and `target` is the `NAME/model` that served the request. Raises the errors of `complete`, and
        `EngineUnavailable` with instructions if model servers are not configured.
        """
        request = replace(self._chat_request(principal, request_id, chat, model, endpoint), services=services)
        return await self.complete(request, budgets.payer_of(principal))

    async def complete_prepaid(
        self,
        caller: Principal,
        request_id: str,
        chat: ChatRequest,
        model: str,
        payment: PredictionPayment = _PAID_BEFORE,
        services: tuple[str, ...] = (),
    ) -> GatewayReply:
        """Run a chat completion that is paid in advance or by its prediction, without a charge.

        The prediction must be charged the `cost` of the reply, which is at most its hold.
        """
        # The limit on models was checked when the prediction was accepted.
        caller = replace(caller, scope=replace(caller.scope, services=()))
        request = self._chat_request(caller, request_id, chat, model, "hosting")
        hold, prediction_id, unpaid = payment.hold, payment.prediction_id, payment.unpaid
        request = replace(request, prepaid_hold=hold, prediction_id=prediction_id, unpaid=unpaid)
        return await self.complete(replace(request, services=services))

    def max_cost(self, chat: ChatRequest, model: str, services: tuple[str, ...] = ()) -> int:
        """Return the maximum cost of a chat in micro-dollars; raises `UnknownModel` or `UnpricedModel`."""
        request = self._chat_request(Principal("", "", ""), "", chat, model, "")
        return self._plan(RequestNeeds(replace(request, services=services))).held

    async def stream_chat(
        self,
        principal: Principal,
        request_id: str,
        chat: ChatRequest,
        model: str = "",
        endpoint: str = "service",
        services: tuple[str, ...] = (),
    ) -> ResponseStream:
        """Stream a chat completion for internal callers; see `complete_chat`.

        The stream's `events()` yields `TextDelta`, `ToolCallStart` and other events, and finally
        `MessageEnd`.
        """
        request = self._chat_request(principal, request_id, chat, model, endpoint)
        request = replace(request, stream=True, services=services)
        return await self.stream(request, budgets.payer_of(principal))

    def _chat_request(
        self, principal: Principal, request_id: str, chat: ChatRequest, model: str, endpoint: str
    ) -> GatewayRequest:
        return GatewayRequest(
            caller=principal,
            request_id=request_id,
            endpoint=endpoint,
            wire="",
            model=model or "default",
            body=b"",
            parse=lambda: chat,
            max_tokens=chat.max_tokens,
            content_days=0 if principal.keyless else principal.content_days,
            chat_bytes=chats.content_bytes(chat),
        )

    def check(self, request: GatewayRequest) -> None:
        """Raise `UnknownModel`, `UnpricedModel` or `Forbidden` if the request cannot use its model."""
        _check_allowed(request)
        self._priced_targets(request)

    async def count_tokens(self, request: GatewayRequest) -> int:
        """Return the input tokens of a request, counted by its server or estimated; free of charge."""
        _check_allowed(request)
        if self.guardrails is not None:
            request = await self.guardrails.checked(request)
        for target in self.router.resolve(request.model):
            wire = target.upstream.wire(request.wire)
            if wire.name != request.wire or request.wire not in COUNT_PATHS:
                continue
            payload = await PARSER.run_large(request.size, wire.rewrite_request, request.body, target.model)
            payload = await self._attempts.inline_media(request, target, wire, payload)
            try:
                status, body = await self._attempts.count_tokens(target, wire, payload, request.headers)
            except (UpstreamFailure, TimeoutError):
                continue
            if status in REFUSED and status != 404:
                raise wire.parse_error(body).error(status)
            match = _INPUT_TOKENS.search(body)
            if status == 200 and match is not None:
                return int(match[1])
        return await PARSER.run_large(request.size, lambda: chats.estimate(request.parse()))

    async def delete_stored(self, server: str, path: str) -> None:
        """Delete an object that a server stores; raises `EngineFailed`.

        A server that no longer exists is skipped.
        """
        upstream = next((each for each in self.router.servers() if each.name == server), None)
        if upstream is None:
            return
        try:
            async with asyncio.timeout(_DELETE_SECONDS):
                status = await upstream.delete(path)
        except (UpstreamFailure, TimeoutError) as error:
            raise errors.EngineFailed(f"{server} could not be reached: nothing was deleted; retry") from error
        if status >= 300 and status != 404:
            raise errors.EngineFailed(
                f"{server} did not delete it (status {status}): nothing was deleted; retry"
            )

    async def sweep(self) -> None:
        """Release the holds of calls whose server process has ended, and delete old log rows."""
        current_time = await self._database.read(now(), snapshot=False)
        cutoff = current_time - int(self.policy.call_seconds * 1_000_000) - request_log.CALL_US
        active = frozenset(self._billing.active)
        transaction = request_log.sweep(self.boot, cutoff, self._missing_servers, active)
        self._missing_servers = await self._database.write(transaction)
        await self._database.write(gateway_idempotency.sweep(), durable=False)
        if self.policy.log_days:
            expired = current_time - self.policy.log_days * DAY_US
            await request_log.delete_all_before(self._database, expired)

    async def drain(self) -> None:
        """Wait until all finished calls are settled and recorded."""
        if self.contents is not None:
            await self.contents.drain()
        await self._billing.flush()

    async def _begin(self, request: GatewayRequest, payer: Payer | None) -> ActiveCall:
        if not 0 <= (request.max_tokens or 0) * request.answers <= _MAX_OUTPUT_TOKENS:
            raise errors.InvalidInput.of("max_tokens", f"max_tokens must be from 1 to {_MAX_OUTPUT_TOKENS}")
        if request.size > LOOP_BYTES:
            needs = await PARSER.run(RequestNeeds.determined, request)
        else:
            needs = RequestNeeds(request)
        plan = self._plan(needs)
        caller = request.caller
        tpm, rate_id = caller.scope.tpm, caller.rate_id
        if tpm is not None and rate_id is not None:
            await self.token_rates.spend(rate_id, tpm, plan.input_tokens)
        call = CallRecord(
            id=request.request_id,
            account_id=request.account_id,
            key_id=request.key_id,
            endpoint=request.endpoint,
            model=request.model[:200],
            target=plan.targets[0][0].name,
            streamed=request.stream,
            held=plan.held if request.prepaid_hold is None else 0,
            tag=request.tag,
            shared=request.shared,
        )
        if self.policy.log_bodies:
            call.request = request.body[:_MAX_LOG_CHARS].decode("utf-8", "replace")
        if call.held:
            try:
                await self._billing.hold(call, payer)
            except (errors.InsufficientCredits, errors.BudgetExceeded):
                smaller = output_limits.limit_output(request, self.policy.max_tokens)
                if smaller is None:
                    raise
                request, plan = smaller, self._plan(RequestNeeds(smaller))
                call.held = plan.held
                await self._billing.hold(call, payer)
        return ActiveCall(request, plan, call, time.perf_counter())

    def _plan(self, needs: RequestNeeds) -> RoutePlan:
        request, held = needs.request, needs.request.prepaid_hold
        rated_targets = meeting(self._priced_targets(request), needs)
        if len(request.services) == 1:
            service, is_covered = request.services[0], needs.is_covered
            rated_targets = self.service_prices.apply(service, rated_targets, is_covered=is_covered)
        tools = None if request.expected_usage is not None else needs.provider_tools
        if held is None:
            limit = self.policy.max_tokens
            held = max([rates.cost(needs.max_usage(target, limit)) for target, rates in rated_targets])
        return RoutePlan(rated_targets, needs.input_tokens, held, tools)

    def _priced_targets(self, request: GatewayRequest) -> tuple[tuple[RouteTarget, TokenRates], ...]:
        """Return a model's targets with their rates, cached briefly while all targets are healthy."""
        name = request.model, request.wire if request.is_forwarded else None
        current_time = time.monotonic()
        cached = self._route_cache.get(name)
        if cached is not None and current_time < cached[0] and not self.health.tripped:
            return cached[1]
        if request.is_forwarded:
            targets = self.router.resolve_protocol(request.model, request.wire)
        else:
            targets = self.router.resolve_chat(request.model)
        rated_targets = tuple([(each, rates) for each in targets if (rates := self.rates(each)) is not None])
        if not rated_targets:
            raise errors.UnpricedModel(
                f"{targets[0].name} has no price: an operator can set one in "
                f'[gateway.prices."{targets[0].name}"], or set allow_unpriced in [gateway]'
            )
        if not self.router.is_weighted(request.model):
            # Callers may send any number of different names.
            if len(self._route_cache) >= _MAX_CACHED_ROUTES:
                self._route_cache.clear()
            self._route_cache[name] = current_time + _ROUTE_CACHE_SECONDS, rated_targets
        return rated_targets

    def rates(self, target: RouteTarget) -> TokenRates | None:
        """Return the rates of a target, or None if its price is unknown."""
        rates = self._prices.rates_of(target.upstream, target.model, target.model_info().rates)
        return FREE if rates is None and self.policy.allow_unpriced else rates

    async def _complete(self, active: ActiveCall) -> GatewayReply:
        response = await self._attempts.complete(active)
        wire, body, (usage, chars) = response.wire, response.first_block, response.usage
        if active.request.expected_usage is not None:
            usage = merge_usage(usage, active.request.expected_usage, chars)
        elif usage is None or not usage.reported:
            usage = active.estimated(usage, chats.tokens_of(chars))
        usage = active.billable(usage, response.target)
        answer = None
        if wire.name != active.request.wire:
            parsed = await PARSER.run_large(len(body), parse_answer, wire, body, active.conversation())
            answer = ChatResponse(parsed.id, parsed.model, parsed.parts, parsed.stop, usage)
        charge = charges.calculate(response.rates.lines(usage), active.plan.held)
        raw = body if answer is None else None
        # If the prediction that pays for a call does not succeed, its response must not be readable here.
        if self.policy.log_bodies and not active.request.prediction_id:
            active.record.response = body[:_MAX_LOG_CHARS].decode("utf-8", "replace")
        list_price = response.rates.list_price(usage)
        target, cost = response.target, charge.amount
        return GatewayReply(target.name, target.model, usage, cost, charge, raw, answer, False, list_price)

    async def _ensure_held(self, active: ActiveCall, response: UpstreamResponse) -> None:
        """Wait for the hold, which must be written before any part of a response is forwarded."""
        try:
            await self._billing.ensure_held(active.record)
        except BaseException:
            await response.stream.aclose()
            raise

    async def _settle(self, active: ActiveCall, outcome: CallOutcome) -> None:
        """Settle a call with its outcome; raises `StoreFailed`, and the billing then ends the call later."""
        call, request = active.record, active.request
        call.total_us = int((time.perf_counter() - active.started_at) * 1_000_000)
        booking = self._billing.settle(call, outcome)
        try:
            caller = request.caller
            tpm, rate_id = caller.scope.tpm, caller.rate_id
            if tpm is not None and rate_id is not None:
                targets = [target for target, _ in active.plan.targets]
                most = output_limits.most_counted(request, targets, self.policy.max_tokens)
                output = min(outcome.usage.output, most)
                # The caller must not get an error for a response that is charged.
                with contextlib.suppress(errors.StoreFailed):
                    await self.token_rates.add(rate_id, tpm, output)
            await booking
        except (errors.InsufficientCredits, errors.BudgetExceeded, errors.StoreFailed) as error:
            # The ledger has refused the deferred hold, or the database fails: the billing then undoes the
            # charge of a complete response, and writes that of a stream later.
            if not (call.streamed and isinstance(error, errors.StoreFailed)):
                outcome = CallOutcome("failed", error=error.message)
            raise
        finally:
            self.counts.add(call, outcome)
            if self.on_call_end is not None:
                self.on_call_end(call, outcome)

    async def _log_cache_hit(
        self, request: GatewayRequest, reply: GatewayReply, charge: CostBreakdown
    ) -> None:
        origin = request.request_id, request.account_id, request.key_id, request.endpoint
        call = CallRecord(*origin, request.model[:200], reply.target, streamed=False, tag=request.tag)
        outcome = CallOutcome("succeeded", reply.usage, counted_by="cache", charge=charges.encode(charge))
        await self._billing.settle(call, outcome)

    async def _end(
        self, active: ActiveCall, response: UpstreamResponse, usage: TokenUsage | None, outcome: CallOutcome
    ) -> CallOutcome:
        """Settle a finished stream; a stream without usage is free.

        A failed stream counts as a failure of its target. If the database fails, the charge is written later.
        """
        if outcome.state == "failed":
            self.health.record_failure(response.target.name)
        if usage is not None:
            usage = active.billable(usage, response.target)
            charge = charges.calculate(response.rates.lines(usage), active.plan.held)
            outcome = _outcome(outcome.state, usage, charge, outcome.error)
        with contextlib.suppress(errors.StoreFailed):
            await self._settle(active, outcome)
        return outcome


def _check_allowed(request: GatewayRequest) -> None:
    """Raise `Forbidden` for a model that the key may not use, `InsufficientCredits` for a balance below 0."""
    if request.caller.below_zero:
        raise errors.InsufficientCredits
    allowed = request.caller.scope.services
    if allowed and request.model not in allowed and not covers(allowed, request.services):
        raise errors.Forbidden(
            f"This key may not use {request.model[:100]}: it may use only {format_limit(allowed)}"
        )


def _outcome(state: CallState, usage: TokenUsage, charge: CostBreakdown, error: str = "") -> CallOutcome:
    counted_by = "server" if usage.reported else "estimate"
    return CallOutcome(state, usage, charge.amount, error, counted_by, charges.encode(charge))


def _error_text(error: BaseException) -> str:
    return error.message if isinstance(error, errors.SixfoldError) else type(error).__name__
