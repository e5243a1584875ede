"""The first start on one's own machine: an account with credit, its key in a file, a link to sign in."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from sixfold.cli import local_key
from sixfold.core.accounts import accounts, keys, login_sessions, rights
from sixfold.core.accounts.accounts import LOCAL_EMAIL
from sixfold.core.database import Database, Transaction, now
from sixfold.core.money import MICROS_PER_USD

_CREDIT = 10 * MICROS_PER_USD


@dataclass(frozen=True, slots=True)
class FirstRunInfo:
    """What the first start made, and shows once."""

    email: str
    api_key: str
    link_token: str


async def prepare(database: Database, data_dir: Path) -> FirstRunInfo | None:
    """Make the owner's account unless there is an operator already; then None."""
    if await database.read(accounts.operator()) is not None:
        return None
    path = data_dir / local_key.FILE
    try:
        return await database.write(_make(path))
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def operator() -> Transaction[None]:
    """The operator's account where others reach this server: what nobody pays for is booked on it."""
    if (yield from accounts.operator()) is None:
        yield from accounts.create(LOCAL_EMAIL, operator=True)


def _make(path: Path) -> Transaction[FirstRunInfo | None]:
    """The account, its key and a link; the key's file is written before the commit, or there is neither."""
    if (yield from accounts.operator()) is not None:
        return None
    account = yield from accounts.create(LOCAL_EMAIL, credit=_CREDIT, operator=True)
    key = yield from keys.create(account.id, granted=rights.ALL)
    token = yield from login_sessions.new_link(account.id, (yield from now()))
    local_key.keep(path, key.api_key)
    return FirstRunInfo(account.email, key.api_key, token)
