"""Fake ComfyUI on loopback that implements the protocol, with configurable faults.

    async with comfyui() as comfy:
        httpx.get(comfy.url + "/system_stats")

It validates a prompt as ComfyUI does, queues it, runs the classes of `comfyui_nodes` (unchanged nodes are
reused from an earlier run), sends messages to its client over the socket and stores the history. Every
route is also available under `/api`. A test can set:

- `hold("KSampler")` stops a run at the next step of this class until it is released;
- `raises["KSampler"] = ("OutOfMemoryError", "…")` makes a class fail;
- `answers["/view"] = …` replaces a route by bytes or by an application; `silent` routes never respond;
- `memory` is the number of images that it can sample at once, `vram` the memory of its GPU;
- `sockets = False` refuses websockets, `drop_sockets()` disconnects the open ones;
- `old = True` omits the features of later versions: chosen prompt ids, `execution_success`, interrupts by id;
- `forget()` simulates a restart, `stop()` the end of the process.

`python -m tests.fakes.comfyui [CHECKPOINT …]` prints its address and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.fakes import comfyui_nodes, comfyui_rules
from tests.fakes.comfyui_nodes import InstalledFiles
from tests.fakes.shared_gpu import ComfyMemory
from tests.harness.embedded_server import EmbeddedServer
from tests.harness.waiting import wait_until

VERSION = "0.8.0"


class _Stopped(Exception):
    """The run was interrupted."""


@dataclass
class Hold:
    """A point at which a run is paused."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Item:
    """Prompt that is queued or running."""

    number: int
    prompt_id: str
    prompt: Mapping[str, Any]
    extra: Mapping[str, Any]
    outputs: tuple[str, ...]
    interrupted: bool = False

    def entry(self) -> list[Any]:
        """Return the entry as `/queue` shows it."""
        return [self.number, self.prompt_id, self.prompt, self.extra, list(self.outputs)]


class Comfy:
    """State and routes of the server, which `comfyui` runs."""

    def __init__(self, installed: InstalledFiles) -> None:
        self.installed = installed
        self.url = ""
        self.calls: list[tuple[str, str, Mapping[str, str]]] = []
        self.pending: list[Item] = []
        self.running: Item | None = None
        self.history: dict[str, Any] = {}
        self.files: dict[tuple[str, str], bytes] = {("input", "example.png"): b""}
        self.old = False
        self.sockets = True
        self.memory = 64
        self.vram = ComfyMemory()
        self.raises: dict[str, tuple[str, str]] = {}
        self.responses: dict[str, bytes | ASGIApp] = {}
        self.silent: set[str] = set()
        self.delay_seconds = 0.0
        # Set when the queue or the history changes; the waiting code clears it.
        self.change_event = asyncio.Event()
        # The class of each node that was run.
        self.executed_classes: list[str] = []
        self._holds: dict[str, Hold] = {}
        self._clients: dict[str, WebSocket] = {}
        self._keys: dict[str, str] = {}
        self.back = asyncio.Event()
        self._cache: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._work = asyncio.Event()
        self._server: EmbeddedServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- what a test does ------------------------------------------------------------------------

    def hold(self, class_type: str) -> Hold:
        """Pause at the next step of a class; `reached` is set then, and `go` resumes it."""
        self._holds[class_type] = Hold()
        return self._holds[class_type]

    def interrupt(self) -> None:
        """Interrupt the run, as the button of ComfyUI's own page does."""
        if self.running is not None:
            self.running.interrupted = True

    def drop_sockets(self) -> None:
        """Close every open socket abruptly, as a network failure would."""
        self._clients.clear()
        if self._server is not None:
            for connection in list(self._server.server_state.connections):
                if "WebSocket" in type(connection).__name__:
                    connection.transport.abort()

    async def forget(self) -> None:
        """Simulate a restart: queue, history, the current run and the cache are lost."""
        self.pending.clear()
        self.history.clear()
        self._cache.clear()
        self._keys.clear()
        self.drop_sockets()
        await self._restart_worker()

    async def stop(self) -> None:
        """Simulate a crash: sockets are not closed properly, and requests get no response."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.should_exit = server.force_exit = True
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.shutdown()

    def called(self, path: str) -> int:
        """Return the number of requests to a route."""
        return sum(1 for _, called, _ in self.calls if called == path)

    async def start(self, host: str = "127.0.0.1") -> None:
        """Listen on a free port of a loopback address."""
        options: dict[str, Any] = {"log_config": None, "lifespan": "off", "access_log": False}
        config = uvicorn.Config(self.app(), host=host, port=0, ws="websockets-sansio", **options)
        self._server = server = EmbeddedServer(config)
        self._tasks = [asyncio.create_task(server.serve()), asyncio.create_task(self._worker())]
        await wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://{host}:{port}"

    # -- routes ----------------------------------------------------------------------------------

    def app(self) -> ASGIApp:
        """The application, behind what notes each call and puts faults in its place."""
        routes = [
            Route("/system_stats", self._stats),
            Route("/object_info", self._object_info),
            Route("/object_info/{name}", self._object_info),
            Route("/models/{folder}", self._models),
            Route("/view_metadata/{folder}", self._metadata),
            Route("/upload/image", self._upload, methods=["POST"]),
            Route("/view", self._view),
            Route("/prompt", self._prompt, methods=["POST"]),
            Route("/queue", self._queue, methods=["GET", "POST"]),
            Route("/interrupt", self._interrupt, methods=["POST"]),
            Route("/free", self._free, methods=["POST"]),
            Route("/history", self._history),
            Route("/history/{prompt_id}", self._history),
            WebSocketRoute("/ws", self._socket),
        ]
        inner = Starlette(routes=[*routes, Mount("/api", routes=routes)])

        async def outer(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
            self.calls.append((scope.get("method", "WS"), scope["path"], headers))
            fault = self.responses.get(scope["path"])
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            if scope["path"] in self.silent:
                await asyncio.Event().wait()
            elif isinstance(fault, bytes):
                await Response(fault, media_type="text/html")(scope, receive, send)
            else:
                await (fault or inner)(scope, receive, send)

        return outer

    async def _stats(self, _request: Request) -> Response:
        system = {"os": "linux", "comfyui_version": VERSION, "argv": ["main.py"]}
        return JSONResponse({"system": system, "devices": [self.vram.stats()]})

    async def _object_info(self, request: Request) -> Response:
        known = comfyui_nodes.schemas(self.installed)
        name = request.path_params.get("name")
        return JSONResponse(known if name is None else {name: known[name]} if name in known else {})

    async def _models(self, request: Request) -> Response:
        folder = request.path_params["folder"]
        if folder == "metadata" or not hasattr(self.installed, folder):
            return Response(status_code=404)
        return JSONResponse(list(getattr(self.installed, folder)))

    async def _metadata(self, request: Request) -> Response:
        result = self.installed.metadata.get(request.query_params["filename"])
        return Response(status_code=404) if result is None else JSONResponse(dict(result))

    async def _upload(self, request: Request) -> Response:
        async with request.form() as form:
            image, folder = form["image"], str(form.get("type") or "input")
            assert not isinstance(image, str), "a file"
            name = str(image.filename)
            self.files[folder, name] = await image.read()
        return JSONResponse({"name": name, "subfolder": "", "type": folder})

    async def _view(self, request: Request) -> Response:
        query = request.query_params
        data = self.files.get((query.get("type", "output"), query["filename"]))
        return Response(status_code=404) if data is None else Response(data, media_type="image/png")

    async def _prompt(self, request: Request) -> Response:
        body = await request.json()
        if "prompt" not in body:
            return JSONResponse({"error": "no prompt", "node_errors": []}, 400)
        known = comfyui_nodes.schemas(self.installed)
        verdict = comfyui_rules.validate(body["prompt"], known, lambda name: self._path(name) in self.files)
        if verdict.error is not None:
            return JSONResponse({"error": verdict.error, "node_errors": verdict.nodes}, 400)
        prompt_id = str(uuid.uuid4() if self.old else body.get("prompt_id") or uuid.uuid4())
        if str(uuid.UUID(prompt_id)) != prompt_id:
            return JSONResponse({"error": {"message": "prompt_id must be a valid UUID"}}, 400)
        extra = {**body.get("extra_data", {}), "client_id": body.get("client_id")}
        item = Item(next(self._numbers), prompt_id, body["prompt"], extra, verdict.outputs)
        self.pending.append(item)
        self._work.set()
        self.change_event.set()
        return JSONResponse({"prompt_id": prompt_id, "number": item.number, "node_errors": verdict.nodes})

    async def _queue(self, request: Request) -> Response:
        if request.method == "POST":
            body = await request.json()
            removals = {item.prompt_id for item in self.pending} if body.get("clear") else set(body["delete"])
            self.pending = [item for item in self.pending if item.prompt_id not in removals]
            self.change_event.set()
            return Response()
        running_entries = [self.running.entry()] if self.running else []
        return JSONResponse(
            {"queue_running": running_entries, "queue_pending": [item.entry() for item in self.pending]}
        )

    async def _interrupt(self, request: Request) -> Response:
        body = await request.body()
        aimed = None if self.old or not body else json.loads(body).get("prompt_id")
        if self.running is not None and aimed in {None, self.running.prompt_id}:
            self.running.interrupted = True
        return Response()

    async def _free(self, _request: Request) -> Response:
        self._cache = {} if self.vram.free(runs=self.running is not None) else self._cache
        return Response()

    async def _history(self, request: Request) -> Response:
        expected = request.path_params.get("prompt_id")
        if expected is None:
            return JSONResponse(self.history)
        return JSONResponse({expected: self.history[expected]} if expected in self.history else {})

    async def _socket(self, socket: WebSocket) -> None:
        if not self.sockets:
            await socket.close()
            return
        await socket.accept()
        client = socket.query_params.get("clientId") or uuid.uuid4().hex
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            # Since 2026, a client that reconnects must send its key.
            if client in self._keys and not self.old:
                text = json.loads(await socket.receive_text())
                if text != {"type": "credential_auth", "data": {"credential_key": self._keys[client]}}:
                    await socket.close(1008, "Invalid client credentials")
                    return
                self.back.set()
            self._clients[client] = socket
            known = {} if self.old else {"credential_key": self._keys.setdefault(client, uuid.uuid4().hex)}
            await self._tell(client, "status", {"status": self._remaining(), "sid": client, **known})
            while True:
                await socket.receive()
        if self._clients.get(client) is socket:
            del self._clients[client]

    # -- running ---------------------------------------------------------------------------------

    async def _restart_worker(self) -> None:
        worker = self._tasks[1]
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        self.running = None
        self._tasks[1] = asyncio.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self.pending:
                self.running = item = self.pending.pop(0)
                self.change_event.set()
                run = _Run(self, item)
                entry = await run.run_all()
                self.running = None
                self._cache = {} if self.vram.run_ended() else self._cache
                self.history[item.prompt_id] = entry
                self.change_event.set()
                await run.tell("executing", {"node": None})

    def _remaining(self) -> dict[str, Any]:
        return {"exec_info": {"queue_remaining": len(self.pending) + (self.running is not None)}}

    async def _tell(self, client: Any, kind: str, data: Mapping[str, Any]) -> None:
        await self._send(client, json.dumps({"type": kind, "data": data}))

    async def _send(self, client: Any, message: str | bytes) -> None:
        socket = self._clients.get(client)
        if socket is None:
            return
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await (socket.send_text(message) if isinstance(message, str) else socket.send_bytes(message))

    def _path(self, annotated: str) -> tuple[str, str]:
        name, _, rest = annotated.partition(" [")
        return rest.rstrip("]") or "input", name


class _Run:
    """A running prompt, as the nodes see it."""

    def __init__(self, comfy: Comfy, item: Item) -> None:
        self._comfy = comfy
        self._item = item
        self._node = ""
        self._results: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._messages: list[Any] = []

    @property
    def prompt(self) -> Mapping[str, Any]:
        return self._item.prompt

    @property
    def memory(self) -> int:
        return self._comfy.memory

    async def run_all(self) -> dict[str, Any]:
        """Run every output node; return the history entry."""
        await self.tell("execution_start", {"timestamp": int(time.time() * 1000)})
        error = True
        try:
            reused = [node for node in self.prompt if self._signature(node) in self._comfy._cache]
            await self.tell("execution_cached", {"nodes": reused})
            for node in self._item.outputs:
                await self._result(node)
            error = False
            if not self._comfy.old:
                await self.tell("execution_success", {})
        except _Stopped:
            await self.tell("execution_interrupted", {"node_id": self._node, "executed": []})
        except _Raised as raised:
            kind, text = raised.args
            response = {"exception_type": f"torch.{kind}", "exception_message": text, "traceback": ["…"]}
            class_type = self.prompt[self._node]["class_type"]
            await self.tell("execution_error", {"node_id": self._node, "node_type": class_type, **response})
        state = {"status_str": "error" if error else "success", "completed": not error}
        return {
            "prompt": self._item.entry(),
            "outputs": self._outputs,
            "status": {**state, "messages": self._messages},
        }

    async def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Send a message to the client, and store it for the history."""
        response = {**data, "prompt_id": self._item.prompt_id}
        if kind.startswith("execution"):
            self._messages.append([kind, response])
        if self._comfy.old and kind == "progress":
            response.pop("prompt_id")
        await self._comfy._tell(self._item.extra["client_id"], kind, response)

    async def step(self, step_number: int, of: int) -> None:
        class_type = self.prompt[self._node]["class_type"]
        hold = self._comfy._holds.pop(class_type, None)
        if hold is not None:
            hold.reached.set()
            await hold.go.wait()
        # Let other tasks run, as they do while a GPU computes.
        await asyncio.sleep(0)
        if self._item.interrupted:
            raise _Stopped
        await self.tell("progress", {"value": step_number, "max": of, "node": self._node})
        if not self._comfy.old:
            state = {self._node: {"value": step_number, "max": of, "state": "running", "node_id": self._node}}
            await self.tell("progress_state", {"nodes": state})
        if self._item.extra.get("preview_method") == "auto":
            await self.send(comfyui_nodes.PREVIEW)

    def file(self, annotated: str) -> bytes:
        return self._comfy.files[self._comfy._path(annotated)]

    def keep(self, folder: str, prefix: str, data: bytes, ending: str = "png") -> dict[str, str]:
        count = sum(1 for kind, name in self._comfy.files if kind == folder and name.startswith(prefix))
        name = f"{prefix}_{count + 1:05}_.{ending}"
        self._comfy.files[folder, name] = data
        return {"filename": name, "subfolder": "", "type": folder}

    async def send(self, data: bytes) -> None:
        await self._comfy._send(self._item.extra["client_id"], data)

    async def _result(self, node: str) -> Any:
        if node in self._results:
            return self._results[node]
        spec = self.prompt[node]
        remaining = self._comfy._cache
        signature = self._signature(node)
        reused = signature in remaining
        if not reused:
            inputs = {name: await self._input(value) for name, value in spec["inputs"].items()}
            remaining[signature] = await self._run(node, spec["class_type"], inputs)
            self._comfy.executed_classes.append(spec["class_type"])
        self._results[node] = result = remaining[signature]
        if isinstance(result, dict):
            self._outputs[node] = result
            if not (reused and self._comfy.old):
                await self.tell("executed", {"node": node, "display_node": node, "output": result})
        return result

    async def _run(self, node: str, class_type: str, inputs: Mapping[str, Any]) -> Any:
        self._node = node
        await self.tell("executing", {"node": node, "display_node": node})
        await asyncio.sleep(0)
        if self._item.interrupted:
            raise _Stopped
        if class_type in self._comfy.raises:
            raise _Raised(*self._comfy.raises[class_type])
        try:
            self._comfy.vram.load(self.prompt, class_type)
            return await comfyui_nodes.NODES[class_type](self, **inputs)
        except (OSError, ValueError, MemoryError) as error:
            raise _Raised(type(error).__name__, str(error)) from error

    async def _input(self, value: Any) -> Any:
        return (await self._result(value[0]))[value[1]] if isinstance(value, list) else value

    def _signature(self, node: str) -> str:
        spec = self.prompt[node]
        inputs = {
            name: [self._signature(value[0]), value[1]] if isinstance(value, list) else value
            for name, value in spec["inputs"].items()
        }
        return json.dumps([spec["class_type"], inputs], sort_keys=True)


class _Raised(Exception):
    """A node raised: its exception's type and message."""


@asynccontextmanager
async def comfyui(installed: InstalledFiles | None = None, host: str = "127.0.0.1") -> AsyncIterator[Comfy]:
    """Run a server with these model files."""
    comfy = Comfy(installed or InstalledFiles())
    await comfy.start(host)
    try:
        yield comfy
    finally:
        await comfy.stop()


async def _serve(checkpoints: list[str]) -> None:
    async with comfyui(InstalledFiles(checkpoints=tuple(checkpoints)) if checkpoints else None) as comfy:
        sys.stdout.write(f"{comfy.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


# `python -m tests.fakes.comfyui` runs the fake as a separate process until it is killed.
if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1:]))
