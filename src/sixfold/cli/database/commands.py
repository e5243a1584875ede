"""`migrate`, `backup` and `restore`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from sixfold.app import storage
from sixfold.cli import database_access, ownership, server_lock
from sixfold.cli.database import restore as cli_restore
from sixfold.cli.terminal import CommandError, Spinner, TerminalStyle, put_json
from sixfold.core.humanize import size
from sixfold.settings import Settings
from sixfold.store import backup as backups
from sixfold.store import secrets, sql
from sixfold.store.admin import DatabaseAdmin

_MAX_LISTED = 20


def migrate(arguments: argparse.Namespace) -> None:
    """Run `migrate`: change the schema to the newest or to `--to`; downgrade only without a server."""
    server_settings = database_access.settings_of(arguments)
    database_access.require_data(server_settings)
    admin = storage.open_admin(server_settings)
    newest = sql.latest(admin.dialect)
    goal = newest if arguments.to is None else arguments.to
    if not 0 <= goal <= newest:
        raise CommandError(f"--to must be a schema from 0 to {newest} (got {goal})")
    with database_access.understood():
        before, after = _migrate(admin, server_settings, goal, drop=arguments.drop)
    if arguments.json:
        put_json({"before": before, "after": after, "latest": newest})
    elif before == after:
        TerminalStyle().line(f"  The database already has schema {after}")
    else:
        TerminalStyle().line(f"  The database was migrated from schema {before} to {after}")


def _migrate(admin: DatabaseAdmin, server_settings: Settings, goal: int, *, drop: bool) -> tuple[int, int]:
    present = admin.schema() or 0
    if present <= goal or present > sql.latest(admin.dialect):
        # `migrate` rejects the schema of a later version.
        return admin.migrate(goal)
    if not drop:
        raise CommandError(
            f"Going from schema {present} back to {goal} deletes the data that only newer schemas have: "
            "stop every server, run `sixfold backup`, and pass --drop"
        )
    # A running server cannot use an older schema.
    with server_lock.hold(server_settings.data_dir):
        return admin.migrate(goal)


def backup(arguments: argparse.Namespace) -> int:
    """Run `backup`; return 1 when files are missing from the store, after backing up the rest."""
    server_settings = database_access.settings_of(arguments)
    database_access.require_data(server_settings)
    path = Path(arguments.file).absolute()
    if path.is_dir():
        raise CommandError(f"{path} must be a file, such as {path / 'sixfold.tar'}, not a folder")
    if not path.parent.is_dir():
        raise CommandError(f"Folder {path.parent} does not exist")
    os.umask(database_access.PRIVATE)
    uploads = None if server_settings.upload_url else storage.open_uploads(server_settings)
    with database_access.understood():
        snapshot = storage.open_snapshot(server_settings, backups.copy_beside(path))
        blobs = storage.open_blobs(server_settings)
        try:
            with Spinner("backup") as waiting:
                result = asyncio.run(backups.write(path, snapshot, blobs, uploads, waiting.count))
        except backups.BackupBusy as busy:
            raise CommandError(f"{busy}: wait until that backup has ended, or choose another file") from busy
    document = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "schema": result.schema,
        "tables": result.tables,
        "blobs": result.files,
        "blob_bytes": result.file_bytes,
        "missing_blobs": len(result.missing),
        "missing": result.missing[:_MAX_LISTED],
    }
    if arguments.json:
        put_json(document)
    else:
        paint = TerminalStyle()
        paint.rows(
            [
                ("backup", f"{paint.bold(str(path))}, {size(document['bytes'])}"),
                (
                    "rows",
                    f"{sum(result.tables.values())} in {len(result.tables)} tables, schema {result.schema}",
                ),
                ("files", f"{result.files}, {size(result.file_bytes)}"),
                (
                    "not included",
                    f"server.key, local.key and sixfold.toml of {server_settings.data_dir}: store them "
                    "separately; and the keys of providers",
                ),
            ]
        )
    _print_problems(f"{name} is missing from the store" for name in result.missing[:_MAX_LISTED])
    return 1 if result.missing else 0


def restore(arguments: argparse.Namespace) -> int:
    """Run `restore`; return 1 when something is missing or damaged, or differs under `--verify`."""
    server_settings = database_access.settings_of(arguments)
    os.umask(database_access.PRIVATE)
    result = cli_restore.restore(
        Path(arguments.file), server_settings, verify=arguments.verify, end_access=arguments.end_access
    )
    ownership.give_to_owner(server_settings.data_dir, everything=True)
    sound = not (result.missing or result.damaged or result.drift or result.missing_blobs or result.faults)
    if arguments.json:
        document = {
            "data_dir": str(server_settings.data_dir),
            "schema": result.schema,
            "tables": result.tables,
            "blobs": result.files,
            "blob_bytes": result.file_bytes,
            "missing": result.missing[:_MAX_LISTED],
            "damaged": result.damaged[:_MAX_LISTED],
            "verified": result.verified,
        }
        if arguments.end_access:
            document["ended"] = dict(result.ended)
        if result.verified:
            document |= {
                "drift": result.drift,
                "missing_blobs": result.missing_blobs,
                "ledger_faults": list(result.faults),
            }
        put_json(document)
    else:
        paint = TerminalStyle()
        rows = [
            ("restored", paint.bold(str(server_settings.data_dir))),
            ("rows", f"{sum(result.tables.values())} in {len(result.tables)} tables, schema {result.schema}"),
            ("files", f"{result.files}, {size(result.file_bytes)}"),
        ]
        if result.ended:
            ended = ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in result.ended.items())
            rows.append(("ended", ended))
        if result.verified and sound:
            rows.append(("verified", "all rows and files match the backup, and the ledger is consistent"))
        if not (server_settings.data_dir / secrets.MASTER).exists():
            rows.append(("next", f"copy {secrets.MASTER} of the old server into this folder, then start"))
        paint.rows(rows)
    _print_problems(f"{name} was missing when the backup was made" for name in result.missing[:_MAX_LISTED])
    _print_problems(f"The content of {name} does not match its hash" for name in result.damaged[:_MAX_LISTED])
    _print_problems([f"{result.drift} rows or files differ from the backup"] if result.drift else [])
    _print_problems(
        [f"{result.missing_blobs} files in the database are missing from the store"]
        if result.missing_blobs
        else []
    )
    _print_problems(result.faults)
    return 0 if sound else 1


def _print_problems(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        sys.stderr.write(f"sixfold: {sentence}\n")
