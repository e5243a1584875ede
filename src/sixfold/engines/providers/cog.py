"""The engine of a Cog model in a container; files travel as `data:` URLs."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from sixfold import errors
from sixfold.clients import cog
from sixfold.clients.cog import CogClient, CogFile
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.gpu import run_clock
from sixfold.core.media import mounts
from sixfold.core.provenance.formats import media_types
from sixfold.core.workers.remote_engines import RemoteLost
from sixfold.net.data_uris import is_data_uri, write_data_uri
from sixfold.net.response_memory import ResponseMemory, response_memory

_MAX_FILE_BYTES = 512 * 2**20
_MAX_FILES = 1_000
_MAX_LOG_LINES, _MAX_LINE_CHARS = 1_000, 1_000
_CANCEL_SECONDS = 2.0
_SLOT_SECONDS = 5.0  # a canceled run occupies its slot at most this long
_SLOT_POLL_SECONDS = 0.05


class CogContainer(msgspec.Struct, frozen=True):
    """A running container: its server, the host folder of its mounted artifacts, and its remove function.

    If `joined` is set, an output that is a list of strings is joined into one string.
    """

    server: CogClient
    version: str
    artifacts: Path
    remove: Callable[[], Awaitable[None]]
    joined: bool = False


class CogEngine:
    """Runs the model of one container."""

    def __init__(self, container: CogContainer) -> None:
        self.name = "cog"
        self.version = container.version
        self._container = container
        # Ends the worker of this engine.
        self.end_worker: Callable[[str], Awaitable[None]] | None = None

    async def run(self, task: Task, context: Context) -> Result:
        """Run a task in the container; raises `EngineError`, or `RemoteLost` when the container is gone."""
        inputs = await asyncio.to_thread(self._inputs, task)
        context.progress(0.0)
        with response_memory(self._container.artifacts.name) as memory:
            return await self._run(task.id, inputs, context, memory)

    async def _run(
        self, name: str, inputs: Mapping[str, Any], context: Context, memory: ResponseMemory
    ) -> Result:
        try:
            prediction = await self._predict(name, inputs, memory)
        except cog.CogRefused as refused:
            raise UnusableInput(f"The model does not accept these inputs: {refused}.") from refused
        except cog.CogUnreachable as broken:
            raise EngineError(f"The model's container returned an invalid response: {broken}.") from broken
        except errors.TooManyRequests as busy:
            raise EngineError(f"{busy.message}.") from busy
        except httpx.TransportError as error:
            raise RemoteLost("stopped with its container") from error
        for line in prediction.log.splitlines()[-_MAX_LOG_LINES:]:
            context.log(line[:_MAX_LINE_CHARS])
        if prediction.state != "succeeded":
            raise EngineError(
                prediction.error.strip() or f"The model {prediction.state} without an error message."
            )
        return await asyncio.to_thread(_result, prediction.output, self._container.joined, context.scratch)

    async def close(self) -> None:
        """Remove the container. Idempotent."""
        await self._container.remove()

    async def _predict(self, name: str, inputs: Mapping[str, Any], memory: ResponseMemory) -> cog.CogResult:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(None) as limit:
                while True:
                    with contextlib.suppress(cog.CogBusy):
                        return await self._container.server.predict(name, inputs, memory)
                    if limit.when() is None:
                        limit.reschedule(loop.time() + _SLOT_SECONDS)
                    await asyncio.sleep(_SLOT_POLL_SECONDS)
                    run_clock.exclude(began, loop.time())
        except TimeoutError as error:
            raise RemoteLost("did not free its slot and was removed") from error
        except asyncio.CancelledError:
            await self._cancel(name)
            raise

    async def _cancel(self, name: str) -> None:
        """Cancel a run; a container that does not respond is removed, because it would block the next run."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._container.server.cancel(name)
        except (httpx.HTTPError, TimeoutError):
            # Removal takes seconds, during which the worker must not accept a run.
            if self.end_worker is not None:
                await self.end_worker("did not respond, and was removed")

    def _inputs(self, task: Task) -> dict[str, Any]:
        """Return the inputs for Cog, and copy the mounted files to the folder that the container mounts."""
        inputs = {name: value for name, value in task.inputs.items() if value is not None}
        mounted: dict[str, Path] = {}
        for name, path in task.files.items():
            if name.startswith(mounts.PREFIX):
                mounted[name.removeprefix(mounts.PREFIX)] = path
            else:
                inputs[name] = _file(path)
        _replace_files(mounted, self._container.artifacts)
        return inputs


def _replace_files(files: Mapping[str, Path], folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, path in files.items():
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o644)  # the container runs as another user


def _file(path: Path) -> CogFile:
    size = path.stat().st_size
    if size > _MAX_FILE_BYTES:
        raise UnusableInput(f"A file for a container must be at most {_MAX_FILE_BYTES >> 20} MiB.")
    content_type = mimetypes.guess_type(path.name)[0] or _detected_type(path)
    return CogFile(path, content_type, size)


def _detected_type(path: Path) -> str:
    # Cog derives the suffix of the file's name from this type.
    with path.open("rb") as file:
        kind = media_types.find(file.read(media_types.MAGIC_BYTES))
    return kind.media_type if kind else media_types.UNKNOWN


def _result(output: Any, joined: bool, folder: Path) -> Result:
    """Return files as artifacts, named by their key in an object, and everything else as data."""
    values = output.values() if isinstance(output, dict) else [output]
    count = sum(len(value) if isinstance(value, list) else 1 for value in values if _holds_files(value))
    if count > _MAX_FILES:
        raise EngineError(f"The model returned {count:,} files; a container can return {_MAX_FILES:,}.")
    if isinstance(output, dict):
        named = {name: value for name, value in output.items() if _holds_files(value)}
        rest = {name: value for name, value in output.items() if name not in named}
        uris = [(uri, {"name": str(name)}) for name, value in named.items() for uri in _as_list(value)]
        return Result(_artifacts(uris, folder), rest, "full")
    if _holds_files(output):
        return Result(_artifacts([(uri, {}) for uri in _as_list(output)], folder), {}, "full")
    if joined and isinstance(output, list):
        output = "".join(str(piece) for piece in output)
    return Result((), {"value": output}, "full")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _holds_files(value: Any) -> bool:
    values = _as_list(value)
    return bool(values) and all(isinstance(value, str) and is_data_uri(value) for value in values)


def _artifacts(uris: Iterable[tuple[str, Mapping[str, Any]]], folder: Path) -> tuple[Artifact, ...]:
    return tuple(_artifact(uri, info, folder / f"output-{index}") for index, (uri, info) in enumerate(uris))


def _artifact(uri: str, info: Mapping[str, Any], target: Path) -> Artifact:
    try:
        with target.open("wb") as file:
            content_type = write_data_uri(uri, file, _MAX_FILE_BYTES)
    except errors.SixfoldError as error:
        raise EngineError(f"The model returned a file that cannot be read: {error.message}.") from error
    return Artifact(content_type, info=info, path=target)
