"""Application of guardrails to the gateway's requests, before a server is called, and to responses."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar, get_args

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.concurrency.single_thread import LOOP_BYTES, PARSER
from sixfold.core.database import Database
from sixfold.core.gateway import request_log
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, ChatResponse, Event, TextPart
from sixfold.core.gateway.guardrails import masking, storage, streams, texts
from sixfold.core.gateway.guardrails import models as guardrail_settings
from sixfold.core.gateway.guardrails.hooks import GuardrailBlocked, GuardrailHooks, GuardrailUnavailable
from sixfold.core.gateway.guardrails.models import Guardrail, HookSettings, Stage
from sixfold.core.gateway.guardrails.streams import CollectedStream, PlainEvent
from sixfold.core.gateway.guardrails.texts import TextSlot
from sixfold.core.gateway.ports import FilterableStream, GatewayReply, GatewayRequest
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from sixfold.core.input_limits import json_decoding

# Maximum size of a stream that is collected for a hook; an event takes about 500 bytes more.
_MAX_STREAM, _MAX_EVENTS = 32 * 2**20, 100_000
_STAGES: frozenset[Stage] = frozenset(get_args(Stage))
_encode = msgspec.json.Encoder().encode
Serve = Callable[[GatewayRequest, Payer | None], Awaitable[GatewayReply]]
AnyStream = TypeVar("AnyStream", bound=FilterableStream)


class GuardrailService:
    """Finds the guardrail of a call.

    `default` returns the operator's guardrail, which applies if both the key and the account lack one.
    """

    def __init__(
        self,
        database: Database,
        hooks: GuardrailHooks,
        default: Callable[[], Guardrail | None],
        holder: Callable[[], str],
    ) -> None:
        self.hooks = hooks
        self._database = database
        self._default = default
        self._holder = holder

    def of(self, request: GatewayRequest) -> GuardedCall | None:
        """Return the guardrail and content log that apply to a call, or None."""
        default = self._default()
        if not request.caller.guardrail and default is None and request.key_id is not None:
            return None
        if "Content-Type" in request.headers:
            # A form, which contains a file.
            return None
        if request.caller.guardrail:
            guardrail = guardrail_settings.decode(request.caller.guardrail)
            return None if guardrail.is_empty else GuardedCall(self, guardrail)
        if request.key_id is None and request.account_id:
            # The guardrail of the account is not loaded yet.
            return GuardedCall(self, None)
        return None if default is None else GuardedCall(self, default, is_default=True)

    async def checked(self, request: GatewayRequest) -> GatewayRequest:
        """Apply the guardrail to a request for a token count.

        Raises `GuardrailBlocked` and `GuardrailUnavailable`.
        """
        guard = self.of(request)
        return request if guard is None else await guard.before(request)

    async def check_text(self, principal: Principal, request_id: str, endpoint: str, text: str) -> str:
        """Return the text to use instead; raises `GuardrailBlocked` and `GuardrailUnavailable`."""
        chat = ChatRequest((ChatMessage("user", (TextPart(text),)),))
        request = GatewayRequest(
            caller=principal,
            request_id=request_id,
            endpoint=endpoint,
            wire="",
            model=endpoint,
            body=b"",
            parse=lambda: chat,
        )
        checked: list[str] = []
        texts.change_request((await self.checked(request)).parse(), _collector(checked))
        return "\n".join(checked)

    async def of_account(self, account_id: str) -> tuple[Guardrail, bool]:
        """Return the guardrail of a call without a key, and whether it is the operator's."""
        stored = await self._database.read(storage.account_guardrail(account_id), snapshot=False)
        if stored:
            return guardrail_settings.decode(stored), False
        return self._default() or Guardrail(), True

    async def refund(self, request: GatewayRequest, error: errors.SixfoldError) -> None:
        """Refund a call whose response could not be checked."""
        await self._database.write(request_log.refund(request.request_id, error.message))

    async def record_refusal(self, request: GatewayRequest, error: errors.SixfoldError) -> None:
        """Log a call that was blocked before a server was called."""
        call = CallRecord(
            request.request_id,
            request.account_id,
            request.key_id,
            request.endpoint,
            request.model[:200],
            "",
            streamed=request.stream,
            tag=request.tag,
        )
        outcome = CallOutcome("failed", error=error.message)
        await self._database.write(request_log.insert(call, outcome, self._holder()), durable=False)


class GuardedCall:
    """A call with its guardrail."""

    def __init__(
        self, service: GuardrailService, guardrail: Guardrail | None, *, is_default: bool = False
    ) -> None:
        self._service = service
        self._is_default = is_default
        self._own = guardrail
        self._guardrail = guardrail or Guardrail()

    async def complete(
        self, request: GatewayRequest, payer: Payer | None, serve: Serve
    ) -> tuple[GatewayRequest, GatewayReply]:
        """Return the request that was served and its response.

        Raises `GuardrailBlocked` and the errors of `serve`.

        A call whose request is blocked is free; a call whose response is blocked is charged for its usage.
        """
        checked = self._shared(await self.before(request))
        reply = await serve(checked, payer)
        guardrail = self._guardrail
        hook = guardrail.hook_of("response")
        kinds = guardrail.mask if guardrail.mask_responses else ()
        if (not kinds and hook is None) or request.expected_usage is not None:
            return checked, reply
        async with self._response_check(checked, reply.cost):
            if reply.answer is not None:
                answer = await self._answer(checked, reply.answer, kinds, hook)
                return checked, msgspec.structs.replace(reply, answer=answer)
            raw = await self._body(checked, reply.raw or b"", kinds, hook, "response")
        return checked, msgspec.structs.replace(reply, raw=raw)

    @asynccontextmanager
    async def _response_check(self, request: GatewayRequest, cost: int = 0) -> AsyncGenerator[None]:
        """Refund the call if the operator's hook fails; if the caller's hook fails, ask not to retry.

        The caller's hook may have received the response before it failed, so that each retry is charged.
        """
        try:
            yield
        except (GuardrailBlocked, GuardrailUnavailable) as error:
            if request.shared:
                error.cost = cost
            if isinstance(error, GuardrailUnavailable):
                if self._is_default:
                    await self._service.refund(request, error)
                else:
                    error.permanent, error.retry_after = True, 0
            raise

    async def stream(
        self,
        request: GatewayRequest,
        payer: Payer | None,
        open_stream: Callable[[GatewayRequest, Payer | None], Awaitable[AnyStream]],
    ) -> tuple[GatewayRequest, AnyStream]:
        """Return the served request and its stream, after a hook for responses has checked the stream."""
        checked = self._shared(await self.before(request))
        stream = await open_stream(checked, payer)
        guardrail = self._guardrail
        if request.expected_usage is not None:
            return checked, stream
        if guardrail.mask and guardrail.mask_responses:
            stream.filter = MaskFilter(guardrail.mask)
        hook = guardrail.hook_of("response")
        if hook is None:
            return checked, stream
        async with self._response_check(checked):
            if stream.raw:
                stream.filter = ReplayFilter(blocks=await self._collect_blocks(checked, stream, hook))
            else:
                stream.filter = ReplayFilter(events=await self._collect_events(checked, stream, hook))
        return checked, stream

    async def _check(
        self, hook: HookSettings, stage: Stage, request: GatewayRequest, pieces: Sequence[str]
    ) -> Sequence[str]:
        """Return the texts to use instead; raises `GuardrailBlocked` and `GuardrailUnavailable`."""
        signer = "" if self._is_default else request.account_id
        return await self._service.hooks.check(hook, stage, request, pieces, signer)

    async def before(self, request: GatewayRequest) -> GatewayRequest:
        """Return the request to serve; raises `GuardrailBlocked` and `GuardrailUnavailable`."""
        if self._own is None:
            self._own, self._is_default = await self._service.of_account(request.account_id)
            self._guardrail = self._own
        guardrail = self._guardrail
        hook = guardrail.hook_of("request")
        must_pay = not (self._is_default or request.caller.is_operator)
        if must_pay and any(map(guardrail.hook_of, _STAGES.intersection(request.unpaid))):
            raise _hook_before_payment()
        if not guardrail.mask and hook is None:
            return request
        try:
            if not request.body:
                return await self._chat(request, hook)
            body = await self._body(request, request.body, guardrail.mask, hook, "request")
        except (GuardrailBlocked, GuardrailUnavailable) as error:
            await self._service.record_refusal(request, error)
            raise
        parse = request.parse
        if body is not request.body and request.reparse is not None:
            parse = functools.partial(request.reparse, body)
        # The history of a conversation may be stored outside the body.
        return msgspec.structs.replace(
            request, body=body, parse=functools.partial(_parse_masked, parse, guardrail.mask)
        )

    def _shared(self, request: GatewayRequest) -> GatewayRequest:
        """Return the request, marked if a hook of the caller receives its response."""
        is_checked = self._guardrail.hook_of("response") is not None and request.expected_usage is None
        return msgspec.structs.replace(request, shared=is_checked and not self._is_default)

    async def _chat(self, request: GatewayRequest, hook: HookSettings | None) -> GatewayRequest:
        """Check a protocol-independent request."""
        chat = await PARSER.run(_parse_masked, request.parse, self._guardrail.mask)
        if hook is not None:
            collected: list[str] = []
            texts.change_request(chat, _collector(collected))
            checked = iter(await self._check(hook, "request", request, collected))
            chat = texts.change_request(chat, lambda _text: next(checked))
        return msgspec.structs.replace(request, parse=lambda: chat)

    async def _answer(
        self, request: GatewayRequest, answer: ChatResponse, kinds: Collection[str], hook: HookSettings | None
    ) -> ChatResponse:
        change = functools.partial(masking.mask, kinds=kinds, budget=masking.budget())
        answer = await PARSER.run(texts.change_response, answer, change)
        if hook is not None:
            collected: list[str] = []
            texts.change_response(answer, _collector(collected))
            checked = iter(await self._check(hook, "response", request, collected))
            answer = texts.change_response(answer, lambda _text: next(checked))
        return answer

    async def _body(
        self,
        request: GatewayRequest,
        body: bytes,
        kinds: Collection[str],
        hook: HookSettings | None,
        stage: Stage,
    ) -> bytes:
        """Return a JSON document with its texts checked, or the same object if nothing changes."""
        cost = len(body) * masking.COST
        if hook is None and cost <= LOOP_BYTES and not masking.may_mask(body):
            return body
        document, slots, is_changed = await PARSER.run_large(
            cost, _read, body, kinds, is_response=stage == "response", always=hook is not None
        )
        if hook is not None:
            content = [slot for slot in slots if slot.is_content]
            before = [slot.text for slot in content]
            after = await self._check(hook, stage, request, before)
            for slot, text, changed in zip(content, before, after, strict=True):
                if text != changed:
                    slot.text, is_changed = changed, True
        if not is_changed:
            return body
        return await PARSER.run_large(cost, _encode, document)

    async def _collect_blocks(
        self, request: GatewayRequest, stream: FilterableStream, hook: HookSettings
    ) -> list[bytes]:
        data, count = bytearray(), 0
        async with aclosing(stream.blocks()) as blocks:
            async for block in blocks:
                data += block
                count += block.count(b"data:")
                _check_size(len(data), count)
        collected = await PARSER.run(lambda: CollectedStream[bytes]([*streams.lines_of(bytes(data))]))
        checked = await self._check(hook, "response", request, collected.texts)
        return [b"".join(await PARSER.run(collected.output, checked))]

    async def _collect_events(
        self, request: GatewayRequest, stream: FilterableStream, hook: HookSettings
    ) -> list[Event]:
        items: list[PlainEvent] = []
        size = 0
        async with aclosing(stream.events()) as events:
            async for event in events:
                items.append(PlainEvent(event))
                size += items[-1].size
                _check_size(size, len(items))
        collected = await PARSER.run(CollectedStream[Event], items)
        checked = await self._check(hook, "response", request, collected.texts)
        return await PARSER.run(collected.output, checked)


def _hook_before_payment() -> GuardrailUnavailable:
    error = GuardrailUnavailable(
        "The hook of this account's guardrail would receive texts of a run that is charged only if it "
        "succeeds: use /v1/chat/completions, or remove the hook's stage"
    )
    error.permanent, error.retry_after = True, 0
    return error


class MaskFilter:
    """Masks a stream while it is forwarded."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds

    def blocks(self, source: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        return streams.mask_blocks(source, self._kinds)

    def events(self, source: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        return streams.mask_events(source, self._kinds)


class ReplayFilter:
    """Replaces a stream that has been read completely."""

    def __init__(self, blocks: Sequence[bytes] = (), events: Sequence[Event] = ()) -> None:
        self._blocks = blocks
        self._events = events

    async def blocks(self, source: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        """Yield the collected bytes."""
        await source.aclose()
        for block in self._blocks:
            yield block

    async def events(self, source: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        await source.aclose()
        for event in self._events:
            yield event


def _parse_masked(parse: Callable[[], ChatRequest], kinds: Collection[str]) -> ChatRequest:
    if not kinds:
        return parse()
    return texts.change_request(
        parse(), functools.partial(masking.mask, kinds=kinds, budget=masking.budget())
    )


def _collector(collected: list[str]) -> texts.Change:
    def change(text: str) -> str:
        collected.append(text)
        return text

    return change


def _check_size(size: int, count: int) -> None:
    if size > _MAX_STREAM or count > _MAX_EVENTS:
        raise GuardrailUnavailable(
            f"The hook of a guardrail accepts streams of at most {_MAX_STREAM // 2**20} MiB and "
            f"{_MAX_EVENTS:,} events"
        )


def _read(
    body: bytes, kinds: Collection[str], *, is_response: bool, always: bool
) -> tuple[Any, list[TextSlot], bool]:
    """Return the decoded document, its texts, and whether any of its parts is masked."""
    if not always and not masking.may_mask(body):
        return None, [], False
    try:
        document: Any = json_decoding.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(
            f"The guardrail cannot read this {'response' if is_response else 'request'}"
        ) from error
    slots = list(texts.slots(document))
    is_changed = is_response and bool(kinds) and texts.drop_tokens(document)
    budget = masking.budget()
    for slot in slots if kinds else ():
        text = slot.text
        masked_text = masking.mask(text, kinds, budget)
        if masked_text != text:
            slot.text, is_changed = masked_text, True
    return document, slots, is_changed
