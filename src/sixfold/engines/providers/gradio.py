"""An imported space as an engine: its inputs placed, its queue followed, its files fetched."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sixfold import errors
from sixfold.clients import provider_client
from sixfold.clients.gradio import server
from sixfold.clients.gradio.server import GradioServer
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.core.predictions.outputs import OUTPUT_NAME
from sixfold.core.provenance.formats import media_types
from sixfold.engines.image import headers

_RUN_SECONDS = 3600.0  # the run's own limit comes first
_GRACE_SECONDS = 5.0
_MAX_FILES = 64
_VAGUE = frozenset({"", "application/octet-stream", "binary/octet-stream"})


class GradioPaths(Protocol):
    """What of `Outside` is needed to reach a space."""

    def key(self, name: str) -> str:
        """The operator's key of a name, or an empty string."""
        ...

    @property
    def client(self) -> Any:
        """For spaces that the operator named."""
        ...

    @property
    def guarded(self) -> Any:
        """For spaces that a hub named."""
        ...

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        """Fetch a file that the space named by its URL; gives its content type."""
        ...


class GradioEngine:
    """One function of a served Gradio application. Options are what `clients.gradio.spaces` wrote."""

    name = "space"
    version = "1"

    def __init__(
        self,
        outside: GradioPaths,
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
        self._places = places
        self._output = output
        self._returns = returns
        self._more = more

    async def run(self, task: Task, context: Context) -> Result:
        """Run it there; leaves the queue when the run ends early."""
        try:
            return await self._run(task, context)
        except errors.SixfoldError as error:
            raise EngineError(f"The space could not be reached: {error.message}") from error

    async def _run(self, task: Task, context: Context) -> Result:
        to = self._server()
        data = [await self._placed(to, place, task) for place in self._places]
        session = secrets.token_hex(8)
        event = await to.join(self._function, data, session)
        try:
            given = await self._followed(to, session, event, context)
        except BaseException:
            await provider_client.cancel_quietly(to.leave(self._function, session, event), _GRACE_SECONDS)
            raise
        if self._output >= len(given):
            raise EngineError("The space gave less than it said it would.")
        return await self._result(to, given, context)

    async def close(self) -> None:
        """Connections are the server's."""

    def _server(self) -> GradioServer:
        trusted = self._more.get("trusted") is True
        client = self._outside.client if trusted else self._outside.guarded
        token = self._outside.key("hf_token") if self._more.get("token") else ""
        return GradioServer(client, self._base, token, str(self._more.get("prefix", "")))

    # -- in ----------------------------------------------------------------------------------------

    async def _placed(self, to: GradioServer, place: Mapping[str, Any], task: Task) -> Any:
        name, kind = str(place["name"]), str(place["kind"])
        if kind in ("media", "gallery"):
            path = task.files.get(name)
            if path is None:
                return None
            file = await _sent(to, path)
            return [{"image": file, "caption": None}] if kind == "gallery" else file
        if name not in task.inputs:
            # What the pipeline takes out is a choice of the seed that it has made already.
            return False if name == "randomize_seed" else place.get("default")
        value = task.inputs[name]
        if kind == "choice":
            return (place.get("values") or {}).get(str(value), value)
        return _decoded(value) if kind == "json" else value

    # -- meanwhile ---------------------------------------------------------------------------------

    async def _followed(self, to: GradioServer, session: str, event: str, context: Context) -> list[Any]:
        async for message in to.events(session, event, _RUN_SECONDS):
            match message.get("msg"):
                case "estimation" if isinstance(rank := message.get("rank"), int):
                    context.log(f"queue position {rank + 1} at the space")
                case "progress":
                    _report(message.get("progress_data"), context)
                case "log":
                    context.log(str(message.get("log", ""))[:1000])
                case "process_completed":
                    return _completed(message)
                case "unexpected_error" | "close_stream" | "server_stopped":
                    break
                case _:
                    pass
        raise EngineError("The space broke the run off.")

    # -- out ---------------------------------------------------------------------------------------

    async def _result(self, to: GradioServer, given: list[Any], context: Context) -> Result:
        values = {name: value for index, value in enumerate(given) if (name := self._name(index))}
        found = {name: list(_files(value)) for name, value in values.items()}
        first = self._name(self._output)
        if not found[first]:
            first = next((name for name, files in found.items() if files), first)
        wanted = [
            (name, file)
            for name in (first, *(each for each in found if each != first))
            for file in found[name]
        ]
        artifacts = [
            await self._fetched(to, file, context, (index, "" if name == first else name))
            for index, (name, file) in enumerate(wanted[:_MAX_FILES])
        ]
        data: dict[str, Any] = {} if found[first] else {"value": _plain(values[first])}
        others = {
            name: None if found[name] else _plain(value) for name, value in values.items() if name != first
        }
        return Result(tuple(artifacts), data, others=others)

    def _name(self, index: int) -> str:
        """The name of an output; "" for a value that is none, such as the state of the application."""
        name = self._returns[index] if index < len(self._returns) else ""
        return name if name or (self._returns and index != self._output) else f"output_{index + 1}"

    async def _fetched(
        self, to: GradioServer, file: Mapping[str, Any], context: Context, place: tuple[int, str]
    ) -> Artifact:
        index, name = place
        target = context.scratch / f"space-{index}"
        path = str(file.get("path"))
        if path.startswith(("http://", "https://")):
            claimed = await self._outside.download(path, target, max_bytes=server.MAX_FILE_BYTES)
        else:
            claimed = await to.download(path, target)
        guessed = mimetypes.guess_type(str(file.get("orig_name") or path))[0]
        named = claimed if claimed not in _VAGUE else (guessed or "application/octet-stream")
        content_type, info = await asyncio.to_thread(_about, target, named)
        return Artifact(content_type, path=target, info=info | ({OUTPUT_NAME: name} if name else {}))


async def _sent(to: GradioServer, path: Path) -> dict[str, Any]:
    suffix = await asyncio.to_thread(_suffix, path)
    stored = await to.upload(path, f"input{suffix}")
    return {
        "path": stored,
        "orig_name": f"input{suffix}",
        "mime_type": mimetypes.guess_type(f"x{suffix}")[0],
        "meta": {"_type": "gradio.FileData"},
    }


def _suffix(path: Path) -> str:
    """A file's ending by its first bytes: applications go by it."""
    if path.suffix:
        return path.suffix
    with path.open("rb") as file:
        kind = media_types.find(file.read(media_types.MAGIC_BYTES))
    return f".{kind.extension if kind else 'bin'}"


def _decoded(value: Any) -> Any:
    """What a text writes as JSON, else the text."""
    try:
        return json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return value


def _report(data: Any, context: Context) -> None:
    """The fraction that an application tells of the innermost of its bars."""
    bars = data if isinstance(data, list) else []
    for bar in bars[-1:]:
        fraction, index, length = (bar.get(key) for key in ("progress", "index", "length"))
        if isinstance(fraction, int | float):
            context.progress(min(0.99, float(fraction)))
        elif isinstance(index, int) and isinstance(length, int) and length > 0:
            context.progress(min(0.99, index / length))
        if bar.get("desc"):
            context.log(str(bar["desc"])[:200])


def _completed(message: Mapping[str, Any]) -> list[Any]:
    output = message.get("output")
    found = output if isinstance(output, dict) else {}
    if message.get("success") is not True:
        said = str(found.get("error") or "").strip("'")[:500]
        tail = f": {said}" if said else " and does not say why: its inputs may not fit"
        raise EngineError(f"The space failed{tail}")
    data = found.get("data")
    return data if isinstance(data, list) else []


def _files(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Every file that an output holds, in its order."""
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
    """A value without the properties that an application changes along with it."""
    if isinstance(value, dict) and value.get("__type__") == "update":
        return value.get("value")
    return value


def _about(path: Path, claimed: str) -> tuple[str, dict[str, Any]]:
    """What a file is: pictures by their own bytes."""
    if not claimed.startswith("image/") or claimed == "image/svg+xml":
        return claimed, {}
    try:
        name, width, height = headers.probe(path)
    except headers.UnreadableImage:
        return claimed, {}
    return f"image/{name.lower()}", {"width": width, "height": height}
