"""Tenants: whose work is kept apart from whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from sixfold.core.database import Value


class Owned(Protocol):
    """A principal, or what one has created."""

    @property
    def account_id(self) -> str:
        """The account."""
        ...

    @property
    def keyless(self) -> bool:
        """Whether it was without a key."""
        ...

    @property
    def credential_id(self) -> str:
        """The key without `account.read`, or the grant of such keys; empty for other credentials."""
        ...


@dataclass(frozen=True, slots=True)
class Tenant:
    """An account with its keys, or what was ordered on it without a key; neither sees the other's work.

    With a `credential_id` it is one key without `account.read`, or one OAuth grant: it sees what it created
    itself. Without one it sees the work of all of them.
    """

    account_id: str
    keyless: bool = False
    credential_id: str = ""

    @classmethod
    def of(cls, owned: Owned) -> Self:
        """The tenant of a principal or a prediction."""
        return cls(owned.account_id, owned.keyless, owned.credential_id)

    @property
    def id(self) -> str:
        """A text that no other tenant has."""
        if self.credential_id:
            return f"{self.account_id}/{self.credential_id}"
        return f"{self.account_id}/keyless" if self.keyless else self.account_id

    @property
    def models_of(self) -> str:
        """The account whose own models it may run; none without a key."""
        return "" if self.keyless else self.account_id

    @property
    def whole(self) -> Tenant:
        """The tenant that sees all of the account's work, this one's included."""
        return Tenant(self.account_id, self.keyless)

    @property
    def row(self) -> dict[str, Value]:
        """As the parameters of a query that finds what it sees."""
        return {"account_id": self.account_id, "credential_id": self.credential_id}

    def sees(self, account_id: str, credential_id: str) -> bool:
        """Whether it sees what such a credential of an account has created."""
        return account_id == self.account_id and self.credential_id in ("", credential_id)
