"""Import of spaces that run on this machine: their container image, packages and schema."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors, settings
from sixfold.clients import bubblewrap
from sixfold.clients.bubblewrap import Sandbox
from sixfold.clients.gradio import folders
from sixfold.clients.gradio import schema as gradio_schema
from sixfold.clients.gradio import spaces as gradio
from sixfold.clients.gradio.folders import SpaceFolder
from sixfold.clients.gradio.spaces import GradioSpaces
from sixfold.core.catalog.engines import EngineError
from sixfold.core.catalog.gradio_spaces import ImportedSpace, SpaceId
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers.container import UNLOCK, ContainerDriver
from sixfold.drivers.spaces import KIND, START_SECONDS, SpaceDriver, SpaceTarget

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OF_GRADIO = ", or write `sdk: gradio` and its `sdk_version` into README.md"
_INSTALL_SECONDS = 1800
_OUTPUT_CHARACTERS = 1000
NO_CONTAINERS = "No container can be started: install Docker or Podman, or set SIXFOLD_CONTAINER_SOCKET"


class SpaceRequirements(msgspec.Struct, frozen=True):
    """The operator's settings for local spaces, and the folder in which they are stored."""

    folders: Path
    image: str = ""
    base_image: str = ""
    network: bool = False


class HostedSpaces:
    """Implements `core.catalog.gradio_spaces.LocalSpaces` with containers and sandboxes."""

    def __init__(
        self, driver: SpaceDriver, containers: ContainerDriver, hub: GradioSpaces, terms: SpaceRequirements
    ) -> None:
        self._driver = driver
        self._containers = containers
        self._hub = hub
        self._terms = terms

    @property
    def containers(self) -> bool:
        return self._containers.can_start

    async def import_space(
        self, space: SpaceId, *, run: str, folder: str, hardware: str | None
    ) -> ImportedSpace:
        """Import a space as a model that runs on this machine."""
        mode = run or ("container" if self.containers else "process")
        target = await self._place(space, mode, folder)
        try:
            config, info, prefix = await self._driver.inspect(target)
        except StartFailed as failed:
            raise errors.BadRequest(_start_error(space, target, str(failed))) from failed
        function = await asyncio.to_thread(gradio_schema.best_function, config, info)
        title = str(config.get("title") or space.name)[:200]
        engine = _engine(target, {"prefix": prefix, **gradio.arguments(function)})
        home = "" if folder else self._hub.home(space)
        return ImportedSpace(space, gradio.document(space, home, title, function, engine, hardware))

    async def _place(self, space: SpaceId, mode: str, folder: str) -> SpaceTarget:
        if mode == "container" and not self.containers:
            raise errors.EngineUnavailable(NO_CONTAINERS)
        if not folder:
            image = await self._hub.image(space, self._terms.image)
            return SpaceTarget(image=image, network=self._terms.network)
        source = await asyncio.to_thread(self._folder, folder)
        if mode == "container":
            return SpaceTarget(image=await self._build_image(folder, source), network=self._terms.network)
        if fault := await asyncio.to_thread(bubblewrap.fault):
            raise errors.EngineUnavailable(
                f"A sandbox is not available because {fault}: {bubblewrap.UNLOCK}, Docker or Podman"
            )
        packages = await asyncio.to_thread(_installed, source) if source.requirements else ""
        return SpaceTarget(folder=str(source.path), app=source.app, packages=packages)

    def _folder(self, name: str) -> SpaceFolder:
        path = self._terms.folders / name
        if path.is_symlink() or not path.is_dir():
            raise errors.BadRequest(f"Folder {name} not found; `sixfold space import FOLDER` creates it")
        return folders.read(path)

    async def _build_image(self, name: str, source: SpaceFolder) -> str:
        image = f"localhost/sixfold-space-{name}:latest"
        if not (await self._containers.standing(image)).ready:
            context = await asyncio.to_thread(source.context, self._terms.base_image)
            try:
                await self._containers.build(image, context)
            except EngineError as error:
                raise errors.BadRequest(str(error)) from error
        return image


def _start_error(space: SpaceId, target: SpaceTarget, output: str) -> str:
    """Return why a space did not start, with the remedy if a package is missing."""
    missing = _MISSING.search(output)
    if missing is None:
        return f"{space} cannot be used: {output}"
    package = missing[1].partition(".")[0]
    if target.image:
        return f"{space} needs {package}, which its image does not have"
    return (
        f"{space} needs {package}, which is not installed here: add it to the folder's requirements.txt"
        f"{_OF_GRADIO if package == 'gradio' else ''}, and import it again"
    )


def _engine(target: SpaceTarget, engine_options: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's catalog entry; the status of the engine is looked up by its kind."""
    where = {name: getattr(target, name) for name in SpaceTarget.__struct_fields__ if getattr(target, name)}
    shut = {"kind": "container", "unlock": f"{UNLOCK} and pull the image (`docker pull {target.image}`)"}
    sandbox = {"kind": "sandbox", "unlock": bubblewrap.UNLOCK}
    return {
        **(shut if target.image else sandbox),
        "factory": KIND,
        "start_seconds": START_SECONDS,
        "options": {**where, **engine_options},
    }


def _installed(source: SpaceFolder) -> str:
    """Return the folder with the application's packages.

    Only wheels are installed, so the packages' build code never runs.
    """
    target = source.path.with_name(f"{source.path.name}.packages")
    if target.is_dir():
        return str(target)
    part = source.path.with_name(f"{source.path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    cell = Sandbox(readable=(source.path,), writable=(part,), network=True, at=source.path)
    pip = [sys.executable, "-m", "pip", "install", "--no-input", "--no-cache-dir", "--only-binary", ":all:"]
    process = subprocess.run(  # noqa: S603 - this interpreter's pip, in a sandbox
        [*bubblewrap.command(cell), *pip, "--target", str(part), *source.requirements],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_INSTALL_SECONDS,
        env={**settings.worker_environment(), "HOME": str(part), "TMPDIR": str(part)},
        check=False,
    )
    if process.returncode:
        shutil.rmtree(part, ignore_errors=True)
        output = process.stderr.decode(errors="replace").strip()[-_OUTPUT_CHARACTERS:]
        raise errors.BadRequest(f"The requirements of {source.path.name} cannot be installed: {output}")
    return str(part.replace(target))
