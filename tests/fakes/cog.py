"""Fake Cog server on loopback with one slot; the input `do` selects the response."""

from __future__ import annotations

import asyncio
from functools import reduce
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from tests.harness import image_files

INPUT: dict[str, Any] = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "strength": {"type": "number", "default": 0.5, "minimum": 0, "maximum": 1, "x-order": 2},
        "prompt": {"type": "string", "description": "What to make", "x-order": 0},
        "photo": {"type": "string", "format": "uri", "nullable": True, "x-order": 1},
        "voice": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}], "x-order": 3},
        "look": {"allOf": [{"$ref": "#/components/schemas/look"}], "default": "plain", "x-order": 4},
        "tags": {"type": "array", "items": {"type": "string"}, "x-order": 5},
        "weights": {"type": "array", "items": {"type": "number"}, "x-order": 6},
        "do": {"type": "string", "default": "", "x-order": 7},
    },
}
OUTPUT: dict[str, Any] = {"type": "array", "items": {"type": "string", "format": "uri"}, "title": "Output"}
LOOK = {"type": "string", "enum": ["plain", "bold"], "title": "look"}


class FakeCog:
    """Fake Cog server: the requests it received, and its single slot."""

    def __init__(self) -> None:
        self.status = "READY"
        self.output: dict[str, Any] = OUTPUT
        self.requests: dict[str, dict[str, Any]] = {}
        self.canceled: list[str] = []
        self.run_events: dict[str, asyncio.Event] = {}
        self.start_event = asyncio.Event()
        # If set, a cancelation waits for this event.
        self.cancel_event: asyncio.Event | None = None

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/health-check", self._health),
            Route("/openapi.json", self._document),
            Route("/predictions/{name}", self._predict, methods=["PUT"]),
            Route("/predictions/{name}/cancel", self._cancel, methods=["POST"]),
        ]

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": self.status, "setup": {"logs": "there are no weights"}})

    async def _document(self, _request: Request) -> Response:
        schemas = {"Input": INPUT, "Output": self.output, "look": LOOK}
        return JSONResponse({"info": {"title": "Cog"}, "components": {"schemas": schemas}})

    async def _predict(self, request: Request) -> Response:
        name, inputs = request.path_params["name"], (await request.json())["input"]
        if self.run_events:
            return JSONResponse({"detail": "Already running a prediction"}, 409)
        self.requests[name] = inputs
        if inputs.get("do") == "refuse":
            problem = {"loc": ["body", "input", "prompt"], "msg": "field required"}
            return JSONResponse({"detail": [problem]}, 422)
        return await self._answer(name, inputs)

    async def _answer(self, name: str, inputs: dict[str, Any]) -> Response:
        if inputs.get("do") == "wait":
            end_event = self.run_events[name] = asyncio.Event()
            self.start_event.set()
            await end_event.wait()
            del self.run_events[name]
            return JSONResponse({"id": name, "status": "canceled", "logs": ""})
        if inputs.get("do") == "fail":
            return JSONResponse({"id": name, "status": "failed", "error": "The prompt has no verb."})
        return JSONResponse({"id": name, "status": "succeeded", "logs": "loaded\nmade", **_make(inputs)})

    async def _cancel(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.canceled.append(name)
        if self.cancel_event is not None:
            await self.cancel_event.wait()
        if name in self.run_events:
            self.run_events[name].set()
        return JSONResponse({})


def _make(inputs: dict[str, Any]) -> dict[str, Any]:
    match inputs.get("do"):
        case "object":
            return {"output": {"mask": uri(b"m"), "parts": [uri(b"1"), uri(b"2")], "score": 0.25}}
        case "deep":
            return {"output": reduce(lambda inner, _: {"a": inner}, range(101), 0)}
        case "words":
            return {"output": ["Once", " upon"]}
        case _:
            return {"output": [uri(inputs["prompt"].encode())]}


def uri(data: bytes) -> str:
    """Return the bytes as a file of a response."""
    return image_files.data_uri(data, "text/plain")
