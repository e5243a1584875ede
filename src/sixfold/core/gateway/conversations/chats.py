"""Chats: conversations of the chat page, with titles, versions and the answer in progress.

A chat is a conversation as in `/v1/conversations`, with the same locks, quotas, export and erasure. Editing a
message creates a version: another conversation that starts with a copy of the items before that message. An
answer in progress is stored about every second, so that any server process can show it, and the text so far
is not lost if its process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Database, Query, Row, Transaction, Value, many, one
from sixfold.core.gateway.conversations import conversations
from sixfold.core.gateway.conversations.conversations import (
    ConversationItem,
    ConversationLock,
    ConversationNotFound,
    ConversationStore,
    ItemNotFound,
)

TITLE_CHARS = 80
MAX_VERSIONS = 200
# Maximum JSON size of the items that a page shows together, and of one item: the API stores items of 32 MiB.
PAGE_BYTES, ITEM_BYTES = 2 * 2**20, 2**20
_END = 2**62
_encode = msgspec.json.Encoder().encode


class ChatItem(msgspec.Struct, frozen=True):
    """An item of a chat as JSON, its position, and the details that the page shows with its text, as JSON."""

    id: str
    place: int
    item: str
    detail: str


class ChatItems(NamedTuple):
    """Items of a chat, oldest first, and whether earlier items exist."""

    items: tuple[ChatItem, ...]
    has_earlier: bool


class ChatRecord(msgspec.Struct, frozen=True):
    """A chat without its items. Times are in epoch µs, `cost` in micro-dollars.

    A version contains the items of `parent` up to the position `shared`. `draft` is an answer in progress
    (`busy`) or a failed answer, as JSON, or empty.
    """

    id: str
    title: str
    model: str
    root: str
    parent: str
    shared: int
    draft: str
    cost: int
    items: int
    size: int
    last_place: int
    created_at: int
    changed_at: int
    busy: bool

    @property
    def family(self) -> str:
        """The id of the first version."""
        return self.root or self.id


class ChatSummary(msgspec.Struct, frozen=True):
    """An entry of the list of chats: the last changed version of a chat."""

    id: str
    root: str
    title: str
    model: str
    changed_at: int


class ChatVersion(msgspec.Struct, frozen=True):
    """A version of a chat, which contains the items of `parent` up to the position `shared`."""

    id: str
    parent: str
    shared: int
    cost: int


class ChatTurn(msgspec.Struct, frozen=True):
    """The lock for the answer to a stored question, and all items as JSON, oldest first.

    If there is no question, the last item is answered.
    """

    lock: ConversationLock
    question: ConversationItem | None
    items: tuple[str, ...]


class ChatStore:
    """The chats of all accounts."""

    def __init__(self, database: Database, store: ConversationStore) -> None:
        self._database = database
        self._store = store

    async def summaries(self, tenant: Tenant, limit: int, before: int = _END) -> tuple[ChatSummary, ...]:
        """Return the chats last changed before a time (epoch µs), each by its last changed version."""
        rows = await self._database.read(many("chat_list", **tenant.row, before=before, limit=limit))
        return tuple(ChatSummary(**row) for row in rows)

    async def get(self, tenant: Tenant, chat_id: str) -> ChatRecord:
        """Return a chat; raises `ConversationNotFound`."""
        return await self._database.read(self._get(tenant, chat_id))

    def _get(self, tenant: Tenant, chat_id: str) -> Transaction[ChatRecord]:
        row = yield from one("chat_get", **tenant.row, id=chat_id, **self._store.life)
        if row is None:
            raise ConversationNotFound(chat_id)
        values: dict[str, Any] = {**row, "busy": bool(row["busy"])}
        return ChatRecord(**values)

    async def items(self, tenant: Tenant, chat_id: str, limit: int, before: int = _END) -> ChatItems:
        """Return the last items before a position: at most `limit` items and `PAGE_BYTES` of JSON."""
        bounds = {"before": before, "limit": limit + 1, "most_bytes": PAGE_BYTES, "item_bytes": ITEM_BYTES}
        params = {"account_id": tenant.account_id, "id": chat_id}
        rows = await self._database.read(many("chat_items", **params, **bounds))
        page = rows[:limit]
        has_earlier = bool(rows) and int(rows[0]["found"]) > len(page)
        return ChatItems(tuple(map(_shown, reversed(page))), has_earlier)

    async def item(self, tenant: Tenant, chat_id: str, item_id: str) -> ChatItem:
        """Return an item; raises `ItemNotFound`."""

        def transaction() -> Transaction[ChatItem]:
            yield from self._get(tenant, chat_id)
            return _shown((yield from _item(tenant, chat_id, item_id)))

        return await self._database.read(transaction())

    async def create(self, tenant: Tenant, title: str, model: str) -> str:
        """Create an empty chat and return its id; raises `TooLarge` above a quota."""
        chat_id = ids.new("conv")

        def transaction() -> Transaction[None]:
            yield from self._store.check_quota(tenant, 0, new=True)
            values: dict[str, Value] = {"id": chat_id, "title": title[:TITLE_CHARS], "model": model}
            yield Query("chat_insert", {**tenant.row, **values})

        await self._database.write(transaction())
        return chat_id

    async def begin(
        self, tenant: Tenant, chat_id: str, question: ConversationItem | None, model: str, max_bytes: int
    ) -> ChatTurn:
        """Store a question, if there is a new one, and lock the chat for its answer.

        Raises `ConversationNotFound`, `ConversationLocked`, `TooLong`, `TooLarge` above a quota, and
        `TooManyRequests` if there is not enough memory.
        """
        await self._store.reserve_memory(tenant, chat_id, max_bytes)
        lock = ConversationLock(tenant, chat_id, ids.new("lock"))

        def transaction() -> Transaction[tuple[str, ...]]:
            yield from self._get(tenant, chat_id)
            added = () if question is None else (question,)
            yield from self._store.acquire(tenant, chat_id, lock.lock_id, added)
            yield from conversations.insert(tenant, chat_id, added)
            params = {"account_id": tenant.account_id, "id": chat_id}
            yield Query("chat_begin", {**params, "model": model, "draft": "{}"})
            return (yield from conversations.history(tenant, chat_id, _END, max_bytes))

        return ChatTurn(lock, question, await self._database.write(transaction()))

    async def checkpoint(self, lock: ConversationLock, draft: str) -> bool:
        """Store the answer so far; return whether the answer should continue."""
        rows = await self._database.write(many("chat_checkpoint", **lock.row, draft=draft), durable=False)
        return bool(rows) and not rows[0]["stopping"]

    async def finish(
        self, lock: ConversationLock, answer: ConversationItem | None, detail: str, draft: str, cost: int
    ) -> None:
        """Add the answer, or the draft of a failed answer, and unlock the chat."""

        def transaction() -> Transaction[None]:
            params = {"account_id": lock.tenant.account_id, "id": lock.conversation_id}
            place = yield from conversations.finish(lock, () if answer is None else (answer,))
            if answer is not None and place:
                yield Query("chat_item_detail", {**params, "place": place, "detail": detail})
            yield Query("chat_end", {**params, "draft": draft, "cost": cost})

        await self._database.write(transaction())

    async def stop(self, tenant: Tenant, chat_id: str) -> None:
        """Mark the answer in progress to be stopped by its process; raises `ConversationNotFound`."""

        def transaction() -> Transaction[None]:
            yield from self._get(tenant, chat_id)
            yield Query("chat_stop", {"account_id": tenant.account_id, "id": chat_id})

        await self._database.write(transaction())

    async def copy(
        self, tenant: Tenant, chat_id: str, item_id: str, *, title: str = "", version: bool = False
    ) -> str:
        """Copy a chat up to an item and return the id of the copy.

        The copy includes the item and is a new chat. If `version` is set, the copy ends before the item and
        belongs to the chat. Raises `ConversationNotFound`, `ItemNotFound`, and `TooLarge` above a quota.
        """
        copy_id = ids.new("conv")

        def transaction() -> Transaction[None]:
            chat = yield from self._get(tenant, chat_id)
            place = int((yield from _item(tenant, chat_id, item_id))["place"])
            yield from self._store.check_quota(tenant, chat.size, new=True)
            params = {"account_id": tenant.account_id, "copy_id": copy_id}
            last = place - 1 if version else place
            parent = (yield from self._owner(tenant, chat, last)) if version else ""
            values: dict[str, Value] = {
                "title": (title or chat.title)[:TITLE_CHARS],
                "root": chat.family if version else "",
                "parent": parent,
            }
            yield Query("chat_copy", {**tenant.row, **params, "id": chat_id, "last": last, **values})
            yield Query("chat_copy_items", {**params, "id": chat_id, "last": last})
            yield Query("chat_count_items", {**params, "last": last})

        await self._database.write(transaction())
        return copy_id

    def _owner(self, tenant: Tenant, chat: ChatRecord, last: int) -> Transaction[str]:
        """Return the version that added the message after `last`, so that its edits form one group."""
        family = {str(row["id"]): row for row in (yield from self._family(tenant, chat.family))}
        if len(family) >= MAX_VERSIONS:
            raise errors.TooLarge(f"A chat may have at most {MAX_VERSIONS} versions: start a new chat")
        owner = chat.id
        while (row := family.get(owner)) is not None and row["parent"] in family and last <= row["shared"]:
            owner = str(row["parent"])
        return owner

    async def versions(self, tenant: Tenant, chat: ChatRecord) -> tuple[ChatVersion, ...]:
        """Return all versions of a chat, oldest first."""
        rows = await self._database.read(self._family(tenant, chat.family))
        return tuple(ChatVersion(**row) for row in rows)

    def _family(self, tenant: Tenant, root: str) -> Transaction[Sequence[Row]]:
        params = {"account_id": tenant.account_id, "root": root}
        return (yield Query("chat_versions", {**params, "limit": MAX_VERSIONS}))

    async def rename(self, tenant: Tenant, chat_id: str, title: str) -> None:
        """Rename a chat; raises `ConversationNotFound`."""
        await self._change(tenant, chat_id, "chat_rename", title=title[:TITLE_CHARS])

    async def delete(self, tenant: Tenant, chat_id: str) -> None:
        """Delete a chat with its versions; raises `ConversationNotFound`."""
        await self._change(tenant, chat_id, "shares_end_chat", "chat_delete")

    async def _change(self, tenant: Tenant, chat_id: str, *queries: str, **values: Value) -> None:
        def transaction() -> Transaction[None]:
            chat = yield from self._get(tenant, chat_id)
            for query in queries:
                yield Query(query, {"account_id": tenant.account_id, "root": chat.family, **values})

        await self._database.write(transaction())


def _item(tenant: Tenant, chat_id: str, item_id: str) -> Transaction[Row]:
    params = {"account_id": tenant.account_id, "id": chat_id}
    row = yield from one("chat_item", **params, item_id=item_id, item_bytes=ITEM_BYTES)
    if row is None:
        raise ItemNotFound(item_id)
    return row


def _shown(row: Row) -> ChatItem:
    """Return an item for a page; if it is too large, its content is replaced by a mark."""
    item = row["item"]
    if not item:
        limit = f"{row['size']:,} bytes, and a page shows {ITEM_BYTES:,}"
        text = f"This message is not shown because it has {limit}: read it with GET /v1/conversations"
        item = _encode({"type": "message", "role": "assistant", "content": text}).decode()
    return ChatItem(row["id"], row["place"], item, row["detail"])
