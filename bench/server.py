"""Measure a whole server: its start, its memory at rest, and the cost of a request.

.venv/bin/python -m bench server
"""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.reporting import Row, calibration, of_samples
from tests.e2e import servers

TITLE = "The server"
STARTS, REQUESTS = 5, 2_000


def _pss(pid: int) -> float:
    """Return the proportional memory of a process in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _cpu(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _requests(port: int, method: str, path: str, body: Any, headers: dict[str, str]) -> Callable[[], None]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    data = json.dumps(body) if body is not None else None

    def one() -> None:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status < 400, answer.status

    return one


def _cost(server: servers.Server, name: str, one: Callable[[], None], count: int) -> list[Row]:
    one()
    before, samples = _cpu(server.process.pid), list[float]()
    for _ in range(count):
        began = time.perf_counter()
        one()
        samples.append(time.perf_counter() - began)
    spent = (_cpu(server.process.pid) - before) / count * 1e6
    return [of_samples(name, samples, "ms"), Row(f"{name}: server CPU", spent, "µs")]


async def _measure(folder: Path) -> list[Row]:
    async with servers.serving(folder / "data") as server:
        await server.terminate()
        starts: list[float] = []
        for _ in range(STARTS):
            began = time.perf_counter()
            await server.restart()
            await server.call("GET", "/livez")
            starts.append(time.perf_counter() - began)
            await server.terminate()
        await server.restart()
        await server.call("GET", "/livez")
        results = [
            of_samples("process start to first response, after the first start", starts, "s", "aim 1.2"),
            Row("memory at rest (PSS)", _pss(server.process.pid), "MB", note="aim 120"),
        ]
        key = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        order = {"api_key": server.key, "prompt": "a calm sea at dawn", "seed": 1}
        calls = (
            ("GET /livez", _requests(server.port, "GET", "/livez", None, {}), REQUESTS),
            ("GET /api/account", _requests(server.port, "GET", "/api/account", None, key), REQUESTS),
            ("POST /api/ra1, 1024 x 1024", _requests(server.port, "POST", "/api/ra1", order, key), 20),
        )
        for name, one, count in calls:
            results += await asyncio.to_thread(_cost, server, name, one, count)
        return results


def _help() -> Row:
    samples: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "sixfold.cli.main", "--help"], check=True, capture_output=True)
        samples.append(time.perf_counter() - began)
    return of_samples("sixfold --help", samples, "ms", "aim 100")


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return [*calibration(), _help(), *asyncio.run(_measure(Path(folder)))]
