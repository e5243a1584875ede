"""`account export`, `account delete` and `account keep`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from sixfold import errors
from sixfold.app import storage
from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError, Spinner, TerminalStyle, put_json
from sixfold.core.account_data import deletion, export
from sixfold.core.account_data.deletion import AccountDeletion
from sixfold.core.accounts import accounts
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import rfc3339
from sixfold.core.database import Transaction
from sixfold.core.gateway.content_log.storage import ContentLog
from sixfold.core.humanize import size
from sixfold.settings import Settings


def export_account(arguments: argparse.Namespace) -> None:
    """Run `account export`: write the zip export of an account; the file is created when it is complete."""
    server_settings = database_access.settings_of(arguments)
    account = database_access.read(server_settings, accounts.by_email(arguments.email))
    path = Path(arguments.file).absolute()
    if not path.parent.is_dir():
        raise CommandError(f"Folder {path.parent} does not exist")
    os.umask(database_access.PRIVATE)
    part = path.with_name(f".{path.name}.part")
    try:
        with database_access.understood():
            asyncio.run(_write(server_settings, account, part))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if arguments.json:
        put_json({"account_id": account.id, "file": str(path), "bytes": path.stat().st_size})
    else:
        TerminalStyle().line(f"  {account.email}: {path}, {size(path.stat().st_size)}")


async def _write(server_settings: Settings, account: Account, part: Path) -> None:
    database = storage.open_database(server_settings)
    try:
        with part.open("wb") as file, Spinner("export") as bar:
            content_log = ContentLog(database, storage.server_secret(server_settings.data_dir, "server.key"))
            blobs = storage.open_blobs(server_settings)
            async for piece in export.export_account(database, blobs, account.id, content_log):
                await asyncio.to_thread(file.write, piece)
                bar.count(len(piece))
    finally:
        await database.close()


def delete(arguments: argparse.Namespace) -> None:
    """Run `account delete`: close an account, to be erased after SIXFOLD_DELETION_DAYS or at once."""
    server_settings = database_access.settings_of(arguments)
    account = database_access.read(server_settings, accounts.by_email(arguments.email))
    if not arguments.yes:
        _confirm(account)
    days = 0.0 if arguments.now else server_settings.deletion_days
    moment = database_access.write(server_settings, _close(account, days))
    erased = not days and not server_lock.running(server_settings.data_dir) and _erase(server_settings)
    if arguments.json:
        put_json({"account_id": account.id, "erased_at": rfc3339(moment), "erased": erased})
    elif erased:
        TerminalStyle().line(f"  {account.email} is erased")
    else:
        when = (
            f"on {(rfc3339(moment) or '')[:10]}"
            if days
            else "by the server, within a minute of its next start"
        )
        TerminalStyle().line(f"  {account.email} is closed and will be erased {when}")


def _confirm(account: Account) -> None:
    if not sys.stdin.isatty():
        raise CommandError("Pass --yes to erase an account without confirmation")
    sys.stderr.write(f"All data of {account.email} will be erased. Type the e-mail address to continue: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != account.email:
        raise CommandError(f"The e-mail address does not match {account.email}: nothing was changed")


def _close(account: Account, days: float) -> Transaction[int]:
    return (yield from deletion.close(account, days, by_operator=True))


def _erase(server_settings: Settings) -> bool:
    """Erase closed accounts; return False if a server must end their runs first."""
    with database_access.understood():
        return asyncio.run(_sweep(server_settings)) > 0


async def _sweep(server_settings: Settings) -> int:
    async def later(_name: str, _tenant: Tenant) -> None:
        """Do nothing, as only a server can end runs and sessions."""

    async def unpaid(_subscription: str, _account_id: str) -> None:
        raise errors.NotConfigured("The server cancels it after its next start")

    database = storage.open_database(server_settings)
    try:
        return await AccountDeletion(
            database, storage.open_uploads(server_settings), later, later, unpaid
        ).sweep()
    finally:
        await database.close()


def cancel_deletion(arguments: argparse.Namespace) -> None:
    """Run `account keep`: cancel the deletion of an account."""
    server_settings = database_access.settings_of(arguments)
    account = database_access.read(server_settings, accounts.by_email(arguments.email))
    if account.closing_at is None:
        raise CommandError(f"{account.email} is not closed: nothing was changed")
    database_access.write(server_settings, deletion.reopen(account.id, by_operator=True))
    if arguments.json:
        put_json({"account_id": account.id, "email": account.email})
    else:
        TerminalStyle().line(f"  {account.email} will not be erased; its keys work again")
