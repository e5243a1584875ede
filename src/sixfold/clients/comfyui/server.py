"""Client of a ComfyUI server: object info, uploads, runs, result files.

A run is followed over its own websocket. If the websocket fails, `/history` and `/queue` are polled
while it is reopened. A run that is canceled on this side is removed from ComfyUI's queue, or interrupted by
its id.

Each call contains the hop header, which a Sixfold server rejects, as the URL may be that of this server.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from sixfold import errors
from sixfold.clients.comfyui import decoding
from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.connection import ComfyConnect, ComfyConnection
from sixfold.clients.comfyui.errors import ComfyError, ComfyUnreachable, short_text
from sixfold.clients.comfyui.events import ComfyRun, EventCallback
from sixfold.core.humanize import seconds_text
from sixfold.disk_space import WritableFile
from sixfold.net import limited_responses
from sixfold.net.response_memory import ResponseMemory, response_memory

HOP = {"X-Sixfold-Hop": "1"}
# ComfyUI's API format: node id -> {"class_type", "inputs"}.
Graph = Mapping[str, Mapping[str, Any]]

_HEADERS = {**HOP, **limited_responses.IDENTITY}
_SOCKET_TRIES = 5
_WITHDRAWALS = 4
# Prompts of the queue in which a run is searched, and names that a list of files or of choices may have.
_MAX_PROMPTS, MAX_CHOICES = 10_000, 5_000


class ComfyLimits(msgspec.Struct, frozen=True):
    """Limits for calls to a ComfyUI server, in seconds and bytes."""

    connect_seconds: float = 3.0
    # Limit on the time between two parts of an answer; the caller limits the run.
    answer_seconds: float = 30.0
    # Limit on a whole HTTP call, also if the server sends one byte at a time; files are limited by the run.
    exchange_seconds: float = 60.0
    # The history is polled after this time without a message.
    quiet_seconds: float = 10.0
    # The run fails after this time without a response.
    gone_seconds: float = 20.0
    withdraw_seconds: float = 5.0
    # All of /object_info with many custom nodes is about 10 MiB.
    schema_bytes: int = 64 * 2**20
    answer_bytes: int = 16 * 2**20
    message_bytes: int = 16 * 2**20


DEFAULT_LIMITS = ComfyLimits()


class ComfyFile(msgspec.Struct, frozen=True):
    """A file on the server, as identified in outputs and uploads."""

    filename: str
    subfolder: str = ""
    type: str = "output"

    @property
    def annotated(self) -> str:
        """The file as a `LoadImage` node names it: `folder/name [type]`."""
        name = f"{self.subfolder}/{self.filename}" if self.subfolder else self.filename
        return f"{name} [{self.type}]"


class ComfyStats(msgspec.Struct, frozen=True):
    """A server's version, first device and memory; `reserved_bytes` is the memory that its process holds."""

    version: str
    device: str
    memory_bytes: int
    memory_free_bytes: int
    kind: str = ""
    reserved_bytes: int = 0


class ComfyServer:
    """A stateless client of the ComfyUI server at `url`."""

    def __init__(self, client: httpx.AsyncClient, url: str, limits: ComfyLimits = DEFAULT_LIMITS) -> None:
        scheme, separator, host = url.rstrip("/").partition("://")
        if scheme not in {"http", "https"} or not separator or not host:
            raise ComfyError("SIXFOLD_COMFYUI_URL must begin with http:// or https://.")
        self.url = f"{scheme}://{host}"
        self._socket_url = f"{'wss' if scheme == 'https' else 'ws'}://{host}/ws?clientId="
        self._client = client
        self._limits = limits
        self._timeout = httpx.Timeout(limits.answer_seconds, connect=limits.connect_seconds)

    async def object_info(self, class_type: str = "") -> dict[str, Any]:
        """Return the schema of one node class, or of all; an unknown class is omitted from the result."""
        if not class_type:
            return await self._object("/object_info", self._limits.schema_bytes)
        return await self._object(f"/object_info/{quote(class_type, safe='')}")

    async def models(self, folder: str) -> tuple[str, ...]:
        """Return the files of a model folder (`checkpoints`, `upscale_models`, …)."""
        _, names = await self._exchange("GET", f"/models/{quote(folder, safe='')}")
        rows = names[:MAX_CHOICES] if isinstance(names, list) else ()
        return tuple(name for name in map(short_text, rows) if name)

    async def metadata(self, folder: str, filename: str) -> dict[str, Any]:
        """Return the metadata of a safetensors file, which may be empty."""
        path = f"/view_metadata/{quote(folder, safe='')}?filename={quote(filename, safe='')}"
        _, metadata = await self._exchange("GET", path)
        return metadata if isinstance(metadata, dict) else {}

    async def stats(self) -> ComfyStats:
        """Return version and memory; raises `ComfyError` if the server is not ComfyUI."""
        status, document = await self._exchange("GET", "/system_stats")
        # A Sixfold server rejects calls with the hop header.
        if status == 403:
            raise ComfyError(
                "The server at this address refused GET /system_stats (403): set the address of ComfyUI, not "
                "of a Sixfold server."
            )
        system = document.get("system") if isinstance(document, dict) else None
        if not isinstance(system, dict) or "comfyui_version" not in system:
            raise ComfyError("The server at this address is not ComfyUI.")
        with comfyui_errors.parse_errors():
            device: dict[str, Any] = (document.get("devices") or [{}])[0]
            return ComfyStats(
                short_text(system["comfyui_version"]).removeprefix("v"),
                short_text(device.get("name")).split(" : ")[0],
                int(device.get("vram_total") or 0),
                int(device.get("vram_free") or 0),
                short_text(device.get("type")),
                int(device.get("torch_vram_total") or 0),
            )

    async def free_memory(self) -> None:
        """Unload all models and empty the cache of results, once the current run has ended."""
        body = {"unload_models": True, "free_memory": True}
        status, _ = await self._exchange("POST", "/free", parse=False, json=body)
        if status != 200:
            raise ComfyError(f"ComfyUI refused /free ({status}).")

    async def queue_length(self) -> int:
        """Return how many prompts are running or waiting."""
        info = (await self._object("/prompt")).get("exec_info")
        with comfyui_errors.parse_errors():
            return int(info["queue_remaining"]) if isinstance(info, dict) else 0

    async def upload(self, name: str, data: bytes, content_type: str, folder: str = "temp") -> ComfyFile:
        """Upload an image under `name`, replacing an existing one; `temp` is emptied when ComfyUI starts."""
        document = await self._object(
            "/upload/image",
            method="POST",
            files={"image": (name, data, content_type)},
            data={"type": folder, "overwrite": "true"},
        )
        stored = short_text(document.get("name"))
        if not stored:
            raise ComfyError("ComfyUI did not accept the image.")
        return ComfyFile(
            stored, short_text(document.get("subfolder")), short_text(document.get("type")) or "input"
        )

    async def view(self, file: ComfyFile, target: WritableFile, max_bytes: int) -> str:
        """Write a file of the server to `target` and return its content type; raises `ComfyError`."""
        query = {"filename": file.filename, "subfolder": file.subfolder, "type": file.type}
        with _comfy_errors(self._limits):
            async with self._client.stream(
                "GET", f"{self.url}/view", params=query, headers=_HEADERS, timeout=self._timeout
            ) as response:
                if response.status_code != 200:
                    raise ComfyError(f"ComfyUI did not return the result file ({response.status_code}).")
                await _copy(response, target, max_bytes)
                return response.headers.get("content-type", "").partition(";")[0].strip()

    async def run(
        self,
        graph: Graph,
        output_nodes: Collection[str],
        on_event: EventCallback = lambda _event: None,
        *,
        previews: bool = False,
    ) -> Mapping[str, Mapping[str, Any]]:
        """Run a graph and return the outputs of its nodes, including those of `output_nodes`.

        With `previews`, samplers send preview images. `on_event` is called with every event. If it raises, or
        the task is canceled, the run is stopped here and on the server.
        """
        run = ComfyRun(on_event, frozenset(output_nodes), previews=previews)
        try:
            run.socket = await self._open(run)
            await self._submit(run, graph)
            await self._follow(run)
        finally:
            # A regular close waits for the server.
            if run.socket is not None:
                run.socket.transport.abort()
            if run.submitted and not run.over:
                await self._withdraw(run)
        return run.outputs

    async def _open(self, run: ComfyRun) -> ClientConnection | None:
        if run.tries >= _SOCKET_TRIES:
            return None
        run.tries += 1
        try:
            socket = await ComfyConnect(
                self._socket_url + run.client_id,
                additional_headers=HOP,
                create_connection=ComfyConnection,
                proxy=None,
                compression=None,
                open_timeout=self._limits.connect_seconds,
                # A server that loads a model may not respond for a while.
                ping_timeout=60,
                max_size=self._limits.message_bytes,
                # The default of 16 messages would be 256 MiB.
                max_queue=2,
            )
            if run.credential_key:
                credentials = {"type": "credential_auth", "data": {"credential_key": run.credential_key}}
                await socket.send(json.dumps(credentials))
        except (OSError, TimeoutError, WebSocketException):
            return None
        return socket

    async def _submit(self, run: ComfyRun, graph: Graph) -> None:
        run.submitted = True
        body = {"prompt": graph, "client_id": run.client_id, "prompt_id": run.prompt_id}
        if run.previews:
            # Older versions ignore this field and use their option --preview-method.
            body["extra_data"] = {"preview_method": "auto"}
        status, document = await self._exchange("POST", "/prompt", json=body)
        if status == 400:
            run.over = True
            with comfyui_errors.parse_errors():
                raise comfyui_errors.rejection(document)
        # Older servers choose the id themselves.
        own_id = short_text(document.get("prompt_id")) if isinstance(document, dict) else ""
        if not own_id:
            raise ComfyError(f"ComfyUI did not accept the prompt ({status}).")
        run.prompt_id = own_id

    async def _follow(self, run: ComfyRun) -> None:
        """Handle messages until the run ends; poll the server if no messages arrive."""
        pauses = _poll_seconds()
        while not run.over:
            if run.socket is None:
                await asyncio.sleep(next(pauses))
                run.socket = await self._open(run)
                # Poll after opening the websocket: earlier events were not received.
                await self._poll(run)
                continue
            try:
                async with asyncio.timeout(self._limits.quiet_seconds):
                    message = await run.socket.recv()
            except TimeoutError:
                await self._poll(run)
            except ConnectionClosed:
                run.socket, pauses = None, _poll_seconds()
            else:
                await run.handle_message(message)
                if run.ended and not run.over:
                    await self._poll(run)

    async def _poll(self, run: ComfyRun) -> None:
        """Check the history and the queue; a run that is missing from both twice in a row is lost."""
        try:
            entry = (await self._object(f"/history/{run.prompt_id}")).get(run.prompt_id)
            running, pending = ((), ()) if entry is not None else await self._own_prompts(run)
        except ComfyUnreachable:
            now = asyncio.get_running_loop().time()
            run.unanswered_since = run.unanswered_since or now
            if now - run.unanswered_since >= self._limits.gone_seconds:
                raise ComfyUnreachable("ComfyUI stopped responding during the run.") from None
            return
        run.unanswered_since = None
        if entry is not None:
            with comfyui_errors.parse_errors():
                run.read_history(entry)
            return
        run.missed = 0 if running or pending else run.missed + 1
        if run.missed > 1:
            run.over = True
            raise ComfyError("ComfyUI no longer has this run: it was restarted, or its queue was cleared.")

    async def _withdraw(self, run: ComfyRun) -> None:
        """Remove the run from the queue or interrupt it, without affecting other runs."""
        with contextlib.suppress(ComfyError, TimeoutError):
            async with asyncio.timeout(self._limits.withdraw_seconds):
                for attempt in range(_WITHDRAWALS):
                    running, pending = await self._own_prompts(run)
                    if running:
                        # Older servers ignore `prompt_id` and interrupt the current run, which is this one.
                        await self._exchange(
                            "POST", "/interrupt", parse=False, json={"prompt_id": running[0]}
                        )
                        return
                    # The loop repeats, as the run may start between the two calls.
                    if pending:
                        await self._exchange("POST", "/queue", parse=False, json={"delete": list(pending)})
                    elif attempt:
                        return
                    await asyncio.sleep(0.02)

    async def _own_prompts(self, run: ComfyRun) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of this run's prompts: the running ones and the pending ones.

        Prompts are also matched by the client id, because an interrupted call may have left a prompt with an
        unknown id.
        """
        queue = await self._object("/queue")
        with comfyui_errors.parse_errors():  # number, id, prompt, extra data, …
            running, pending = (
                tuple(
                    short_text(item[1])
                    for item in islice(queue.get(part) or (), _MAX_PROMPTS)
                    if item[1] == run.prompt_id or item[3].get("client_id") == run.client_id
                )
                for part in ("queue_running", "queue_pending")
            )
        return running, pending

    async def _object(
        self, path: str, max_bytes: int | None = None, method: str = "GET", **request: Any
    ) -> dict[str, Any]:
        status, document = await self._exchange(method, path, max_bytes=max_bytes, **request)
        if status != 200:
            raise ComfyError(f"ComfyUI refused {path.partition('?')[0]} ({status}).")
        if not isinstance(document, dict):
            raise ComfyError("ComfyUI returned an unexpected response.")
        return document

    async def _exchange(
        self, method: str, path: str, *, parse: bool = True, max_bytes: int | None = None, **request: Any
    ) -> tuple[int, Any]:
        """Return the status and the decoded body.

        The body is None for a status other than 200 and 400, for a 400 without JSON, and if `parse` is False.
        """
        buffer = io.BytesIO()
        with response_memory(self.url) as memory, _comfy_errors(self._limits):
            async with (
                asyncio.timeout(self._limits.exchange_seconds),
                self._client.stream(
                    method, self.url + path, headers=_HEADERS, timeout=self._timeout, **request
                ) as response,
            ):
                await _copy(response, buffer, max_bytes or self._limits.answer_bytes, memory)
                status = response.status_code
            if not parse or status not in (200, 400):
                return status, None
            try:
                return status, await _decode(buffer.getvalue())
            except ComfyError:
                # ComfyUI rejects an upload without a body.
                if status == 400:
                    return status, None
                raise


async def _copy(
    response: httpx.Response,
    target: WritableFile,
    max_bytes: int,
    memory: ResponseMemory | None = None,
) -> None:
    size = 0
    async for chunk in limited_responses.chunks(response):
        size += len(chunk)
        if size > max_bytes:
            raise ComfyError(f"ComfyUI's response is larger than {max_bytes / 2**20:g} MiB.")
        if memory is not None:
            await memory.resize(size)
        target.write(chunk)


@contextlib.contextmanager
def _comfy_errors(limits: ComfyLimits) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise ComfyUnreachable("ComfyUI cannot be reached.") from error
    except httpx.TimeoutException as error:
        raise comfyui_errors.ComfyTimeout(
            f"ComfyUI did not respond within {seconds_text(limits.answer_seconds)}."
        ) from error
    except TimeoutError as error:
        raise comfyui_errors.ComfyTimeout(
            f"ComfyUI did not complete its response within {seconds_text(limits.exchange_seconds)}."
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ComfyUnreachable("The connection to ComfyUI was lost.") from error
    except errors.TooManyRequests as error:
        raise ComfyError(error.message) from error


async def _decode(body: bytes) -> Any:
    try:
        return await decoding.decode(body)
    except (ValueError, RecursionError) as error:
        raise ComfyError("ComfyUI returned a response that is not JSON.") from error


def _poll_seconds() -> Iterator[float]:
    """Yield the seconds between two polls: at first 0, then increasing up to 2."""
    yield 0.0
    pause = 0.1
    while True:
        yield pause
        pause = min(2.0, pause * 2)
