"""The routes of `/chat`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from sixfold.core.accounts import rights
from sixfold.core.gateway.conversations.chats import ChatStore
from sixfold.ui.auth import PageAuth
from sixfold.ui.chat.answer_routes import AnswerRoutes
from sixfold.ui.chat.attachments import ChatFiles
from sixfold.ui.chat.pages import ChatPages
from sixfold.ui.chat.thread_view import ThreadReader
from sixfold.ui.templating import PageTemplates, model_title
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 16_384


def build_api(services: WebServices, apis: Collection[str]) -> ApiGroup:
    templates = PageTemplates(apis, {"model_title": partial(model_title, services.catalog)})
    auth = PageAuth(services)
    store = ChatStore(services.database, services.conversations)
    reader = ThreadReader(store, templates)
    pages = ChatPages(services, templates, auth, store, reader)
    answers = AnswerRoutes(services, auth, store, reader, pages)
    page, signed_in, run = auth.page, auth.signed_in, rights.RUN
    body = services.settings.inline_body_bytes
    chat = "/chat/{conversation_id}"
    return ApiGroup(
        "ui",
        templates.error_page,
        (
            RouteEntry("/chat", {"GET": page(pages.new), "POST": signed_in(answers.ask)}, body, access=run),
            RouteEntry(chat, {"GET": page(pages.show), "POST": signed_in(answers.ask)}, body, access=run),
            RouteEntry(f"{chat}/events", {"GET": signed_in(answers.events)}, access=run),
            RouteEntry(f"{chat}/again", {"POST": signed_in(answers.again)}, _FORM_BYTES, access=run),
            RouteEntry(f"{chat}/stop", {"POST": signed_in(answers.stop)}, _FORM_BYTES, access=run),
            RouteEntry(f"{chat}/branch", {"POST": signed_in(pages.branch)}, _FORM_BYTES, access=run),
            RouteEntry(f"{chat}/rename", {"POST": signed_in(pages.rename)}, _FORM_BYTES, access=run),
            RouteEntry(f"{chat}/delete", {"POST": signed_in(pages.delete)}, _FORM_BYTES, access=run),
            RouteEntry("/chat-files/{file_id}", {"GET": signed_in(ChatFiles(services).show)}, access=run),
        ),
        prefixes=("/chat/", "/chat-files/"),
    )
