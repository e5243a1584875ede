"""Credit paid with tokens: one address per account; each transfer to it is credited once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import audit_log, ledger
from sixfold.core.database import Query, Transaction, many, one

_MAX_ATTEMPTS = 10


class TokenDeposits(Protocol):
    """The configured chains. Methods raise `NotConfigured` if no chain is configured."""

    async def address(self, account_id: str) -> Mapping[str, Any]:
        """Return an account's address, and the tokens accepted on each chain."""
        ...


class Transfer(msgspec.Struct, frozen=True):
    """A final transfer of tokens to an address. `position` is unique on its chain."""

    chain: str
    position: str
    address: str
    symbol: str
    micros: int


def address_of(account_id: str, derive: Callable[[int], str]) -> Transaction[str]:
    """Return an account's address, deriving one from the next free number if it has none."""
    for _ in range(_MAX_ATTEMPTS):
        existing = yield from one("deposit_address_of", account_id=account_id)
        if existing is not None:
            return str(existing["address"])
        free = yield from one("deposit_next_number")
        number = int(free["number"]) if free is not None else 0
        row = {"account_id": account_id, "number": number, "address": derive(number)}
        inserted = yield Query("deposit_address_insert", row)
        if inserted:
            return str(inserted[0]["address"])
    raise errors.StoreFailed("The deposit address could not be created: try again")


def addresses() -> Transaction[Mapping[str, str]]:
    """Return a mapping from each address to the id of its account."""
    rows = yield from many("deposit_addresses")
    return {str(row["address"]): str(row["account_id"]) for row in rows}


def last_block(chain: str) -> Transaction[int | None]:
    """Return the last block of a chain that was read, or None before the first read."""
    row = yield from one("deposit_scan", chain=chain)
    return int(row["block"]) if row is not None else None


def credit_transfers(chain: str, block: int, transfers: Sequence[Transfer]) -> Transaction[int]:
    """Credit transfers and store `block` as read; return the number of new transfers."""
    owners = yield from addresses()
    new = 0
    for transfer in transfers:
        account_id = owners.get(transfer.address)
        if account_id is None or transfer.micros <= 0:
            continue
        name = f"token:{transfer.chain}:{transfer.position}"
        row = {"id": name, "kind": "deposit", "account_id": account_id}
        if not (yield Query("payment_event_insert", row)):
            continue
        amount = money.format_usd(transfer.micros)
        entry = ledger.LedgerEntry("deposit", f"{amount} {transfer.symbol} by {transfer.chain}")
        yield from ledger.deposit(account_id, transfer.micros, entry, name)
        yield from audit_log.note(account_id, "account.deposit", entry.description)
        new += 1
    yield Query("deposit_scan_set", {"chain": chain, "block": block})
    return new
