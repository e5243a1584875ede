"""Measure a trivial model behind three servers with two workers each; Sixfold also charges each call.

.venv/bin/python -m bench queues; SIXFOLD_BENCH_PEER=1 also installs and measures Gradio's queue and Ray
Serve, each in its own environment. One client measures all of them over HTTP with 16 concurrent calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from bench.reporting import Row, calibration, of_samples

TITLE = "The queue compared with others"
CALLS, AT_ONCE, WARM = 400, 16, 20
_START_SECONDS = 120
Call = Callable[[aiohttp.ClientSession, str, int], Awaitable[None]]
Peer = tuple[str, str, str, str, Call]

_ECHO = '''from sixfold import model

@model
def echo(text: str) -> str:
    """Return the input."""
    return text
'''
_GRADIO = """import sys
import gradio as gr
app = gr.Interface(lambda text: text, "text", "text", api_name="predict")
app.queue(default_concurrency_limit=2, max_size=None).launch(server_port=int(sys.argv[1]), quiet=True)
"""
_SERVE = """import sys, time
from ray import serve
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.5})
class Echo:
    async def __call__(self, request):
        return (await request.json())["text"]
serve.run(Echo.bind())
while True:
    time.sleep(60)
"""


def _free() -> int:
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return result.getsockname()[1]


@asynccontextmanager
async def _running(command: list[str], port: int, path: str, **environ: str) -> AsyncIterator[str]:
    """Run a server in a separate process; return its address when it responds."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as client:
            await _until(client, address + path)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):  # the process has already ended
            process.terminate()
        await process.wait()


async def _until(client: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while not await _answers(client, url):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.2)


async def _answers(client: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with client.get(url) as answer:
            return answer.status < 400
    except aiohttp.ClientError:
        return False


async def _figures(name: str, address: str, call: Call, headers: dict[str, str] | None = None) -> list[Row]:
    """Measure `CALLS` calls, `AT_ONCE` at a time, after a warm-up."""
    durations: list[float] = []
    numbers = itertools.count()

    async def caller(client: aiohttp.ClientSession, calls: int, into: list[float]) -> None:
        for _ in range(calls):
            began = time.perf_counter()
            await call(client, address, next(numbers))
            into.append(time.perf_counter() - began)

    async with aiohttp.ClientSession(headers=headers) as client:
        await caller(client, WARM, [])
        began = time.perf_counter()
        await asyncio.gather(*(caller(client, CALLS // AT_ONCE, durations) for _ in range(AT_ONCE)))
        wall = time.perf_counter() - began
    note = "" if name == "Sixfold" else "without storage or charges"
    return [
        Row(f"{name}: jobs", len(durations) / wall, "per s", note=note),
        of_samples(f"{name}: one of {AT_ONCE}", durations, "ms"),
    ]


async def _ask(client: aiohttp.ClientSession, address: str, number: int) -> None:
    body = {"model": "echo", "input": {"text": f"{number}"}}
    async with client.post(f"{address}/api/containers/run", json=body) as answer:
        if (await answer.json()).get("output") != f"{number}":
            raise SystemExit(f"Sixfold answered {await answer.text()}")


async def _ask_gradio(client: aiohttp.ClientSession, address: str, number: int) -> None:
    place = f"{address}/gradio_api/call/predict"
    async with client.post(place, json={"data": [f"{number}"]}) as answer:
        event = (await answer.json())["event_id"]
    async with client.get(f"{place}/{event}") as answer:
        if f'["{number}"]' not in await answer.text():
            raise SystemExit("Gradio answered something else")


async def _ask_serve(client: aiohttp.ClientSession, address: str, number: int) -> None:
    async with client.post(address, json={"text": f"{number}"}) as answer:
        if await answer.text() != f"{number}":
            raise SystemExit("Ray Serve answered something else")


# The peer's name, package, program, readiness path, and function that sends a request.
PEERS: tuple[Peer, ...] = (
    ("Gradio's queue", "gradio", _GRADIO, "/", _ask_gradio),
    ("Ray Serve", "ray[serve]", _SERVE, "/-/routes", _ask_serve),
)


async def _ours(folder: Path) -> list[Row]:
    (folder / "data" / "models").mkdir(parents=True)
    (folder / "data" / "models" / "echo.py").write_text(_ECHO)
    port = _free()
    command = [sys.executable, "-m", "sixfold.cli.main", "serve", "--port", str(port), "--workers", "2"]
    command += ["--data-dir", str(folder / "data")]
    async with _running(command, port, "/readyz", SIXFOLD_SANDBOX="off", SIXFOLD_PROBE="0") as address:
        key = (folder / "data" / "local.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers) as client:  # a new file is live within two seconds
            await _until(client, f"{address}/api/containers/templates/echo")
        return await _figures("Sixfold", address, _ask, headers)


def _install(folder: Path, package: str) -> bool:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", package]
    return subprocess.run(command, check=False).returncode == 0


async def _theirs(folder: Path, peer: Peer) -> list[Row]:
    """Measure a peer in a separate environment; return a row with the reason if it cannot be installed."""
    name, package, script, path, call = peer
    python = str(folder / name / "bin" / "python")
    if not await asyncio.to_thread(_install, folder / name, package):
        return [Row(f"{name}: skipped", 0, "", note=f"{package} could not be installed")]
    (folder / f"{name}.py").write_text(script)
    port = _free()
    try:
        async with _running([python, str(folder / f"{name}.py"), str(port)], port, path) as address:
            return await _figures(name, address, call)
    except TimeoutError:
        return [Row(f"{name}: skipped", 0, "", note=f"it did not answer within {_START_SECONDS} s")]


async def _measure(folder: Path) -> list[Row]:
    result = await _ours(folder)
    if os.environ.get("SIXFOLD_BENCH_PEER"):
        for peer in PEERS:
            result += await _theirs(folder, peer)
    return result


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return [*calibration(), *asyncio.run(_measure(Path(folder)))]
