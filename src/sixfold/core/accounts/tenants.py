"""Tenants: whose work is kept apart from whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self


class Owned(Protocol):
    """A principal, or what one has ordered."""

    @property
    def account_id(self) -> str:
        """The account."""
        ...

    @property
    def keyless(self) -> bool:
        """Whether it was without a key."""
        ...


@dataclass(frozen=True, slots=True)
class Tenant:
    """An account with its keys, or what was ordered on it without a key; neither sees the other's work."""

    account_id: str
    keyless: bool = False

    @classmethod
    def of(cls, owned: Owned) -> Self:
        """The tenant of a principal or a prediction."""
        return cls(owned.account_id, owned.keyless)

    @property
    def id(self) -> str:
        """A text that no other tenant has."""
        return f"{self.account_id}/keyless" if self.keyless else self.account_id

    @property
    def models_of(self) -> str:
        """The account whose own models it may run; none without a key."""
        return "" if self.keyless else self.account_id
