"""`upgrade`: report what migrating the database to this version would do, and do it."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Iterator

import msgspec

from sixfold import __version__
from sixfold.app import config_reload, storage
from sixfold.app.configuration_entries import FILE_ERRORS
from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import TerminalStyle, put_json
from sixfold.core.humanize import size
from sixfold.settings import Settings
from sixfold.store import sql
from sixfold.store.admin import DatabaseAdmin
from sixfold.store.sql import Migration, SchemaMismatch

# A migration writes at most every page of a SQLite file to its log, and adds columns and indexes to the file.
_SPACE_FACTOR, _SPACE_BYTES = 2, 4 << 20
# Upper bound of the seconds that a migration takes for each row that it indexes or changes.
_ROW_SECONDS = 10e-6


class UpgradePlan(msgspec.Struct, frozen=True):
    """The plan of an upgrade; `free_bytes` is None if the database is on another machine."""

    schema: int
    latest: int
    migrations: tuple[Migration, ...]
    database_bytes: int
    needed_bytes: int
    free_bytes: int | None
    rows: int
    blockers: tuple[str, ...]

    @property
    def seconds(self) -> int:
        """The estimated maximum duration of the migrations in seconds."""
        return math.ceil(self.rows * _ROW_SECONDS)


def upgrade(arguments: argparse.Namespace) -> int:
    """Run `upgrade`; return 1 if something blocks it. With `--check` nothing is changed."""
    server_settings = database_access.settings_of(arguments)
    database_access.require_data(server_settings)
    admin = storage.open_admin(server_settings)
    with database_access.understood():
        plan = plan_of(admin, server_settings)
        upgrades = bool(plan.migrations) and not plan.blockers and not arguments.check
        if upgrades:
            _migrate(admin, server_settings)
    if arguments.json:
        put_json(_document(plan, upgraded=upgrades))
    else:
        _print(plan, admin, server_settings, upgraded=upgrades)
    for blocker in plan.blockers:
        sys.stderr.write(f"sixfold: {blocker}\n")
    return 1 if plan.blockers else 0


def plan_of(admin: DatabaseAdmin, server_settings: Settings) -> UpgradePlan:
    """Return the plan of an upgrade; read all pages of a SQLite file to find damaged ones."""
    health, used_bytes = admin.health(), admin.bytes_used()
    migrations = tuple(step for step in sql.migrations(admin.dialect) if step.number > health.schema)
    needed_bytes = (
        used_bytes * _SPACE_FACTOR + _SPACE_BYTES if migrations and not server_settings.on_postgres else 0
    )
    free = None if server_settings.on_postgres else shutil.disk_usage(server_settings.data_dir).free
    blockers = [
        *_schema_blockers(admin.dialect, health.schema),
        *health.faults,
        *_setting_blockers(server_settings),
    ]
    if not server_settings.on_postgres:
        blockers += _folder_blockers(server_settings, needed_bytes, free or 0)
    counts = {table: admin.row_count(table) for table in frozenset().union(*(m.tables for m in migrations))}
    return UpgradePlan(
        schema=health.schema,
        latest=sql.latest(admin.dialect),
        migrations=migrations,
        database_bytes=used_bytes,
        needed_bytes=needed_bytes,
        free_bytes=free,
        rows=sum(counts[table] for step in migrations for table in step.tables),
        blockers=tuple(blockers),
    )


def _schema_blockers(dialect: str, schema: int) -> Iterator[str]:
    try:
        sql.check_known(dialect, schema)
    except SchemaMismatch as mismatch:
        yield str(mismatch)


def _setting_blockers(server_settings: Settings) -> Iterator[str]:
    """Yield the error in the tables of `sixfold.toml` with which a server would not start."""
    try:
        config_reload.check(server_settings)
    except FILE_ERRORS as error:
        yield str(error)


def _folder_blockers(server_settings: Settings, needed_bytes: int, free: int) -> Iterator[str]:
    """Yield the reasons that prevent the upgrade of a SQLite file."""
    running = server_lock.running(server_settings.data_dir)
    if running is not None:
        yield f"A server (process {running.pid}) uses {server_settings.data_dir}: stop it before the upgrade"
    if not os.access(server_settings.data_dir, os.W_OK):
        yield f"{server_settings.data_dir} is not writable: run the command as the user that owns it"
    if needed_bytes > free:
        free_text, needed_text = size(free), size(needed_bytes)
        yield f"{server_settings.data_dir} has {free_text} free, but the upgrade needs up to {needed_text}"


def _migrate(admin: DatabaseAdmin, server_settings: Settings) -> None:
    if server_settings.on_postgres:
        admin.migrate(sql.latest(admin.dialect))
        return
    with server_lock.hold(server_settings.data_dir):
        admin.migrate(sql.latest(admin.dialect))


def _document(plan: UpgradePlan, *, upgraded: bool) -> dict[str, object]:
    migrations = [
        {"number": step.number, "name": step.name, "description": step.description}
        for step in plan.migrations
    ]
    return {
        "version": __version__,
        "schema": plan.schema,
        "latest": plan.latest,
        "migrations": migrations,
        "database_bytes": plan.database_bytes,
        "needed_bytes": plan.needed_bytes,
        "free_bytes": plan.free_bytes,
        "rows": plan.rows,
        "seconds": plan.seconds,
        "blockers": list(plan.blockers),
        "upgraded": upgraded,
    }


def _print(plan: UpgradePlan, admin: DatabaseAdmin, server_settings: Settings, *, upgraded: bool) -> None:
    paint = TerminalStyle()
    database = f"{admin.place}, {size(plan.database_bytes)}"
    if not plan.migrations:
        paint.rows([("database", database), ("schema", f"{plan.schema}, which this version uses")])
        return
    count = len(plan.migrations)
    change = f"schema {plan.schema} to {plan.latest} by {count} migration{'s' * (count > 1)}"
    rows = [("database", database), ("upgraded" if upgraded else "upgrade", paint.bold(change))]
    if plan.free_bytes is not None:
        rows.append(("disk space", f"up to {size(plan.needed_bytes)} needed, {size(plan.free_bytes)} free"))
    if not upgraded:
        rows.append(("time", f"up to {plan.seconds} s, to index or change {plan.rows:,} rows"))
        rows.append(
            ("before it", f"run `sixfold backup FILE` and copy server.key of {server_settings.data_dir}")
        )
    paint.rows(rows)
    paint.line()
    paint.table(
        ("schema", "what the migration does"),
        [(str(step.number), step.description) for step in plan.migrations],
    )
