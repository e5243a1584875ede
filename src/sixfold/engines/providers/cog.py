"""A Cog model in a container as an engine: its inputs and outputs travel as data: URLs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sixfold import errors
from sixfold.clients import cog
from sixfold.clients.cog import CogClient
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.media import mounts
from sixfold.core.provenance.formats import media_types
from sixfold.core.workers.remote_engines import RemoteLost
from sixfold.net.data_uris import is_data_uri, parse_data_uri

_MAX_FILE_BYTES = 512 * 2**20
_CANCEL_SECONDS = 2.0
_SLOT_SECONDS = 5.0  # how long a run that was canceled may keep its slot
_SLOT_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class CogContainer:
    """Where the model runs: its server, the folder that it sees as the mounted artifacts, and its end.

    `joined`: a list of texts that it gives is one text.
    """

    server: CogClient
    version: str
    artifacts: Path
    remove: Callable[[], Awaitable[None]]
    joined: bool = False


class CogEngine:
    """One container's model."""

    def __init__(self, place: CogContainer) -> None:
        self.name = "cog"
        self.version = place.version
        self._place = place

    async def run(self, task: Task, context: Context) -> Result:
        """Run a task there; raises `EngineError` with one sentence, and `RemoteLost` when it is gone."""
        inputs = await asyncio.to_thread(self._inputs, task)
        context.progress(0.0)
        try:
            ended = await self._predicted(task.id, inputs)
        except cog.CogRefused as refused:
            raise UnusableInput(f"The model does not take this: {refused}.") from refused
        except cog.CogUnreachable as broken:
            raise EngineError(f"The model's container cannot be understood: {broken}.") from broken
        except httpx.TransportError as error:
            raise RemoteLost("went away with its container") from error
        for line in ended.log.splitlines():
            context.log(line)
        if ended.state != "succeeded":
            raise EngineError(ended.error.strip() or f"The model {ended.state} and gave no reason.")
        return await asyncio.to_thread(_result, ended.output, self._place.joined)

    async def close(self) -> None:
        """Take the container away. Idempotent."""
        await self._place.remove()

    async def _predicted(self, name: str, inputs: Mapping[str, Any]) -> cog.CogResult:
        try:
            async with asyncio.timeout(None) as patience:
                while True:
                    with contextlib.suppress(cog.CogBusy):
                        return await self._place.server.predict(name, inputs)
                    if patience.when() is None:
                        patience.reschedule(asyncio.get_running_loop().time() + _SLOT_SECONDS)
                    await asyncio.sleep(_SLOT_LOOK_SECONDS)
        except TimeoutError as error:
            raise RemoteLost("kept its slots to itself, and was given up") from error
        except asyncio.CancelledError:
            await self._cancel(name)
            raise

    async def _cancel(self, name: str) -> None:
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._place.server.cancel(name)

    def _inputs(self, task: Task) -> dict[str, Any]:
        """The inputs as Cog takes them, and the mounted files where the container sees them."""
        inputs = {name: value for name, value in task.inputs.items() if value is not None}
        mounted: dict[str, Path] = {}
        for name, path in task.files.items():
            if name.startswith(mounts.PREFIX):
                mounted[name.removeprefix(mounts.PREFIX)] = path
            else:
                inputs[name] = _data_uri(path)
        _show(mounted, self._place.artifacts)
        return inputs


def _show(files: Mapping[str, Path], folder: Path) -> None:
    """Let the folder hold these files and no other."""
    for path in folder.iterdir():
        path.unlink()
    for name, path in files.items():
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o644)  # the container's user is another


def _data_uri(path: Path) -> str:
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise UnusableInput(f"A file for a container may have at most {_MAX_FILE_BYTES >> 20} MiB.")
    content_type = mimetypes.guess_type(path.name)[0] or _sniffed(path)
    return f"data:{content_type};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _sniffed(path: Path) -> str:
    """The type by the file's first bytes: from it the other side makes a name's ending."""
    with path.open("rb") as file:
        kind = media_types.find(file.read(media_types.MAGIC_BYTES))
    return kind.media_type if kind else media_types.UNKNOWN


def _result(output: Any, joined: bool) -> Result:
    """Files become artifacts, named where the output is an object; everything else is data."""
    if isinstance(output, dict):
        files = {name: value for name, value in output.items() if _files(value)}
        rest = {name: value for name, value in output.items() if name not in files}
        named = tuple(
            _artifact(uri, {"name": str(name)})
            for name, value in files.items()
            for uri in (value if isinstance(value, list) else [value])
        )
        return Result(named, rest, "full")
    if _files(output):
        return Result(
            tuple(_artifact(uri, {}) for uri in (output if isinstance(output, list) else [output])),
            {},
            "full",
        )
    if joined and isinstance(output, list):
        output = "".join(str(piece) for piece in output)
    return Result((), {"value": output}, "full")


def _files(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(isinstance(one, str) and is_data_uri(one) for one in values)


def _artifact(uri: str, info: Mapping[str, Any]) -> Artifact:
    try:
        inline = parse_data_uri(uri, _MAX_FILE_BYTES)
    except errors.SixfoldError as error:
        raise EngineError(f"The model gave a file that cannot be read: {error.message}") from error
    return Artifact(inline.content_type, inline.body, info)
