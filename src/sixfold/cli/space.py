"""`space`: import Gradio applications as models, from Hugging Face, a URL or a local folder."""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from sixfold.cli import database_access, ownership
from sixfold.cli.client import ServerClient
from sixfold.cli.model import commands as model_commands
from sixfold.cli.terminal import CommandError
from sixfold.clients.gradio import folders
from sixfold.engines.python_models.files import NAME

_IMPORT = "/api/containers/spaces/import"
# The server may have to pull or build an image and install packages.
_SECONDS = 3900


def import_(arguments: argparse.Namespace) -> None:
    """Run `space import`: import an application by ID or URL, or copy a folder and import the copy."""
    source = Path(arguments.space).expanduser()
    if arguments.space.startswith((".", "/", "~")) and not source.is_dir():
        raise CommandError(f"Folder {source} does not exist")
    client = ServerClient.of(arguments)
    client.timeout_seconds = _SECONDS
    source_field = (
        {"folder": store_copy(arguments, source)} if source.is_dir() else {"space": arguments.space}
    )
    body = {**source_field, "run": arguments.run, "hardware": arguments.hardware}
    template = client.post(_IMPORT, {name: value for name, value in body.items() if value})
    model_commands.print_model(
        model_commands.of_template(template, template["image"]), as_json=arguments.json
    )


def store_copy(arguments: argparse.Namespace, source: Path) -> str:
    """Copy a folder into the data folder for the server; return its name with a content hash."""
    folders.read(source.absolute())
    name = arguments.name or re.sub(r"[^a-z0-9]+", "-", source.absolute().name.lower()).strip("-")
    if not NAME.fullmatch(name):
        raise CommandError(f"{name!r} is not a valid name: pass --name with a to z, digits and -")
    paths = list(folders.files(source))
    stored_name = f"{name}-{_digest(source, paths)}"
    target = database_access.settings_of(arguments).data_dir / "spaces" / stored_name
    if not target.is_dir():
        part = target.with_name(f"{stored_name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        for path in paths:
            target_file = part / path.relative_to(source)
            target_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy(path, target_file)
        part.replace(target)
        ownership.give_to_owner(target.parent.parent)
    return stored_name


def _digest(source: Path, paths: Iterable[Path]) -> str:
    """Return a hash of the names and content of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(source)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
