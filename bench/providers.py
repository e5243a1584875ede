"""Measure Sixfold's overhead over a provider: the same image requested directly and through each layer.

The providers are fakes of the tests, each in a separate process. They return a stored image of 1024 x 1024
within two milliseconds; the rows differ only by Sixfold's overhead. The variants are measured alternately.

.venv/bin/python -m bench providers
"""

from __future__ import annotations

import asyncio
import base64
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from bench.reporting import Row, calibration, of_samples
from sixfold.core.workers.remote_engines import RemoteEngine
from sixfold.engines.providers.fal import FalEngine
from sixfold.engines.providers.openai import OpenAIEngine
from tests.api import test_providers
from tests.api.app_fixture import AppFixture
from tests.fakes import fal, fault_server, openai
from tests.unit.engines.providers import parts

TITLE = "In front of a provider"
ROUNDS = 40
SIDE = 1024
One = Callable[[], Awaitable[None]]


def _serve(name: str, pipe: Connection) -> None:
    """Serve one fake provider until its process ends."""

    async def run() -> None:
        ready = fault_server.image(SIDE, SIDE)
        if name == "fal":
            running = fal.running(fal.Fal(polls_until_done=1, file=(ready, "image/png")))
        else:
            running = openai.running(openai.OpenAI(file=ready))
        async with running as fake:
            pipe.send(fake.url)
            await asyncio.Event().wait()

    asyncio.run(run())


def _call_openai(client: httpx.AsyncClient, url: str) -> One:
    body = {"model": "gpt-image-2.5-flare", "prompt": "a lake", "size": f"{SIDE}x{SIDE}"}

    async def one() -> None:
        headers = {"Authorization": f"Bearer {openai.KEY}"}
        answer = await client.post(f"{url}/images/generations", headers=headers, json=body)
        assert base64.b64decode(answer.json()["data"][0]["b64_json"])

    return one


def _call_fal(client: httpx.AsyncClient, url: str) -> One:
    headers = {"Authorization": f"Key {fal.KEY}"}
    body = {"prompt": "a lake", "image_size": {"width": SIDE, "height": SIDE}}

    async def one() -> None:
        sent = await client.post(f"{url}/fal-ai/flux/dev", headers=headers, json=body)
        ticket: Any = sent.json()
        looked = await client.get(ticket["status_url"], headers=headers)
        assert looked.json()["status"] == "COMPLETED"
        response = await client.get(ticket["response_url"], headers=headers)
        picture = await client.get(response.json()["images"][0]["url"])
        assert picture.content.startswith(b"\x89PNG")

    return one


def _by_engine(engine: RemoteEngine, folder: Path, format_: str) -> One:
    async def one() -> None:
        task = parts.drawing(width=SIDE, height=SIDE, format=format_)
        result = await engine.run(task, parts.Record(folder))
        assert len(result.artifacts) == 1

    return one


def _by_pipeline(app: AppFixture) -> One:
    async def one() -> None:
        body = {"api_key": app.key, "prompt": "a lake", "size": f"{SIDE}x{SIDE}"}
        answer = await app.client.post("/api/ra1", json=body)
        assert answer.status_code == 200, answer.text

    return one


async def _measure_ways(ways: dict[str, One]) -> list[Row]:
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 2):  # the first two rounds warm up
        for name, one in ways.items():
            began = time.perf_counter()
            await one()
            if turn > 1:
                samples[name].append(time.perf_counter() - began)
    straight = statistics.median(next(iter(samples.values())))
    return [
        of_samples(
            name,
            durations,
            "ms",
            f"{(statistics.median(durations) - straight) * 1e3:+.1f} ms" if index else "",
        )
        for index, (name, durations) in enumerate(samples.items())
    ]


async def _measure(urls: dict[str, str], folder: Path) -> list[Row]:
    fal_home = test_providers.running_server(
        folder / "fal", test_providers.catalog_with(fal=urls["fal"]), fal_key=fal.KEY
    )
    openai_home = test_providers.running_server(
        folder / "openai", test_providers.catalog_with(openai=urls["openai"]), openai_api_key=openai.KEY
    )
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        parts.server_services() as outside,
        fal_home as with_fal,
        openai_home as with_openai,
    ):
        by_openai = OpenAIEngine(outside, route="image", base_url=urls["openai"])
        by_fal = FalEngine(outside, route="image", base_url=urls["fal"])
        straight = _call_openai(client, urls["openai"]), _call_fal(client, urls["fal"])
        return [
            *await _measure_ways(
                _ways("OpenAI", straight[0], by_openai, folder) | _pipeline_row("OpenAI", with_openai)
            ),
            *await _measure_ways(_ways("fal", straight[1], by_fal, folder) | _pipeline_row("fal", with_fal)),
        ]


def _ways(title: str, straight: One, engine: RemoteEngine, folder: Path) -> dict[str, One]:
    return {
        f"straight to {title}": straight,
        f"{title} through the engine, PNG": _by_engine(engine, folder, "png"),
        f"{title} through the engine, re-encoded as WebP": _by_engine(engine, folder, "webp"),
    }


def _pipeline_row(title: str, app: AppFixture) -> dict[str, One]:
    return {f"{title} through the whole pipeline": _by_pipeline(app)}


async def _bench() -> list[Row]:
    context = multiprocessing.get_context("spawn")
    urls: dict[str, str] = {}
    fakes = []
    for name in ("openai", "fal"):
        ours, theirs = context.Pipe()
        fake = context.Process(target=_serve, args=(name, theirs), daemon=True)
        fake.start()
        fakes.append(fake)
        urls[name] = await asyncio.to_thread(ours.recv)
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            return await _measure(urls, Path(folder))
    finally:
        for fake in fakes:
            fake.terminate()


def rows() -> list[Row]:
    return calibration() + asyncio.run(_bench())
