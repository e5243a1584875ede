"""Measure the CPU time of a gateway call on a server of several processes on SQLite.

.venv/bin/python -m bench processes

Servers of 1, 2 and 4 processes are measured alternately on one core; the load generator and a model server
use the other. So the figures are CPU time per call, not the calls per second of several cores. Each process
has 64 connections. The key has a budget and rate limits, as in the benchmark of the gateway.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench import gateway
from bench.reporting import Row, calibration

TITLE = "Several processes"
COUNTS = (1, 2, 4)
CONNECTIONS, REQUESTS, ROUNDS = 64, 4_096, 5


class _Server(NamedTuple):
    processes: int
    pid: int
    port: int
    key: str

    def cpu(self) -> tuple[float, float]:
        """Return the processor seconds of process 0, and the sum of all processes."""
        own = gateway.process_cpu(self.pid)
        return own, own + sum(gateway.process_cpu(pid) for pid in _children(self.pid))


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def _pin(command: list[str], environ: dict[str, str], core: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _wait_for_banner(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if b"Control-C" in line:
            return
    raise RuntimeError("the server ended before it was ready")


def _measure(folder: Path) -> list[Row]:
    models = gateway.free_port()
    with ExitStack() as stack:
        stack.enter_context(_pin([sys.executable, "-m", "bench.modelserver", str(models)], {}, 1))
        servers: list[_Server] = []
        for count in COUNTS:
            home, port = folder / str(count), gateway.free_port()
            home.mkdir()
            command, environ, key = gateway.prepare_sixfold(home, models)
            serve = [*command, "serve", "--port", str(port), "--processes", str(count)]
            process = stack.enter_context(_pin(serve, environ, 0))
            _wait_for_banner(process)
            servers.append(_Server(count, process.pid, port, key))
        return uvloop.run(_by_turns(servers))


async def _by_turns(servers: list[_Server]) -> list[Row]:
    spent: dict[int, list[tuple[float, float]]] = {server.processes: [] for server in servers}
    for server in servers:
        await gateway.load(server.port, server.key, CONNECTIONS, REQUESTS)
    for _ in range(ROUNDS):
        for server in servers:
            own, everything = server.cpu()
            connections = CONNECTIONS * server.processes
            samples = await gateway.load(server.port, server.key, connections, REQUESTS)
            own_after, all_after = server.cpu()
            spent[server.processes].append(
                ((own_after - own) / len(samples) * 1e6, (all_after - everything) / len(samples) * 1e6)
            )
    results: list[Row] = []
    one = statistics.median(each for _, each in spent[1])
    for server in servers:
        name = "1 process" if server.processes == 1 else f"{server.processes} processes"
        own, everything = (statistics.median(each) for each in zip(*spent[server.processes], strict=True))
        results.append(
            Row(f"{name}: CPU of all per call", everything, "µs", note=f"{everything / one:.2f} of one")
        )
        results.append(Row(f"{name}: CPU of process 0 per call", own, "µs"))
    return results


def rows() -> list[Row]:
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {1})
    results = [*calibration()]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        results += _measure(Path(folder))
    return results
