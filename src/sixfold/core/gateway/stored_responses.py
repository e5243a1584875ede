"""Responses that an account keeps, so that it can read them again and go on from them.

Each has what was new in its request and a link to the one that it goes on from: a conversation takes as much
room as was said in it, however many turns it has. It lasts as long as its last turn; the account's oldest go
first when it keeps too much. Who made a response is told with it, where that server keeps it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Transaction, Value, many, one
from sixfold.core.gateway.policy import GatewayPolicy

_LINKS = 1000  # of one conversation
_LOOKS = 64  # at what an account keeps, while it grows by as much as it may keep


class StoredResponse(msgspec.Struct, frozen=True):
    """One response. `input` is a JSON array, `response` a JSON object, as they were said and told.

    `server` is the target that keeps it as well and knows it by the same id, or empty.
    """

    id: str
    previous: str | None
    server: str
    input: str
    response: str

    @property
    def size(self) -> int:
        """The bytes of what was said in it."""
        return len(self.input.encode()) + len(self.response.encode())


class ResponseNotFound(errors.NotFound):
    """This response is not kept here."""

    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        super().__init__(f"Response with id '{response_id}' not found.")


class Conversation(msgspec.Struct, frozen=True):
    """A response and those before it, the first at the front; `fault` says why it does not begin with that.

    It is `ResponseNotFound`, of one that is gone, or `TooLong`.
    """

    turns: tuple[StoredResponse, ...]
    fault: errors.SixfoldError | None = None


def keep(tenant: Tenant, kept: StoredResponse) -> Transaction[None]:
    """Write one down."""
    row: dict[str, Value] = msgspec.structs.asdict(kept)
    yield Query("response_keep", {**row, **tenant.row, "size": kept.size})


def get_conversation(tenant: Tenant, response_id: str, most: int) -> Transaction[Conversation | None]:
    """Where a response stands.

    None for one that nobody keeps, `ResponseNotFound` is raised for another tenant's.

    It is too long with more than `most` bytes, or a thousand responses.
    """
    params: dict[str, Value] = {"id": response_id, **tenant.row, "links": _LINKS, "most": most}
    rows = yield Query("response_conversation", params)
    if not rows:
        yield from _refuse_known(response_id)
        return None
    first, fault = rows[0], None
    if first["size"] > most or (first["previous"] and len(rows) == _LINKS):
        fault = _too_long()
    elif first["previous"]:
        fault = ResponseNotFound(str(first["previous"]))
    return Conversation(tuple(map(_from_row, rows)), fault)


def get_many(tenant: Tenant, response_ids: Iterable[str], most: int) -> Transaction[list[str]]:
    """Those of some responses that a tenant keeps; raises `TooLong` for more than `most` bytes of them.

    Raises `ResponseNotFound` for another tenant's: a server that knows its items as well must not be asked
    for them.
    """
    found: list[str] = []
    for response_id in response_ids:
        row = yield from one("response_shown", **tenant.row, id=response_id)
        if row is None:
            yield from _refuse_known(response_id)
        else:
            found.append(str(row["response"]))
            most -= len(found[-1].encode())
        if most < 0:
            raise _too_long()
    return found


def _refuse_known(response_id: str) -> Transaction[None]:
    """Raise `ResponseNotFound` where anyone keeps a response of this id."""
    if (yield from one("response_known", id=response_id)) is not None:
        raise ResponseNotFound(response_id)


def _too_long() -> errors.TooLong:
    return errors.TooLong("This conversation is too long to go on: begin one with what matters of it")


def _from_row(row: Row) -> StoredResponse:
    return StoredResponse(**{name: row[name] for name in StoredResponse.__struct_fields__})


class ResponseStore:
    """Where they are; one for each running server."""

    def __init__(self, database: Database, policy: GatewayPolicy) -> None:
        self._database = database
        self._policy = policy
        self._grown: dict[str, int] = {}  # by how many bytes accounts have since they were last looked at

    def reconfigure(self, policy: GatewayPolicy) -> None:
        """Keep by another policy from now on."""
        self._policy = policy

    def keeps(self, asked: bool | None) -> bool:
        """Whether a response is kept: as its request says, else as the operator does."""
        return self._policy.responses_bytes > 0 and (self._policy.store_responses if asked is None else asked)

    async def keep(self, tenant: Tenant, kept: StoredResponse) -> None:
        """It is on the disk when this returns."""
        account_id = tenant.account_id
        await self._database.write(keep(tenant, kept))
        unseen = self._policy.responses_bytes  # one that was never looked at is, once
        self._grown[account_id] = self._grown.get(account_id, unseen) + kept.size

    async def get_conversation(self, tenant: Tenant, response_id: str, most: int) -> Conversation | None:
        """What `get_conversation` gives and raises."""
        return await self._database.read(get_conversation(tenant, response_id, most))

    async def get_many(self, tenant: Tenant, response_ids: Iterable[str], most: int) -> Sequence[str]:
        """What `get_many` gives and raises."""
        return await self._database.read(get_many(tenant, response_ids, most))

    async def get(self, tenant: Tenant, response_id: str) -> str:
        """A response as it was told; raises `ResponseNotFound`."""
        row = await self._database.read(one("response_shown", **tenant.row, id=response_id))
        if row is None:
            raise ResponseNotFound(response_id)
        return str(row["response"])

    async def delete(self, tenant: Tenant, response_id: str) -> None:
        """Forget one; raises `ResponseNotFound`."""
        forgetting = many("response_forget", **tenant.row, id=response_id)
        if not await self._database.write(forgetting):
            raise ResponseNotFound(response_id)

    async def sweep(self) -> None:
        """Forget what is too old, and what is too much of accounts that have grown."""
        days, most = self._policy.responses_days, self._policy.responses_bytes
        if days:
            await self._database.write(many("response_sweep", life=days * DAY_US), durable=False)
        for account_id in [name for name, grown in self._grown.items() if grown * _LOOKS >= most]:
            self._grown[account_id] = 0
            crowd = many("delete_excess_responses", account_id=account_id, most=most)
            await self._database.write(crowd, durable=False)
