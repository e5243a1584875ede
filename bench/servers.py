"""Measure several servers on one PostgreSQL beside SQLite: CPU time per gateway call.

.venv/bin/python -m bench servers

The key has a budget and both rate limits. The servers of a row share 64 connections, or have 64 each; one
server is also measured with 32 and 16, as many as each of two or four servers then has. The rows are measured
alternately, and the median round counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.gateway import _CONFIG, MANY, _callers, _process, _up, free_port, process_cpu
from bench.reporting import Row, calibration
from tests.harness import postgres

TITLE = "Several servers on one PostgreSQL"
ROUNDS = int(os.environ.get("SIXFOLD_BENCH_ROUNDS", "7"))
REQUESTS, WARM_UP, ACCOUNTS = 3_000, 600, 16
_ENVIRON = {
    "SIXFOLD_PROBE": "0",
    "SIXFOLD_LOG_LEVEL": "warning",
    "SIXFOLD_REQUESTS_PER_SECOND_PER_ACCOUNT": "1000000",
}
_LIMITS = ("--budget-day", "900", "--rpm", "10000000", "--tpm", "1000000000")


class RoundCost(NamedTuple):
    """Calls per second of one round, and processor time of a call in seconds."""

    rate: float
    server: float
    database: float


@dataclass
class Setup:
    """Servers that share a load, the keys of the requests, and the process id of PostgreSQL, if used."""

    name: str
    ports: Sequence[int]
    pids: Sequence[int]
    keys: Sequence[str]
    postmaster: int | None = None
    connections: int = MANY
    rounds: list[RoundCost] = field(default_factory=list[RoundCost])

    async def measure(self, requests: int) -> None:
        before, began = self._spent(), time.perf_counter()
        callers = [
            (await _callers(self.ports[n % len(self.ports)], self.keys[n % len(self.keys)], 1))[0]
            for n in range(self.connections)
        ]

        async def run(number: int) -> None:
            for _ in range(requests // self.connections):
                await callers[number].ask()

        await asyncio.gather(*map(run, range(self.connections)))
        for caller in callers:
            caller.close()
        seconds, count = time.perf_counter() - began, requests // self.connections * self.connections
        server, database = (after - earlier for after, earlier in zip(self._spent(), before, strict=True))
        self.rounds.append(RoundCost(count / seconds, server / count, database / count))

    def _spent(self) -> tuple[float, float]:
        return sum(map(process_cpu, self.pids)), 0.0 if self.postmaster is None else _database_cpu(
            self.postmaster
        )

    def median(self, of: str) -> float:
        return statistics.median(getattr(each, of) for each in self.rounds)


def _database_cpu(postmaster: int) -> float:
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return sum(map(process_cpu, map(int, children)))


def start(
    folder: Path, models: int, count: int, url: str, stack: ExitStack, python: str = sys.executable
) -> tuple[list[int], list[int], list[str]]:
    """Start servers on one database; returns their ports, process ids and the keys of the accounts."""
    command = [python, "-m", "sixfold.cli.main"]
    ports, pids, keys, secret = list[int](), list[int](), list[str](), os.urandom(32)
    for number in range(count):
        data = folder / str(number)
        data.mkdir(parents=True)
        (data / "sixfold.toml").write_text(_CONFIG.format(models=models))
        environ = {**_ENVIRON, "SIXFOLD_DATA_DIR": str(data)}
        if url:
            environ["SIXFOLD_DATABASE_URL"] = url
        (data / "server.key").write_bytes(secret)
        keys = keys or [_key(command, environ, n) for n in range(ACCOUNTS)]
        port = free_port()
        process = stack.enter_context(_process([*command, "serve", "--port", str(port)], 0, **environ))
        uvloop.run(_up(port))
        ports.append(port)
        pids.append(process.pid)
    return ports, pids, keys


def _key(command: Sequence[str], environ: dict[str, str], number: int) -> str:
    def admin(*words: str) -> dict[str, str]:
        done = subprocess.run(
            [*command, *words, "--json"], env={**os.environ, **environ}, check=True, capture_output=True
        )
        return json.loads(done.stdout)

    name = f"bench{number}@example.com"
    admin("account", "create", name, "--credit", "1000")
    return admin("key", "create", name, *_LIMITS)["api_key"]


async def by_turns(setups: Sequence[Setup]) -> None:
    """Measure all rounds of all setups, one setup after the other."""
    for setup in setups:
        await setup.measure(WARM_UP)
        setup.rounds.clear()
    for _ in range(ROUNDS):
        for setup in setups:
            await setup.measure(REQUESTS)


def start_models(stack: ExitStack) -> int:
    """Start the model server and return its port."""
    port = free_port()
    stack.enter_context(_process([sys.executable, "-m", "bench.modelserver", str(port)], 1))
    uvloop.run(_up(port))
    return port


def start_postgres(folder: Path) -> tuple[postgres.Databases, int]:
    """Start PostgreSQL on all cores; returns its databases and the id of its first process."""
    folder.mkdir(parents=True)
    postmaster = int(postgres.server(folder).get_pid())
    for pid in (postmaster, *map(int, _children(postmaster))):
        os.sched_setaffinity(pid, range(os.cpu_count() or 1))
    return postgres.Databases(folder, careful=True), postmaster


def setups(
    folder: Path, models: int, stack: ExitStack, python: str = sys.executable, name: str = ""
) -> list[Setup]:
    """Start all servers, one on SQLite and four on PostgreSQL, and return the setups to measure."""
    databases, postmaster = start_postgres(folder / "postgres")
    url = databases.lend()
    ports, pids, keys = start(folder / "sqlite", models, 1, "", stack, python)
    results = [Setup(f"{name}SQLite, 1 server", ports, pids, keys[:1])]
    results.append(Setup(f"{name}SQLite, 1 server, {ACCOUNTS} accounts", ports, pids, keys))
    ports, pids, keys = start(folder / "servers", models, 4, url, stack, python)
    for count in (1, 2, 4):
        title = f"{name}PostgreSQL, {count} server" + ("s" if count > 1 else "")
        results.append(Setup(title, ports[:count], pids[:count], keys[:1], postmaster))
        if count == 1:
            results.append(Setup(f"{title}, {ACCOUNTS} accounts", ports[:1], pids[:1], keys, postmaster))
            # As many connections as each of two or four servers has if they share them.
            results += [
                Setup(f"{title}, {few} connections", ports[:1], pids[:1], keys[:1], postmaster, few)
                for few in (MANY // 2, MANY // 4)
            ]
        else:
            title, total = f"{title}, {MANY} connections each", MANY * count
            results.append(Setup(title, ports[:count], pids[:count], keys[:1], postmaster, total))
    return results


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _rows(setup: Setup) -> list[Row]:
    rows = [
        Row(f"{setup.name}: calls", setup.median("rate"), "per s"),
        Row(f"{setup.name}: CPU of the servers per call", setup.median("server") * 1e6, "µs"),
    ]
    if setup.postmaster is not None:
        rows.append(Row(f"{setup.name}: CPU of PostgreSQL per call", setup.median("database") * 1e6, "µs"))
    return rows


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, ExitStack() as stack:
        result = setups(Path(name), start_models(stack), stack)
        uvloop.run(by_turns(result))
        return calibration() + [row for setup in result for row in _rows(setup)]
