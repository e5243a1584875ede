"""Tenants: the units between which work is isolated."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

import msgspec

from sixfold.core.database import Value


class TenantRecord(Protocol):
    """A principal, or an object that a principal has created."""

    @property
    def account_id(self) -> str: ...

    @property
    def keyless(self) -> bool:
        """Whether the object was created without a key."""
        ...

    @property
    def credential_id(self) -> str:
        """The id of a key without `account.read`, or of the OAuth grant of such keys; otherwise empty."""
        ...


class MemoryAccess(NamedTuple):
    """Access to a shared folder of another account's memory.

    The pages of the folder are in `collection`, and may also be in the collections of the account's other
    shared folders (`beside`). The folder was shared at `since`, in epoch µs.
    """

    id: str
    account_id: str
    folder: str
    collection: str
    beside: tuple[str, ...] = ()
    may_write: bool = False
    since: int = 0


class Tenant(msgspec.Struct, frozen=True):
    """An account with its keys, or the account without a key; neither sees the work of the other.

    If `credential_id` is set, the tenant is one key without `account.read` or one OAuth grant, which sees
    only its own work; otherwise the tenant sees the work of all keys.
    """

    account_id: str
    keyless: bool = False
    credential_id: str = ""

    @classmethod
    def of(cls, record: TenantRecord) -> Self:
        """Return the tenant of a principal or a prediction."""
        return cls(record.account_id, record.keyless, record.credential_id)

    @property
    def id(self) -> str:
        """A string that is unique to this tenant."""
        if self.credential_id:
            return f"{self.account_id}/{self.credential_id}"
        return f"{self.account_id}/keyless" if self.keyless else self.account_id

    @property
    def model_owner(self) -> str:
        """The account whose custom models the tenant may run; empty without a key."""
        return "" if self.keyless else self.account_id

    @property
    def whole(self) -> Tenant:
        """The tenant that sees all work of the account, including the work of this tenant."""
        return Tenant(self.account_id, self.keyless)

    @property
    def row(self) -> dict[str, Value]:
        """The query parameters that select the work that the tenant sees."""
        return {"account_id": self.account_id, "credential_id": self.credential_id}

    def sees(self, account_id: str, credential_id: str) -> bool:
        return account_id == self.account_id and self.credential_id in ("", credential_id)
