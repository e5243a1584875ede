"""The folder of installed weights: `FAMILY/NAME/` with a record; each set is installed atomically."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from sixfold.store import durable

RECORD = "sixfold.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_UNFINISHED = ".unfinished-"
_CHUNK_BYTES = 1 << 20


class WeightsError(Exception):
    """An operation on weights failed; the message is one sentence."""


class InstalledWeights(msgspec.Struct, frozen=True):
    """A set of weights, with the record written when it was installed."""

    family: str
    name: str
    folder: Path
    record: Mapping[str, Any]


class UnfinishedWeights(msgspec.Struct, frozen=True):
    """An installation that has not ended: its downloaded bytes."""

    family: str
    name: str
    size_bytes: int


class WeightStore:
    """The weights in one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def installed(self) -> list[InstalledWeights]:
        """Return all weights ordered by family and name, except folders whose record is damaged."""
        weights: list[InstalledWeights] = []
        for path in sorted(self._root.glob(f"*/*/{RECORD}")):
            if path.parent.name.startswith("."):
                continue
            try:
                record = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(record, dict):
                fields = cast("dict[str, Any]", record)
                weights.append(
                    InstalledWeights(path.parent.parent.name, path.parent.name, path.parent, fields)
                )
        return weights

    def get(self, family: str, name: str) -> InstalledWeights | None:
        return next(
            (model for model in self.installed() if (model.family, model.name) == (family, name)), None
        )

    def names(self, family: str) -> list[str]:
        """Return the names of a family's weights, including unfinished installations."""
        if not _NAME.fullmatch(family):
            return []
        folders = (path.name for path in (self._root / family).glob("*/"))
        return sorted({name.removeprefix(_UNFINISHED).removeprefix("old-") for name in folders})

    def unfinished(self) -> list[UnfinishedWeights]:
        """Return the installations that have not ended, ordered by family and name."""
        return [
            UnfinishedWeights(
                folder.parent.name,
                folder.name.removeprefix(_UNFINISHED),
                sum(_size(path) for path in folder.rglob("*")),
            )
            for folder in sorted(self._root.glob(f"*/{_UNFINISHED}*/"))
            if not folder.name.startswith(f"{_UNFINISHED}old-")
        ]

    def begin(self, family: str, name: str) -> Path:
        """Return the folder for the files of an installation, including those of an unfinished one."""
        for word in (family, name):
            if not _NAME.fullmatch(word):
                raise WeightsError(
                    f"{word!r} is not a valid name: use lowercase letters, digits, dots and dashes"
                )
        folder = self._root / family / f"{_UNFINISHED}{name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def free_bytes(self) -> int:
        """Return the free disk space in bytes."""
        folder = self._root
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def note(self, family: str, name: str, record: Mapping[str, Any]) -> None:
        """Write the record of an unfinished installation."""
        _write(self.begin(family, name) / RECORD, json.dumps(record, ensure_ascii=False) + "\n")

    def finish(self, family: str, name: str, record: Mapping[str, Any]) -> InstalledWeights:
        """Install the collected files atomically, replacing an earlier set of the same name."""
        folder = self.begin(family, name)
        for stray in folder.rglob("*.part"):
            stray.unlink()
        _write(folder / RECORD, json.dumps(record, ensure_ascii=False, indent=2) + "\n")
        target = self._root / family / name
        old = self._root / family / f"{_UNFINISHED}old-{name}"
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
        folder.rename(target)
        durable.sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)
        return InstalledWeights(family, name, target, record)

    def remove(self, family: str, name: str) -> None:
        """Delete weights and the files of an unfinished installation; raises `WeightsError` if none exist."""
        unfinished = self._root / family / f"{_UNFINISHED}{name}"
        target = self._root / family / name
        is_installed = self.get(family, name) is not None
        if not is_installed and not unfinished.is_dir():
            raise WeightsError(f"Weights {name} of the family {family} are not installed")
        if is_installed:
            # Rename first, so that a crash leaves no incomplete set behind.
            away = self._root / family / f"{_UNFINISHED}old-{name}"
            shutil.rmtree(away, ignore_errors=True)
            target.rename(away)
            shutil.rmtree(away)
        shutil.rmtree(unfinished, ignore_errors=True)


def _size(path: Path) -> int:
    # A file of an installation in progress may have been renamed.
    with contextlib.suppress(OSError):
        return path.stat().st_size if path.is_file() else 0
    return 0


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
