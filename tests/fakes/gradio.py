"""Fake Gradio application on loopback, with responses recorded from real servers of versions 4, 5 and 6."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.fakes import fault_server

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("gradio_recorded.json").read_text("utf-8"))
PICTURE = fault_server.image(96, 64)


@dataclass
class GradioServer:
    """Fake application; `config` and `info` may be changed, `hang` keeps a run from ending.

    If `queue` is set, a run waits in the queue until the event is set.
    """

    version: str
    port: int = 0
    hang: bool = False
    full: bool = False
    queue: asyncio.Event | None = None
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    joined: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    uploaded: list[bytes] = field(default_factory=list[bytes])
    tokens: set[str] = field(default_factory=set[str])
    runs: dict[str, Any] = field(default_factory=dict[str, Any])
    disconnect_event: asyncio.Event = field(default_factory=asyncio.Event)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.config = json.loads(json.dumps(RECORDED[self.version]["config"]))
        self.info = json.loads(json.dumps(RECORDED[self.version]["info"]))
        self.runs = json.loads(json.dumps(RECORDED[self.version]["runs"]))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def prefix(self) -> str:
        return "" if self.version == "4" else "/gradio_api"

    def routes(self) -> list[Route]:
        at = self.prefix
        return [
            Route("/config", self.tell_config),
            Route(f"{at}/info", self.tell_info),
            Route(f"{at}/upload", self.upload, methods=["POST"]),
            Route(f"{at}/queue/join", self.join, methods=["POST"]),
            Route(f"{at}/queue/data", self.data),
            Route(f"{at}/cancel", self.cancel, methods=["POST"]),
            Route(f"{at}/file={{path:path}}", self.file),
        ]

    def give(self, *outputs: tuple[str, str, Any]) -> None:
        """Set the outputs of `generate_image`, each as component type, label and value."""
        [function] = [each for each in self.config["dependencies"] if each["api_name"] == "generate_image"]
        numbers = range(100, 100 + len(outputs))
        for number, (kind, label, _) in zip(numbers, outputs, strict=True):
            self.config["components"].append({"id": number, "type": kind, "props": {"label": label}})
        function["outputs"] = list(numbers)
        described = self.info["named_endpoints"]["/generate_image"]
        values = [each for each in outputs if each[0] != "state"]
        described["returns"] = [{"label": label, "component": kind.title()} for kind, label, _ in values]
        [completed_event] = [each for each in self.runs["a fox"] if each["msg"] == "process_completed"]
        completed_event["output"]["data"] = [value for _, _, value in outputs]

    def image(self) -> dict[str, Any]:
        """Return an image as the value of an output."""
        path = "/tmp/gradio/0123/image.webp"
        return {"path": path, "url": f"BASE/file={path}", "meta": {"_type": "gradio.FileData"}}

    async def tell_config(self, request: Request) -> Response:
        self.tokens.add(request.headers.get("authorization", ""))
        return JSONResponse(self.config)

    async def tell_info(self, _request: Request) -> Response:
        return JSONResponse(self.info)

    async def upload(self, request: Request) -> Response:
        async with request.form() as form:
            file: Any = form["files"]
            self.uploaded.append(await file.read())
        return JSONResponse(["/tmp/gradio/9876/input.png"])

    async def join(self, request: Request) -> Response:
        if self.full:
            return JSONResponse({"detail": "Queue is full."}, 503)
        self.joined.append(await request.json())
        return JSONResponse({"event_id": "EVENT"})

    async def data(self, _request: Request) -> Response:
        return StreamingResponse(self.messages(), media_type="text/event-stream")

    async def messages(self) -> AsyncIterator[bytes]:
        response = self.runs.get(self.joined[-1]["data"][0], self.runs["a fox"])
        for message in response:
            if self.queue is not None and message["msg"] == "process_starts":
                await self.queue.wait()
            yield f"data: {json.dumps(message)}\n\n".encode()
            self.began.set()
            if self.hang:
                await asyncio.Event().wait()

    async def cancel(self, _request: Request) -> Response:
        self.disconnect_event.set()
        return JSONResponse({"success": True})

    async def file(self, request: Request) -> Response:
        if request.path_params["path"] != "/tmp/gradio/0123/image.webp":
            return Response(status_code=404)
        return Response(PICTURE, media_type="image/webp")


@asynccontextmanager
async def gradio(version: str) -> AsyncGenerator[GradioServer, None]:
    result = GradioServer(version)
    async with fault_server.serve(result.routes()) as port:
        result.port = port
        yield result
