"""View of a chat: its messages as HTML, with their versions and costs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sixfold.core import money
from sixfold.core.accounts import charges
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway.conversations.chats import ChatItem, ChatRecord, ChatStore
from sixfold.ui.chat import commands, messages, versions
from sixfold.ui.chat.messages import Draft, StoredMessage
from sixfold.ui.chat.rendering import RenderedTexts
from sixfold.ui.chat.versions import MessageVersions
from sixfold.ui.templating import PageTemplates

# Number of messages that a page shows at first and adds on request; a browser lays them out at once.
MESSAGES, EARLIER_MESSAGES = 40, 16
_ENDS = {
    "length": "The model's limit was reached: ask it to continue.",
    "filter": "The model's content filter ended the answer.",
    "stopped": "Stopped.",
}
_NO_VERSIONS: Mapping[int, MessageVersions] = {}


class MessageView(msgspec.Struct, frozen=True):
    """A message with its HTML, which is empty for a question."""

    message: StoredMessage
    html: str
    versions: MessageVersions | None

    @property
    def note(self) -> str:
        """The reason why an answer ended early, or ""."""
        return _ENDS.get(self.message.detail.end, "")

    @property
    def cost(self) -> str:
        """The charge of the answer, in USD with two significant digits."""
        return money.short_usd(self.message.detail.cost)

    @property
    def calculation(self) -> str:
        """The calculation of the charge in words."""
        charge = charges.decode(self.message.detail.charge or None)
        return charges.in_words(charge) or "" if charge is not None and charge.lines else ""


class ThreadView(msgspec.Struct, frozen=True):
    """A part of a chat; `earlier` is the position before which there are more messages, or 0."""

    chat: ChatRecord
    messages: tuple[MessageView, ...]
    draft: Draft | None
    draft_html: str
    earlier: int
    cost: int

    @property
    def total(self) -> str:
        """The charges of all answers of the chat and its versions, in USD."""
        return money.short_usd(self.cost)

    @property
    def last_question(self) -> str:
        """The text of the last question on the page."""
        questions = (view.message.text for view in reversed(self.messages) if view.message.role == "user")
        return next(questions, "")

    @property
    def question(self) -> str:
        """The id of the last question if its answer failed, or an empty string."""
        last = self.messages[-1].message if self.messages else None
        return last.id if last is not None and last.role == "user" and not self.chat.busy else ""


class ThreadReader:
    """Reads chats for the page."""

    def __init__(self, store: ChatStore, templates: PageTemplates) -> None:
        self._store = store
        self._templates = templates
        self._texts = RenderedTexts()

    async def read(self, tenant: Tenant, chat_id: str, before: int | None = None) -> ThreadView:
        """Return the last messages of a chat, optionally before a position; raises `ConversationNotFound`."""
        chat = await self._store.get(tenant, chat_id)
        place = chat.last_place + 1 if before is None else before
        count = MESSAGES if before is None else EARLIER_MESSAGES
        page, has_earlier = await self._store.items(tenant, chat_id, count, place)
        family = await self._store.versions(tenant, chat)
        known = versions.by_place(chat_id, family) if len(family) > 1 else _NO_VERSIONS
        views = [view for item in page if (view := await self._view(item, known)) is not None]
        draft = messages.read_draft(chat.draft) if before is None else None
        return ThreadView(
            chat,
            tuple(views),
            draft,
            await self._texts.html(draft.text) if draft is not None and draft.text else "",
            page[0].place if has_earlier and page else 0,
            sum(version.cost for version in family),
        )

    async def fragment(self, tenant: Tenant, chat_id: str, item_id: str) -> str:
        item = await self._store.item(tenant, chat_id, item_id)
        return self.text(chat_id, await self._view(item, _NO_VERSIONS))

    async def question(self, tenant: Tenant, chat_id: str, item_id: str) -> StoredMessage | None:
        """Return a message of the user, or None for another item; raises `ItemNotFound`."""
        item = await self._store.item(tenant, chat_id, item_id)
        message = messages.parse(item.id, item.place, item.item)
        return message if message is not None and message.role == "user" else None

    async def ending(self, tenant: Tenant, chat_id: str) -> tuple[str, str]:
        """Return the last answer or the reason for its failure as HTML, and the cost of the chat."""
        thread = await self.read(tenant, chat_id)
        last = thread.messages[-1] if thread.messages else None
        if last is not None and last.message.role == "assistant":
            return self.text(chat_id, last), thread.total
        return self._templates.text("chat/failure.html", thread=thread), thread.total

    def text(self, chat_id: str, view: MessageView | None) -> str:
        return "" if view is None else self._templates.text("chat/message.html", chat_id=chat_id, view=view)

    async def _view(self, item: ChatItem, known: Mapping[int, MessageVersions]) -> MessageView | None:
        message = messages.parse(item.id, item.place, item.item, item.detail)
        if message is None:
            return None
        html = await self._texts.html(message.text) if message.role == "assistant" else ""
        html = commands.link_citations(html, message.detail.sources)
        return MessageView(message, html, known.get(message.place))
