"""Measure Sixfold's overhead over a ComfyUI server: the same prompt sent directly and through each layer.

The ComfyUI server is the fake of the tests, in a separate process. It returns an image of 512 x 512 within a
few milliseconds; the rows differ only by Sixfold's overhead. The variants are measured alternately. Each
request has a new seed, which prevents caching.

.venv/bin/python -m bench comfyui
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
from msgspec.structs import replace
from websockets.asyncio.client import connect

from bench.reporting import Row, calibration, of_samples
from sixfold import settings
from sixfold.app import catalog as app_catalog
from sixfold.clients.comfyui.server import ComfyServer
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Task
from sixfold.engines.host_services import HostServices
from sixfold.engines.providers.comfyui import capabilities as comfyui_capabilities
from sixfold.engines.providers.comfyui import image_graphs
from sixfold.engines.providers.comfyui.capabilities import InstalledModels
from sixfold.engines.providers.comfyui.engine import ComfyEngine
from sixfold.engines.providers.comfyui.image_graphs import GraphBuilder, ImageSpec
from tests.api.app_fixture import AppFixture, running_app

TITLE = "ComfyUI directly and through Sixfold"
ROUNDS, PROBES = 40, 20
KNOWN, FOREIGN = "ComfyUI directly", "a graph with a custom node, ComfyUI directly"
STRAIGHT = (KNOWN, FOREIGN)
SIDE = 512
One = Callable[[int], Awaitable[None]]


class _Outside:
    """Client services without a proxy or keys."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    def key(self, name: str) -> str:
        return name[:0]

    async def download(self, url: str, target: Path, *, max_bytes: int) -> str:
        raise NotImplementedError(f"{url} {target} {max_bytes}")


class _Context:
    """Run context that ignores progress and logs."""

    scratch = Path()

    def progress(self, fraction: float) -> None:
        assert 0 <= fraction <= 1

    def log(self, line: str) -> None:
        assert line


def _plan(stock: InstalledModels, seed: int) -> GraphBuilder:
    return image_graphs.text_to_image(stock, ImageSpec("a lake", "", SIDE, SIDE, seed))


def _foreign(stock: InstalledModels, seed: int) -> GraphBuilder:
    """Return the same graph with a class that only ComfyUI has."""
    plan = _plan(stock, seed)
    nodes = {name: dict(node) for name, node in plan.nodes.items()}
    inputs = nodes[plan.output]["inputs"]
    nodes["tint"] = {"class_type": "CustomTint", "inputs": {"image": inputs["images"], "strength": 0.5}}
    nodes[plan.output] = {**nodes[plan.output], "inputs": {**inputs, "images": ["tint", 0]}}
    return replace(plan, nodes=nodes)


def _run_forwarded(app: AppFixture, stock: InstalledModels) -> One:
    """Return a function that runs a graph which Sixfold forwards to ComfyUI, and waits for its result."""

    async def one(seed: int) -> None:
        graph = _foreign(stock, seed).nodes
        hub, me = app.server.workflows.hub, uuid.uuid4().hex
        with hub.open(Tenant(app.account.id), me) as heard:
            body = {"prompt": graph, "client_id": me}
            sent = await app.client.post("/prompt", json=body, headers=app.bearer)
            assert sent.status_code == 200, sent.text
            output: Mapping[str, Any] = {}
            text: Any = {}
            while text.get("type") != "execution_success":
                message = await heard.next()
                text = {} if isinstance(message, bytes) else json.loads(message)
                assert text.get("type") != "execution_error", text
                if text.get("type") == "executed":
                    output = text["data"]["output"]
        picture = await app.client.get("/view", params=output["images"][0], headers=app.bearer)
        assert picture.content.startswith(b"\x89PNG")

    return one


async def _run_direct(client: httpx.AsyncClient, url: str, plan: GraphBuilder) -> None:
    """Run a prompt as a direct client does: open a socket, send the prompt, wait and read the image."""
    me = uuid.uuid4().hex
    async with connect(
        f"{url.replace('http', 'ws')}/ws?clientId={me}", proxy=None, compression=None
    ) as socket:
        sent = await client.post(f"{url}/prompt", json={"prompt": plan.nodes, "client_id": me})
        mine = sent.json()["prompt_id"]
        output: Mapping[str, Any] = {}
        async for text in socket:
            message = json.loads(text)
            if message["type"] == "executed":
                output = message["data"]["output"]
            if message["type"] == "execution_success" and message["data"]["prompt_id"] == mine:
                break
        socket.transport.abort()
    picture = await client.get(f"{url}/view", params=output["images"][0])
    assert picture.content.startswith(b"\x89PNG")


def _by_engine(client: httpx.AsyncClient, url: str, format_: str) -> One:
    engine = ComfyEngine(cast("HostServices", _Outside(client)), url=url)

    async def one(seed: int) -> None:
        inputs = {"prompt": "a lake", "width": SIDE, "height": SIDE, "seed": seed, "format": format_}
        result = await engine.run(Task("t", "ra2", inputs), _Context())
        assert len(result.artifacts) == 1

    return one


def _by_pipeline(app: AppFixture) -> One:
    async def one(seed: int) -> None:
        inputs = {"prompt": "a lake", "width": SIDE, "height": SIDE, "seed": seed}
        body = {"model": "ra2", "input": inputs}
        answer = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
        assert answer.json()["status"] == "succeeded", answer.text

    return one


async def _measure(url: str, folder: Path) -> list[Row]:
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        running_app(folder, app_catalog.models_document(), comfyui_url=url) as app,
    ):
        stock = await comfyui_capabilities.read(ComfyServer(client, url))
        ways: dict[str, One] = {
            KNOWN: lambda seed: _run_direct(client, url, _plan(stock, seed)),
            "through the engine, PNG": _by_engine(client, url, "png"),
            "through the engine, re-encoded as WebP": _by_engine(client, url, "webp"),
            "through the whole pipeline": _by_pipeline(app),
            FOREIGN: lambda seed: _run_direct(client, url, _foreign(stock, seed)),
            "a graph with a custom node, through the whole pipeline": _run_forwarded(app, stock),
        }
        samples: dict[str, list[float]] = {name: [] for name in ways}
        seeds = itertools.count(1)
        for turn in range(ROUNDS + 2):  # the first two turns read the server's models, and warm up
            for name, one in ways.items():
                began = time.perf_counter()
                await one(next(seeds))
                if turn > 1:
                    samples[name].append(time.perf_counter() - began)
        probes: list[float] = []
        for _ in range(PROBES):
            began = time.perf_counter()
            await comfyui_capabilities.probe(client, url)
            probes.append(time.perf_counter() - began)
    rows: list[Row] = []
    straight = 0.0
    for name, durations in samples.items():
        middle = statistics.median(durations)
        straight = middle if name in STRAIGHT else straight
        rows.append(of_samples(name, durations, "ms", _note(middle - straight)))
    return [*rows, of_samples("discovery of its models (probe)", probes, "ms")]


def _note(added: float) -> str:
    return f"{added * 1e3:+.1f} ms" if added else ""


async def _bench() -> list[Row]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.fakes.comfyui",
        "sd_turbo.safetensors",
        stdout=asyncio.subprocess.PIPE,
        env=settings.worker_environment(),
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            return await _measure(url, Path(folder))
    finally:
        process.kill()
        await process.wait()


def rows() -> list[Row]:
    return calibration() + asyncio.run(_bench())
