"""Loopback servers for the protocols of providers, with configurable faults."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import wave
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from tests.harness import image_files
from tests.harness.embedded_server import EmbeddedServer

Fault = Callable[[Request], Awaitable[Response | None]]


@dataclass(frozen=True)
class ReceivedRequest:
    """Received request."""

    step: str
    path: str
    headers: Mapping[str, str]
    document: Any


@dataclass
class Faults:
    """Faults of each step of a protocol, in order; a step without faults succeeds."""

    by_step: dict[str, list[Fault]] = field(default_factory=dict[str, list[Fault]])
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    request_events: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    def add(self, step: str, *faults: Fault) -> None:
        self.by_step.setdefault(step, []).extend(faults)

    def event(self, step: str) -> asyncio.Event:
        """Return an event that is set when a request for the step has arrived."""
        return self.request_events.setdefault(step, asyncio.Event())

    async def take(self, step: str, request: Request, document: Any = None) -> Response | None:
        """Return the response of a fault, or None if the step should succeed."""
        self.requests.append(ReceivedRequest(step, request.url.path, dict(request.headers), document))
        self.event(step).set()
        faults = self.by_step.get(step, [])
        return await faults.pop(0)(request) if faults else None

    def steps(self, step: str) -> list[ReceivedRequest]:
        return [request for request in self.requests if request.step == step]


def answer(status: int, document: Any, headers: Mapping[str, str] | None = None) -> Fault:
    """Return a fault that sends this response."""

    async def fault(_request: Request) -> Response:
        return JSONResponse(document, status, headers=headers)

    return fault


def raw(content: bytes, content_type: str = "application/json", status: int = 200) -> Fault:
    async def fault(_request: Request) -> Response:
        return Response(content, status, media_type=content_type)

    return fault


async def succeed(_request: Request) -> None:
    """Succeed this time."""


async def hang(_request: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


async def trickle(_request: Request) -> Response:
    """Start a response and never finish it."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"status": '
        await asyncio.Event().wait()

    return StreamingResponse(pieces(), media_type="application/json")


def cut_short(document: Any) -> Fault:
    """Return a fault that sends half a JSON document with a matching length."""
    text = json.dumps(document).encode()
    return raw(text[: len(text) // 2])


def image(width: int, height: int, *, seed: int = 0, format_: str = "PNG", alpha: bool = False) -> bytes:
    """Return a valid image of exactly this size, different for each seed."""
    across = np.linspace(0, 255, width, dtype=np.float32)[None, :] + np.zeros((height, 1), np.float32)
    down = np.linspace(0, 255, height, dtype=np.float32)[:, None] + np.zeros((1, width), np.float32)
    third = np.full((height, width), seed * 37 % 256, np.float32)
    channels = [across, down, third]
    if alpha:
        channels.append(np.where(down > 127, 255, 0).astype(np.float32))
    return image_files.encode(Image.fromarray(np.dstack(channels).astype(np.uint8)), format_)


@asynccontextmanager
async def serve(
    routes: Sequence[BaseRoute], port: int = 0, host: str = "127.0.0.1"
) -> AsyncGenerator[int, None]:
    # Named as TCP, asyncio turns Nagle's delay off; without the name each answer waits 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(64)
        config = uvicorn.Config(
            Starlette(routes=routes), log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=0
        )
        server = EmbeddedServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await serving


def video(rate: int, frames: int = 8, size: tuple[int, int] = (64, 48), *, sound: bool = False) -> bytes:
    """Return a small MP4 that grows brighter over its first frames; its audio is a tone."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate, options={"preset": "ultrafast"})
        voice = container.add_stream("aac", rate=48_000) if sound else None
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for index in range(frames):
            pixels = np.full((size[1], size[0], 3), min(255, 20 * index), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
        if voice is not None:
            tone = np.sin(np.arange(round(frames / rate * 48_000)) * (440 * 2 * np.pi / 48_000))
            wave = av.AudioFrame.from_ndarray(tone.astype(np.float32)[None], format="flt", layout="mono")
            wave.sample_rate = 48_000
            container.mux(voice.encode(wave))
            container.mux(voice.encode(None))
    return file.getvalue()


def tone(seconds: float, rate: int = 24_000) -> bytes:
    """Return a WAV file of one tone."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        samples = 12_000 * np.sin(np.arange(round(seconds * rate)) * 2 * np.pi * 220 / rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return out.getvalue()
