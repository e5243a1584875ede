"""Measure the gateway's overhead per chat call: CPU time, requests per second and added latency.

.venv/bin/python -m bench gateway

SIXFOLD_BENCH_PEER=1 also installs and measures litellm[proxy]. Memory is read after SIXFOLD_BENCH_REQUESTS
(100,000) requests and SIXFOLD_BENCH_ABORTS (10,000) aborted streams. SIXFOLD_BENCH_LONG=1 measures only
memory, after a million requests and 100,000 aborted streams.

The servers run on one core, the load generator and a minimal model server on the other. All features are
on: a key with a budget and limits, the ledger, the request log, and routing with a fallback. At 64
connections the servers are measured alternately in rounds, and the median round counts, because a short
disturbance does not affect the median. Opening the 64 connections takes only a small part of a round.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench.reporting import Row, calibration, of_samples
from bench.server import _pss

TITLE = "The gateway"
REQUESTS, STREAMS, ROUNDS = 3_000, 100, 7
MANY = 64  # connections
RATE, RATE_SECONDS = 1_000, 5
LONG = bool(os.environ.get("SIXFOLD_BENCH_LONG"))
AGAIN = int(os.environ.get("SIXFOLD_BENCH_REQUESTS", "1000000" if LONG else "100000"))
ABORTS = int(os.environ.get("SIXFOLD_BENCH_ABORTS", "100000" if LONG else "10000"))
_CHUNKS = 43  # the chunks of one stream of the model server
_BODY = {"model": "main", "messages": [{"role": "user", "content": "say it"}], "max_tokens": 100}
_SENTENCE = 'The quick brown fox said "hello" to the lazy dog. It did not answer. '
_TURNS = [
    {"role": role, "content": [{"type": "text", "text": 14 * _SENTENCE}]} for role in ("user", "assistant")
]
# The body has 20 kB.
_LONG_BODY = {**_BODY, "messages": 10 * _TURNS}
_NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000; client_body_buffer_size 64k;
client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
upstream models {{ server 127.0.0.1:{models}; keepalive 64; keepalive_requests 1000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://models; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""
_CONFIG = """[gateway.upstreams.m]
kind = "openai"
base_url = "http://127.0.0.1:{models}/v1"
api_key = "k"
models = ["m"]
[gateway.upstreams.n]
kind = "openai"
base_url = "http://127.0.0.1:{models}/v1"
api_key = "k"
models = ["m"]
[gateway.aliases]
main = ["m/m", "n/m"]
[gateway.prices."m"]
input_per_million_usd = "0.1"
output_per_million_usd = "0.4"
"""
_PEER = """model_list:
  - model_name: main
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{models}/v1", api_key: k}}
general_settings: {{master_key: sk-bench}}
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def _process(command: list[str], core: int, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.sched_setaffinity(process.pid, {core})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


async def _up(port: int, seconds: float = 90) -> None:
    async with asyncio.timeout(seconds):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


class _Caller:
    """One connection that sends requests in a loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes) -> None:
        self._reader, self._writer, self._raw = reader, writer, raw

    async def ask(self) -> float:
        """Send a request, and return the seconds until its response is complete."""
        began = time.perf_counter()
        self._writer.write(self._raw)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head[:16], head
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await self._reader.readexactly(length)
        else:
            await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return time.perf_counter() - began

    async def abort(self) -> None:
        """Send a request, and disconnect at the first token of the response."""
        self._writer.write(self._raw)
        await self._reader.readuntil(b"data:")
        self.close()

    def close(self) -> None:
        self._writer.close()


def _raw(key: str, *, stream: bool, document: Mapping[str, Any] = _BODY) -> bytes:
    body = json.dumps({**document, **({"stream": True} if stream else {})}, separators=(",", ":")).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer %s\r\ncontent-length: %d\r\n\r\n" % (key.encode(), len(body))
    )
    return head + body


async def _callers(
    port: int, key: str, count: int, *, stream: bool = False, document: Mapping[str, Any] = _BODY
) -> list[_Caller]:
    raw = _raw(key, stream=stream, document=document)
    return [_Caller(*await asyncio.open_connection("127.0.0.1", port), raw) for _ in range(count)]


async def load(
    port: int,
    key: str,
    connections: int,
    count: int,
    *,
    stream: bool = False,
    document: Mapping[str, Any] = _BODY,
) -> list[float]:
    """Return the seconds of each response."""
    callers = await _callers(port, key, connections, stream=stream, document=document)

    async def run(caller: _Caller) -> list[float]:
        return [await caller.ask() for _ in range(count // connections)]

    samples = await asyncio.gather(*(run(caller) for caller in callers))
    for caller in callers:
        caller.close()
    return [sample for some in samples for sample in some]


async def _pace(port: int, key: str) -> list[float]:
    """Return the seconds of each response at a steady rate, from the scheduled time of the request."""
    free: asyncio.Queue[_Caller] = asyncio.Queue()
    for caller in await _callers(port, key, 64):
        free.put_nowait(caller)
    began, samples = time.perf_counter(), list[float]()

    async def one(due: float) -> None:
        caller = await free.get()
        await caller.ask()
        samples.append(time.perf_counter() - due)
        free.put_nowait(caller)

    async with asyncio.TaskGroup() as group:
        for number in range(RATE * RATE_SECONDS):
            due = began + number / RATE
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(due))
    while not free.empty():
        free.get_nowait().close()
    return samples


async def _abort_streams(port: int, key: str, count: int) -> None:
    """Run `count` streams whose client disconnects at the first token, 32 at once."""
    for _ in range(0, count, 32):
        await asyncio.gather(*(caller.abort() for caller in await _callers(port, key, 32, stream=True)))


def _after_a_pause() -> Row:
    """Return the time of a Python loop after 1 ms of sleep, relative to the same loop without sleep."""
    source, address = inspect.getsource(_percentile), "http://127.0.0.1:8600/v1/models?limit=10#top"

    def work(pause: float) -> float:
        time.sleep(pause)
        began = time.thread_time()
        ast.parse(source)
        urllib.parse.urlsplit(json.loads(json.dumps({**_BODY, "to": address}))["to"])
        return time.thread_time() - began

    at_once, later = (statistics.median(work(pause) for _ in range(1000)) for pause in (0, 0.001))
    return Row("calibration: the same loop after 1 ms of sleep", later / at_once, "times")


def _percentile(samples: list[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))] * 1e3


def _latency_rows(name: str, found: dict[str, list[float]], direct: dict[str, list[float]]) -> list[Row]:
    return [
        Row(
            f"{name}, {where}: added p{share}",
            _percentile(samples, share / 100) - _percentile(direct[where], share / 100),
            "ms",
        )
        for where, samples in found.items()
        for share in (50, 99)
    ]


class _Server(NamedTuple):
    """A measured server; `request_count` is the number of its requests in a round."""

    name: str
    pid: int
    port: int
    key: str
    request_count: int


class _Round(NamedTuple):
    """A round of concurrent requests: latencies, total time and the server's processor time in seconds."""

    samples: list[float]
    seconds: float
    spent: float

    @property
    def each(self) -> float:
        """Return the processor time of one request in seconds."""
        return self.spent / len(self.samples)


def process_cpu(pid: int) -> float:
    """Return the processor time of a process in seconds, by the clock of `clock_getcpuclockid`."""
    return time.clock_gettime(~pid << 3 | 2)


async def _round(server: _Server, connections: int, count: int) -> _Round:
    before, began = process_cpu(server.pid), time.perf_counter()
    samples = await load(server.port, server.key, connections, max(count, connections))
    return _Round(samples, time.perf_counter() - began, process_cpu(server.pid) - before)


async def _by_turns(servers: list[_Server]) -> dict[str, list[_Round]]:
    """Run rounds with many connections, alternating between the servers; return the rounds by server."""
    result: dict[str, list[_Round]] = {server.name: [] for server in servers}
    for server in servers:
        await load(server.port, server.key, MANY, MANY)
    for _ in range(ROUNDS):
        for server in servers:
            result[server.name].append(await _round(server, MANY, server.request_count))
    return result


def _of_rounds(name: str, where: str, rounds: list[_Round]) -> list[Row]:
    each = statistics.median(one.each for one in rounds)
    rate = statistics.median(len(one.samples) / one.seconds for one in rounds)
    return [
        of_samples(
            f"{name}, {where}: complete response", [wait for one in rounds for wait in one.samples], "ms"
        ),
        Row(f"{name}, {where}: CPU per request", each * 1e6, "µs"),
        Row(f"{name}, {where}: requests", rate, "per s"),
        Row(f"{name}, {where}: requests per core", 1 / max(each, 1e-6), "per s"),
    ]


async def _figures(
    server: _Server, many: list[_Round], direct: dict[str, list[float]] | None = None
) -> tuple[list[Row], dict[str, list[float]]]:
    name, port, key = server.name, server.port, server.key
    await load(port, key, 1, 20)
    results: list[Row] = []
    waits: dict[str, list[float]] = {}
    for where, rounds in (
        ("1 connection", [await _round(server, 1, server.request_count)]),
        (f"{MANY} connections", many),
    ):
        waits[where] = [wait for one in rounds for wait in one.samples]
        results += _of_rounds(name, where, rounds)
    before = process_cpu(server.pid)
    long = len(await load(port, key, MANY, max(server.request_count // 3, MANY), document=_LONG_BODY))
    spent = (process_cpu(server.pid) - before) / long * 1e6
    results.append(Row(f"{name}, {MANY} connections: CPU per request of 20 kB", spent, "µs"))
    if server.request_count >= REQUESTS:
        samples = waits[f"{RATE:,} requests/s"] = await _pace(port, key)
        results.append(of_samples(f"{name}, {RATE:,} requests/s: complete response", samples, "ms"))
    if direct is not None:
        results += _latency_rows(name, waits, direct)
    before = process_cpu(server.pid)
    streams = await load(port, key, 8, STREAMS, stream=True)
    chunk = (process_cpu(server.pid) - before) / (len(streams) * _CHUNKS) * 1e6
    return [*results, Row(f"{name}: CPU per streamed chunk", chunk, "µs")], waits


async def _measure_memory(pid: int, port: int, key: str) -> list[Row]:
    """Measure memory after a pause, after many requests, and after as many aborted streams."""
    settled = _pss(pid)
    await load(port, key, MANY, AGAIN)
    after = _pss(pid)
    await _abort_streams(port, key, ABORTS)
    aborted = _pss(pid)

    def row(what: str, size: float) -> Row:
        return Row(f"Sixfold: memory after {what} (PSS)", size, "MB", note=f"{size / settled - 1:+.1%}")

    return [
        Row("Sixfold: memory after these rows (PSS)", settled, "MB", note="aim 120"),
        row(f"{AGAIN:,} further requests", after),
        row(f"{ABORTS:,} aborted streams", aborted),
    ]


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def prepare_sixfold(folder: Path, models: int) -> tuple[list[str], dict[str, str], str]:
    """Return a server's command, its environment, and a key with a budget and rates."""
    command = [sys.executable, "-m", "sixfold.cli.main"]
    environ = {
        "SIXFOLD_DATA_DIR": str(folder / "data"),
        "SIXFOLD_PROBE": "0",
        "SIXFOLD_LOG_LEVEL": "warning",
        "SIXFOLD_REQUESTS_PER_SECOND_PER_ACCOUNT": "1000000",  # the limit is checked, but never reached
    }
    (folder / "data").mkdir()
    (folder / "data" / "sixfold.toml").write_text(_CONFIG.format(models=models))

    def admin(*words: str) -> dict[str, str]:
        done = subprocess.run(
            [*command, *words, "--json"], env={**os.environ, **environ}, check=True, capture_output=True
        )
        return json.loads(done.stdout)

    admin("account", "create", "bench@example.com", "--credit", "1000")
    limits = ("--budget-day", "900", "--rpm", "10000000", "--tpm", "1000000000")
    return command, environ, admin("key", "create", "bench@example.com", *limits)["api_key"]


async def _measure(folder: Path) -> list[Row]:
    models = free_port()
    with ExitStack() as stack:
        process = stack.enter_context(_process([sys.executable, "-m", "bench.modelserver", str(models)], 1))
        await _up(models)
        servers = [_Server("no gateway", process.pid, models, "k", REQUESTS)]
        if nginx := shutil.which("nginx"):
            port = free_port()
            (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, models=models, port=port))
            process = stack.enter_context(_process([nginx, "-c", str(folder / "nginx.conf")], 0))
            await _up(port)
            servers.append(_Server("nginx", _child(process.pid), port, "k", REQUESTS))
        port = free_port()
        command, environ, key = prepare_sixfold(folder, models)
        process = stack.enter_context(_process([*command, "serve", "--port", str(port)], 0, **environ))
        await _up(port)
        ours = _Server("Sixfold", process.pid, port, key, REQUESTS)
        servers.append(ours)
        if LONG:
            await load(port, key, MANY, ROUNDS * REQUESTS)
            await load(port, key, 8, STREAMS, stream=True)
            return await _measure_memory(ours.pid, port, key)
        if os.environ.get("SIXFOLD_BENCH_PEER"):
            servers.append(await _peer(folder, models, stack))
        many = await _by_turns(servers)
        result, direct = await _figures(servers[0], many[servers[0].name])
        for server in servers[1:]:
            result += (await _figures(server, many[server.name], direct))[0]
            if server is ours:
                result += await _measure_memory(server.pid, server.port, server.key)
        if os.environ.get("SIXFOLD_BENCH_PEER"):
            result.append(_ratio(result))
    return result


def _ratio(found: list[Row]) -> Row:
    """Return the number of Sixfold's requests that a core serves for each request of the peer."""
    median = {row.name: row.median for row in found}
    ours, theirs = (median[f"{name}, 64 connections: requests per core"] for name in ("Sixfold", "litellm"))
    return Row("requests per core, Sixfold to litellm", ours / theirs, "times", note="aim 100, at least 50")


def _install(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "peer")], check=True)
    pip = str(folder / "peer" / "bin" / "pip")
    subprocess.run([pip, "install", "--quiet", "litellm[proxy]"], check=True)


async def _peer(folder: Path, models: int, stack: ExitStack) -> _Server:
    """Run litellm's proxy in a separate environment, with a master key and without a database."""
    await asyncio.to_thread(_install, folder)
    (folder / "peer.yaml").write_text(_PEER.format(models=models))
    port, program = free_port(), str(folder / "peer" / "bin" / "litellm")
    process = stack.enter_context(
        _process([program, "--config", str(folder / "peer.yaml"), "--port", str(port)], 0)
    )
    await _up(port, 180)
    return _Server("litellm", process.pid, port, "sk-bench", 300)


def rows() -> list[Row]:
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return [*calibration(), _after_a_pause(), *uvloop.run(_measure(Path(folder)))]
