"""Installation of weights from the operator's page, by `sixfold engines add` in a separate process.

The process continues after the request and after the server ends. It holds a lock on
`DATA/installs/FAMILY.NAME.lock` while it runs, and writes its output to the `.log` file next to it, so every
process of the server sees the same state.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration.ports import InstallState, InstallView
from sixfold.core.database import Database, Transaction
from sixfold.settings import Settings
from sixfold.store import file_locks
from sixfold.store.weights import InstalledWeights, WeightsError, WeightStore

_MAX_RUNNING = 2
_LOG_BYTES, _LOG_LINES = 32_768, 40
# Alternatives to the suggested weights that remove backgrounds.
_SPECIAL = frozenset(
    {"matting-isnet-general-use", "matting-u2net", "matting-isnet-anime", "matting-birefnet-general"}
)
# A line of `engines add --progress`: the bytes downloaded so far, and the total bytes.
PROGRESS = "@ "


class EngineInstalls:
    """Implements `core.configuration.ports.EngineInstallService`.

    `changed` makes the server look for installed weights again.
    """

    def __init__(
        self, settings: Settings, database: Database, changed: Callable[[], Awaitable[None]]
    ) -> None:
        self._data_dir = settings.data_dir
        self._folder = settings.data_dir / "installs"
        self._database = database
        self._store = WeightStore(settings.data_dir / "weights")
        self._changed = changed
        self._running: frozenset[str] = frozenset()
        self._rows: Mapping[str, Mapping[str, Mapping[str, Any]]] = app_catalog.read_toml("weights.toml")

    async def view(self) -> tuple[InstallView, ...]:
        """Return the weights of the bundled table, and other weights that are installed."""
        views = await asyncio.to_thread(lambda: tuple(self._views()))
        running = frozenset(f"{view.family}.{view.name}" for view in views if view.state == "running")
        ended, self._running = self._running - running, running
        if ended:
            await self._changed()
        return views

    async def start(self, actor: Principal, family: str, name: str) -> None:
        """Begin to install weights; raises `NotFound`, and `Conflict` if too many installations run."""
        if not _is_downloadable(self._rows.get(family, {}).get(name, {})):
            raise errors.NotFound(f"Weights {name[:60]!r} of the family {family[:60]!r} cannot be downloaded")
        views = await self.view()
        if sum(view.state == "running" for view in views) >= _MAX_RUNNING:
            raise errors.Conflict(f"{_MAX_RUNNING} installations are running: wait until one has ended")
        await asyncio.to_thread(self._spawn, family, name)
        self._running |= {f"{family}.{name}"}
        await self._database.write(_noted(actor, "engine.install", family, name))

    async def stop(self, actor: Principal, family: str, name: str) -> None:
        """Stop an installation; raises `NotFound`.

        The downloaded files are reused by the next installation.
        """
        if name not in self._rows.get(family, {}) or not await asyncio.to_thread(self._kill, family, name):
            raise errors.NotFound("These weights are not being installed")
        await self._database.write(_noted(actor, "engine.stop", family, name))

    async def remove(self, actor: Principal, family: str, name: str) -> None:
        try:
            await asyncio.to_thread(self._store.remove, family, name)
        except WeightsError as error:
            raise errors.NotFound(str(error)) from error
        self._file(family, name, "log").unlink(missing_ok=True)
        await self._database.write(_noted(actor, "engine.remove", family, name))
        await self._changed()

    def _views(self) -> Iterator[InstallView]:
        installed = {(model.family, model.name): model for model in self._store.installed()}
        begun = {(each.family, each.name) for each in self._store.unfinished()}
        for family, models in self._rows.items():
            for name, row in models.items():
                key = (family, name)
                yield self._view(family, name, row, installed.pop(key, None), is_begun=key in begun)
                begun.discard(key)
        for weights in installed.values():
            yield self._view(weights.family, weights.name, weights.record, weights)
        for family, name in sorted(begun - installed.keys()):
            yield self._view(family, name, {}, None, is_begun=True)

    def _view(
        self,
        family: str,
        name: str,
        row: Mapping[str, Any],
        installed: InstalledWeights | None,
        *,
        is_begun: bool = False,
    ) -> InstallView:
        title, percent, log = str(row.get("title", name)), None, ()
        state: InstallState = "installed" if installed is not None else "failed" if is_begun else "absent"
        if self._is_running(family, name):
            state = "running"
        if (installed is None or state == "running") and self._file(family, name, "log").exists():
            percent, log = _read_log(self._file(family, name, "log"))
            state = state if state == "running" else "failed"
        return InstallView(
            family,
            name,
            title,
            state,
            float(row.get("gigabytes", 0) or 0),
            str(row.get("licence", "")),
            str(row.get("commercial", "")),
            is_suggested=bool(row.get("default")) and family not in _SPECIAL,
            is_downloadable=_is_downloadable(row),
            percent=percent,
            log=log,
            size_bytes=int(installed.record.get("bytes", 0)) if installed else 0,
        )

    def _file(self, family: str, name: str, ending: str) -> Path:
        return self._folder / f"{family}.{name}.{ending}"

    def _is_running(self, family: str, name: str) -> bool:
        return file_locks.is_locked(self._file(family, name, "lock"))

    def _spawn(self, family: str, name: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, "-m", "sixfold", "engines", "add", family, "--model", name]
        command += ["--progress", "--data-dir", str(self._data_dir)]
        lock = os.open(self._file(family, name, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self._file(family, name, "log").open("wb") as log:
                process = subprocess.Popen(  # noqa: S603 - the words are from the bundled table
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            os.truncate(lock, 0)
            os.write(lock, str(process.pid).encode())
        except BlockingIOError:
            raise errors.Conflict(f"{name} is being installed: wait until it ends, or stop it") from None
        finally:
            # The process has its own copy of the descriptor, and with it the lock.
            os.close(lock)
        threading.Thread(target=process.wait, name=f"install-{name}", daemon=True).start()

    def _kill(self, family: str, name: str) -> bool:
        if not self._is_running(family, name):
            return False
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int(self._file(family, name, "lock").read_text()), signal.SIGTERM)
        return True


def _noted(actor: Principal, action: str, family: str, name: str) -> Transaction[None]:
    yield actions.note(actor, action, f"engines.{family}.{name}")


def _is_downloadable(row: Mapping[str, Any]) -> bool:
    return "repository" in row or "package" in row


def _read_log(path: Path) -> tuple[int | None, tuple[str, ...]]:
    """Return the percentage of the last progress line, or None, and the last other lines."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
        progress = next((line for line in reversed(lines) if line.startswith(PROGRESS)), "")
        numbers = [int(word) for word in progress.split()[1:3] if word.isdecimal()]
        percent = min(100, 100 * numbers[0] // max(1, numbers[1])) if len(numbers) == 2 else None
        text = [line.strip() for line in lines if line.strip() and not line.startswith(PROGRESS)]
        return percent, tuple(text[-_LOG_LINES:])
    return None, cast("tuple[str, ...]", ())
