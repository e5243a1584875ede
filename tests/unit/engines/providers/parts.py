"""Helpers for provider tests: the services of the server, tasks, images and a recording context."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sixfold.core.catalog.engines import Artifact, Canceled, Task
from sixfold.drivers.remote import ServerServices
from sixfold.net.addresses import AllowList
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from tests.fakes import fal, fault_server, openai, replicate
from tests.harness import image_files

KEYS = {"fal_key": fal.KEY, "replicate_api_token": replicate.KEY, "openai_api_key": openai.KEY}
# Quick enough for tests, with every rule in force.
LIMITS: Mapping[str, Any] = {
    "call_seconds": 2.0,
    "whole_seconds": 10.0,
    "pause_seconds": 0.01,
    "waiting_seconds": 2.0,
    "poll_seconds": 0.01,
    "longest_poll_seconds": 0.05,
    "grace_seconds": 2.0,
}


@dataclass
class Record:
    """A context that records progress and log lines; `wanted` is false for a canceled run."""

    scratch: Path
    fractions: list[float] = field(default_factory=list[float])
    lines: list[str] = field(default_factory=list[str])
    wanted: bool = True
    start_event: asyncio.Event = field(default_factory=asyncio.Event)

    def progress(self, fraction: float) -> None:
        self.fractions.append(fraction)
        if fraction > 0.1:
            self.start_event.set()
        if not self.wanted:
            raise Canceled

    def log(self, line: str) -> None:
        self.lines.append(line)


@asynccontextmanager
async def server_services(
    keys: Mapping[str, str] = KEYS, allow: str = "127.0.0.1"
) -> AsyncGenerator[ServerServices]:
    """Yield the services of the server; files may be downloaded from loopback."""
    clients = HttpClients(Fetcher(AllowList.parse(allow)))
    try:
        yield ServerServices(clients, lambda name: keys.get(name, ""))
    finally:
        await clients.aclose()


def task(model: str = "ra2", files: Mapping[str, Path] | None = None, **inputs: Any) -> Task:
    return Task("job_1", model, inputs, files or {})


def drawing(**inputs: Any) -> Task:
    return task(
        **{"prompt": "a lighthouse", "width": 640, "height": 512, "seed": 7, "format": "png", **inputs}
    )


def source(folder: Path, width: int = 300, height: int = 200, **options: Any) -> Path:
    path = folder / "source.png"
    path.write_bytes(fault_server.image(width, height, **options))
    return path


def masked(folder: Path, content: bytes) -> dict[str, Path]:
    """Return an image file and a mask of the pixels 620 to 660 across and 300 to 340 down."""
    files = {"image": folder / "image.png", "mask": folder / "mask.png"}
    files["image"].write_bytes(content)
    with Image.open(files["image"]) as image:
        mask = Image.new("L", image.size)
    mask.paste(255, (620, 300, 660, 340))
    mask.save(files["mask"])
    return files


def decoded_image(artifact: Artifact) -> Image.Image:
    image = Image.open(artifact.path or io.BytesIO(artifact.data))
    image.load()
    return image


def data_uri(content: bytes) -> str:
    return image_files.data_uri(content)


def noise(width: int, height: int) -> bytes:
    """Return a PNG of random pixels, which does not compress."""
    pixels = np.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return image_files.encode(Image.fromarray(pixels))
