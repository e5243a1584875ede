"""Installation of packages of PyPI or npm into the folder of a recipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 900
_READY = ".ready"


class NotInstalled(Exception):
    """Raised if a program cannot be installed here; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages of PyPI or npm, and the free disk space in GiB that they need.

    `overrides` are versions of indirect dependencies that npm has, for those that come from other sites.
    """

    python: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    disk_gib: int = 2
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])


def install(name: str, packages: Packages, folder: Path) -> None:
    """Install the packages unless the folder contains them; raises `NotInstalled`."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / _READY).exists():
        return
    free = shutil.disk_usage(folder).free >> 30
    if free < packages.disk_gib:
        raise NotInstalled(f"{name} needs {packages.disk_gib} GiB of disk space, and {free} GiB are free")
    if packages.python:
        venv.create(folder / "venv", with_pip=True, clear=True)
        _call(folder, str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", *packages.python)
    if packages.npm:
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not on this machine: install Node.js 20.19 or newer")
        # Without this file, npm names the package after the folder, and refuses to install it into itself.
        document = {"private": True, "overrides": dict(packages.overrides)}
        (folder / "package.json").write_text(json.dumps(document), "utf-8")
        options = ("--no-fund", "--no-audit", "--loglevel=error", "--prefix", str(folder))
        _call(folder, npm, "install", *options, *packages.npm)
    (folder / _READY).touch()


def version(folder: Path, packages: Packages) -> str:
    """Return the installed version of the first package, or "" if there is none."""
    if packages.npm:
        path = folder / "node_modules" / packages.npm[0] / "package.json"
        return str(json.loads(path.read_text("utf-8"))["version"]) if path.exists() else ""
    name = packages.python[0].partition("=")[0].replace("-", "_")
    found = sorted(folder.glob(f"venv/lib/python*/site-packages/{name}-*.dist-info"))
    return found[0].name.removeprefix(f"{name}-").removesuffix(".dist-info") if found else ""


def _environment() -> dict[str, str]:
    """Return the environment of an installation, with the headers of Node.js if they are on this machine.

    Otherwise, npm downloads them for packages that it compiles.
    """
    node = shutil.which("node")
    prefix = Path(node).resolve().parents[1] if node is not None else None
    if prefix is None or not (prefix / "include/node/node.h").exists():
        return dict(os.environ)
    return {**os.environ, "npm_config_nodedir": str(prefix)}


def _call(folder: Path, *command: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"the installation took more than {SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "failed" in line or "ERROR" in line]
        reason = lines[0] if lines else done.stderr.strip() or f"exit status {done.returncode}"
        raise NotInstalled(f"{Path(command[0]).name}: {reason[:200]}")
