"""A ComfyUI-compatible server for unmodified clients, at the root and under `/api`."""

from __future__ import annotations

import asyncio
import os
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from sixfold import __version__, errors
from sixfold.api.workflows.comfyui.files import ComfyFileRoutes
from sixfold.api.workflows.comfyui.queue import ComfyQueue
from sixfold.api.workflows.comfyui.websocket import ComfySocket
from sixfold.core.accounts import rights
from sixfold.core.accounts.connections import CredentialEnded, current
from sixfold.core.accounts.keys import Principal
from sixfold.core.input_limits import json_limits
from sixfold.core.workflows import object_info as workflows_object_info
from sixfold.core.workflows.documents import as_list
from sixfold.core.workflows.model_files import KINDS
from sixfold.core.workflows.nodes import Registry
from sixfold.core.workflows.validation_errors import fault
from sixfold.web import auth, bodies, requests, responses
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.routing import ApiGroup, Handler, RouteEntry, SocketRoute
from sixfold.web.services import WebServices

# The ComfyUI version that this API and its schemas match.
VERSION = "0.8.0"
UNAUTHORIZED, TRY_AGAIN_LATER = 4401, 1013
_MAX_HISTORY = 200
# Matches NUL escapes that do not belong to an escaped backslash.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_PAGES = ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES")
# The input files that exist for every account.
_EXAMPLES = {"image": ("example.png",), "audio": ("sample.wav",)}
_FOLDERS = (*KINDS, "embeddings", "configs", "gligen", "hypernetworks", "style_models")


def dialect(error: errors.SixfoldError, _request_id: str) -> Response:
    """Return an error in ComfyUI's format."""
    body = {"error": fault(error.code, error.message, error.message), "node_errors": {}}
    return responses.json(body, error.status, responses.error_headers(error))


class ComfyAuth:
    """Authenticates ComfyUI clients: by bearer key, by `?token=`, or without a key on the same machine."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def enter(self, connection: HTTPConnection) -> Principal:
        """Return the principal of a request; raises `Unauthenticated`."""
        doors = self._services.authenticator
        token = auth.bearer_token(connection)  # pyright: ignore[reportArgumentType]  # only its headers are read
        token = token if token is not None else connection.query_params.get("token")
        return await (doors.without_key(connection) if token is None else doors.key(token))


class ComfyRoutes:
    """The routes for prompts, the queue, the history, node classes and system information."""

    def __init__(self, services: WebServices, doors: ComfyAuth) -> None:
        self._services = services
        self._doors = doors
        self._runs = ComfyQueue(services)
        self._classes: tuple[Registry, Mapping[str, Any], bytes] | None = None

    async def prompt(self, request: Request) -> Response:
        principal = await self._doors.enter(request)
        raw = await request.body()

        async def work(idempotency_id: str | None) -> Response:
            await self._services.workflows.document_memory.reserve(len(raw))
            body = await bodies.parse(_parse_prompt, raw)
            error, response = await self._runs.take(
                principal, body, requests.request_id(request), idempotency_id
            )
            return responses.json(response if error is None else error, 200 if error is None else 400)

        return await self._services.idempotency.run(
            request, IdempotentRequest(principal.replays, raw, dialect), work
        )

    async def remaining(self, request: Request) -> Response:
        """Return the number of prompts that have not ended."""
        principal = await self._doors.enter(request)
        return responses.json(await self._runs.remaining(principal.tenant))

    async def queue(self, request: Request) -> Response:
        principal = await self._doors.enter(request)
        return responses.json(await self._runs.queue(principal.tenant))

    async def change_queue(self, request: Request) -> Response:
        """Remove prompts from the queue, or all of them."""
        principal = await self._doors.enter(request)
        body = await bodies.parse(bodies.parse_object, await request.body())
        await self._runs.withdraw(principal.tenant, _ids(body), everything=body.get("clear") is True)
        return Response()

    async def history(self, request: Request) -> Response:
        """Return the ended prompts by id."""
        principal = await self._doors.enter(request)
        requested = request.scope["path_params"].get("prompt_id")
        text = request.query_params.get("max_items", "")
        limit = min(int(text), _MAX_HISTORY) if text.isascii() and text.isdigit() and len(text) < 9 else 64
        return responses.json(await self._runs.history(principal.tenant, requested, limit))

    async def change_history(self, request: Request) -> Response:
        principal = await self._doors.enter(request)
        body = await bodies.parse(bodies.parse_object, await request.body())
        await self._runs.forget(principal.tenant, _ids(body), everything=body.get("clear") is True)
        return Response()

    async def interrupt(self, request: Request) -> Response:
        """Cancel the running prompt, or the one with this id."""
        principal = await self._doors.enter(request)
        raw = await request.body()
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        await self._runs.interrupt(principal.tenant, str(body.get("prompt_id") or ""))
        return Response()

    async def free(self, request: Request) -> Response:
        """Clear the account's node output cache if requested."""
        principal = await self._doors.enter(request)
        raw = await request.body()
        body = await bodies.parse(bodies.parse_object, raw) if raw.strip() else {}
        # All credentials of an account share the cache.
        if body.get("free_memory") is True and not principal.credential_id:
            await self._services.workflows.output_cache(principal.tenant).clear()
        return Response()

    async def object_info(self, request: Request) -> Response:
        """Return the schemas of all node classes, or of the one in the path."""
        await self._doors.enter(request)
        requested = request.scope["path_params"].get("class_type")
        await self._services.workflows.load()
        classes = self._services.workflows.classes
        if self._classes is None or self._classes[0] is not classes:
            offered = {**_EXAMPLES, **{folder: self._files_of(folder) for folder in _FOLDERS}}
            self._classes = classes, *await asyncio.to_thread(_written, classes, offered)
        _, registry, document = self._classes
        if requested is None:
            return Response(document, media_type="application/json")
        return responses.json({requested: registry[requested]} if requested in registry else {})

    async def models(self, request: Request) -> Response:
        """Return the model folders, or the known files of one."""
        await self._doors.enter(request)
        folder = request.scope["path_params"].get("folder")
        if folder is None:
            return responses.json(list(_FOLDERS))
        if folder not in _FOLDERS:
            # People open this path to find a model of the catalog.
            message = f"Model folder {folder[:100]} not found: /models lists the folders"
            raise errors.NotFound(f"{message}, and /catalog lists the models of this server")
        return responses.json(self._files_of(folder))

    def _files_of(self, folder: str) -> list[str]:
        """Return the model files of a folder that the built-in workflows name; any engine replaces them."""
        kind = KINDS.get(folder)
        spaces = self._services.workflows.spaces.values()
        return sorted({str(row["file"]) for space in spaces for row in space.models if row["kind"] == kind})

    async def embeddings(self, request: Request) -> Response:
        """Return an empty list, because embeddings are not supported."""
        await self._doors.enter(request)
        return responses.json([])

    async def stats(self, request: Request) -> Response:
        """Return the versions and the memory; as in ComfyUI, a CPU's memory is that of the machine."""
        await self._doors.enter(request)
        total, free = (os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") for name in _PAGES)
        system: dict[str, Any] = {
            "os": platform.system().lower(),
            "comfyui_version": VERSION,
            "sixfold_version": __version__,
            "python_version": platform.python_version(),
            "pytorch_version": "",
            "embedded_python": False,
            "argv": [],
            "ram_total": total,
            "ram_free": free,
        }
        memory = {"vram_total": total, "vram_free": free, "torch_vram_total": total, "torch_vram_free": free}
        device = {"name": "cpu", "type": "cpu", "index": 0, **memory}
        return responses.json({"system": system, "devices": [device]})

    async def features(self, request: Request) -> Response:
        await self._doors.enter(request)
        return responses.json(self.flags)

    @property
    def flags(self) -> dict[str, Any]:
        return {
            "supports_preview_metadata": False,
            "max_upload_size": self._services.settings.upload_body_bytes,
        }

    # -- the websocket ---------------------------------------------------------------------------

    async def converse(self, websocket: WebSocket) -> None:
        """Send a client the events of its prompts until it disconnects."""
        await websocket.accept()
        try:
            principal = await self._doors.enter(websocket)
            self._services.admission.websockets.hold(websocket.scope, principal.account_id)
        except errors.TooManyRequests as error:
            await websocket.close(TRY_AGAIN_LATER, error.code)
            return
        except errors.SixfoldError:
            await websocket.close(UNAUTHORIZED, "unauthorised")
            return
        remaining = await self._runs.remaining(principal.tenant)
        socket = ComfySocket(websocket, self._services.workflows.hub, self.flags)
        try:
            with self._services.connections.during(current()):
                await socket.serve(principal.tenant, remaining)
        except CredentialEnded:
            await websocket.close(UNAUTHORIZED, "revoked")


def _without_nul(raw: bytes) -> bytes:
    """Replace NUL by U+FFFD in JSON strings, because PostgreSQL cannot search documents with NUL."""
    return _NUL.sub(rb"\1\\ufffd", raw) if rb"\u0000" in raw else raw


def _parse_prompt(raw: bytes) -> dict[str, Any]:
    return bodies.parse_object(_without_nul(raw), json_limits.GRAPH)


def _ids(body: Mapping[str, Any]) -> list[str]:
    return [str(prompt_id) for prompt_id in as_list(body.get("delete"))]


def build_api(services: WebServices) -> ApiGroup:
    """Return every route, at the root and under `/api`."""
    doors = ComfyAuth(services)
    comfy, files = ComfyRoutes(services, doors), ComfyFileRoutes(services, doors.enter)
    small = services.settings.json_body_bytes
    uploads = services.settings.upload_body_bytes
    history: dict[str, Handler] = {"GET": comfy.history}
    rows: tuple[tuple[str, dict[str, Handler], int], ...] = (
        ("/prompt", {"GET": comfy.remaining, "POST": comfy.prompt}, small),
        ("/queue", {"GET": comfy.queue, "POST": comfy.change_queue}, small),
        ("/history", {**history, "POST": comfy.change_history}, small),
        ("/history/{prompt_id}", history, 0),
        ("/interrupt", {"POST": comfy.interrupt}, small),
        ("/free", {"POST": comfy.free}, small),
        ("/view", {"GET": files.view, "HEAD": files.view}, 0),
        ("/upload/image", {"POST": files.upload}, uploads),
        ("/upload/mask", {"POST": files.upload_mask}, uploads),
        ("/object_info", {"GET": comfy.object_info}, 0),
        ("/object_info/{class_type}", {"GET": comfy.object_info}, 0),
        ("/models", {"GET": comfy.models}, 0),
        ("/models/{folder}", {"GET": comfy.models}, 0),
        ("/embeddings", {"GET": comfy.embeddings}, 0),
        ("/system_stats", {"GET": comfy.stats}, 0),
        ("/features", {"GET": comfy.features}, 0),
    )
    routes = tuple(
        RouteEntry(base + path, handlers, size, access=rights.RUN)
        for base in ("", "/api")
        for path, handlers, size in rows
    )
    sockets = tuple(
        SocketRoute(path, comfy.converse, services.trusted_hosts.trusts, access=rights.RUN)
        for path in ("/ws", "/api/ws")
    )
    return ApiGroup("comfyui", dialect, routes, sockets=sockets)


def _written(classes: Registry, offered: Mapping[str, Sequence[str]]) -> tuple[Mapping[str, Any], bytes]:
    """Encode each class's schema one by one, so that other threads can run, and all of them together."""
    known = {
        name: msgspec.Raw(responses.encode(each))
        for name, each in workflows_object_info.write(classes, offered).items()
    }
    return known, responses.encode(known)
