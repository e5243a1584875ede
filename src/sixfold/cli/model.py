"""`sixfold model`: the operator's own models, each a typed Python function in a file of the data folder."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold import assembly
from sixfold.cli import opening
from sixfold.cli.terminal import Paint, Refused, put_json
from sixfold.engines.own import files, shelf
from sixfold.engines.own.shelf import Described


def add(arguments: argparse.Namespace) -> None:
    """`model add`: read a file, and put it where the server finds it."""
    configured = opening.settings_of(arguments)
    source = Path(arguments.file)
    if source.suffix != ".py":
        raise Refused(f"{source.name} is no Python file: `model add` takes FILE.py")
    found = shelf.describe(source.absolute(), shelf.environment())
    if found.fault:
        raise Refused(f"{source.name} is no model: {found.fault}")
    name = _name(arguments.name, found)
    if arguments.hardware:
        assembly.templates().hire(name, arguments.hardware)
    folder = configured.data_dir / "models"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / f"{name}.py"
    if source.absolute() != target.absolute():
        part = target.with_suffix(".part")
        shutil.copyfile(source, part)
        part.replace(target)
    known = shelf.added(folder)
    known[target.name] = {"sha256": found.sha256, "hardware": arguments.hardware or "", "name": name}
    _write(folder, known)
    told = {**_told(found, name), "file": str(target)}
    if arguments.json:
        put_json(told)
        return
    paint = Paint()
    paint.rows(
        [("model", paint.bold(name)), ("takes", _takes(found)), ("gives", str(found.facts["output_kind"]))]
    )


def list_(arguments: argparse.Namespace) -> None:
    """`model list`: every file in the folder, with what is wrong with it."""
    configured = opening.settings_of(arguments)
    folder = configured.data_dir / "models"
    known = shelf.added(folder)
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.py")) if folder.is_dir() else ():
        found = shelf.describe(path, shelf.environment())
        if found.fault:
            rows.append({"name": path.stem, "file": path.name, "fault": found.fault})
        else:
            name = known.get(path.name, {}).get("name") or str(found.facts["name"])
            rows.append({**_told(found, name), "file": path.name, "fault": None})
    if arguments.json:
        put_json({"models": rows})
        return
    paint = Paint()
    paint.rows([(row["file"], row["fault"] or f"{row['name']}: {row['description']}") for row in rows])


def remove(arguments: argparse.Namespace) -> None:
    """`model remove`: take a model's file away; a running server forgets it."""
    configured = opening.settings_of(arguments)
    folder = configured.data_dir / "models"
    target = folder / f"{arguments.name}.py"
    if Path(arguments.name).name != arguments.name or not target.is_file():
        raise Refused(f"There is no model file {arguments.name}.py in {folder}")
    target.unlink()
    known = shelf.added(folder)
    if known.pop(target.name, None) is not None:
        _write(folder, known)
    if arguments.json:
        put_json({"removed": arguments.name})


def _name(wanted: str | None, found: Described) -> str:
    name = str(wanted or found.facts["name"])
    if not files.NAME.fullmatch(name):
        raise Refused(f"{name!r} is no name for a model: use a to z, digits and -")
    if name in assembly.models_document()["models"]:
        raise Refused(f"{name} is a built-in name")
    return name


def _told(found: Described, name: str) -> dict[str, Any]:
    facts = found.facts
    return {
        "name": name,
        "description": facts["description"],
        "inputs": facts["inputs"],
        "output_kind": facts["output_kind"],
        "version": found.sha256[:16],
    }


def _takes(found: Described) -> str:
    return ", ".join(f"{name} ({row['type']})" for name, row in found.facts["inputs"].items()) or "nothing"


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    part = folder / f"{shelf.ADDED}.part"
    part.write_text(json.dumps(known, indent=2, sort_keys=True), "utf-8")
    part.replace(folder / shelf.ADDED)
