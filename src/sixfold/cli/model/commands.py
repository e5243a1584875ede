"""`model`: add, list and remove custom models from Python files and container images."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.app import catalog as app_catalog
from sixfold.app import storage
from sixfold.cli import database_access, ownership
from sixfold.cli.client import ServerClient
from sixfold.cli.model import registration
from sixfold.cli.terminal import CommandError, TerminalStyle, put_json
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.database import Query, Row, Transaction
from sixfold.engines.python_models import files, watcher
from sixfold.engines.python_models.visibility import VisibilityRules
from sixfold.engines.python_models.watcher import DescribedModel
from sixfold.settings import Settings

# The server may have to pull the image and load its model.
_IMAGE_SECONDS = 3900
_KINDS = frozenset({"model", "space"})
_ELSEWHERE = {
    ".gguf": "to add a chat model, use `sixfold engines add chat --from FILE.gguf`",
    "folder": "to add a folder with an app.py or a Dockerfile, use `sixfold space import FOLDER`",
}


def add(arguments: argparse.Namespace) -> None:
    """Run `model add`: copy a file into the models folder, or add an image that the server inspects."""
    source = Path(arguments.source)
    if source.suffix == ".py":
        _add_file(arguments, source)
    elif source.exists():
        kind = "folder" if source.is_dir() else source.suffix.lower()
        hint = _ELSEWHERE.get(kind, "`model add` accepts FILE.py or the name of an image")
        raise CommandError(f"{source.name} is not a Python file: {hint}")
    else:
        _add_image(arguments)


def _add_file(arguments: argparse.Namespace, source: Path) -> None:
    server_settings = database_access.settings_of(arguments)
    rules = VisibilityRules(sandbox=server_settings.sandbox)
    trusted = {"sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    described = watcher.inspect(source.absolute(), watcher.environment(), rules, trusted)
    if described.fault:
        raise CommandError(f"{source.name} is not a model: {described.fault}")
    name = _name(arguments.name, described)
    if arguments.hardware:
        app_catalog.templates().hardware_rate(name, arguments.hardware)
    registration.require_database(server_settings)
    folder = server_settings.data_dir / "models"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / f"{name}.py"
    target.with_name(f"{target.name}.error").unlink(missing_ok=True)  # of an earlier version
    part = target.with_suffix(".part")
    if source.absolute() != target.absolute():
        shutil.copyfile(source, part)
    # Write the entry before the file, because the server rejects files without an entry.
    models = watcher.read_entries(folder)
    models[target.name] = {"sha256": described.sha256, "hardware": arguments.hardware or "", "name": name}
    _write(folder, models)
    if source.absolute() != target.absolute():
        part.replace(target)
    ownership.give_to_owner(server_settings.data_dir)  # the running server reads the file now
    hardware = arguments.hardware or str(described.facts["hardware"] or "")
    entry = {"version": described.sha256[:16], "hardware": hardware}
    registration.wait_until_added(server_settings, target, name, entry)
    print_model({**_as_record(described, name), "file": str(target)}, as_json=arguments.json)


def _add_image(arguments: argparse.Namespace) -> None:
    client = ServerClient.of(arguments)
    client.timeout_seconds = _IMAGE_SECONDS
    options = {"image": arguments.source, "name": arguments.name, "hardware": arguments.hardware}
    body = {name: value for name, value in options.items() if value}
    template = client.post("/api/containers/templates", body)
    print_model(of_template(template, arguments.source), as_json=arguments.json)


def list_(arguments: argparse.Namespace) -> None:
    """Run `model list`: print the model files with their errors, and the models from container images."""
    server_settings = database_access.settings_of(arguments)
    folder = server_settings.data_dir / "models"
    models = watcher.read_entries(folder)
    rules = VisibilityRules(
        server_settings.on_loopback and not server_settings.public_url, server_settings.sandbox
    )
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.py")) if folder.is_dir() else ():
        options = models.get(path.name, {})
        described = watcher.inspect(path, watcher.environment(), rules, options)
        if described.fault:
            rows.append({"name": path.stem, "file": path.name, "fault": described.fault})
        else:
            name = options.get("name") or str(described.facts["name"])
            facts = {"sandbox": described.sandboxed, "note": described.note or None}
            rows.append({**_as_record(described, name), "file": path.name, **facts, "fault": None})
    rows += [_of_row(row) for row in _stored_models(server_settings)]
    if arguments.json:
        put_json({"models": rows})
        return
    paint = TerminalStyle()
    paint.rows([(row["file"] or row["image"], _describe(row)) for row in rows])


def remove(arguments: argparse.Namespace) -> None:
    """Run `model remove`: remove a custom model; a running server unloads it."""
    server_settings = database_access.settings_of(arguments)
    registration.require_database(server_settings)
    folder = server_settings.data_dir / "models"
    target = folder / f"{arguments.name}.py"
    plain = Path(arguments.name).name == arguments.name
    if plain and target.is_file():
        target.unlink()
        models = watcher.read_entries(folder)
        if models.pop(target.name, None) is not None:
            _write(folder, models)
        ownership.give_to_owner(server_settings.data_dir)
        registration.wait_until_removed(server_settings, target)
    elif not any(row["name"] == arguments.name for row in _stored_models(server_settings)):
        raise CommandError(f"Model {arguments.name} not found: it is neither in {folder} nor from an image")
    else:
        database_access.write(server_settings, _forget(arguments.name))
    if arguments.json:
        put_json({"removed": arguments.name})
    else:
        TerminalStyle().line(f"  removed {arguments.name}")


# -- models in the database --------------------------------------------------------------------------


def _stored_models(server_settings: Settings) -> tuple[Row, ...]:
    """Return the rows of the operator's models that were imported from container images and spaces."""
    database_access.require_database_of_server(server_settings)
    with database_access.understood():
        if storage.open_admin(server_settings).schema() is None:
            return ()
    return database_access.read(server_settings, _rows())


def _rows() -> Transaction[tuple[Row, ...]]:
    operator = yield from accounts.operator()
    if operator is None:
        return ()
    rows = yield Query("custom_models_of", {"account_id": operator.id, "kind": ""})
    return tuple(row for row in rows if row["kind"] in _KINDS and "file" not in json.loads(row["document"]))


def _forget(name: str) -> Transaction[None]:
    operator = yield from accounts.operator()
    if operator is not None:
        yield Query("custom_model_remove", {"account_id": operator.id, "name": name})
        yield from audit_log.note(operator.id, "model.remove", name)


def _of_row(row: Row) -> dict[str, Any]:
    document = json.loads(str(row["document"]))
    model = document["models"][row["name"]]
    image = document.get("template", {}).get("image")
    images = [facts.get("options", {}).get("image") for facts in document.get("engines", {}).values()]
    return {
        "name": row["name"],
        "description": model["description"],
        "inputs": model["inputs"],
        "output_kind": model["output_kind"],
        "version": str(row["version"]),
        "file": None,
        "image": image or next(iter(images), None),
        "fault": None,
    }


def of_template(template: Mapping[str, Any], image: str) -> dict[str, Any]:
    """Return the record that `model add` prints for a template returned by the server."""
    schema = template["schema"]
    return {
        "name": template["name"],
        "description": template["description"],
        "inputs": {descriptor["name"]: descriptor for descriptor in schema["inputs"]},
        "output_kind": schema["outputKind"],
        "version": str(template["version"]),
        "image": image,
    }


# -- output ------------------------------------------------------------------------------------------


def _name(requested: str | None, described: DescribedModel) -> str:
    name = str(requested or described.facts["name"])
    if not files.NAME.fullmatch(name):
        raise CommandError(f"{name!r} is not a valid model name: use a to z, digits and -")
    if name in app_catalog.models_document()["models"]:
        raise CommandError(f"{name} is the name of a built-in model: choose another name with --name")
    return name


def _as_record(described: DescribedModel, name: str) -> dict[str, Any]:
    facts = described.facts
    return {
        "name": name,
        "description": facts["description"],
        "inputs": facts["inputs"],
        "output_kind": facts["output_kind"],
        "version": described.sha256[:16],
    }


def print_model(record: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        put_json(record)
        return
    takes = ", ".join(f"{name} ({row['type']})" for name, row in record["inputs"].items()) or "nothing"
    paint = TerminalStyle()
    paint.rows([("model", paint.bold(record["name"])), ("inputs", takes), ("output", record["output_kind"])])


def _describe(row: Mapping[str, Any]) -> str:
    note = f" ({row['note']})" if row.get("note") else ""
    return row["fault"] or f"{row['name']}: {row['description']}{note}"


def _write(folder: Path, known: Mapping[str, Any]) -> None:
    part = folder / f"{watcher.ADDED}.part"
    part.write_text(json.dumps(known, indent=2, sort_keys=True), "utf-8")
    part.replace(folder / watcher.ADDED)
