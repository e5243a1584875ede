"""The engine of an imported Gradio space, which calls a function of the application through its queue."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.clients import provider_client
from sixfold.clients.gradio import server
from sixfold.clients.gradio.server import GradioServer
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.core.gpu import run_clock
from sixfold.core.media.outputs import OUTPUT_NAME
from sixfold.core.provenance.formats import media_types
from sixfold.engines.host_services import ClientServices
from sixfold.engines.image import headers
from sixfold.net.response_memory import response_memory

_RUN_SECONDS = 3600.0  # the timeout of the run is shorter
_GRACE_SECONDS = 5.0
_MAX_FILES = 64
_GENERIC_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})


class GradioEngine:
    """Runs one function of a Gradio application. `clients.gradio.spaces` writes the options."""

    name = "space"
    version = "1"

    def __init__(
        self,
        outside: ClientServices,
        *,
        base: str,
        function: int,
        places: Sequence[Mapping[str, Any]],
        output: int = 0,
        returns: Sequence[str] = (),
        **more: Any,
    ) -> None:
        self._outside = outside
        self._base = base
        self._function = function
        self._arguments = places
        self._output = output
        self._returns = returns
        self._more = more

    async def run(self, task: Task, context: Context) -> Result:
        """Run the function; leaves the queue when the run ends early."""
        try:
            return await self._run(task, context)
        except errors.TooManyRequests as error:
            raise EngineError(f"{error.message}.") from error
        except errors.SixfoldError as error:
            raise EngineError(f"The space could not be reached: {error.message}.") from error

    async def _run(self, task: Task, context: Context) -> Result:
        gradio = self._server()
        data = [await self._argument(gradio, argument, task) for argument in self._arguments]
        session = secrets.token_hex(8)
        joined_at = asyncio.get_running_loop().time()
        event = await gradio.join(self._function, data, session)
        with response_memory(self._base) as memory:
            try:
                messages = gradio.events(session, event, _RUN_SECONDS, memory)
                outputs = await self._follow(messages, joined_at, context)
            except BaseException:
                await provider_client.cancel_quietly(
                    gradio.cancel(self._function, session, event), _GRACE_SECONDS
                )
                raise
            if self._output >= len(outputs):
                raise EngineError("The space returned fewer outputs than it declares.")
            return await self._result(gradio, outputs, context)

    async def close(self) -> None:
        """Do nothing: the connections belong to the server."""

    def _server(self) -> GradioServer:
        trusted = self._more.get("trusted") is True
        client = self._outside.client if trusted else self._outside.guarded
        token = self._outside.key("hf_token") if self._more.get("token") else ""
        return GradioServer(client, self._base, token, str(self._more.get("prefix", "")))

    # -- inputs ------------------------------------------------------------------------------------

    async def _argument(self, gradio: GradioServer, argument: Mapping[str, Any], task: Task) -> Any:
        name, kind = str(argument["name"]), str(argument["kind"])
        if kind in ("media", "gallery"):
            path = task.files.get(name)
            if path is None:
                return None
            file = await _upload(gradio, path)
            return [{"image": file, "caption": None}] if kind == "gallery" else file
        if name not in task.inputs:
            # Sixfold has chosen a seed already, so the application must not choose another.
            return False if name == "randomize_seed" else argument.get("default")
        value = task.inputs[name]
        if kind == "choice":
            return (argument.get("values") or {}).get(str(value), value)
        return _parse_json(value) if kind == "json" else value

    # -- progress ----------------------------------------------------------------------------------

    async def _follow(
        self, messages: AsyncIterator[Mapping[str, Any]], joined_at: float, context: Context
    ) -> list[Any]:
        queued = True
        async for message in messages:
            match message.get("msg"):
                case "process_starts" if queued:
                    queued = False
                    run_clock.exclude(joined_at, asyncio.get_running_loop().time())
                case "estimation" if isinstance(rank := message.get("rank"), int):
                    context.log(f"queue position {rank + 1} at the space")
                case "progress":
                    _report(message.get("progress_data"), context)
                case "log":
                    context.log(provider_client.text_of(message.get("log"))[:1000])
                case "process_completed":
                    return _completed(message)
                case "unexpected_error" | "close_stream" | "server_stopped":
                    break
                case _:
                    pass
        raise EngineError("The space ended the run without a result.")

    # -- outputs -----------------------------------------------------------------------------------

    async def _result(self, gradio: GradioServer, outputs: list[Any], context: Context) -> Result:
        values = {name: value for index, value in enumerate(outputs) if (name := self._name(index))}
        files = await asyncio.to_thread(_files_of, values)
        first = self._name(self._output)
        if not files[first]:
            first = next((name for name, each in files.items() if each), first)
        ordered = [
            (name, file)
            for name in (first, *(file for file in files if file != first))
            for file in files[name]
        ]
        artifacts: list[Artifact] = []
        free_bytes = server.MAX_RUN_BYTES
        for index, (name, file) in enumerate(ordered[:_MAX_FILES]):
            target = context.scratch / f"space-{index}"
            declared = await self._download(gradio, file, target, min(free_bytes, server.MAX_FILE_BYTES))
            free_bytes -= target.stat().st_size
            content_type, info = await asyncio.to_thread(_probe, target, declared)
            info |= {} if name == first else {OUTPUT_NAME: name}
            artifacts.append(Artifact(content_type, path=target, info=info))
        data: dict[str, Any] = {} if files[first] else {"value": _plain(values[first])}
        others = {
            name: None if files[name] else _plain(value) for name, value in values.items() if name != first
        }
        return Result(tuple(artifacts), data, others=others)

    def _name(self, index: int) -> str:
        """Return the name of an output, or "" for other values, such as the state of the application."""
        name = self._returns[index] if index < len(self._returns) else ""
        return name if name or (self._returns and index != self._output) else f"output_{index + 1}"

    async def _download(
        self, gradio: GradioServer, file: Mapping[str, Any], target: Path, max_bytes: int
    ) -> str:
        """Download a file and return its content type, as the space or its name states it."""
        path = str(file.get("path"))
        if path.startswith(("http://", "https://")):
            claimed = await self._outside.download(path, target, max_bytes=max_bytes)
        else:
            claimed = await gradio.download(path, target, max_bytes)
        guessed = mimetypes.guess_type(str(file.get("orig_name") or path))[0]
        return claimed if claimed not in _GENERIC_TYPES else (guessed or "application/octet-stream")


async def _upload(gradio: GradioServer, path: Path) -> dict[str, Any]:
    suffix = await asyncio.to_thread(_suffix, path)
    stored = await gradio.upload(path, f"input{suffix}")
    return {
        "path": stored,
        "orig_name": f"input{suffix}",
        "mime_type": mimetypes.guess_type(f"x{suffix}")[0],
        "meta": {"_type": "gradio.FileData"},
    }


def _suffix(path: Path) -> str:
    # Applications detect the type of a file by its suffix, which a stored input may lack.
    if path.suffix:
        return path.suffix
    with path.open("rb") as file:
        kind = media_types.find(file.read(media_types.MAGIC_BYTES))
    return f".{kind.extension if kind else 'bin'}"


def _parse_json(value: Any) -> Any:
    """Return the parsed value of a JSON string, or the value itself if it is not JSON."""
    try:
        return json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return value


def _report(data: Any, context: Context) -> None:
    """Report the progress of the innermost progress bar of the application."""
    bars = data if isinstance(data, list) else []
    for bar in map(provider_client.mapping, bars[-1:]):
        fraction, index, length = (bar.get(key) for key in ("progress", "index", "length"))
        if isinstance(fraction, int | float):
            context.progress(min(0.99, float(fraction)))
        elif isinstance(index, int) and isinstance(length, int) and length > 0:
            context.progress(min(0.99, index / length))
        if description := provider_client.text_of(bar.get("desc")):
            context.log(description[:200])


def _completed(message: Mapping[str, Any]) -> list[Any]:
    output = message.get("output")
    fields = output if isinstance(output, dict) else {}
    if message.get("success") is not True:
        # A list of a megabyte would take a tenth of a second to convert.
        reason = provider_client.text_of(fields.get("error"))[:500].strip("'")
        tail = f": {reason}" if reason else " without an error message; its inputs may be invalid."
        raise EngineError(f"The space failed{tail}")
    data = fields.get("data")
    return data if isinstance(data, list) else []


def _files_of(values: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    return {name: list(_files(value)) for name, value in values.items()}


def _files(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the files in an output in order."""
    if depth > 8:
        return
    if isinstance(value, dict):
        if isinstance(value.get("path"), str) and (value.get("meta") or "url" in value):
            yield value
            return
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _files(each, depth + 1)


def _plain(value: Any) -> Any:
    """Return the value of an update message, or the value itself."""
    if isinstance(value, dict) and value.get("__type__") == "update":
        return value.get("value")
    return value


def _probe(path: Path, claimed: str) -> tuple[str, dict[str, Any]]:
    """Return the content type and, for an image, its size, both read from its header."""
    if not claimed.startswith("image/") or claimed == "image/svg+xml":
        return claimed, {}
    try:
        name, width, height = headers.probe(path)
    except headers.UnreadableImage:
        return claimed, {}
    return f"image/{name.lower()}", {"width": width, "height": height}
