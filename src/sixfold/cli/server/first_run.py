"""The first start on localhost: create an account with credit, a key file and a sign-in link."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from sixfold.cli.client import KEY_FILE, write_key
from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.accounts import LOCAL_EMAIL
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.database import Database, Transaction, now
from sixfold.core.money import MICROS_PER_USD

_CREDIT = 10 * MICROS_PER_USD


class FirstRunInfo(msgspec.Struct, frozen=True):
    """The account, key and sign-in token created by the first start, which are shown once."""

    email: str
    api_key: str
    link_token: str


async def prepare(database: Database, data_dir: Path) -> FirstRunInfo | None:
    """Create the operator's account; return None if an account exists."""
    if await database.read(accounts.operator()) is not None:
        return None
    path = data_dir / KEY_FILE
    try:
        return await database.write(_make(path))
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def operator() -> Transaction[None]:
    """Create the operator's account on a public server, to which anonymous requests are charged."""
    if (yield from accounts.operator()) is None:
        yield from accounts.create(LOCAL_EMAIL, operator=True)


def _make(path: Path) -> Transaction[FirstRunInfo | None]:
    """Create account, key and link; the key file is written before the commit, so both exist or neither."""
    if (yield from accounts.operator()) is not None:
        return None
    account = yield from accounts.create(LOCAL_EMAIL, credit=_CREDIT, operator=True)
    key = yield from keys.create(account.id, granted=rights.ALL)
    token = yield from login_sessions.new_link(account.id, (yield from now()))
    write_key(path, key.api_key)
    return FirstRunInfo(account.email, key.api_key, token)
