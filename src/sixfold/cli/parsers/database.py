"""The argument parser of the database commands."""

from __future__ import annotations

from sixfold.cli.parsers.command_parser import CommandGroup


def add(commands: CommandGroup) -> None:
    """Add `migrate`, `upgrade`, `backup`, `restore`, `move` and `archive`."""
    migrate = commands.report(
        "migrate", "database.commands:migrate", "migrate the database to another schema version"
    )
    migrate.number("--to", "the schema version (default: the newest)")
    migrate.flag("--drop", "allow a downgrade that deletes data")
    upgrade = commands.report(
        "upgrade",
        "database.upgrade:upgrade",
        "check the data and upgrade it to this version",
        "`serve` upgrades too; this command refuses if the data is damaged or the disk too full.",
    )
    upgrade.flag("--check", "only check; the exit status is 1 if something blocks the upgrade")
    backup = commands.report(
        "backup",
        "database.commands:backup",
        "write all data to one file, also while the server runs",
        "server.key, local.key, sixfold.toml and the keys of providers are not included.",
    )
    backup.argument("file", "FILE")
    restore = commands.report(
        "restore",
        "database.commands:restore",
        "restore a backup into an empty data folder",
        "The folder stays empty until all data is restored and its hashes are verified.",
    )
    restore.argument("file", "FILE")
    restore.flag("--verify", "compare every row and file again afterwards")
    restore.flag(
        "--end-access", "end all keys, OAuth clients, login sessions, invitations and shares of the backup"
    )
    commands.report(
        "move",
        "database.move:move",
        "copy the SQLite database and the files to the configured stores",
        "Stop the server first. After an interruption, run the same command again.",
    )
    archive = commands.group("archive", "check and read the archive of expired records")
    archive.report("list", "database.archive:list_segments", "list the files of the archive, oldest first")
    archive.report(
        "verify",
        "database.archive:verify",
        "check all files of the archive",
        "The hash chain, the hash of each file, and the closing balances are checked.",
    )
    show = archive.report("show", "database.archive:show", "print an archived record as JSON lines")
    show.argument("id", "ID", "the id of a run, live session, call, charge or audit entry")
