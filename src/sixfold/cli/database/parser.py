"""The argument parser of the database commands, in a separate module so that help does not import them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# argparse's class for a set of commands is private.
Group = Any


def add(
    commands: Group,
    new_group: Callable[[Group, str, str], Group],
    command: Callable[..., argparse.ArgumentParser],
) -> None:
    """Add `migrate`, `upgrade`, `backup`, `restore`, `move` and `archive`."""
    migrate = command(
        commands, "migrate", "database.commands:migrate", "migrate the database to another schema version"
    )
    migrate.add_argument("--to", type=int, metavar="N", help="the schema version (default: the newest)")
    migrate.add_argument("--drop", action="store_true", help="allow a downgrade that deletes data")
    upgrade = command(
        commands,
        "upgrade",
        "database.upgrade:upgrade",
        "check the data and upgrade it to this version",
        "`serve` upgrades too; this command refuses if the data is damaged or the disk too full.",
    )
    upgrade.add_argument(
        "--check",
        action="store_true",
        help="only check; the exit status is 1 if something blocks the upgrade",
    )
    backup = command(
        commands,
        "backup",
        "database.commands:backup",
        "write all data to one file, also while the server runs",
        "server.key, local.key, sixfold.toml and the keys of providers are not included.",
    )
    backup.add_argument("file", metavar="FILE")
    restore = command(
        commands,
        "restore",
        "database.commands:restore",
        "restore a backup into an empty data folder",
        "The folder stays empty until all data is restored and its hashes are verified.",
    )
    restore.add_argument("file", metavar="FILE")
    restore.add_argument("--verify", action="store_true", help="compare every row and file again afterwards")
    restore.add_argument(
        "--end-access",
        action="store_true",
        help="end all keys, OAuth clients, login sessions, invitations and shares of the backup",
    )
    command(
        commands,
        "move",
        "database.move:move",
        "copy the SQLite database and the files to the configured stores",
        "Stop the server first. After an interruption, run the same command again.",
    )
    archive = new_group(commands, "archive", "check and read the archive of expired records")
    command(archive, "list", "database.archive:list_segments", "list the files of the archive, oldest first")
    command(
        archive,
        "verify",
        "database.archive:verify",
        "check all files of the archive",
        "The hash chain, the hash of each file, and the closing balances are checked.",
    )
    show = command(archive, "show", "database.archive:show", "print an archived record as JSON lines")
    show.add_argument("id", metavar="ID", help="the id of a run, live session, call, charge or audit entry")
