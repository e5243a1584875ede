"""Routes of answers: send a message with files, stream the answer, stop it, and request a new version."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from sixfold import errors
from sixfold.core.concurrency import loaded_objects
from sixfold.core.files.files import AccountFile
from sixfold.core.gateway.conversations.chats import ChatStore, ChatTurn
from sixfold.core.gateway.conversations.conversations import ConversationItem
from sixfold.ui import templating
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.chat import answer_tasks, commands, messages, tools
from sixfold.ui.chat.answer_tasks import AnswerRequest, AnswerWriter
from sixfold.ui.chat.attachments import ChatFiles
from sixfold.ui.chat.messages import MAX_FILES, MAX_TEXT_CHARS
from sixfold.ui.chat.pages import ChatPages, Composer, path_of
from sixfold.ui.chat.thread_view import ThreadReader
from sixfold.web import bodies, multipart, requests, responses
from sixfold.web.services import WebServices
from sixfold.web.sessions import CSRF_HEADER

_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_FIELDS = 6
_TITLE_CHARS = 60
# Seconds that a form without a script waits for its answer.
_WAIT_SECONDS = 60.0
_LAST = "last"


class AskForm(msgspec.Struct, frozen=True):
    """A message with its model and files; `edited` is the ID of the message that it replaces.

    With `web`, the web is searched; `tools` names the servers whose tools are offered."""

    text: str
    model: str
    edited: str
    files: Sequence[UploadFile]
    web: bool = False
    tools: Sequence[str] = ()


class AnswerRoutes:
    """The endpoints that start, stream and stop answers."""

    def __init__(
        self, services: WebServices, auth: PageAuth, store: ChatStore, reader: ThreadReader, pages: ChatPages
    ) -> None:
        self._services = services
        self._auth = auth
        self._store = store
        self._reader = reader
        self._pages = pages
        self._files = ChatFiles(services)
        self._writer = AnswerWriter(services, store)
        self._max_bytes = services.settings.inline_body_bytes

    async def ask(self, request: Request, user: PageUser) -> Response:
        """Store a message and start its answer; if the path does not name a chat, create one.

        Scripts receive the message as HTML; forms wait for the answer and are redirected to the chat.
        """
        chat_id = str(request.path_params.get("conversation_id", ""))
        try:
            return await self._answer_form(request, user, chat_id)
        except errors.SixfoldError as error:
            if not _is_script(request):
                raise
            return self._problem(error)

    async def _answer_form(self, request: Request, user: PageUser, chat_id: str) -> Response:
        async with self._form(request, user) as form:
            try:
                return await self._ask(request, user, chat_id, form)
            except errors.SixfoldError as error:
                if _is_script(request) or isinstance(error, errors.NotFound):
                    raise
                thread = await self._reader.read(user.tenant, chat_id) if chat_id else None
                composer = Composer(form.model, form.text, form.edited, error.message, form.web, form.tools)
                return await self._pages.render(user, thread, composer, error.status)

    async def _ask(self, request: Request, user: PageUser, chat_id: str, form: AskForm) -> Response:
        if not form.text and not form.files:
            raise errors.BadRequest("Write a message first")
        if len(form.text) > MAX_TEXT_CHARS:
            raise errors.TooLarge(
                f"A message may have at most {MAX_TEXT_CHARS:,} characters: attach the text as a file"
            )
        # An unknown model is rejected before the message is stored.
        self._services.gateway.router.resolve_chat(form.model or "default")
        previous_files = await self._kept_files(user, chat_id, form.edited)
        stored = await self._files.store(user.tenant, form.files)
        try:
            text = commands.with_web(form.text) if form.web else form.text
            text = tools.with_marks(text, [each for each in self._tool_names(user) if each in form.tools])
            item = messages.question(text, (*previous_files, *stored))
            target = chat_id
            if form.edited:
                target = await self._store.copy(user.tenant, chat_id, form.edited, version=True)
            elif not chat_id:
                target = await self._store.create(user.tenant, _title(form.text, stored), form.model)
            turn = await self._begin(user, target, item, form.model)
        except errors.SixfoldError:
            await self._files.discard(user.tenant, stored)
            raise
        return await self._started(request, user, turn, form.model, inline=target == chat_id)

    def _tool_names(self, user: PageUser) -> tuple[str, ...]:
        return self._services.tool_servers.names(user.principal)

    async def _kept_files(self, user: PageUser, chat_id: str, item_id: str) -> tuple[AccountFile, ...]:
        if not item_id:
            return ()
        item = await self._store.item(user.tenant, chat_id, item_id)
        message = messages.parse(item.id, item.place, item.item)
        ids = [file.id for file in message.files] if message is not None else []
        messages.check_files(len(ids))
        return await self._services.files.some(user.tenant, ids)

    async def _begin(
        self, user: PageUser, chat_id: str, item: ConversationItem | None, model: str
    ) -> ChatTurn:
        return await self._store.begin(user.tenant, chat_id, item, model, self._max_bytes)

    async def _started(
        self, request: Request, user: PageUser, turn: ChatTurn, model: str, *, inline: bool
    ) -> Response:
        """Start the answer; return the question as HTML for a script, or wait and redirect to the chat."""
        chat_id = turn.lock.conversation_id
        login_id = "" if user.session is None else user.session.login_id
        answer_request = AnswerRequest(user.principal, requests.request_id(request), model, login_id)
        answer = self._writer.start(turn, answer_request)
        # The answer reserves the memory of the chat itself, while this request may wait for it.
        loaded_objects.release()
        if _is_script(request):
            document: dict[str, Any] = {"location": path_of(chat_id)}
            if inline and turn.question is not None:
                document["html"] = await self._reader.fragment(user.tenant, chat_id, turn.question.id)
            return responses.json(document, 202)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):
                await answer.done.wait()
        return RedirectResponse(path_of(chat_id, _LAST), 303)

    async def again(self, request: Request, user: PageUser) -> Response:
        """Request another answer: in this chat if the question has none, or else in a version of the chat."""
        form = await self._auth.read_form(request, user)
        chat_id, model = requests.path_value(request, "conversation_id"), form.get("model", "")
        try:
            item = await self._store.item(user.tenant, chat_id, form.get("item", ""))
            self._services.gateway.router.resolve_chat(model or "default")
            chat = await self._store.get(user.tenant, chat_id)
            if item.place == chat.last_place:
                turn = await self._begin(user, chat_id, None, model)
            else:
                copy = await self._store.copy(user.tenant, chat_id, item.id, version=True)
                turn = await self._begin(user, copy, ConversationItem(item.id, item.item), model)
        except errors.SixfoldError as error:
            if _is_script(request):
                return self._problem(error)
            raise
        return await self._started(request, user, turn, model, inline=False)

    async def stop(self, request: Request, user: PageUser) -> Response:
        """Stop the answer in progress; the text so far is stored and charged."""
        await self._auth.read_form(request, user)
        chat_id = requests.path_value(request, "conversation_id")
        await self._store.stop(user.tenant, chat_id)
        running = self._writer.running(user.account_id, chat_id)
        if running is not None:
            running.stop()
        if _is_script(request):
            return responses.json({"stopping": True}, 202)
        return RedirectResponse(path_of(chat_id, _LAST), 303)

    async def events(self, request: Request, user: PageUser) -> Response:
        """Stream the answer in progress from its beginning until its end."""
        chat_id = requests.path_value(request, "conversation_id")
        await self._store.get(user.tenant, chat_id)
        self._services.admission.event_stream(request, user.account_id)
        stream = answer_tasks.server_events(self._events(user, chat_id))
        return StreamingResponse(stream, 200, _STREAM, "text/event-stream")

    async def _events(self, user: PageUser, chat_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        running = self._writer.running(user.account_id, chat_id)
        source = (
            answer_tasks.stored_events(self._store, user.tenant, chat_id)
            if running is None
            else running.events()
        )
        yield "begin", {}
        async with contextlib.aclosing(source):
            async for event in source:
                yield event
        html, total = await self._reader.ending(user.tenant, chat_id)
        balance = await self._pages.balance(user.account_id)
        yield "end", {"html": html, "total": total, "balance": balance}

    @contextlib.asynccontextmanager
    async def _form(self, request: Request, user: PageUser) -> AsyncIterator[AskForm]:
        """Yield the form of a message after the CSRF check; raises `UnsupportedMedia` or `Forbidden`."""
        if bodies.media_type(request) != multipart.TYPE:
            raise errors.UnsupportedMedia("The request must be a multipart form")
        async with multipart.form(request, max_files=MAX_FILES + 1, max_fields=_FIELDS) as form:
            csrf = form.get("csrf")
            self._auth.check_csrf(
                request, user, csrf if isinstance(csrf, str) else request.headers.get(CSRF_HEADER)
            )
            texts = {name: value for name, value in form.items() if isinstance(value, str)}
            files = [each for each in form.getlist("file") if isinstance(each, UploadFile) and each.filename]
            if len(files) > MAX_FILES:
                raise errors.BadRequest(f"A message may have at most {MAX_FILES} files (got {len(files)})")
            yield AskForm(
                texts.get("text", "").strip(),
                texts.get("model", ""),
                texts.get("edited", ""),
                files,
                bool(texts.get("web")),
                [each for each in form.getlist("tools") if isinstance(each, str)],
            )

    def _problem(self, error: errors.SixfoldError) -> Response:
        document: dict[str, Any] = {"error": error.message, "code": error.code}
        if isinstance(error, errors.InsufficientCredits):
            document["action"] = templating.GET_CREDIT
        return responses.json(document, error.status, responses.error_headers(error))


def _is_script(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def _title(text: str, files: Sequence[AccountFile]) -> str:
    """Return the title of a new chat: the beginning of its first message, or else the name of its file."""
    words = " ".join(text[: 4 * _TITLE_CHARS].split())
    if not words:
        return PurePath(files[0].filename).stem[:_TITLE_CHARS] if files else "Chat"
    return words if len(words) <= _TITLE_CHARS else words[: _TITLE_CHARS - 1].rsplit(" ", 1)[0] + "…"
