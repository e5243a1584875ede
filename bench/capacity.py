"""Measure the cost of a job, a call and a search on a server, and waiting times at three loads.

.venv/bin/python -m bench capacity --write writes the tables to `docs/reference/capacity.md`.

Each operation is requested over HTTP from a real server, on SQLite and then on PostgreSQL. The fsyncs of a
server on SQLite are counted by strace, if it is installed, and those of PostgreSQL by PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import asyncpg
import uvloop

from bench import gateway
from bench.queues import _ECHO
from bench.reporting import Row, calibration
from sixfold.drivers.process import ProcessDriver
from tests.harness import postgres
from tests.harness.pipeline import Options, running_pipeline

TITLE = "Measured units"
PAGE = Path("docs/reference/capacity.md")
AT_ONCE, CALLS, PAGES = 16, 1_600, 500
# The queueing model: workers, seconds of a run, and shares of their time.
WORKERS, RUN_SECONDS, LOADS, ARRIVALS = 2, 0.04, (0.4, 0.6, 0.75), 600
_WORDS = (
    "river",
    "copper",
    "lantern",
    "meadow",
    "harbor",
    "violin",
    "granite",
    "orchid",
    "compass",
    "thunder",
)
_ENVIRON = {
    "SIXFOLD_PROBE": "0",
    "SIXFOLD_LOG_LEVEL": "warning",
    "SIXFOLD_SANDBOX": "off",
    "SIXFOLD_REQUESTS_PER_SECOND_PER_ACCOUNT": "1000000",
}
Call = Callable[[int], Awaitable[None]]


class Totals(NamedTuple):
    """Resource use since the start: CPU in seconds, bytes and counts."""

    server: float
    workers: float
    database: float
    wal_bytes: float
    kept_bytes: float
    fsyncs: float


@dataclass
class Product:
    """A server with its key; `postmaster` and `url` are those of PostgreSQL, if it uses it."""

    pid: int
    port: int
    key: str
    data: Path
    trace: Path | None
    postmaster: int | None = None
    url: str = ""
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def totals(self) -> Totals:
        """Return the resources that the server and the database have used."""
        workers = sum(map(gateway.process_cpu, _descendants(self.pid)))
        server = gateway.process_cpu(self.pid)
        if self.postmaster is None:
            syncs = len(self.trace.read_text().splitlines()) if self.trace is not None else math.nan
            stored_bytes = sum(each.stat().st_size for each in self.data.glob("sixfold.db"))
            return Totals(server, workers, 0, math.nan, stored_bytes, syncs)
        database = sum(map(gateway.process_cpu, _descendants(self.postmaster)))
        # A session reports its share of pg_stat_wal at the latest when it has been idle for ten seconds.
        await asyncio.sleep(11)
        connection: Any = await asyncpg.connect(self.url)
        wal = await connection.fetchrow("SELECT * FROM pg_stat_wal")
        syncs = wal.get("wal_sync")
        if syncs is None:  # PostgreSQL 18 moved the count to pg_stat_io
            syncs = await connection.fetchval("SELECT SUM(fsyncs) FROM pg_stat_io WHERE object = 'wal'")
        stored_bytes = await connection.fetchval("SELECT pg_database_size(current_database())")
        await connection.close()
        return Totals(server, workers, database, float(wal["wal_bytes"]), stored_bytes, float(syncs))


def _descendants(pid: int) -> list[int]:
    own = list[str]()
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        # The thread has ended.
        with contextlib.suppress(FileNotFoundError):
            own += thread.read_text().split()
    return [each for child in map(int, own) for each in (child, *_descendants(child))]


@asynccontextmanager
async def _product(folder: Path, models: int, url: str, postmaster: int | None) -> AsyncIterator[Product]:
    """Run a server with a model that returns its input and with a model server."""
    data, environ = folder / "data", dict(_ENVIRON)
    data.mkdir(parents=True)
    (data / "sixfold.toml").write_text(gateway._CONFIG.format(models=models))
    (data / "models").mkdir(exist_ok=True)
    (data / "models" / "echo.py").write_text(_ECHO)
    environ["SIXFOLD_DATA_DIR"] = str(data)
    if url:
        environ["SIXFOLD_DATABASE_URL"] = url
    command = [sys.executable, "-m", "sixfold.cli.main"]
    trace, prefix = None, list[str]()
    if not url and (strace := shutil.which("strace")):
        trace = folder / "fsyncs"
        prefix = [strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    port = gateway.free_port()
    serve = [*prefix, *command, "serve", "--port", str(port), "--workers", "2"]
    with ExitStack() as stack:
        process = stack.enter_context(gateway._process(serve, 0, **environ))
        await gateway._up(port)
        pid = _descendants(process.pid)[0] if prefix else process.pid
        try:
            async with asyncio.timeout(30):  # the key is written after the port is opened
                while not (data / "local.key").exists():  # noqa: ASYNC110 - by another process
                    await asyncio.sleep(0.1)
            key = (data / "local.key").read_text("utf-8").strip()
            yield Product(pid, port, key, data, trace, postmaster, url)
        finally:
            os.kill(pid, signal.SIGTERM)  # strace ends with its child, and ignores the signal
            process.wait(60)


async def _post(client: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> bytes:
    async with client.post(path, json=body) as response:
        content = await response.read()
        if response.status >= 400:
            raise SystemExit(f"{path}: {content[:300]!r}")
        return content


async def _measured(product: Product, name: str, call: Call, count: int, units: int = 1) -> list[Row]:
    """Return the cost of each of `count` calls of `units` operations."""
    for number in range(AT_ONCE * 4):
        await call(-1 - number)
    await asyncio.sleep(1.2)
    before, began = await product.totals(), time.perf_counter()
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    seconds = time.perf_counter() - began
    await asyncio.sleep(1.2)
    after = await product.totals()
    each = Totals(*((b - a) / count / units for a, b in zip(before, after, strict=True)))
    rows = [Row(f"{name}: rate at {AT_ONCE} at once", count * units / seconds, "per s")]
    for title, value in (("server", each.server), ("workers", each.workers), ("database", each.database)):
        if value > 2e-6:
            rows.append(Row(f"{name}: CPU of the {title}", value * 1e6, "µs"))
    for title, value, unit in (
        ("WAL", each.wal_bytes, "bytes"),
        ("kept", each.kept_bytes, "bytes"),
        ("fsyncs", each.fsyncs, ""),
    ):
        if not math.isnan(value):
            rows.append(Row(f"{name}: {title}", value, unit))
    return rows


async def _units(product: Product, name: str) -> list[Row]:
    headers = {"Authorization": f"Bearer {product.key}"}
    chat = {"model": "main", "max_tokens": 16, "messages": [{"role": "user", "content": "Say hello."}]}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{product.port}", headers=headers) as client:
        await _until_known(client)

        async def job(number: int) -> None:
            await _post(client, "/api/containers/run", {"model": "echo", "input": {"text": f"{number}"}})

        async def call(_number: int) -> None:
            await _post(client, "/v1/chat/completions", chat)

        async def search(number: int) -> None:
            words = " ".join(random.Random(number).sample(_WORDS, 3))  # noqa: S311 - words of a query
            await _post(client, "/api/search", {"query": words})

        rows = await _measured(product, f"{name}, job", job, CALLS)
        rows += await _measured(product, f"{name}, chat call", call, CALLS)
        for number in range(PAGES):
            draw = random.Random(number)  # noqa: S311 - text of a page
            body = " ".join(draw.choices(_WORDS, k=100))
            await _post(
                client, "/api/pages", {"slug": f"notes/{number}", "title": f"Note {number}", "body": body}
            )
        return rows + await _measured(product, f"{name}, search in {PAGES} pages", search, CALLS // 4)


async def _until_known(client: aiohttp.ClientSession) -> None:
    """Wait for the model, whose file the server reads within two seconds."""
    async with asyncio.timeout(30):
        while True:
            async with client.get("/api/containers/templates/echo") as response:
                if response.status < 400:
                    return
            await asyncio.sleep(0.2)


# -- the queueing model ------------------------------------------------------------------------------


def predicted_wait(arrivals: float, runs: Sequence[float], workers: int) -> float:
    """Return the mean waiting time in seconds in a queue with Poisson arrivals and these durations of runs.

    It is the waiting time of Erlang's C, times half of 1 plus the squared coefficient of variation of the
    durations (Allen-Cunneen).
    """
    seconds = statistics.mean(runs)
    variation = statistics.pvariance(runs) / seconds**2
    busy = arrivals * seconds
    share = busy / workers
    last = busy**workers / math.factorial(workers) / (1 - share)
    waits = last / (sum(busy**n / math.factorial(n) for n in range(workers)) + last)
    return waits * seconds / (workers * (1 - share)) * (1 + variation) / 2


async def _waits(folder: Path) -> list[Row]:
    options = Options(credit=10**12, slots=WORKERS, driver=ProcessDriver(), queue_limit=10**6)
    async with running_pipeline(folder, options) as built:
        numbers = itertools.count()

        async def run() -> tuple[float, float]:
            began = time.perf_counter()
            ended = await built.run("slow", extras={"seconds": RUN_SECONDS, "n": next(numbers)})
            return time.perf_counter() - began, ended.durations.run / 1e6

        await asyncio.gather(*(run() for _ in range(8)))
        alone, busy = _means([await run() for _ in range(40)])
        rows = [Row("a single run, from request to result", alone * 1e3, "ms")]
        rows.append(Row("time for which the worker is busy", busy * 1e3, "ms"))
        for share in LOADS:
            rate, draw = share * WORKERS / busy, random.Random(5)  # noqa: S311 - arrivals
            runs, moment = list[asyncio.Task[tuple[float, float]]](), time.perf_counter()
            for _ in range(ARRIVALS):
                moment += draw.expovariate(rate)
                await asyncio.sleep(max(0.0, moment - time.perf_counter()))
                runs.append(asyncio.create_task(run()))
            samples = await asyncio.gather(*runs)
            found, service = _means(samples)
            model = alone - busy + service + predicted_wait(rate, [each for _, each in samples], WORKERS)
            note = f"model {model * 1e3:.1f} ms, {(model / found - 1) * 100:+.0f} %"
            title = f"{rate:.0f} runs/s, workers {rate * service / WORKERS:.0%} busy"
            rows.append(Row(title, found * 1e3, "ms", note=note))
        return rows


def _means(samples: list[tuple[float, float]]) -> tuple[float, float]:
    whole, busy = (sum(column) / len(samples) for column in zip(*samples, strict=True))
    return whole, busy


def rows() -> list[Row]:
    return [*calibration(), *uvloop.run(_measure())]


async def _measure() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, ExitStack() as stack:
        home, models = Path(name), gateway.free_port()
        stack.enter_context(gateway._process([sys.executable, "-m", "bench.modelserver", str(models)], 1))
        await gateway._up(models)
        (home / "server").mkdir()
        url = postgres.Databases(home / "server", careful=True).lend()
        postmaster = int(postgres.server(home / "server").get_pid())
        for pid in (postmaster, *_descendants(postmaster)):
            os.sched_setaffinity(pid, range(os.cpu_count() or 1))
        found = list[Row]()
        for title, address, process in (("SQLite", "", None), ("PostgreSQL", url, postmaster)):
            async with _product(home / title, models, address, process) as product:
                found += await _units(product, title)
        (home / "waits").mkdir()
        return found + await _waits(home / "waits")
