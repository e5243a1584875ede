"""Responses that an account stores, so that it can read them again and continue from them.

Each row contains the new part of its request and a link to the previous response, so that a conversation uses
no more space than its text. A conversation lasts as long as its last response; if an account stores too much,
its oldest responses are deleted first. A row contains the name of the model server if the server also stores
the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.concurrency import loaded_objects
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.database import Database, Query, Row, Transaction, Value, many, one, to_struct
from sixfold.core.gateway.conversations import conversations
from sixfold.core.gateway.conversations.conversations import ConversationItem, ConversationLock
from sixfold.core.gateway.policy import GatewayPolicy
from sixfold.core.secret_cipher import SecretCipher

# Maximum number of responses in one conversation.
_MAX_RESPONSES = 1000
# An account is checked each time it has grown by this fraction (1/n) of its limit.
_CHECKS_PER_LIMIT = 64
_encode = msgspec.json.Encoder().encode
_COMPACTION_INFO = b"sixfold compactions, version 1"
# The prefix of each encrypted summary; summaries of model servers have other prefixes.
SUMMARY_PREFIX = "sixfold-summary:"


class StoredResponse(msgspec.Struct, frozen=True):
    """A stored response. `input` is a JSON array, `response` a JSON object, as sent to and by the API.

    `server` is the target that stores the response under the same id, or empty. `place` is the position of
    its last item in its `conversation`.
    """

    id: str
    previous: str | None
    server: str
    input: str
    response: str
    conversation: str = ""
    place: int = 0

    @property
    def size(self) -> int:
        """The size of the input and the response in bytes."""
        return len(self.input.encode()) + len(self.response.encode())


class ResponseCanceled(errors.Conflict):
    """The response was canceled"""


class ResponseNotFound(errors.NotFound):
    """The response is not stored here."""

    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        super().__init__(f"Response with id '{response_id}' not found.")


class ResponseChain(msgspec.Struct, frozen=True):
    """A response and its predecessors, oldest first; `fault` is the error if the beginning is missing.

    The error is `ResponseNotFound` for a deleted response, `ConversationNotFound`, or `TooLong`. `items` are
    the items of the first response's conversation, up to that response, as JSON.
    """

    turns: tuple[StoredResponse, ...]
    fault: errors.SixfoldError | None = None
    items: tuple[str, ...] = ()


class OwnedObjects(msgspec.Struct, frozen=True):
    """Ids of objects that a model server stores for an account because of a response."""

    server: str
    response_id: str
    ids: tuple[str, ...]


class ConversationAddition(msgspec.Struct, frozen=True):
    """Items that a response adds to the conversation that it has locked."""

    lock: ConversationLock
    items: tuple[ConversationItem, ...]


def keep(tenant: Tenant, response: StoredResponse) -> Transaction[None]:
    row: dict[str, Value] = msgspec.structs.asdict(response)
    yield Query("response_keep", {**row, **tenant.row, "size": response.size})


def record(
    tenant: Tenant,
    response: StoredResponse | None,
    objects: OwnedObjects | None = None,
    addition: ConversationAddition | None = None,
    *,
    in_background: bool = False,
) -> Transaction[None]:
    """Store a response, its objects at the model server, and its items in its conversation.

    Raises `ResponseCanceled` for a response `in_background` that was canceled meanwhile.
    """
    canceled_id = response.id if in_background and response is not None else None
    if canceled_id and (yield from one("batch_response_canceled", response_id=canceled_id)) is not None:
        raise ResponseCanceled
    if addition is not None:
        place = yield from conversations.finish(addition.lock, addition.items)
        if response is not None:
            own = addition.lock.conversation_id
            response = msgspec.structs.replace(response, conversation=own, place=place)
    if response is not None:
        yield from keep(tenant, response)
    if objects is not None and objects.ids:
        shared: dict[str, Value] = {"server": objects.server, "response_id": objects.response_id}
        # In order, because another transaction of the account may insert the same ids.
        rows = [{**tenant.row, **shared, "id": each} for each in sorted(objects.ids)]
        yield Query("object_insert", {}, rows)


def owned(tenant: Tenant, object_ids: Iterable[str]) -> Transaction[Mapping[str, OwnedObjects]]:
    """Return the given objects of model servers that belong to the tenant, by id."""
    encoded_ids = _encode(sorted(object_ids)).decode()
    rows = yield Query("objects_owned", {**tenant.row, "ids": encoded_ids})
    return {
        str(row["id"]): OwnedObjects(str(row["server"]), str(row["response_id"]), (str(row["id"]),))
        for row in rows
    }


def get_chain(tenant: Tenant, response_id: str, max_bytes: int) -> Transaction[ResponseChain | None]:
    """Return a response with its predecessors, or None if it is not stored for any tenant.

    Raises `ResponseNotFound` for a response of another tenant. `fault` is `TooLong` for more than `max_bytes`
    or a thousand responses.
    """
    params: dict[str, Value] = {"id": response_id, **tenant.row, "links": _MAX_RESPONSES, "most": max_bytes}
    rows = yield Query("response_conversation", params)
    if not rows:
        yield from _reject_foreign(response_id)
        return None
    first, fault = rows[0], None
    if first["size"] > max_bytes or (first["previous"] and len(rows) == _MAX_RESPONSES):
        fault = too_long()
    elif first["previous"]:
        fault = ResponseNotFound(str(first["previous"]))
    items: tuple[str, ...] = ()
    if first["conversation"]:
        try:
            items = yield from conversations.history(
                tenant, str(first["conversation"]), int(first["place"]), max_bytes
            )
        except errors.SixfoldError as error:
            fault = error
    return ResponseChain(tuple(to_struct(StoredResponse, row) for row in rows), fault, items)


def _chain_size(tenant: Tenant, response_id: str, max_bytes: int) -> Transaction[int]:
    """Return the bytes that `get_chain` reads, at most about `max_bytes` for each of its parts."""
    params: dict[str, Value] = {"id": response_id, **tenant.row, "links": _MAX_RESPONSES, "most": max_bytes}
    row = yield from one("response_chain_sizes", **params)
    if row is None:
        return 0
    conversation = str(row["conversation"])
    size = 0 if not conversation else (yield from conversations.stored_size(tenant, conversation))
    return min(int(row["size"]), max_bytes) + (size if size <= max_bytes else 0)


def get_many(tenant: Tenant, response_ids: Iterable[str], max_bytes: int) -> Transaction[list[str]]:
    """Return the tenant's stored responses; raises `TooLong` for more than `max_bytes`.

    Raises `ResponseNotFound` for a response of another tenant, which must not be requested from a model
    server that shares its ids.
    """
    responses: list[str] = []
    for response_id in response_ids:
        row = yield from one("response_shown", **tenant.row, id=response_id)
        if row is None:
            yield from _reject_foreign(response_id)
        else:
            responses.append(str(row["response"]))
            max_bytes -= len(responses[-1].encode())
        if max_bytes < 0:
            raise too_long()
    return responses


def _reject_foreign(response_id: str) -> Transaction[None]:
    """Raise `ResponseNotFound` if any tenant stores a response with this id."""
    if (yield from one("response_known", id=response_id)) is not None:
        raise ResponseNotFound(response_id)


def too_long() -> errors.TooLong:
    """Return the error for a conversation above the limit of a request."""
    return errors.TooLong(
        "This conversation is too long to continue: start a new conversation with the parts that matter"
    )


class ResponseStore:
    """The stored responses of all accounts. Each server process has one store."""

    def __init__(self, database: Database, policy: GatewayPolicy) -> None:
        self._database = database
        self._policy = policy
        # Bytes added since the last check, by account.
        self._added_bytes: dict[str, int] = {}

    def reconfigure(self, policy: GatewayPolicy) -> None:
        """Apply a new policy."""
        self._policy = policy

    def should_store(self, requested: bool | None) -> bool:
        """Return whether to store a response: the request's setting, or else the operator's."""
        return self._policy.responses_bytes > 0 and (
            self._policy.store_responses if requested is None else requested
        )

    async def record(
        self,
        tenant: Tenant,
        response: StoredResponse | None,
        objects: OwnedObjects | None = None,
        addition: ConversationAddition | None = None,
        *,
        in_background: bool = False,
    ) -> None:
        """Store the response as received so far, durably; see `record`."""
        account_id = tenant.account_id
        await self._database.write(record(tenant, response, objects, addition, in_background=in_background))
        if response is None:
            return
        # An account that has not been checked counts as full, so that it is checked once.
        unchecked = self._policy.responses_bytes
        self._added_bytes[account_id] = self._added_bytes.get(account_id, unchecked) + response.size

    async def owned(self, tenant: Tenant, object_ids: Iterable[str]) -> Mapping[str, OwnedObjects]:
        """Run the transaction `owned`."""
        return await self._database.read(owned(tenant, object_ids), snapshot=False)

    async def get_chain(self, tenant: Tenant, response_id: str, max_bytes: int) -> ResponseChain | None:
        """Run the transaction `get_chain` when there is enough memory; raises `TooManyRequests`."""
        size = await self._database.read(_chain_size(tenant, response_id, max_bytes), snapshot=False)
        await loaded_objects.reserve(size, loaded_objects.INLINED_COPIES)
        reading = get_chain(tenant, response_id, max_bytes)
        return await self._database.read(reading, in_thread=size > LOOP_BYTES)

    async def get_many(self, tenant: Tenant, response_ids: Iterable[str], max_bytes: int) -> Sequence[str]:
        """Run the transaction `get_many` when there is enough memory; raises `TooManyRequests`."""
        all_ids = tuple(response_ids)
        if not all_ids:
            return ()
        encoded_ids = msgspec.json.encode(all_ids).decode()
        sizes = one("response_sizes", account_id=tenant.account_id, ids=encoded_ids)
        row = await self._database.read(sizes, snapshot=False)
        size = 0 if row is None else min(int(row["size"]), max_bytes)
        await loaded_objects.reserve(size, loaded_objects.INLINED_COPIES)
        reading = get_many(tenant, all_ids, max_bytes)
        return await self._database.read(reading, in_thread=size > LOOP_BYTES)

    async def get(self, tenant: Tenant, response_id: str) -> str:
        """Return a response as it was sent when there is enough memory.

        Raises `ResponseNotFound` and `TooManyRequests`.
        """
        size = int((await self._head(tenant, response_id))["size"])
        await loaded_objects.reserve(size, loaded_objects.DOCUMENT_COPIES, response_id)
        query = one("response_shown", **tenant.row, id=response_id)
        row = await self._database.read(query, snapshot=False, in_thread=size > LOOP_BYTES)
        if row is None:
            raise ResponseNotFound(response_id)
        return str(row["response"])

    async def has(self, tenant: Tenant, response_id: str) -> bool:
        """Return whether a tenant stores a response."""
        try:
            await self._head(tenant, response_id)
        except ResponseNotFound:
            return False
        return True

    async def server_of(self, tenant: Tenant, response_id: str) -> str:
        """Return the target that also stores a response, or an empty string; raises `ResponseNotFound`."""
        return str((await self._head(tenant, response_id))["server"])

    async def _head(self, tenant: Tenant, response_id: str) -> Row:
        row = await self._database.read(one("response_size", **tenant.row, id=response_id), snapshot=False)
        if row is None:
            raise ResponseNotFound(response_id)
        return row

    async def delete(self, tenant: Tenant, response_id: str) -> None:
        """Delete a response; raises `ResponseNotFound`."""

        def transaction() -> Transaction[None]:
            if not (yield from many("response_forget", **tenant.row, id=response_id)):
                raise ResponseNotFound(response_id)
            yield Query("objects_forget", {"account_id": tenant.account_id, "response_id": response_id})

        await self._database.write(transaction())

    async def sweep(self) -> None:
        """Delete expired responses, and the oldest responses of accounts above their limit."""
        days, max_bytes = self._policy.responses_days, self._policy.responses_bytes
        if days:
            await self._database.write(many("response_sweep", life=days * DAY_US), durable=False)
            await self._database.write(many("objects_sweep", life=days * DAY_US), durable=False)
        for account_id in [
            account_id
            for account_id, added in self._added_bytes.items()
            if added * _CHECKS_PER_LIMIT >= max_bytes
        ]:
            self._added_bytes[account_id] = 0
            deletion = many("delete_excess_responses", account_id=account_id, most=max_bytes)
            await self._database.write(deletion, durable=False)


class CompactionCipher:
    """Encrypts summaries for the account whose conversation they replace; `master` is the server's key."""

    def __init__(self, master: bytes) -> None:
        self._cipher = SecretCipher(master, _COMPACTION_INFO)

    def encrypt(self, account_id: str, summary: str) -> str:
        """Return an encrypted summary."""
        return SUMMARY_PREFIX + self._cipher.encrypt(account_id, summary)

    def decrypt(self, account_id: str, content: str) -> str:
        """Decrypt a summary; raises `ValueError` if it belongs to another account or server key."""
        return self._cipher.decrypt(account_id, content.removeprefix(SUMMARY_PREFIX))
