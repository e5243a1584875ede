"""Fake local model servers on loopback: each responds on the paths by which its kind is detected.

Shapes are those of https://docs.ollama.com/api, https://lmstudio.ai/docs/developer/rest, llama.cpp's
tools/server/README.md, https://docs.sglang.io/docs/basic_usage/native_api.md, llama-swap's /running and
vLLM's OpenAI-compatible server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.clients import local_servers
from tests.fakes import fault_server
from tests.fakes.shared_gpu import FakeGpu, OutOfMemoryError

AnyServer = TypeVar("AnyServer", bound="LocalModels")
COMPLETION, EMBEDDING = ("completion",), ("embedding",)


@dataclass
class LocalModels:
    """A server of one kind. `answers` maps paths to documents, to bytes that are sent as is, or to a status.

    `paths` are the paths that were requested, `bodies` the JSON bodies of POST requests. While `slow` is set,
    no request is answered.
    """

    responses: dict[str, Any] = field(default_factory=dict[str, Any])
    paths: list[str] = field(default_factory=list[str])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    slow: bool = False
    request_event: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def routes(self) -> list[Route]:
        return [Route("/{path:path}", self._answer, methods=["GET", "POST"])]

    def count(self, path: str) -> int:
        return self.paths.count(path)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        self.paths.append(path)
        self.headers.append(dict(request.headers))
        if self.slow:
            self.request_event.set()
            await asyncio.Event().wait()
        body: dict[str, Any] = json.loads(await request.body()) if request.method == "POST" else {}
        if body:
            self.bodies.append(body)
        return self.respond(path, body)

    def respond(self, path: str, body: dict[str, Any]) -> Response:
        if path in self.responses:
            answer = self.responses[path]
            if isinstance(answer, bytes):
                return Response(answer, media_type="application/json")
            return Response(status_code=answer) if isinstance(answer, int) else JSONResponse(answer)
        if path == "/v1/chat/completions":
            message = {"role": "assistant", "content": f"I am {body['model']}"}
            usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return JSONResponse(
                {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
                | {"choices": [choice], "usage": usage}
            )
        if path == "/v1/embeddings":
            rows = [{"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}]
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            return JSONResponse({"object": "list", "data": rows, "model": body["model"], "usage": usage})
        return JSONResponse({"error": "not found"}, 404)


def openai_list(*names: str, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}


class Ollama(LocalModels):
    """Ollama with models and their capabilities: in `/api/show`, and with `in_tags` in `/api/tags`.

    `/api/show` fails for the models of `broken`. Its models take `sizes` bytes of a `gpu` that it may share;
    one that does not fit is refused. While `gate` is set, chats wait for it with their model loaded.
    """

    def __init__(self, models: Mapping[str, tuple[str, ...]], *loaded: str, in_tags: bool = False) -> None:
        super().__init__()
        self.models = dict(models)
        self.loaded = list(loaded)
        self.in_tags = in_tags
        self.remote: set[str] = set()
        self.broken: set[str] = set()
        self.gpu: FakeGpu | None = None
        self.sizes: dict[str, int] = {}
        self.gate: asyncio.Event | None = None
        self.entered = asyncio.Event()
        # The context and the length of embeddings that `/api/show` states.
        self.lengths: dict[str, tuple[int, int]] = {}

    @property
    def show_requests(self) -> list[str]:
        """The models of the requests to `/api/show`."""
        return [body["model"] for body in self.bodies if body.keys() == {"model"}]

    async def _answer(self, request: Request) -> Response:
        response = await super()._answer(request)
        if self.gate is not None and request.url.path == "/v1/chat/completions":
            self.entered.set()
            await self.gate.wait()
        return response

    def respond(self, path: str, body: dict[str, Any]) -> Response:
        if path in self.responses:
            return super().respond(path, body)
        if (shared := self._on_gpu(path, body)) is not None:
            return shared
        match path:
            case "/api/version":
                return JSONResponse({"version": "0.14.0"})
            case "/api/tags":
                return JSONResponse({"models": [self._tag(name) for name in self.models]})
            case "/api/ps":
                loaded = self.loaded if self.gpu is None else self.gpu.of("ollama")
                return JSONResponse({"models": [self._tag(name) for name in loaded]})
            case "/api/show" if body["model"] in self.broken:
                return Response(status_code=500)
            case "/api/show":
                document = {"license": "x" * 5000, "capabilities": list(self.models[body["model"]])}
                return JSONResponse(document | self._info(body["model"]))
            case "/v1/models":
                return JSONResponse(openai_list(*self.models))
            case "/v1/chat/completions" if "completion" not in self._of(body["model"]):
                error = {
                    "message": f'"{body["model"]}" does not support chat',
                    "type": "invalid_request_error",
                }
                return JSONResponse({"error": error}, 400)
            case _:
                return super().respond(path, body)

    def _on_gpu(self, path: str, body: dict[str, Any]) -> Response | None:
        """Load or unload a model; the response if that is all, or if it does not fit."""
        if self.gpu is None:
            return None
        if path == "/api/generate" and body.get("keep_alive") == 0:
            self.gpu.unload("ollama", body["model"])
            return JSONResponse({"model": body["model"], "done": True, "done_reason": "unload"})
        if path == "/v1/chat/completions" and body["model"] in self.sizes:
            try:
                self.gpu.load("ollama", body["model"], self.sizes[body["model"]])
            except OutOfMemoryError:
                message = "llama runner process has terminated: cudaMalloc failed: out of memory"
                return JSONResponse({"error": {"message": message, "type": "api_error"}}, 500)
        return None

    def _of(self, name: str) -> tuple[str, ...]:
        return self.models.get(name) or self.models[f"{name}:latest"]

    def _info(self, name: str) -> dict[str, Any]:
        if name not in self.lengths:
            return {}
        context, embedding = self.lengths[name]
        info = {"general.architecture": "qwen3", "qwen3.context_length": context}
        return {"model_info": info | {"qwen3.embedding_length": embedding, "tokenizer.ggml.tokens": None}}

    def _tag(self, name: str) -> dict[str, Any]:
        tag: dict[str, Any] = {"name": name, "model": name, "size": 1, "details": {"format": "gguf"}}
        if name in self.sizes:
            tag["size"] = tag["size_vram"] = self.sizes[name]
        tag["digest"] = f"sha-{name}-{'-'.join(self.models[name])}"
        if self.in_tags:
            tag["capabilities"] = list(self.models[name])
        return tag | ({"remote_host": "https://ollama.com:443"} if name in self.remote else {})


def lm_studio(*rows: tuple[str, str, str]) -> LocalModels:
    native = [
        {"id": name, "object": "model", "type": kind, "state": state, "arch": "x"}
        for name, kind, state in rows
    ]
    models = openai_list(*(name for name, _, _ in rows))
    return LocalModels({"/v1/models": models, "/api/v0/models": {"object": "list", "data": native}})


def sglang(name: str, **info: Any) -> LocalModels:
    return LocalModels(
        {
            "/v1/models": openai_list(name, owned_by="sglang"),
            "/get_model_info": {"model_path": name, "tokenizer_path": name, **info},
        }
    )


def vllm(*names: str) -> LocalModels:
    models = openai_list(*names, owned_by="vllm", max_model_len=4096)
    return LocalModels({"/version": {"version": "0.16.0"}, "/v1/models": models})


def llama_cpp(name: str, *, vision: bool) -> LocalModels:
    props = {
        "default_generation_settings": {"n_ctx": 4096},
        "model_path": name,
        "modalities": {"vision": vision, "audio": False},
    }
    models = {**openai_list(name, owned_by="llamacpp"), "models": [{"name": name}]}
    return LocalModels({"/props": props, "/v1/models": models})


def llama_swap(*names: str, running: tuple[str, ...] = ()) -> LocalModels:
    """llama-swap answers unknown paths with its page."""
    rows = [{"model": name, "state": "ready", "proxy": "http://127.0.0.1:1"} for name in running]
    return LocalModels(
        {
            "/running": {"running": rows},
            "/v1/models": openai_list(*names, owned_by="llama-swap"),
            "/props": b"<!doctype html><title>llama-swap</title> n_ctx",
        }
    )


@asynccontextmanager
async def listening(server: AnyServer, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[AnyServer]:
    async with fault_server.serve(server.routes(), port, host) as server.port:
        yield server


def look_at(monkeypatch: pytest.MonkeyPatch, **ports: int) -> None:
    """Limit discovery to these kinds of server, each on the given port."""
    kinds = [
        msgspec.structs.replace(kind, port=ports[kind.kind])
        for kind in local_servers.CHAT
        if kind.kind in ports
    ]
    monkeypatch.setattr(local_servers, "CHAT", tuple(kinds))
