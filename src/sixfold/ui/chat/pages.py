"""The pages of chats: a new chat, a chat with its messages, and the forms that change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.configuration.ports import InstallView
from sixfold.core.gateway.conversations.chats import TITLE_CHARS, ChatStore
from sixfold.core.gateway.conversations.conversations import ConversationNotFound
from sixfold.core.gateway.routing import outage_clauses
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.chat import commands, model_choices, tools
from sixfold.ui.chat.thread_view import ThreadReader, ThreadView
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.services import WebServices

CHATS = 100
_FAMILY = "chat"
_MAX_TEXT = 200


def path_of(chat_id: str, anchor: str = "") -> str:
    return f"/chat/{quote(chat_id)}{f'#{anchor}' if anchor else ''}"


class Composer(msgspec.Struct, frozen=True):
    """The form of a message: its content, whether to search the web, and the error if it was rejected."""

    model: str = ""
    text: str = ""
    edited: str = ""
    problem: str = ""
    web: bool = False
    tools: Sequence[str] = ()


def _composer(last_text: str, tool_names: Sequence[str]) -> Composer:
    """Return an empty form with the web search and tools of an earlier message."""
    return Composer(web=commands.parse(last_text).web, tools=tools.mentioned(last_text, tool_names))


class ChatPages:
    """The pages of chats, and the forms that change a chat."""

    def __init__(
        self,
        services: WebServices,
        templates: PageTemplates,
        auth: PageAuth,
        store: ChatStore,
        reader: ThreadReader,
    ) -> None:
        self._services = services
        self._templates = templates
        self._auth = auth
        self._store = store
        self._reader = reader

    async def new(self, request: Request, user: PageUser) -> Response:
        model = requests.query_text(request, "model", _MAX_TEXT)
        composer = Composer(model, requests.query_text(request, "text", _MAX_TEXT))
        return await self.render(user, None, composer, chats_before=_number(request, "chats"))

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show a chat: its last messages, or those before a position."""
        place = _number(request, "before")
        thread = await self._reader.read(user.tenant, requests.path_value(request, "conversation_id"), place)
        edited = requests.query_text(request, "edit", _MAX_TEXT)
        message = await self._reader.question(user.tenant, thread.chat.id, edited) if edited else None
        if message is None:
            return await self.render(user, thread)
        names = self._services.tool_servers.names(user.principal)
        text = tools.without_marks(commands.without_web(message.text), names)
        composer = replace(_composer(message.text, names), text=text, edited=message.id)
        return await self.render(user, thread, composer)

    async def render(
        self,
        user: PageUser,
        thread: ThreadView | None = None,
        composer: Composer | None = None,
        status: int = 200,
        chats_before: int | None = None,
    ) -> Response:
        """Return the page of a chat, or of a new one; the list shows chats changed before `chats_before`."""
        groups = model_choices.groups(self._services.gateway, user.principal)
        names = model_choices.names(groups)
        tool_names = self._services.tool_servers.names(user.principal)
        composer = composer or _composer(thread.last_question if thread is not None else "", tool_names)
        model_name = composer.model or (thread.chat.model if thread is not None else "")
        bound = {} if chats_before is None else {"before": chats_before}
        chats = await self._store.summaries(user.tenant, CHATS, **bound)
        unresponsive = self._services.gateway.router.unresponsive("default")
        values: dict[str, Any] = {
            "user": user,
            "chats": chats,
            "older_chats": chats[-1].changed_at if len(chats) == CHATS else 0,
            "thread": thread,
            "groups": groups,
            "model": model_name if model_name in names else model_choices.first(groups),
            "composer": composer,
            "starters": _starters(self._services) if thread is None else (),
            "web_search": self._services.web_search.available,
            "tool_servers": tool_names,
            "weights": await self._weights(user) if not groups else (),
            "outage": " and ".join(outage_clauses(unresponsive)),
            "speech": model_choices.speech_models(self._services),
        }
        return self._templates.render("chat/page.html", user.session, status=status, **values)

    async def _weights(self, user: PageUser) -> tuple[InstallView, ...]:
        """Return the chat models that an operator can install here."""
        if user.session is None or not user.session.account.is_operator:
            return ()
        return tuple(view for view in await self._services.installs.view() if view.family == _FAMILY)

    async def balance(self, account_id: str) -> str:
        return self._templates.balance(await self._services.database.read(accounts.by_id(account_id)))

    async def rename(self, request: Request, user: PageUser) -> Response:
        form = await self._auth.read_form(request, user)
        chat_id = requests.path_value(request, "conversation_id")
        title = " ".join(form.get("title", "").split())
        if not 0 < len(title) <= TITLE_CHARS:
            raise errors.BadRequest(f"The title must have 1 to {TITLE_CHARS} characters")
        await self._store.rename(user.tenant, chat_id, title)
        return RedirectResponse(path_of(chat_id), 303)

    async def delete(self, request: Request, user: PageUser) -> Response:
        await self._auth.read_form(request, user)
        chat_id = requests.path_value(request, "conversation_id")
        running = self._services.response_tasks.get(user.account_id, chat_id)
        if running is not None:
            running.stop()
        await self._store.delete(user.tenant, chat_id)
        return RedirectResponse("/chat", 303)

    async def branch(self, request: Request, user: PageUser) -> Response:
        """Copy a chat up to one of its messages as a new chat."""
        form = await self._auth.read_form(request, user)
        chat_id, item = requests.path_value(request, "conversation_id"), form.get("item", "")
        if not item:
            raise ConversationNotFound(chat_id)
        chat = await self._store.get(user.tenant, chat_id)
        title = f"{chat.title[: TITLE_CHARS - 9]} (branch)"
        copy = await self._store.copy(user.tenant, chat_id, item, title=title)
        return RedirectResponse(path_of(copy), 303)


def _starters(services: WebServices) -> list[tuple[str, str]]:
    """Return example messages for a new chat, each with a description of the answer."""
    starters = [("Explain how tides work, with a table", "A formatted answer, with its cost below")]
    if "memory" in services.settings.enabled_apis:
        starters.append(("@memory What did I write last?", "An answer from your pages, with links to them"))
    if "ra1" in services.catalog:
        starters.append(("draw a red fox under birch trees", "An image in the chat, with its receipt"))
    return starters


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
