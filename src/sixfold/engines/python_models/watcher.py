"""The operator's own models: `DATA/models/*.py`, watched, each registered for the operator's account.

A file is run in a process of its own to learn what it takes, never in the server, and in a sandbox if its
model is to run in one. What is live is a copy by its content, so that an order of an older version still
finds its program. What is wrong with `greet.py` is said in the log, by `model list`, and in `greet.py.error`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.clients import bubblewrap
from sixfold.clients.bubblewrap import Sandbox
from sixfold.core.accounts import accounts
from sixfold.core.catalog.custom_models import CustomModels
from sixfold.core.catalog.metering import CONTAINER_TIME
from sixfold.core.database import Database
from sixfold.engines.python_models.visibility import VisibilityRules
from sixfold.settings import Settings, worker_environment

KIND = "model"
SANDBOX = "sandbox"  # the driver of those that are shut in
ADDED = "added.json"  # what `sixfold model add` put there, and on which hardware
_LOG = logging.getLogger("sixfold.models")
_LOOK_SECONDS = 0.5
_DESCRIBE_SECONDS = 60
_FACTORY = "sixfold.engines.python_models.engine:FunctionEngine"


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """A file as it was read: its hash, and its description or what is wrong with it.

    `shut`: it runs in a sandbox; `note` is what its author should know.
    """

    path: Path
    sha256: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fault: str = ""
    shut: bool = False
    note: str = ""


def build(settings: Settings, own: CustomModels, database: Database) -> ModelWatcher:
    """The shelf of a server of these settings."""
    alone = settings.on_loopback and not settings.public_url
    return ModelWatcher(
        settings.data_dir / "models", own, database, environment(), VisibilityRules(alone, settings.sandbox)
    )


def environment() -> dict[str, str]:
    """What a process sees that reads a file: no key, no setting."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**worker_environment(), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def look(
    path: Path, environ: Mapping[str, str], rules: VisibilityRules, chosen: Mapping[str, str]
) -> DescribedModel:
    """A file as the rules have it read; `chosen` is what `sixfold model add` noted of it."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    verdict = rules.judge(path, vouched=chosen.get("sha256") == sha256)
    if verdict.fault:
        return DescribedModel(path, sha256, fault=verdict.fault)
    return dataclasses.replace(describe(path, environ, shut=verdict.shut), note=verdict.note)


def describe(path: Path, environ: Mapping[str, str], *, shut: bool = False) -> DescribedModel:
    """Run a file in a process of its own, `shut` in or not, and hear what it is."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    cell = bubblewrap.command(Sandbox(shown=(path.absolute(),))) if shut else []
    try:
        ended = subprocess.run(  # noqa: S603 - our own interpreter and module, on the operator's own file
            [*cell, sys.executable, "-m", "sixfold.engines.python_models.describe", str(path.absolute())],
            capture_output=True,
            timeout=_DESCRIBE_SECONDS,
            env=dict(environ),
            check=False,
        )
        found = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        return DescribedModel(path, sha256, fault=f"it was not read within {_DESCRIBE_SECONDS} seconds")
    except ValueError:
        return DescribedModel(path, sha256, fault="it ended before it was read")
    if "fault" in found:
        return DescribedModel(path, sha256, fault=str(found["fault"]))
    return DescribedModel(path, sha256, found, shut=shut)


def added(folder: Path) -> dict[str, dict[str, str]]:
    """What `sixfold model add` put into the folder, by file name: `sha256`, `hardware`."""
    try:
        found = json.loads((folder / ADDED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class ModelWatcher:
    """Watches the folder."""

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
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """Look, for as long as the server runs."""
        while True:
            try:
                await self.look()
            except (OSError, errors.StoreFailed):
                _LOG.exception("own models could not be read")
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """See what came, changed and went since the last look."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        stamps = await asyncio.to_thread(_stamps, self._folder)
        if stamps == self._seen and not self._first:
            return
        operator = await self._database.read(accounts.operator())
        if operator is None:
            return
        if self._first:
            await self._remember(operator.id)
        chosen = await asyncio.to_thread(added, self._folder)
        for path in self._seen.keys() - stamps.keys():
            await self._forget(operator.id, path)
        noted = self._folder / ADDED
        anew = stamps.get(noted) != self._seen.get(noted)
        for path, stamp in stamps.items():
            if path.suffix == ".py" and (anew or stamp != self._seen.get(path) or path not in self._names):
                await self._take(operator.id, path, chosen.get(path.name, {}))
        self._seen = stamps
        self._first = False

    async def _remember(self, account_id: str) -> None:
        """Which files the models that are known came from; those whose file went meanwhile are forgotten."""
        async for model in self._own.each(account_id, KIND):
            file = model.document.get("file")
            if isinstance(file, str):
                path = self._folder / file
                self._names[path] = model.name
                if not path.exists():
                    await self._forget(account_id, path)

    async def _take(self, account_id: str, path: Path, chosen: Mapping[str, str]) -> None:
        found = await asyncio.to_thread(look, path, self._environ, self._rules, chosen)
        fault = found.fault or await self._put(account_id, found, chosen)
        await asyncio.to_thread(_say, path, fault)
        if fault:
            self.faults[path.name] = fault
            _LOG.warning("%s is no model: %s", path.name, fault)
            return
        self.faults.pop(path.name, None)
        if found.note:
            _LOG.warning("%s %s", path.name, found.note)

    async def _put(self, account_id: str, found: DescribedModel, chosen: Mapping[str, str]) -> str:
        """Make it the account's model; gives what is wrong with it."""
        name = chosen.get("name") or str(found.facts["name"])
        hardware = chosen.get("hardware") or str(found.facts["hardware"]) or None
        kept = self._folder / ".versions" / f"{name}-{found.sha256[:16]}.py"
        await asyncio.to_thread(_keep, found.path, kept)
        document = _document(found, name, kept, hardware)
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
        if self._names.get(found.path, name) != name:
            await self._forget(account_id, found.path)
        self._names[found.path] = name
        _LOG.info("%s is the model %s", found.path.name, name)
        return ""

    async def _forget(self, account_id: str, path: Path) -> None:
        name = self._names.pop(path, None)
        self.faults.pop(path.name, None)
        await asyncio.to_thread(_say, path, "")
        if name is not None:
            try:
                await self._own.remove(account_id, name)
            except errors.NotFound:
                return


def _stamps(folder: Path) -> dict[Path, tuple[int, ...]]:
    if not folder.is_dir():
        return {}
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or path.name == ADDED]
    found: dict[Path, tuple[int, ...]] = {}
    for path in sorted(paths):
        if path.is_file():
            facts = path.stat()
            found[path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return found


def _say(path: Path, fault: str) -> None:
    """Say beside a file what is wrong with it, or nothing more."""
    said = path.with_name(f"{path.name}.error")
    if fault and path.exists():
        said.write_text(f"{fault}\n", "utf-8")
    else:
        said.unlink(missing_ok=True)


def _keep(path: Path, kept: Path) -> None:
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not kept.exists():
        part = kept.with_suffix(".part")
        shutil.copyfile(path, part)
        part.replace(kept)


def _document(found: DescribedModel, name: str, kept: Path, hardware: str | None) -> dict[str, Any]:
    facts, version = found.facts, found.sha256[:16]
    inner = {"factory": _FACTORY, "options": {"path": str(kept), "version": version}}
    engine = {
        **(_shut_in(inner, kept) if found.shut else {"kind": "own", "unlock": "", **inner}),
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
    template = {"image": f"file:{found.path.name}", "license": "your own", "tags": ["model", "python"]}
    return {"engines": {name: engine}, "models": {name: model}, "template": template, "file": found.path.name}


def _shut_in(engine: Mapping[str, Any], kept: Path) -> dict[str, Any]:
    """An engine's row in the hands of the driver that shuts it in."""
    options = {**engine, "shown": [str(kept)]}
    return {"kind": SANDBOX, "factory": SANDBOX, "unlock": bubblewrap.UNLOCK, "options": options}
