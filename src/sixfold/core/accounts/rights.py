"""Rights of credentials, which routes, tools and actions require.

Rights are granted, never implied: a credential has only the rights that are stored with it. Limits of a key
(models, collections, budgets, rates) restrict them further, see `keys.KeyLimits`.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal

from sixfold import errors

# The role of a principal within its organization, in ascending order; `person` is the account's own sign-in
# or key, which does not belong to a member.
Role = Literal["member", "admin", "owner", "person"]
ROLES: Final[tuple[Role, ...]] = ("member", "admin", "owner", "person")


class Rights(enum.IntFlag):
    """A set of rights, one bit per right."""

    RUN = 1
    MEMORY_READ = 2
    MEMORY_WRITE = 4
    ACCOUNT_READ = 8
    ACCOUNT_MANAGE = 16
    OPERATE = 32


NONE: Final = Rights(0)
MEMORY: Final = Rights.MEMORY_READ | Rights.MEMORY_WRITE
ALL: Final = Rights.RUN | MEMORY | Rights.ACCOUNT_READ | Rights.ACCOUNT_MANAGE | Rights.OPERATE
# The rights of a key whose creator does not specify rights.
STANDARD: Final = ALL & ~Rights.OPERATE
# The maximum rights of a key with a limit on models or a budget.
LIMITED: Final = STANDARD & ~Rights.ACCOUNT_MANAGE
# The maximum rights of a principal in each role.
OF_ROLE: Final[Mapping[str, Rights]] = {
    "member": Rights.RUN | MEMORY | Rights.ACCOUNT_READ,
    "admin": STANDARD,
    "owner": STANDARD,
    "person": ALL,
}
BY_NAME: Final[Mapping[str, Rights]] = {
    "run": Rights.RUN,
    "memory.read": Rights.MEMORY_READ,
    "memory.write": Rights.MEMORY_WRITE,
    "account.read": Rights.ACCOUNT_READ,
    "account.manage": Rights.ACCOUNT_MANAGE,
    "operate": Rights.OPERATE,
}


def names(rights: Rights) -> tuple[str, ...]:
    """Return the names of the rights in a set, in the order of `BY_NAME`."""
    return tuple(name for name, right in BY_NAME.items() if right & rights)


def encode(rights: Rights) -> str:
    """Return the stored form of a set: its names, separated by spaces."""
    return " ".join(names(rights))


@functools.lru_cache(maxsize=128)
def decode(text: str) -> Rights:
    """Parse the stored form; unknown names are ignored."""
    return _union(BY_NAME.get(name, NONE) for name in text.split())


def of_names(names: Iterable[str]) -> Rights:
    """Return the set of the named rights; raises `BadRequest` for an unknown name."""
    right_names = tuple(names)
    unknown = [name for name in right_names if name not in BY_NAME]
    if unknown:
        raise errors.BadRequest(f"Unknown right {unknown[0][:40]!r}: the rights are {', '.join(BY_NAME)}")
    return _union(BY_NAME[name] for name in right_names)


def missing_text(missing: Rights, authentication: str) -> str:
    """Return the message about rights that a credential, authenticated in this way, does not have."""
    holders = {
        "session": "this account",
        "local": "a request without a key",
        "anonymous": "an anonymous request",
    }
    right_names, holder = names(missing), holders.get(authentication, "this key")
    noun = "right" if len(right_names) == 1 else "rights"
    return f"This request requires the {noun} {' and '.join(right_names)}, which {holder} does not have"


def _union(rights: Iterable[Rights]) -> Rights:
    return functools.reduce(Rights.__or__, rights, NONE)


@dataclass(frozen=True, slots=True)
class Access:
    """The requirement of a route, websocket or tool: a right, any credential, or none (`public`).

    `role` is the lowest role in the organization that has access. If it `grants` access to others or creates
    another account, a suspended user does not have it.
    """

    right: Rights = NONE
    public: bool = False
    role: Role = "member"
    grants: bool = False
    # The right as a plain integer, because operations on an `IntFlag` are slow.
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", int(self.right))

    @property
    def name(self) -> str:
        """The name of the right, `public`, or `any` if every credential is allowed."""
        return encode(self.right) or ("public" if self.public else "any")


PUBLIC: Final = Access(public=True)
ANY: Final = Access()
RUN: Final = Access(Rights.RUN)
MEMORY_READ: Final = Access(Rights.MEMORY_READ)
MEMORY_WRITE: Final = Access(Rights.MEMORY_WRITE)
# Changing the memory where the response contains what was there before.
MEMORY_EDIT: Final = Access(MEMORY)
# Reading or writing the memory with a model, which costs the account money.
RUN_MEMORY_READ: Final = Access(Rights.RUN | Rights.MEMORY_READ)
RUN_MEMORY_EDIT: Final = Access(Rights.RUN | MEMORY)
# Changing objects of the whole account, which are not visible to a key without `account.read`.
RUN_ACCOUNT_READ: Final = Access(Rights.RUN | Rights.ACCOUNT_READ)
# Adding models that are programs on this machine, also in place of other models of the account.
RUN_PROGRAMS: Final = Access(Rights.RUN | Rights.ACCOUNT_READ | Rights.OPERATE)
ACCOUNT_READ: Final = Access(Rights.ACCOUNT_READ)
ACCOUNT_MANAGE: Final = Access(Rights.ACCOUNT_MANAGE)
OPERATE: Final = Access(Rights.OPERATE)
# Data of accounts that the operator may view and change; a key for metrics has only `operate`.
OPERATE_READ: Final = Access(Rights.OPERATE | Rights.ACCOUNT_READ)
OPERATE_CHANGES: Final = Access(Rights.OPERATE | Rights.ACCOUNT_MANAGE)
# Access for an organization's owner and admins, access for its owner only, and access to the sign-in of the
# account itself.
ADMIN_READ: Final = Access(Rights.ACCOUNT_READ, role="admin")
ADMIN: Final = Access(Rights.ACCOUNT_MANAGE, role="admin")
OWNER_READ: Final = Access(Rights.ACCOUNT_READ, role="owner")
OWNER: Final = Access(Rights.ACCOUNT_MANAGE, role="owner")
PERSON_READ: Final = Access(Rights.ACCOUNT_READ, role="person")
PERSON: Final = Access(Rights.ACCOUNT_MANAGE, role="person")

# The same for creating keys and accounts, and for making or changing members.
GRANT: Final = Access(Rights.ACCOUNT_MANAGE, grants=True)
MEMBER_GRANT: Final = Access(Rights.ACCOUNT_READ, grants=True)
ADMIN_GRANT: Final = Access(Rights.ACCOUNT_MANAGE, role="admin", grants=True)
OWNER_GRANT: Final = Access(Rights.ACCOUNT_MANAGE, role="owner", grants=True)
PERSON_GRANT: Final = Access(Rights.ACCOUNT_MANAGE, role="person", grants=True)

# Outside a route, every right is required.
UNDECLARED: Final = Access(ALL)
# The rights that the current request requires: set by the router, checked by authentication.
declared: ContextVar[Access] = ContextVar("declared", default=UNDECLARED)
