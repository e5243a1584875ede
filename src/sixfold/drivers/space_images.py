"""Spaces that are to run here: their image found or built, their packages installed, and what they take."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
_SAID_CHARACTERS = 1000
NO_CONTAINERS = "No container can be started here: install Docker or Podman, or set SIXFOLD_CONTAINER_SOCKET"


@dataclass(frozen=True, slots=True)
class SpaceRequirements:
    """How the operator wants spaces to run: where folders are kept, and the settings of that name."""

    folders: Path
    image: str = ""
    base_image: str = ""
    network: bool = False


class HostedSpaces:
    """`core.catalog.gradio_spaces.LocalSpaces` with containers and sandboxes."""

    def __init__(
        self, driver: SpaceDriver, containers: ContainerDriver, hub: GradioSpaces, terms: SpaceRequirements
    ) -> None:
        self._driver = driver
        self._containers = containers
        self._hub = hub
        self._terms = terms

    @property
    def containers(self) -> bool:
        """Whether a container can be started."""
        return self._containers.can_start

    async def bring(self, space: SpaceId, *, run: str, folder: str, hardware: str | None) -> ImportedSpace:
        """A space as a model that runs here."""
        way = run or ("container" if self.containers else "process")
        place = await self._place(space, way, folder)
        try:
            config, info, prefix = await self._driver.inspect(place)
        except StartFailed as failed:
            raise errors.BadRequest(_why(space, place, str(failed))) from failed
        function = await asyncio.to_thread(gradio_schema.best, config, info)
        title = str(config.get("title") or space.name)[:200]
        engine = _engine(place, {"prefix": prefix, **gradio.arguments(function)})
        home = "" if folder else self._hub.home(space)
        return ImportedSpace(space, gradio.document(space, home, title, function, engine, hardware))

    async def _place(self, space: SpaceId, way: str, folder: str) -> SpaceTarget:
        if way == "container" and not self.containers:
            raise errors.EngineUnavailable(NO_CONTAINERS)
        if not folder:
            image = await self._hub.image(space, self._terms.image)
            return SpaceTarget(image=image, network=self._terms.network)
        found = await asyncio.to_thread(self._folder, folder)
        if way == "container":
            return SpaceTarget(image=await self._built(folder, found), network=self._terms.network)
        if fault := await asyncio.to_thread(bubblewrap.fault):
            raise errors.EngineUnavailable(
                f"No sandbox can be made here, since {fault}: {bubblewrap.UNLOCK}, Docker or Podman"
            )
        packages = await asyncio.to_thread(_installed, found) if found.requirements else ""
        return SpaceTarget(folder=str(found.path), app=found.app, packages=packages)

    def _folder(self, name: str) -> SpaceFolder:
        path = self._terms.folders / name
        if path.is_symlink() or not path.is_dir():
            raise errors.BadRequest(f"There is no folder {name}: `sixfold space import FOLDER` keeps one")
        return folders.read(path)

    async def _built(self, name: str, found: SpaceFolder) -> str:
        image = f"localhost/sixfold-space-{name}:latest"
        if not (await self._containers.standing(image)).ready:
            context = await asyncio.to_thread(found.context, self._terms.base_image)
            try:
                await self._containers.build(image, context)
            except EngineError as error:
                raise errors.BadRequest(str(error)) from error
        return image


def _why(space: SpaceId, place: SpaceTarget, said: str) -> str:
    """Why a space did not start, with what helps where a package is missing."""
    missing = _MISSING.search(said)
    if missing is None:
        return f"{space} cannot be used: {said}"
    package = missing[1].partition(".")[0]
    if place.image:
        return f"{space} needs {package}, which its image does not have"
    return (
        f"{space} needs {package}, which is not installed here: name it in the folder's requirements.txt"
        f"{_OF_GRADIO if package == 'gradio' else ''}, and import it again"
    )


def _engine(place: SpaceTarget, asked: dict[str, Any]) -> dict[str, Any]:
    """An engine's row; the standings go by its kind."""
    where = {name: getattr(place, name) for name in SpaceTarget.__slots__ if getattr(place, name)}
    shut = {"kind": "container", "unlock": f"{UNLOCK} and pull the image (`docker pull {place.image}`)"}
    sandbox = {"kind": "sandbox", "unlock": bubblewrap.UNLOCK}
    return {
        **(shut if place.image else sandbox),
        "factory": KIND,
        "start_seconds": START_SECONDS,
        "options": {**where, **asked},
    }


def _installed(found: SpaceFolder) -> str:
    """The folder with the application's packages, installed once: wheels only, so that none runs here."""
    target = found.path.with_name(f"{found.path.name}.packages")
    if target.is_dir():
        return str(target)
    part = found.path.with_name(f"{found.path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    cell = Sandbox(shown=(found.path,), own=(part,), network=True, at=found.path)
    pip = [sys.executable, "-m", "pip", "install", "--no-input", "--no-cache-dir", "--only-binary", ":all:"]
    ended = subprocess.run(  # noqa: S603 - our own interpreter's pip, shut in
        [*bubblewrap.command(cell), *pip, "--target", str(part), *found.requirements],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_INSTALL_SECONDS,
        env={**settings.worker_environment(), "HOME": str(part), "TMPDIR": str(part)},
        check=False,
    )
    if ended.returncode:
        shutil.rmtree(part, ignore_errors=True)
        said = ended.stderr.decode(errors="replace").strip()[-_SAID_CHARACTERS:]
        raise errors.BadRequest(f"What {found.path.name} needs cannot be installed: {said}")
    return str(part.replace(target))
