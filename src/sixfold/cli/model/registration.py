"""Wait for the running server to register or remove the model of a file.

The server watches the folder `models/`. A command that returned before the server has seen a change would
make the next command fail, as in `sixfold model add greet.py && sixfold run greet`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError
from sixfold.core.accounts import accounts
from sixfold.core.database import Query, Transaction
from sixfold.settings import Settings

_WAIT_SECONDS = 30.0
_PAUSE_SECONDS = 0.1


def wait_until_added(server_settings: Settings, target: Path, name: str, entry: Mapping[str, str]) -> None:
    """Return once the running server offers this version of a file, or at once if no server runs.

    `entry` has the `version` of the file and its `hardware`. Raises `CommandError` with the server's error
    if the server rejects the file.
    """
    error_file = target.with_name(f"{target.name}.error")
    until = time.monotonic() + _WAIT_SECONDS
    while _watched(server_settings) and time.monotonic() < until:
        document = database_access.read(server_settings, _document(name))
        if document is not None and _facts(document, name) == {"file": target.name, **entry}:
            return
        if error_file.exists():
            raise CommandError(f"The server rejects {target.name}: {error_file.read_text('utf-8').strip()}")
        time.sleep(_PAUSE_SECONDS)


def wait_until_removed(server_settings: Settings, name: str) -> None:
    """Return once the running server has removed a model, or at once if no server runs."""
    until = time.monotonic() + _WAIT_SECONDS
    while _watched(server_settings) and time.monotonic() < until:
        if database_access.read(server_settings, _document(name)) is None:
            return
        time.sleep(_PAUSE_SECONDS)


def _watched(server_settings: Settings) -> bool:
    """Return whether a server runs on the data folder and has started to watch its files."""
    server = server_lock.running(server_settings.data_dir)
    return server is not None and bool(server.url)


def _document(name: str) -> Transaction[dict[str, Any] | None]:
    operator = yield from accounts.operator()
    if operator is None:
        return None
    rows = yield Query("custom_models_of", {"account_id": operator.id, "kind": "model"})
    return next((json.loads(str(row["document"])) for row in rows if row["name"] == name), None)


def _facts(document: Mapping[str, Any], name: str) -> dict[str, str]:
    return {
        "file": str(document.get("file", "")),
        "version": str(document["engines"][name]["version"]),
        "hardware": str(document["models"][name]["hardware"] or ""),
    }
