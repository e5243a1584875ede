"""`doctor` and `engines list`: show what works on this machine and what is missing."""

from __future__ import annotations

import argparse
import asyncio
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from sixfold import __version__, errors
from sixfold.app import catalog as app_catalog
from sixfold.app import config_reload, storage
from sixfold.app import media as app_media
from sixfold.app.configuration_entries import FILE_ERRORS
from sixfold.cli import database_access, server_lock
from sixfold.cli.doctor import report, storage_checks, text
from sixfold.cli.doctor.report import CheckReport
from sixfold.cli.engines import commands as engine_commands
from sixfold.cli.terminal import put_json
from sixfold.core.accounts import ledger_queries
from sixfold.core.humanize import size
from sixfold.settings import InvalidSetting, Settings
from sixfold.store import sql
from sixfold.store.admin import InvalidDatabase

_LOW_DISK_BYTES = 1_000_000_000


def doctor(arguments: argparse.Namespace) -> int:
    """Run `doctor`; return 1 if there is a problem that the operator must fix."""
    server_settings = database_access.settings_of(arguments, with_keys=True)
    running = server_lock.running(server_settings.data_dir)
    current = report.read(server_settings, running)
    disk = _free_bytes(server_settings)
    database = _database(server_settings)
    stores = asyncio.run(storage_checks.check_stores(server_settings))
    problems = [
        *_problems(database, disk),
        *_configuration_problems(server_settings, current.warnings),
        *_c2pa_problems(server_settings),
        *filter(None, (store.problem() for store in stores)),
    ]
    document: dict[str, Any] = {
        "ok": not problems,
        "problems": problems,
        "version": __version__,
        "python": platform.python_version(),
        "data_dir": str(server_settings.data_dir),
        "server": None if running is None else {"pid": running.pid, "url": running.url},
        "source": current.source,
        "note": current.note,
        "warnings": list(current.warnings),
        "database": database,
        "disk": {"free_bytes": disk},
        "prices": _dated_rows("gateway_prices.toml"),
        "hosted_models": _dated_rows("hosted_models.toml"),
        "stores": [store.record() for store in stores],
        "found": current.found,
        "unfinished_weights": engine_commands.unfinished_records(server_settings),
        "models": current.models,
        "gpus": list(current.gpus),
    }
    if arguments.json:
        put_json(document)
    else:
        text.show(document, current.engines, everything=arguments.all)
    _print_note(current, problems)
    for problem in problems:
        sys.stderr.write(f"sixfold: {problem}\n")
    return 1 if problems else 0


def list_engines(arguments: argparse.Namespace) -> None:
    """Run `engines list`: print the engines in use, or all of them, and the installed weights."""
    server_settings = database_access.settings_of(arguments)
    current = report.read(server_settings, server_lock.running(server_settings.data_dir))
    installed = engine_commands.installed_records(server_settings)
    unfinished = engine_commands.unfinished_records(server_settings)
    if arguments.json:
        document = {
            "engines": current.engines,
            "weights": installed,
            "unfinished_weights": unfinished,
            "source": current.source,
            "note": current.note,
        }
        put_json(document)
    else:
        text.engines(current, installed, unfinished, everything=arguments.all)
    _print_note(current)


def _print_note(current: CheckReport, problems: Sequence[str] = ()) -> None:
    for sentence in filter(None, (current.note, *current.warnings)):
        if sentence not in problems:
            sys.stderr.write(f"sixfold: {sentence}\n")


# -- checks ----------------------------------------------------------------------------------------


def _free_bytes(server_settings: Settings) -> int:
    folder = server_settings.data_dir
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _database(server_settings: Settings) -> dict[str, Any] | None:
    """Return the state of the database, without migrating it."""
    admin = storage.open_admin(server_settings)
    newest = sql.latest(admin.dialect)
    try:
        if admin.schema() is None:
            return None
        health = admin.health()
    except (InvalidDatabase, errors.StoreFailed) as error:
        return {"schema": None, "latest": newest, "faults": [str(error)], "ledger_faults": []}
    healthy = health.schema == newest and not health.faults
    ledger_faults = database_access.read(server_settings, ledger_queries.verify()) if healthy else ()
    return {
        "schema": health.schema,
        "latest": newest,
        "faults": list(health.faults),
        "ledger_faults": list(ledger_faults),
    }


def _configuration_problems(server_settings: Settings, warnings: Sequence[str]) -> Iterator[str]:
    """Yield the error in the tables of `sixfold.toml`, as the running server reports it if it does."""
    try:
        config_reload.check(server_settings)
    except FILE_ERRORS as error:
        text = str(error)
        yield next((warning for warning in warnings if text in warning), text)


def _c2pa_problems(server_settings: Settings) -> Iterator[str]:
    try:
        app_media.open_credentials(server_settings, {})
    except InvalidSetting as error:
        yield str(error)


def _dated_rows(name: str) -> dict[str, Any]:
    """Return the number of models of a bundled table, and the oldest and newest month of its sources."""
    months = [str(row["as_of"])[:7] for row in app_catalog.read_toml(name)["models"].values()]
    return {"models": len(months), "oldest": min(months), "newest": max(months)}


def _problems(database: dict[str, Any] | None, disk: int) -> Iterator[str]:
    if disk < _LOW_DISK_BYTES:
        yield f"The disk of the data folder has only {size(disk)} free"
    if database is None:
        return
    schema, newest = database["schema"], database["latest"]
    if schema is not None and schema > newest:
        yield f"The database has schema {schema}, newer than this version's {newest}: upgrade Sixfold"
    elif schema is not None and schema < newest:
        yield f"The database has schema {schema}: run `sixfold migrate` to bring it to {newest}"
    for fault in database["faults"]:
        yield f"The database is damaged ({fault}): restore a backup with `sixfold restore`"
    yield from database["ledger_faults"]
