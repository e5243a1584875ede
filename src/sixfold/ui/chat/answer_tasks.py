"""Answers in progress, which continue if the page is closed.

An answer is stored about every second and at its end. The gateway charges for the delivered part of a stopped
answer, and does not charge for a failed one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.connections import Credential
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.concurrency import loaded_objects
from sixfold.core.gateway.chat import ChatRequest, MessageEnd, TextDelta
from sixfold.core.gateway.conversations.chats import ChatStore, ChatTurn
from sixfold.core.gateway.request_log import CallOutcome
from sixfold.core.gateway.tools.servers import INSTRUCTION, MAX_ROUNDS, ToolOutput, Toolset
from sixfold.ui.chat import commands, messages, tools
from sixfold.ui.chat.commands import ChatCommand, ImageDrawing, SourceContext
from sixfold.ui.chat.messages import AnswerDetail, Draft, RequestBuilder
from sixfold.ui.chat.rendering import GrowingText
from sixfold.ui.chat.tools import Round
from sixfold.web.services import WebServices

_LOG = logging.getLogger("sixfold.chat")
_CHECKPOINT_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 15.0
# Seconds between two reads of an answer that another process generates.
_POLL_SECONDS = 0.3
_MAX_CHARS = 400_000
_NO_CREDIT = (
    "Your balance does not cover the most that this answer can cost: choose a cheaper model, or a new chat"
)
_FAILED = "The answer failed on this server. Nothing was charged; the server log contains the reason."
_encode = msgspec.json.Encoder().encode


class AnswerRequest(msgspec.Struct, frozen=True):
    """A request for an answer: the payer, the ID of the call, the model's name and the login session."""

    principal: Principal
    request_id: str
    model: str
    login_id: str = ""


class Answer:
    """An answer in one chat, which pages read through `events`."""

    def __init__(self, store: ChatStore, turn: ChatTurn, request: AnswerRequest) -> None:
        self.request = request
        self.turn = turn
        self.status = ""
        self.error = ""
        self.code = ""
        self.detail = AnswerDetail(request=request.request_id)
        self.done = asyncio.Event()
        self._store = store
        self._text = GrowingText()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Wait until a stop of the answer is requested."""
        await self._stopping.wait()

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text.text

    @property
    def html(self) -> str:
        """The complete blocks so far, and the growing one, as HTML."""
        return "".join(self._text.blocks) + self._text.growing

    def show_status(self, status: str) -> None:
        """Show the current activity."""
        self.status = status
        self._notify()

    async def add(self, piece: str) -> None:
        """Add a piece of text; raises `TooLarge` at the limit of an answer."""
        if len(self._text.text) + len(piece) > _MAX_CHARS:
            raise errors.TooLarge(f"An answer can have at most {_MAX_CHARS:,} characters")
        self.status = ""
        self._text.push(piece)
        # Pages show the piece before its block is rendered.
        self._notify()
        if await self._text.update(piece):
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def keep(self) -> None:
        """Store the text about every second until the answer ends; stop if another process requested it."""
        while not self.done.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECKPOINT_SECONDS):
                    await self.done.wait()
                    return
            # A pause of the model would otherwise leave its last lines without layout.
            if await self._text.catch_up():
                self._notify()
            draft = messages.write(Draft(self.text, self.status, model=self.request.model))
            with contextlib.suppress(errors.StoreFailed):
                if not await self._store.checkpoint(self.turn.lock, draft):
                    self.stop()

    async def finish(self) -> None:
        """Store the whole answer, or the received part of a failed one."""
        text, draft = self.text, ""
        if not text and not self.error:
            stopped = self.detail.end == "stopped"
            self.error = "Stopped before the first word." if stopped else "The model did not return text."
        has_reply = bool(text) and not self.error
        if not has_reply:
            draft = messages.write(Draft(text, error=self.error, code=self.code, model=self.request.model))
        item = messages.answer(text, complete=self.detail.end != "stopped") if has_reply else None
        detail, cost = messages.write(self.detail), self.detail.cost
        try:
            await self._store.finish(self.turn.lock, item, detail, draft, cost)
        finally:
            self.done.set()
            self._notify()

    async def events(self) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """Yield the events of a page from the beginning: blocks, text, status, and the end."""
        blocks, growing, opened, status = -1, "", 0, ""
        while True:
            changed, text = self._changed, self._text
            if blocks != len(text.blocks) or growing != text.growing:
                new = "".join(text.blocks[max(blocks, 0) :])
                event = {"html": new, "growing": text.growing, "open": text.open}
                blocks, growing, opened = len(text.blocks), text.growing, len(text.text)
                yield "block", event
            elif opened < len(text.text):
                event = {"text": text.text[opened:]}
                opened = len(text.text)
                yield "text", event
            if self.status != status:
                status = self.status
                yield "status", {"text": status}
            if self.done.is_set():
                return
            try:
                async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield "", {}


class AnswerWriter:
    """Generates answers with models, tools and image generation."""

    def __init__(self, services: WebServices, store: ChatStore) -> None:
        self._services = services
        self._store = store
        self._builder = RequestBuilder(services)

    def start(self, turn: ChatTurn, request: AnswerRequest) -> Answer:
        """Start to answer the stored question of a turn."""
        answer = Answer(self._store, turn, request)
        lock = turn.lock
        self._services.response_tasks.start(
            lock.tenant.account_id, lock.conversation_id, answer, self._write(answer)
        )
        return answer

    def running(self, account_id: str, chat_id: str) -> Answer | None:
        """Return the answer that this process is generating for a chat, or None."""
        answer = self._services.response_tasks.get(account_id, chat_id)
        return answer if isinstance(answer, Answer) else None

    async def _write(self, answer: Answer) -> None:
        started = time.monotonic()
        keeping = asyncio.create_task(answer.keep())
        forget_credentials = self._stop_with_credentials(answer)
        try:
            await self._make(answer)
        except errors.SixfoldError as error:
            is_unpaid = isinstance(error, errors.InsufficientCredits)
            answer.error, answer.code = _NO_CREDIT if is_unpaid else error.message, error.code
        except Exception:  # noqa: BLE001 - the page says that it failed
            _LOG.exception("An answer failed")
            answer.error = _FAILED
        finally:
            forget_credentials()
            milliseconds = round((time.monotonic() - started) * 1000)
            answer.detail = msgspec.structs.replace(answer.detail, milliseconds=milliseconds)
            try:
                await answer.finish()
            finally:
                await keeping

    def _stop_with_credentials(self, answer: Answer) -> Callable[[], None]:
        """Stop the answer when its login session or key ends; return a function that undoes this."""
        key_id, login_id = answer.request.principal.key_id, answer.request.login_id
        credentials = [Credential("key", key_id)] if key_id else []
        credentials += [Credential("login", login_id)] if login_id else []
        removals = [self._services.connections.add(each, answer.stop) for each in credentials]

        def remove() -> None:
            for each in removals:
                each()

        return remove

    async def _make(self, answer: Answer) -> None:
        tenant, items = answer.turn.lock.tenant, answer.turn.items
        # The request that has read them may end before the answer.
        await loaded_objects.reserve(sum(map(len, items)), loaded_objects.INLINED_COPIES)
        last = messages.parse("", 0, items[-1]) if items else None
        command = commands.parse(last.text if last is not None else "")
        if command.prompt and last is not None and not last.files:
            await self._draw(answer, command.prompt)
            return
        system = await self._context(answer, command)
        chat = await self._builder.build(tenant, items, system)
        servers = self._services.tool_servers
        used = tools.mentioned(last.text if last is not None else "", servers.names(answer.request.principal))
        if not used:
            await self._complete(answer, chat)
            return
        answer.show_status("Connecting to tools …")
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with _until_stopped(answer):
                    toolset = await stack.enter_async_context(servers.toolset(answer.request.principal, used))
            except TimeoutError:
                if not answer.stopping:
                    raise
                answer.detail = msgspec.structs.replace(answer.detail, end="stopped")
                return
            await self._complete_with_tools(answer, chat, toolset)

    async def _complete_with_tools(self, answer: Answer, chat: ChatRequest, toolset: Toolset) -> None:
        """Run the model's tool calls until it answers, is stopped or reaches the limit of calls."""
        system = f"{chat.system}\n\n{INSTRUCTION}".strip()
        chat = msgspec.structs.replace(chat, system=system, tools=toolset.specs)
        parts: list[str] = []
        for number in range(MAX_ROUNDS):
            if number == MAX_ROUNDS - 1 or len(parts) >= tools.MAX_CALLS:
                chat = msgspec.structs.replace(chat, choice="none")
            response = await self._complete(answer, chat, first=not number)
            if answer.stopping or answer.detail.end != "tool" or not response.calls:
                return
            outputs: list[ToolOutput] = []
            for call in response.calls.values():
                if len(parts) >= tools.MAX_CALLS:
                    outputs.append(
                        ToolOutput(f"An answer may make at most {tools.MAX_CALLS} tool calls.", failed=True)
                    )
                    continue
                answer.show_status(f"Using {call.name} …")
                work = toolset.call(answer.request.request_id, call.name, call.arguments)
                if (output := await _unless_stopped(answer, work)) is None:
                    answer.detail = msgspec.structs.replace(
                        answer.detail, end="stopped", tools=(*parts, f"{call.name} (stopped)")
                    )
                    return
                parts.append(f"{call.name} (failed)" if output.failed else call.name)
                outputs.append(output)
            answer.detail = msgspec.structs.replace(answer.detail, tools=tuple(parts))
            chat = response.next_request(chat, outputs)
            if response.text:
                await answer.add("\n\n")

    async def _context(self, answer: Answer, command: ChatCommand) -> str:
        """Return instructions with the pages that a message requests, and record the pages as sources."""
        request, contexts = answer.request, list[SourceContext]()
        if command.memory:
            answer.show_status("Searching the memory …")
            contexts.append(await commands.remembered(self._services, request.principal, command.text))
        sources = tuple(source for each in contexts for source in each.sources)
        if command.web:
            answer.show_status("Searching the web …")
            first = len(sources) + 1
            results = await commands.searched(
                self._services, request.principal, request.request_id, command.text, first
            )
            contexts, sources = [*contexts, results], sources + results.sources
        answer.detail = msgspec.structs.replace(answer.detail, sources=sources)
        return "\n\n".join(each.system for each in contexts)

    async def _draw(self, answer: Answer, prompt: str) -> None:
        """Answer with an image; return when it is generated or the answer is stopped."""
        drawing = ImageDrawing(self._services, answer.request.principal, answer.request.request_id)
        canceling = asyncio.create_task(_cancel_when_stopped(answer, drawing))
        try:
            async for status in drawing.run(prompt):
                answer.show_status(status)
        finally:
            canceling.cancel()
        if answer.stopping:
            answer.detail = msgspec.structs.replace(answer.detail, end="stopped")
            return
        await answer.add(drawing.markdown(prompt))
        if (prediction := drawing.prediction) is not None:
            answer.detail = msgspec.structs.replace(
                answer.detail, model=prediction.model, cost=prediction.cost, prediction=prediction.id
            )

    async def _complete(self, answer: Answer, chat: ChatRequest, *, first: bool = True) -> Round:
        """Stream a response of the model until it ends or is stopped, and add its cost to the answer's."""
        response = Round()
        reading = asyncio.create_task(self._read(answer, chat, response, first=first))
        stopping = asyncio.create_task(answer.stopped())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
            outcome = await _result(reading)
        finally:
            stopping.cancel()
        end = "stopped" if answer.stopping and outcome is not None and outcome.state != "succeeded" else ""
        if outcome is None:
            answer.detail = msgspec.structs.replace(answer.detail, end="stopped", model=answer.request.model)
            return response
        detail = answer.detail
        answer.detail = msgspec.structs.replace(
            detail,
            cost=detail.cost + outcome.cost,
            # The lines explain the cost of one response, so they are omitted after several responses.
            charge=outcome.charge if first else "",
            input=detail.input + outcome.usage.input,
            output=detail.output + outcome.usage.output,
            end=end or detail.end,
        )
        return response

    async def _read(
        self, answer: Answer, chat: ChatRequest, response: Round, *, first: bool
    ) -> CallOutcome | None:
        request = answer.request
        request_id = request.request_id if first else ids.new("req")
        gateway = self._services.gateway
        stream = await gateway.stream_chat(request.principal, request_id, chat, request.model, "chat")
        answer.detail = msgspec.structs.replace(answer.detail, model=stream.target)
        try:
            async with contextlib.aclosing(stream.events()) as events:
                async for event in events:
                    response.read(event)
                    match event:
                        case TextDelta(text):
                            await answer.add(text)
                        case MessageEnd(stop, _):
                            answer.detail = msgspec.structs.replace(answer.detail, end=stop)
                        case _:
                            # Reasoning and tool calls are not shown as text.
                            if not answer.text and not answer.status:
                                answer.show_status("Thinking …")
        except asyncio.CancelledError:
            if not answer.stopping:
                raise
        return stream.outcome


async def _unless_stopped(answer: Answer, work: Coroutine[Any, Any, ToolOutput]) -> ToolOutput | None:
    """Return the output of a call; None if the answer is stopped first, which cancels the call."""
    running, stopping = asyncio.create_task(work), asyncio.create_task(answer.stopped())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await running if running.done() else None
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.wait({running, stopping})


@contextlib.asynccontextmanager
async def _until_stopped(answer: Answer) -> AsyncGenerator[None]:
    """Run a block, which a stop of the answer ends with `TimeoutError`."""
    async with asyncio.timeout(None) as limit:
        stopping = asyncio.create_task(_expire_when_stopped(answer, limit))
        try:
            yield
        finally:
            stopping.cancel()


async def _expire_when_stopped(answer: Answer, limit: asyncio.Timeout) -> None:
    await answer.stopped()
    limit.reschedule(asyncio.get_running_loop().time())


async def _cancel_when_stopped(answer: Answer, drawing: ImageDrawing) -> None:
    await answer.stopped()
    await drawing.cancel(answer.turn.lock.tenant)


async def _result(reading: asyncio.Task[CallOutcome | None]) -> CallOutcome | None:
    """Return how the call ended; None if it was stopped before its response began."""
    try:
        return await reading
    except asyncio.CancelledError:
        if reading.cancelled():
            return None
        raise


async def stored_events(
    store: ChatStore, tenant: Tenant, chat_id: str
) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """Yield the events of an answer that another server process generates, until it has ended."""
    sent, status = "", ""
    while (chat := await store.get(tenant, chat_id)).busy:
        draft = messages.read_draft(chat.draft) or Draft()
        if draft.text.startswith(sent) and draft.text != sent:
            yield "text", {"text": draft.text[len(sent) :]}
            sent = draft.text
        if draft.status != status:
            status = draft.status
            yield "status", {"text": status}
        await asyncio.sleep(_POLL_SECONDS)


async def server_events(events: AsyncIterator[tuple[str, dict[str, Any]]]) -> AsyncIterator[bytes]:
    """Yield events in the form of an event stream."""
    async for name, data in events:
        yield b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(data)) if name else b": wait\n\n"
