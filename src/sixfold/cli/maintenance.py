"""`migrate`, `backup` and `restore`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from sixfold.app import storage
from sixfold.cli import database_access, server_lock
from sixfold.cli import restore as cli_restore
from sixfold.cli.terminal import CommandError, Spinner, TerminalStyle, put_json
from sixfold.core.humanize import size
from sixfold.settings import Settings
from sixfold.store import backup as backups
from sixfold.store import sql
from sixfold.store.admin import DatabaseAdmin

_SHOWN = 20


def migrate(arguments: argparse.Namespace) -> None:
    """Run `migrate`: change the schema to the newest or to `--to`; downgrade only without a server."""
    configured = database_access.settings_of(arguments)
    database_access.require_data(configured)
    keeper = storage.open_keeper(configured)
    newest = sql.latest(keeper.dialect)
    goal = newest if arguments.to is None else arguments.to
    if not 0 <= goal <= newest:
        raise CommandError(f"--to must be a schema from 0 to {newest} (got {goal})")
    with database_access.understood():
        before, after = _migrate(keeper, configured, goal, drop=arguments.drop)
    if arguments.json:
        put_json({"before": before, "after": after, "latest": newest})
    elif before == after:
        TerminalStyle().line(f"  The database already has schema {after}")
    else:
        TerminalStyle().line(f"  The database was migrated from schema {before} to {after}")


def _migrate(keeper: DatabaseAdmin, configured: Settings, goal: int, *, drop: bool) -> tuple[int, int]:
    present = keeper.schema() or 0
    if present <= goal or present > sql.latest(keeper.dialect):
        # `migrate` refuses the schema of a later version.
        return keeper.migrate(goal)
    if not drop:
        raise CommandError(
            f"Going from schema {present} back to {goal} deletes what only newer schemas hold: stop every "
            "server, run `sixfold backup`, and pass --drop"
        )
    # A running server cannot use an older schema.
    with server_lock.hold(configured.data_dir):
        return keeper.migrate(goal)


def backup(arguments: argparse.Namespace) -> int:
    """Run `backup`; return 1 when files are missing from the store, after backing up the rest."""
    configured = database_access.settings_of(arguments)
    database_access.require_data(configured)
    path = Path(arguments.file).absolute()
    if path.is_dir():
        raise CommandError(f"{path} must be a file, such as {path / 'sixfold.tar'}, not a folder")
    if not path.parent.is_dir():
        raise CommandError(f"Folder {path.parent} does not exist")
    os.umask(database_access.PRIVATE)
    uploads = None if configured.upload_url else storage.open_uploads(configured)
    with database_access.understood():
        snapshot = storage.open_snapshot(configured)
        blobs = storage.open_blobs(configured)
        try:
            with Spinner("backup") as waiting:
                done = asyncio.run(backups.write(path, snapshot, blobs, uploads, waiting.count))
        except backups.BackupBusy as busy:
            raise CommandError(f"{busy}: wait until it ends, or choose another file") from busy
    document = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "schema": done.schema,
        "tables": done.tables,
        "blobs": done.files,
        "blob_bytes": done.file_bytes,
        "missing_blobs": len(done.missing),
        "missing": done.missing[:_SHOWN],
    }
    if arguments.json:
        put_json(document)
    else:
        paint = TerminalStyle()
        paint.rows(
            [
                ("backup", f"{paint.bold(str(path))}, {size(document['bytes'])}"),
                ("rows", f"{sum(done.tables.values())} in {len(done.tables)} tables, schema {done.schema}"),
                ("files", f"{done.files}, {size(done.file_bytes)}"),
                (
                    "not included",
                    f"server.key and sixfold.toml of {configured.data_dir}: store them separately",
                ),
            ]
        )
    _complain(f"{name} is missing from the store" for name in done.missing[:_SHOWN])
    return 1 if done.missing else 0


def restore(arguments: argparse.Namespace) -> int:
    """Run `restore`; return 1 when something is missing or damaged, or differs under `--verify`."""
    configured = database_access.settings_of(arguments)
    os.umask(database_access.PRIVATE)
    done = cli_restore.restore(Path(arguments.file), configured, verify=arguments.verify)
    sound = not (done.missing or done.damaged or done.drift or done.missing_blobs or done.faults)
    if arguments.json:
        document = {
            "data_dir": str(configured.data_dir),
            "schema": done.schema,
            "tables": done.tables,
            "blobs": done.files,
            "blob_bytes": done.file_bytes,
            "missing": done.missing[:_SHOWN],
            "damaged": done.damaged[:_SHOWN],
            "verified": done.verified,
        }
        if done.verified:
            document |= {
                "drift": done.drift,
                "missing_blobs": done.missing_blobs,
                "ledger_faults": list(done.faults),
            }
        put_json(document)
    else:
        paint = TerminalStyle()
        rows = [
            ("restored", paint.bold(str(configured.data_dir))),
            ("rows", f"{sum(done.tables.values())} in {len(done.tables)} tables, schema {done.schema}"),
            ("files", f"{done.files}, {size(done.file_bytes)}"),
        ]
        if done.verified and sound:
            rows.append(("verified", "all rows and files match the backup, and the ledger is consistent"))
        paint.rows(rows)
    _complain(f"{name} was missing when the backup was made" for name in done.missing[:_SHOWN])
    _complain(f"The content of {name} does not match its hash" for name in done.damaged[:_SHOWN])
    _complain([f"{done.drift} rows or files differ from the backup"] if done.drift else [])
    _complain(
        [f"{done.missing_blobs} files in the database are missing from the store"]
        if done.missing_blobs
        else []
    )
    _complain(done.faults)
    return 0 if sound else 1


def _complain(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        sys.stderr.write(f"sixfold: {sentence}\n")
