"""Watcher of `DATA/models/*.py`, which registers each file as a model of the operator's account.

A file is run in a separate process to read its signature, never in the server, and in a sandbox if its
model must run in a sandbox. Live models run from copies that are named by a hash of their content, so that
predictions of an older version still find their code. Errors in `greet.py` are in the log, in
`sixfold model list` and in `greet.py.error`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors
from sixfold.clients import bubblewrap
from sixfold.clients.bubblewrap import Sandbox
from sixfold.core.accounts import accounts
from sixfold.core.catalog.custom_models import KIND, CustomModels
from sixfold.core.catalog.metering import CONTAINER_TIME
from sixfold.core.database import Database
from sixfold.core.input_limits import json_limits
from sixfold.core.input_limits.budget import Limit
from sixfold.engines.python_models.visibility import VisibilityRules
from sixfold.settings import Settings, worker_environment

SANDBOX = "sandbox"  # the driver of sandboxed models
ADDED = "added.json"  # the entries that `sixfold model add` writes
_LOG = logging.getLogger("sixfold.models")
_INTERVAL_SECONDS = 0.5
_DESCRIBE_SECONDS = 60
_MAX_DESCRIPTION_BYTES = 4 * 2**20
_DESCRIPTION = Limit(_MAX_DESCRIPTION_BYTES, "its description has more than {:,} bytes of JSON")
_FACTORY = "sixfold.engines.python_models.engine:FunctionEngine"


class _ModelFacts(msgspec.Struct):
    """The output of the process that reads a file."""

    name: str = ""
    title: str = ""
    description: str = ""
    hardware: str | None = None
    inputs: dict[str, dict[str, Any]] = {}
    output_kind: str = ""
    fault: str = ""


_decode = msgspec.json.Decoder(_ModelFacts).decode


class DescribedModel(msgspec.Struct, frozen=True):
    """A model file: its hash, and its description in `facts` or the error in `fault`.

    `note` is a message for its author.
    """

    path: Path
    sha256: str
    facts: Mapping[str, Any] = {}
    fault: str = ""
    sandboxed: bool = False
    note: str = ""


def build(settings: Settings, own: CustomModels, database: Database) -> ModelWatcher:
    """Return the watcher of a server with these settings."""
    private = settings.on_loopback and not settings.public_url
    return ModelWatcher(
        settings.data_dir / "models", own, database, environment(), VisibilityRules(private, settings.sandbox)
    )


def environment() -> dict[str, str]:
    """Return the environment of the process that reads a file, without keys and settings."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**worker_environment(), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def inspect(
    path: Path, environ: Mapping[str, str], rules: VisibilityRules, added_row: Mapping[str, str]
) -> DescribedModel:
    """Describe a file under the rules; `added_row` is the entry that `sixfold model add` wrote for it."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    decision = rules.judge(path, trusted=added_row.get("sha256") == sha256)
    if decision.fault:
        return DescribedModel(path, sha256, fault=decision.fault)
    return msgspec.structs.replace(describe(path, environ, sandboxed=decision.sandboxed), note=decision.note)


def describe(path: Path, environ: Mapping[str, str], *, sandboxed: bool = False) -> DescribedModel:
    """Run a file in a separate process, `sandboxed` or not, and return its description."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    prefix = bubblewrap.command(Sandbox(readable=(path.absolute(),))) if sandboxed else []
    command = [*prefix, sys.executable, "-m", "sixfold.engines.python_models.describe", str(path.absolute())]
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module, on the operator's own file
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environ),
        start_new_session=True,
    ) as process:
        deadline = threading.Timer(_DESCRIBE_SECONDS, _kill, (process,))
        deadline.start()
        try:
            # Code of the file can write to the pipe, too.
            output = process.stdout.read(_MAX_DESCRIPTION_BYTES + 1) if process.stdout else b""
        finally:
            is_late = not deadline.is_alive()
            deadline.cancel()
            _kill(process)
    if is_late:
        return DescribedModel(path, sha256, fault=f"it was not read within {_DESCRIBE_SECONDS} seconds")
    return _described(path, sha256, output, sandboxed=sandboxed)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its child processes, which may have the pipe."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _described(path: Path, sha256: str, output: bytes, *, sandboxed: bool) -> DescribedModel:
    try:
        if len(output) > _MAX_DESCRIPTION_BYTES:
            raise _DESCRIPTION.exceeded()
        json_limits.DEFAULT.check(output)
        facts = _decode(output)
    except errors.InputTooLarge as error:
        return DescribedModel(path, sha256, fault=error.message)
    except (msgspec.MsgspecError, RecursionError):
        return DescribedModel(path, sha256, fault="it exited while it was being read")
    if facts.fault:
        return DescribedModel(path, sha256, fault=facts.fault)
    for row in facts.inputs.values():
        # No hint has a pattern, and one of the file's own could take exponential time in the server.
        row.pop("pattern", None)
    return DescribedModel(path, sha256, msgspec.structs.asdict(facts), sandboxed=sandboxed)


def read_entries(folder: Path) -> dict[str, dict[str, str]]:
    """Return the entries of `sixfold model add`, with `sha256` and `hardware`, by file name."""
    try:
        rows = json.loads((folder / ADDED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return rows if isinstance(rows, dict) else {}


class ModelWatcher:
    """Registers the files of a folder as models, and removes the models of deleted files."""

    def __init__(
        self,
        folder: Path,
        own: CustomModels,
        database: Database,
        environ: Mapping[str, str],
        rules: VisibilityRules,
    ) -> None:
        self.faults: dict[str, str] = {}
        self._folder = folder
        self._own = own
        self._database = database
        self._environ = environ
        self._rules = rules
        self._rates = own.rates
        self._seen: dict[Path, tuple[int, ...]] = {}
        self._names: dict[Path, str] = {}
        self._first = True
        self._failure = ""
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Check the folder every 0.5 s until canceled."""
        while True:
            await self.check()
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def check(self) -> None:
        """Refresh; log an error once, not twice a second for as long as it lasts."""
        try:
            await self.refresh()
        except (OSError, errors.StoreFailed) as error:
            if str(error) != self._failure:
                _LOG.exception("the models folder could not be read")
            self._failure = str(error)
        else:
            self._failure = ""

    async def refresh(self) -> None:
        """Register new and changed files, and remove the models of deleted files."""
        async with self._lock:
            await self._refresh()

    async def _refresh(self) -> None:
        stamps = await asyncio.to_thread(_stamps, self._folder)
        if stamps == self._seen and not self._first:
            return
        operator = await self._database.read(accounts.operator())
        if operator is None:
            return
        if self._first:
            await self._read_known(operator.id)
        added_rows = await asyncio.to_thread(read_entries, self._folder)
        for path in self._seen.keys() - stamps.keys():
            await self._remove(operator.id, path)
        added_file = self._folder / ADDED
        added_changed = stamps.get(added_file) != self._seen.get(added_file)
        for path, stamp in stamps.items():
            if path.suffix == ".py" and (
                added_changed or stamp != self._seen.get(path) or path not in self._names
            ):
                await self._add(operator.id, path, added_rows.get(path.name, {}))
        self._seen = stamps
        self._first = False

    async def _read_known(self, account_id: str) -> None:
        """Read the files of known models; remove models whose file was deleted while the server was down."""
        async for model in self._own.each(account_id, KIND):
            file = model.document.get("file")
            if isinstance(file, str):
                path = self._folder / file
                self._names[path] = model.name
                if not path.exists():
                    await self._remove(account_id, path)

    async def _add(self, account_id: str, path: Path, added_row: Mapping[str, str]) -> None:
        model = await asyncio.to_thread(inspect, path, self._environ, self._rules, added_row)
        fault = model.fault or await self._register(account_id, model, added_row)
        await asyncio.to_thread(_write_error, path, fault)
        if fault:
            self.faults[path.name] = fault
            _LOG.warning("%s is not a valid model: %s", path.name, fault)
            return
        self.faults.pop(path.name, None)
        if model.note:
            _LOG.warning("%s %s", path.name, model.note)

    async def _register(self, account_id: str, model: DescribedModel, added_row: Mapping[str, str]) -> str:
        """Register the model for the account; returns an error message or an empty string."""
        name = added_row.get("name") or str(model.facts["name"])
        hardware = added_row.get("hardware") or model.facts["hardware"] or None
        copy_path = self._folder / ".versions" / f"{name}-{model.sha256[:16]}.py"
        await asyncio.to_thread(_copy, model.path, copy_path)
        document = _document(model, name, copy_path, hardware)
        try:
            before = (await self._own.find(name, account_id)).document
        except errors.NotFound:
            before = None
        try:
            self._rates.hardware_rate(name, hardware)
            if before != document:
                await self._own.put(account_id, KIND, name, document)
        except (errors.SixfoldError, KeyError, TypeError, ValueError) as error:
            return str(error)
        if self._names.get(model.path, name) != name:
            await self._remove(account_id, model.path)
        self._names[model.path] = name
        _LOG.info("%s is registered as the model %s", model.path.name, name)
        return ""

    async def _remove(self, account_id: str, path: Path) -> None:
        name = self._names.pop(path, None)
        self.faults.pop(path.name, None)
        await asyncio.to_thread(_write_error, path, "")
        if name is not None:
            try:
                await self._own.remove(account_id, name)
            except errors.NotFound:
                return


def _stamps(folder: Path) -> dict[Path, tuple[int, ...]]:
    if not folder.is_dir():
        return {}
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or path.name == ADDED]
    stamps: dict[Path, tuple[int, ...]] = {}
    for path in sorted(paths):
        if path.is_file():
            facts = path.stat()
            stamps[path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return stamps


def _write_error(path: Path, fault: str) -> None:
    """Write the error file of a model, or delete it if `fault` is empty."""
    error_file = path.with_name(f"{path.name}.error")
    if fault and path.exists():
        error_file.write_text(f"{fault}\n", "utf-8")
    else:
        error_file.unlink(missing_ok=True)


def _copy(path: Path, copy: Path) -> None:
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not copy.exists():
        part = copy.with_suffix(".part")
        shutil.copyfile(path, part)
        part.replace(copy)


def _document(described: DescribedModel, name: str, copy: Path, hardware: str | None) -> dict[str, Any]:
    facts, version = described.facts, described.sha256[:16]
    inner = {"factory": _FACTORY, "options": {"path": str(copy), "version": version}}
    engine = {
        **(_sandboxed_engine(inner, copy) if described.sandboxed else {"kind": "own", "unlock": "", **inner}),
        "version": version,
        "quality": "full",
        "concurrency": 0,
        "idle_seconds": 120,
    }
    model = {
        "title": facts["title"],
        "description": facts["description"],
        "output_kind": facts["output_kind"],
        "price": CONTAINER_TIME,
        "hardware": hardware,
        "engines": [name],
        "inputs": facts["inputs"],
    }
    template = {"image": f"file:{described.path.name}", "license": "your own", "tags": ["model", "python"]}
    return {
        "engines": {name: engine},
        "models": {name: model},
        "template": template,
        "file": described.path.name,
    }


def _sandboxed_engine(engine: Mapping[str, Any], copy: Path) -> dict[str, Any]:
    """Return the row of an engine that runs in the sandbox driver."""
    options = {**engine, "readable": [str(copy)]}
    return {"kind": SANDBOX, "factory": SANDBOX, "unlock": bubblewrap.UNLOCK, "options": options}
