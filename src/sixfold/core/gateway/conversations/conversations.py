"""Conversations that an account stores: ordered items, to which each response adds its own.

A response locks its conversation before its items are read, and unlocks it in the transaction that adds the
items of the response. Therefore two responses never start from the same items. A lock is released when its
server stops, or after the maximum duration of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.database import Database, Query, Row, Transaction, Value, many, one
from sixfold.core.gateway.policy import GatewayPolicy

# Time after the maximum duration of a call, for its response to be stored.
_LOCK_SECONDS = 60
_PAGE_BYTES = 8 * 2**20
_LAST_PLACE = 2**62
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class ConversationItem(msgspec.Struct, frozen=True):
    """An item of a conversation; `item` is its JSON, which contains the same `id`."""

    id: str
    item: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.item.encode())

    def renamed(self) -> ConversationItem:
        """Return the item with a new id that has the same prefix."""
        new_id = ids.new(self.id.partition("_")[0] or "item")
        fields = {**_raws(self.item), "id": msgspec.Raw(_encode(new_id))}
        return ConversationItem(new_id, _encode(fields).decode())


class ConversationRecord(msgspec.Struct, frozen=True):
    """A conversation without its items; `metadata` is a JSON object, `created_at` in epoch µs."""

    id: str
    metadata: str
    items: int
    size: int
    last_place: int
    created_at: int


class ConversationLock(msgspec.Struct, frozen=True):
    """A conversation that a response has locked."""

    tenant: Tenant
    conversation_id: str
    lock_id: str

    @property
    def row(self) -> dict[str, Value]:
        """The query parameters that select the conversation."""
        return {"account_id": self.tenant.account_id, "id": self.conversation_id, "lock_id": self.lock_id}


class ConversationNotFound(errors.NotFound):
    """The account does not have the conversation."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"Conversation with id '{conversation_id[:200]}' not found.")


class ConversationLocked(errors.UpstreamRefused):
    """A response to the conversation is in progress."""

    code = "conversation_locked"

    def __init__(self) -> None:
        message = "A response in this conversation is still being generated: retry when it has ended"
        super().__init__(message, param="conversation")


class ItemNotFound(errors.NotFound):
    """The conversation does not have the item."""

    def __init__(self, item_id: str) -> None:
        super().__init__(f"Item with id '{item_id[:200]}' not found.")


def finish(lock: ConversationLock, items: Sequence[ConversationItem]) -> Transaction[int]:
    """Add the items of a response and unlock the conversation; return the position of the last item.

    The quotas are checked before the response starts. A conversation that was deleted meanwhile is not
    restored.
    """
    rows = yield Query("conversation_unlock", lock.row)
    return (yield from insert(lock.tenant, lock.conversation_id, items)) if rows else 0


def history(tenant: Tenant, conversation_id: str, last: int, max_bytes: int) -> Transaction[tuple[str, ...]]:
    """Return the items up to position `last` as JSON; raises `TooLong` for more than `max_bytes`."""
    record = yield from one("conversation_size", **tenant.row, id=conversation_id)
    if record is None:
        raise ConversationNotFound(conversation_id)
    if record["size"] > max_bytes:
        raise errors.TooLong(
            "This conversation is too long to continue: start a new conversation with the parts that matter"
        )
    params = {"account_id": tenant.account_id, "conversation_id": conversation_id, "last": last}
    return tuple(str(row["item"]) for row in (yield Query("conversation_items", params)))


def stored_size(tenant: Tenant, conversation_id: str) -> Transaction[int]:
    """Return the bytes of the items of a conversation, or 0 if it does not exist."""
    record = yield from one("conversation_size", **tenant.row, id=conversation_id)
    return 0 if record is None else int(record["size"])


def insert(tenant: Tenant, conversation_id: str, items: Sequence[ConversationItem]) -> Transaction[int]:
    """Append items and return the position of the last one.

    Ids that already exist in the conversation are replaced.
    """
    params: dict[str, Value] = {"account_id": tenant.account_id, "conversation_id": conversation_id}
    encoded_ids = _encode([item.id for item in items]).decode()
    existing_ids = {
        str(row["id"]) for row in (yield Query("conversation_items_known", {**params, "ids": encoded_ids}))
    }
    inserted: list[ConversationItem] = []
    for item in items:
        inserted.append(item.renamed() if item.id in existing_ids else item)
        existing_ids.add(inserted[-1].id)
    growth: dict[str, Value] = {"items": len(items), "size": sum(item.size for item in inserted)}
    rows = yield Query(
        "conversation_grow", {"account_id": tenant.account_id, "id": conversation_id, **growth}
    )
    last = int(rows[0]["last_place"])
    places = enumerate(inserted, last - len(items) + 1)
    each = [
        {**params, "place": place, "id": item.id, "size": item.size, "item": item.item}
        for place, item in places
    ]
    if each:
        yield Query("conversation_item_insert", {}, each)
    return last


class ConversationStore:
    """The conversations of all accounts; `holder` returns the id of this server process."""

    def __init__(self, database: Database, policy: GatewayPolicy, holder: Callable[[], str]) -> None:
        self._database = database
        self._policy = policy
        self._holder = holder

    def reconfigure(self, policy: GatewayPolicy) -> None:
        """Apply a new policy."""
        self._policy = policy

    async def create(
        self, tenant: Tenant, metadata: str, items: Sequence[ConversationItem]
    ) -> ConversationRecord:
        """Create a conversation; raises `TooLarge` above a quota."""
        return await self._database.write(self._create(tenant, ids.new("conv"), metadata, items))

    def _create(
        self, tenant: Tenant, conversation_id: str, metadata: str, items: Sequence[ConversationItem]
    ) -> Transaction[ConversationRecord]:
        yield from self.check_quota(tenant, _size(items), new=True)
        row: dict[str, Value] = {"id": conversation_id, "metadata": metadata}
        yield Query("conversation_insert", {**tenant.row, **row})
        yield from insert(tenant, conversation_id, items)
        return (yield from self._get(tenant, conversation_id))

    async def get(self, tenant: Tenant, conversation_id: str) -> ConversationRecord:
        """Return a conversation; raises `ConversationNotFound`."""
        return await self._database.read(self._get(tenant, conversation_id))

    def _get(self, tenant: Tenant, conversation_id: str) -> Transaction[ConversationRecord]:
        row = yield from one("conversation_get", **tenant.row, id=conversation_id)
        if row is None:
            raise ConversationNotFound(conversation_id)
        return ConversationRecord(**row)

    @property
    def life(self) -> dict[str, Value]:
        """The query parameters that determine whether a lock has ended."""
        seconds = self._policy.call_seconds + _LOCK_SECONDS
        return {"life": int(seconds * SECOND_US), "holder": self._holder()}

    async def describe(self, tenant: Tenant, conversation_id: str, metadata: str) -> ConversationRecord:
        def transaction() -> Transaction[ConversationRecord]:
            record = yield from self._get(tenant, conversation_id)
            params = {"account_id": tenant.account_id, "id": conversation_id}
            yield Query("conversation_describe", {**params, "metadata": metadata})
            return msgspec.structs.replace(record, metadata=metadata)

        return await self._database.write(transaction())

    async def delete(self, tenant: Tenant, conversation_id: str) -> None:
        """Delete a conversation with its items, even while a response to it is in progress."""

        def transaction() -> Transaction[None]:
            yield from self._get(tenant, conversation_id)
            shared = {"account_id": tenant.account_id, "kind": "chat", "object_id": conversation_id}
            yield Query("shares_end_object", shared)
            yield Query("conversation_delete", {"account_id": tenant.account_id, "id": conversation_id})

        await self._database.write(transaction())

    async def add(
        self, tenant: Tenant, conversation_id: str, items: Sequence[ConversationItem]
    ) -> tuple[ConversationItem, ...]:
        """Append items and return them; raises `ConversationLocked`, and `TooLarge` above a quota."""

        def transaction() -> Transaction[tuple[ConversationItem, ...]]:
            yield from self.acquire(tenant, conversation_id, "items", items)
            lock = ConversationLock(tenant, conversation_id, "items")
            last = yield from finish(lock, items)
            params = {"account_id": tenant.account_id, "conversation_id": conversation_id}
            between: dict[str, Value] = {"first": last - len(items) + 1, "last": last}
            rows = yield Query("conversation_items_between", {**params, **between})
            return tuple(ConversationItem(str(row["id"]), str(row["item"])) for row in rows)

        return await self._database.write(transaction())

    async def item(self, tenant: Tenant, conversation_id: str, item_id: str) -> str:
        """Return an item as JSON; raises `ItemNotFound`, and `TooManyRequests` as `page` does."""

        def transaction() -> Transaction[tuple[int, int]]:
            yield from self._get(tenant, conversation_id)
            row = yield from _item(tenant, conversation_id, item_id)
            return int(row["place"]), int(row["size"])

        place, size = await self._database.read(transaction())
        items = await self._between(tenant, conversation_id, (place, place), size)
        if not items:
            raise ItemNotFound(item_id)
        return items[0]

    async def delete_item(self, tenant: Tenant, conversation_id: str, item_id: str) -> ConversationRecord:
        """Delete an item and return its conversation; raises `ItemNotFound`."""

        def transaction() -> Transaction[ConversationRecord]:
            yield from self._get(tenant, conversation_id)
            params = {"account_id": tenant.account_id, "conversation_id": conversation_id}
            rows = yield from many("conversation_item_delete", **params, id=item_id)
            if not rows:
                raise ItemNotFound(item_id)
            growth: dict[str, Value] = {"items": -1, "size": -int(rows[0]["size"])}
            yield Query(
                "conversation_shrink", {"account_id": tenant.account_id, "id": conversation_id, **growth}
            )
            return (yield from self._get(tenant, conversation_id))

        return await self._database.write(transaction())

    async def page(
        self, tenant: Tenant, conversation_id: str, after: str, limit: int, *, newest_first: bool
    ) -> tuple[tuple[str, ...], bool]:
        """Return items as JSON, and whether more exist; raises `ItemNotFound` for an unknown `after`.

        A page ends after 8 MiB. Raises `TooManyRequests` if there is not enough memory.
        """

        def transaction() -> Transaction[tuple[list[int], int, bool]]:
            yield from self._get(tenant, conversation_id)
            place = _LAST_PLACE if newest_first else 0
            if after:
                place = int((yield from _item(tenant, conversation_id, after))["place"])
            params = {"account_id": tenant.account_id, "conversation_id": conversation_id}
            name = "conversation_places_down" if newest_first else "conversation_places_up"
            rows = yield Query(name, {**params, "after": place, "limit": limit + 1})
            places: list[int] = []
            total = 0
            for row in rows[:limit]:
                if places and total + int(row["size"]) > _PAGE_BYTES:
                    break
                total += int(row["size"])
                places.append(int(row["place"]))
            return places, total, len(rows) > len(places)

        places, size, more = await self._database.read(transaction())
        if not places:
            return (), False
        items = await self._between(tenant, conversation_id, (min(places), max(places)), size)
        return items[::-1] if newest_first else items, more

    async def _between(
        self, tenant: Tenant, conversation_id: str, places: tuple[int, int], size: int
    ) -> tuple[str, ...]:
        """Return the items between two places as JSON when there is enough memory for `size` bytes."""
        await loaded_objects.reserve(size, loaded_objects.INLINED_COPIES)
        params = {"account_id": tenant.account_id, "conversation_id": conversation_id}
        query = many("conversation_items_between", **params, first=places[0], last=places[1])
        rows = await self._database.read(query, snapshot=False, in_thread=size > LOOP_BYTES)
        return tuple(str(row["item"]) for row in rows)

    async def items(self, tenant: Tenant, conversation_id: str, max_bytes: int) -> tuple[str, ...]:
        """Return all items as JSON.

        Raises `ConversationNotFound`, `TooLong`, and `TooManyRequests` if there is not enough memory.
        """
        size = await self.reserve_memory(tenant, conversation_id, max_bytes)
        reading = history(tenant, conversation_id, _LAST_PLACE, max_bytes)
        return await self._database.read(reading, in_thread=size > LOOP_BYTES)

    async def lock(
        self,
        tenant: Tenant,
        conversation_id: str,
        lock_id: str,
        items: Sequence[ConversationItem],
        max_bytes: int,
    ) -> tuple[str, ...]:
        """Lock a conversation for a response that will add `items`; return its current items as JSON.

        Raises `ConversationNotFound`, `ConversationLocked`, `TooLong`, `TooLarge` above a quota, and
        `TooManyRequests` if there is not enough memory.
        """
        await self.reserve_memory(tenant, conversation_id, max_bytes)

        def transaction() -> Transaction[tuple[str, ...]]:
            yield from self.acquire(tenant, conversation_id, lock_id, items)
            return (yield from history(tenant, conversation_id, _LAST_PLACE, max_bytes))

        return await self._database.write(transaction())

    async def reserve_memory(self, tenant: Tenant, conversation_id: str, max_bytes: int) -> int:
        """Wait until there is enough memory for the items, unless they exceed `max_bytes`.

        Return the size of the items; raises `TooManyRequests`.
        """
        size = await self._database.read(stored_size(tenant, conversation_id), snapshot=False)
        if size <= max_bytes:
            await loaded_objects.reserve(size, loaded_objects.INLINED_COPIES)
        return size

    def acquire(
        self, tenant: Tenant, conversation_id: str, lock_id: str, items: Sequence[ConversationItem]
    ) -> Transaction[None]:
        """Lock a conversation to which `items` will be added.

        Raises `ConversationNotFound`, `ConversationLocked` and `TooLarge`.
        """
        record = yield from self._get(tenant, conversation_id)
        yield from self.check_quota(tenant, _size(items))
        if record.items + len(items) > self._policy.conversation_items:
            raise errors.TooLarge(
                f"A conversation may have at most {self._policy.conversation_items} items: "
                "delete some, or start a new conversation"
            )
        params = ConversationLock(tenant, conversation_id, lock_id).row
        if not (yield Query("conversation_lock", {**params, **self.life})):
            raise ConversationLocked

    async def unlock(self, lock: ConversationLock) -> None:
        """Unlock a conversation if this lock still holds it."""
        await self._database.write(many("conversation_unlock", **lock.row), durable=False)

    def check_quota(self, tenant: Tenant, size: int, *, new: bool = False) -> Transaction[None]:
        """Raise `TooLarge` if an account may not store `size` more bytes, or a `new` conversation."""
        yield from check_quota(self._policy, tenant, size, new=new)


def check_quota(policy: GatewayPolicy, tenant: Tenant, size: int, *, new: bool = False) -> Transaction[None]:
    """Raise `TooLarge` if an account may not store `size` more bytes, or a `new` conversation."""
    usage = yield from one("conversation_usage", account_id=tenant.account_id)
    used = int(usage["size"]) if usage is not None else 0
    if used + size > policy.conversations_bytes:
        raise errors.TooLarge(
            f"An account's conversations may use at most {policy.conversations_bytes:,} bytes in total: "
            "delete some"
        )
    if new and usage is not None and usage["conversations"] >= policy.conversations:
        raise errors.TooLarge(
            f"An account may store at most {policy.conversations} conversations: delete some"
        )


def _item(tenant: Tenant, conversation_id: str, item_id: str) -> Transaction[Row]:
    params = {"account_id": tenant.account_id, "conversation_id": conversation_id}
    row = yield from one("conversation_item_place", **params, id=item_id)
    if row is None:
        raise ItemNotFound(item_id)
    return row


def _size(items: Sequence[ConversationItem]) -> int:
    return sum(item.size for item in items)
