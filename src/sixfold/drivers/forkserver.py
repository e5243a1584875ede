"""The server's client for the zygote: it starts the zygote, requests workers, and receives their exits."""

from __future__ import annotations

import array
import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from sixfold import process_resources
from sixfold.worker import protocol

_FIXED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Every arena reserves 64 MiB of address space, which counts against the memory limit.
    "MALLOC_ARENA_MAX": "2",
    # The iteration order of sets can affect an engine's output.
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
}
_BOOT_SECONDS = 60
_END_SECONDS = 5


class ForkServerGone(Exception):
    """The zygote ended before it could answer."""


def environment(allowed: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the zygote and its workers: `allowed` and fixed values."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    return {**allowed, **_FIXED, "PYTHONPATH": path}


class ForkServer:
    """One zygote process, started by `boot`. After the process has ended, `alive` stays False."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._booted = self._loop.create_future()
        self._pids: dict[str, int] = {}
        self._exits: dict[str, asyncio.Future[str]] = {}
        self._reaping: asyncio.Future[None] | None = None
        self.alive = True
        control.setblocking(False)
        self._loop.add_reader(control, self._readable)

    @classmethod
    async def boot(cls, environ: Mapping[str, str], preload: Sequence[str]) -> ForkServer:
        """Start a zygote and wait until it accepts requests; raises `ForkServerGone`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        spawning = asyncio.ensure_future(asyncio.to_thread(_spawn, theirs, environ, preload))
        try:
            process = await asyncio.shield(spawning)
        except BaseException:
            ours.close()
            spawning.add_done_callback(_abandon)
            raise
        server = cls(process, ours)
        try:
            async with asyncio.timeout(_BOOT_SECONDS):
                await server._booted  # private to this class
        except BaseException as error:
            await server.close()
            if isinstance(error, TimeoutError):
                raise ForkServerGone(f"the zygote did not start within {_BOOT_SECONDS} s") from error
            raise
        return server

    @property
    def pid(self) -> int:
        """The zygote's process id."""
        return self._process.pid

    def pid_of(self, worker: str) -> int | None:
        return self._pids.get(worker)

    async def spawn(self, order: protocol.SpawnWorker, link: int, output: int) -> asyncio.Future[str]:
        """Fork a worker and return a future for the reason of its exit; raises `ForkServerGone`."""
        exit_future = self._exits[order.worker] = self._loop.create_future()
        try:
            await self._send(order, (link, output))
        except ForkServerGone:
            self._exits.pop(order.worker, None)
            raise
        return exit_future

    def kill(self, worker: str) -> None:
        """Kill the worker and its child processes; its exit is reported in the usual way."""
        try:
            self._control.send(protocol.encode(protocol.KillWorker(worker)))
        # The zygote has ended, and so have its workers, or it no longer reads.
        except OSError:
            _kill_group(self._pids.get(worker))

    async def close(self) -> None:
        """Stop the zygote, which stops its workers. Idempotent."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if not await self._waited(_END_SECONDS):
            self._process.kill()
            await self._waited(None)
        self._lost()
        if self._reaping is not None:
            await self._reaping

    async def _waited(self, seconds: float | None) -> bool:
        try:
            await asyncio.to_thread(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    async def _send(self, message: protocol.WorkerMessage, descriptors: Sequence[int]) -> None:
        data = protocol.encode(message)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        while self.alive:
            try:
                self._control.sendmsg([data], ancillary)
            except BlockingIOError:
                await self._writable()
            except OSError as error:
                raise ForkServerGone(f"the zygote has ended: {error.strerror}") from error
            else:
                return
        raise ForkServerGone("the zygote has ended")

    async def _writable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_writer(self._control, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            if self.alive:
                self._loop.remove_writer(self._control)

    def _readable(self) -> None:
        try:
            data = self._control.recv(protocol.MAX_RECORD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            message = protocol.from_zygote.decode(data) if data else None
        except msgspec.MsgspecError:
            message = None
        match message:
            case None:
                self._lost()
            case protocol.ZygoteReady():
                if not self._booted.done():
                    self._booted.set_result(None)
            case protocol.WorkerSpawned(worker, pid):
                self._pids[worker] = pid
            case protocol.WorkerExited(worker, reason):
                self._pids.pop(worker, None)
                _resolve(self._exits.pop(worker, None), reason)

    def _lost(self) -> None:
        """Handle the end of the zygote: its workers end by their parent-death signal."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        if not self._booted.done():
            self._booted.set_exception(ForkServerGone("the zygote ended during its start"))
            # Mark the exception as retrieved, because there may be no waiting caller.
            self._booted.exception()
        for pid in self._pids.values():
            # Child processes of the workers would survive otherwise.
            _kill_group(pid)
        self._pids.clear()
        for exited in self._exits.values():
            _resolve(exited, "ended because the zygote has ended")
        self._exits.clear()
        self._reaping = asyncio.ensure_future(self._reap())

    async def _reap(self) -> None:
        if not await self._waited(_END_SECONDS):
            self._process.kill()
            await self._waited(None)


def _resolve(future: asyncio.Future[str] | None, reason: str) -> None:
    if future is not None and not future.done():
        future.set_result(reason)


def _kill_group(pid: int | None) -> None:
    if pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _spawn(
    control: socket.socket, environ: Mapping[str, str], preload: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start a zygote, and close its socket in this process.

    If the caller closed the socket, a canceled start could pass another file with the same number on.
    """
    with control:
        process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of this package
            [sys.executable, "-m", "sixfold.worker.zygote", str(control.fileno()), *preload],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(control.fileno(),),
            env=dict(environ),
            cwd="/",
            start_new_session=True,
        )
    process_resources.restore_file_limit(process.pid)
    return process


def _abandon(spawning: asyncio.Future[subprocess.Popen[bytes]]) -> None:
    """Kill and reap a zygote whose start was canceled."""
    if not spawning.cancelled() and spawning.exception() is None:
        process = spawning.result()
        process.kill()
        asyncio.get_running_loop().run_in_executor(None, process.wait)
