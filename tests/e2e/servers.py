"""Real `sixfold serve` in a separate process, which tests stop, kill and restart."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold import settings
from tests.harness import backends, processes

START_SECONDS = 60


@dataclass(frozen=True)
class Reply:
    """Status, headers and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """Running server; `restart` keeps the port and the folder."""

    folder: Path
    environ: dict[str, str]
    process: asyncio.subprocess.Process
    port: int
    banner: str
    reader: asyncio.Task[None] = field(repr=False)
    program: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return the key of the local account."""
        return (self.folder / "local.key").read_text().strip()

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send one request on a new connection; a `body` that is not bytes is sent as JSON."""
        return await asyncio.to_thread(self._call, method, path, body, headers)

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, {"Content-Type": "application/json", **sent})
            response = connection.getresponse()
            names = {name.lower() for name in response.headers}
            received = {name: ", ".join(response.headers.get_all(name, [])) for name in names}
            return Reply(response.status, received, response.read())
        finally:
            connection.close()

    async def final_status(self, status_url: str) -> str:
        """Wait until a job has ended, and return its status; another process has no event for it."""
        async with asyncio.timeout(100):
            while (status := str((await self.call("GET", status_url)).json["status"])) == "in_progress":  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.1)
        return status

    async def command(self, *arguments: str, **environ: str) -> tuple[int, str]:
        """Run an administration command on the same folder; return its exit status and output."""
        child = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            env={**self.environ, "SIXFOLD_DATA_DIR": str(self.folder), **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await processes.read_output(child)
        assert child.returncode is not None
        return child.returncode, output.decode()

    async def kill(self) -> None:
        self.process.kill()
        await self.wait_for_exit()

    async def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return await self.wait_for_exit()

    async def wait_for_exit(self) -> int:
        """Wait until the process and its children have ended, and return the exit status."""
        status = await processes.wait_for_exit(self.process)
        async with asyncio.timeout(processes.PATIENCE_SECONDS):
            await self.reader
        return status

    async def restart(self) -> None:
        """Start again on the same folder and port, after `kill` or `terminate`."""
        second_server = await start(self.folder, self.port, self.environ, self.program)
        self.process, self.banner, self.reader = (
            second_server.process,
            second_server.banner,
            second_server.reader,
        )


PROGRAM = (sys.executable, "-m", "sixfold.cli.main")


async def start(
    folder: Path, port: int = 0, environ: dict[str, str] | None = None, program: tuple[str, ...] = PROGRAM
) -> Server:
    """Start a server on `folder`, and return when it accepts requests."""
    own = {**settings.worker_environment(), "SIXFOLD_PROBE": "0", "HOME": str(folder)}
    env = {**own, **backends.environ(folder), **(environ or {})}
    command = (*program, "serve", "--port", str(port), "--data-dir", str(folder))
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        banner = await output_until("Control-C", process.stdout)
    except BaseException:
        await processes.kill_and_wait(process)
        raise
    [address] = [line.split()[-1] for line in banner.splitlines() if line.split()[:1] == ["address"]]
    reader = asyncio.create_task(_drain(process.stdout))
    return Server(folder, env, process, int(address.rsplit(":", 1)[1]), banner, reader, program)


async def output_until(word: str, stream: asyncio.StreamReader) -> str:
    """Return the output of a starting program up to the line that contains `word`."""
    lines: list[str] = []
    async with asyncio.timeout(START_SECONDS):
        while word not in (lines[-1] if lines else ""):
            line = (await stream.readline()).decode()
            assert line, f"it ended at its start:\n{''.join(lines)}"
            lines.append(line)
    return "".join(lines)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass


@asynccontextmanager
async def serving(folder: Path, **environ: str) -> AsyncIterator[Server]:
    """Run a server within the block."""
    async with running(folder, PROGRAM, environ) as server:
        yield server


@asynccontextmanager
async def running(
    folder: Path, program: tuple[str, ...], environ: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Run a server that another program starts within the block."""
    server = await start(folder, environ=dict(environ or {}), program=program)
    try:
        yield server
    finally:
        if server.process.returncode is None:
            await server.kill()
