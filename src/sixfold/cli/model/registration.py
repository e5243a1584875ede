"""Wait for the running server to register or remove the model of a file.

The server watches the folder `models/`. A command that returned before the server has seen a change would
make the next command fail, as in `sixfold model add greet.py && sixfold run greet`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError
from sixfold.core.accounts import accounts
from sixfold.core.catalog.custom_models import KIND
from sixfold.core.database import Query, Transaction
from sixfold.settings import Settings

_WAIT_SECONDS = 30.0
_PAUSE_SECONDS = 0.1
# An error that lasts for this time is about the new version; the server may have just read the previous one.
_ERROR_SECONDS = 3.0


def require_database(server_settings: Settings) -> None:
    """Raise `CommandError` if a server runs and its database cannot be read with these settings.

    A command calls this before it changes files, so that it does not fail after the change.
    """
    database_access.require_database_of_server(server_settings)
    if _watched(server_settings):
        database_access.read(server_settings, accounts.operator())


def wait_until_added(server_settings: Settings, target: Path, name: str, entry: Mapping[str, str]) -> None:
    """Return once the running server offers this version of a file, or at once if no server runs.

    `entry` has the `version` of the file and its `hardware`. Raises `CommandError` with the server's error
    if the server rejects the file.
    """
    error, error_since = "", 0.0
    until = time.monotonic() + _WAIT_SECONDS
    while _watched(server_settings):
        document = database_access.read(server_settings, _documents()).get(name)
        if document is not None and _facts(document, name) == {"file": target.name, **entry}:
            return
        moment, latest_error = time.monotonic(), _error_of(target)
        if latest_error != error:
            error, error_since = latest_error, moment
        elif error and moment - error_since >= _ERROR_SECONDS:
            raise CommandError(f"The server rejects {target.name}: {error}")
        if moment >= until:
            _put_note(f"registered {name}")
            return
        time.sleep(_PAUSE_SECONDS)


def wait_until_removed(server_settings: Settings, target: Path) -> None:
    """Return once the running server has removed the model of a file, or at once if no server runs."""
    until = time.monotonic() + _WAIT_SECONDS
    while _watched(server_settings):
        documents = database_access.read(server_settings, _documents()).values()
        if not any(document.get("file") == target.name for document in documents):
            return
        if time.monotonic() >= until:
            _put_note(f"removed the model of {target.name}")
            return
        time.sleep(_PAUSE_SECONDS)


def _put_note(change: str) -> None:
    sys.stderr.write(
        f"sixfold: The server has not {change} within {_WAIT_SECONDS:g} seconds: check its log\n"
    )


def _error_of(target: Path) -> str:
    """Return the error that the server wrote about a file, or an empty string."""
    with contextlib.suppress(OSError):  # the server may delete the file at any time
        return target.with_name(f"{target.name}.error").read_text("utf-8").strip()
    return ""


def _watched(server_settings: Settings) -> bool:
    """Return whether a server runs on the data folder and has started to watch its files."""
    server = server_lock.running(server_settings.data_dir)
    return server is not None and bool(server.url)


def _documents() -> Transaction[dict[str, dict[str, Any]]]:
    """Return the documents of the operator's models of files and images, by name."""
    operator = yield from accounts.operator()
    if operator is None:
        return {}
    rows = yield Query("custom_models_of", {"account_id": operator.id, "kind": KIND})
    return {str(row["name"]): json.loads(str(row["document"])) for row in rows}


def _facts(document: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the file, version and hardware of a model; the engine of an image has another name."""
    engine = document.get("engines", {}).get(name, {})
    return {
        "file": str(document.get("file", "")),
        "version": str(engine.get("version", "")),
        "hardware": str(document["models"][name].get("hardware") or ""),
    }
