"""Workers for untrusted programs, each in a separate process in a Bubblewrap sandbox.

A worker can read its runtime, its program and its runs' files, and can write to a private folder. It cannot
access the network, credentials or other processes. Its output files are moved out of the sandbox before they
are read.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from sixfold import disk_space, settings
from sixfold.clients import bubblewrap
from sixfold.clients.bubblewrap import Sandbox
from sixfold.core.catalog.engines import Task
from sixfold.core.media.ports import StagedFile
from sixfold.core.workers.ports import Outcome, RunCompleted, RunFailed, RunReports, WorkerSpec
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers import forkserver
from sixfold.drivers.process import ProcessDriver, ProcessTimeouts, ProcessWorker, WorkerStarter
from sixfold.worker import protocol, standalone

# The kind of these engines in the catalog, and the factory name that selects this driver.
KIND = "sandbox"
_WORK, _INPUTS = "work", "inputs"
_LOOK_SECONDS = 0.5


async def wait(process: asyncio.subprocess.Process, folder: Path) -> str:
    """Wait until the process of a sandbox has ended and return how it ended.

    It is killed, with its child processes, before the files in its writable folder fill the disk.
    """
    ended = asyncio.create_task(process.wait())
    try:
        while not (await asyncio.wait({ended}, timeout=_LOOK_SECONDS))[0]:
            with suppress(OSError):
                if shortage := await asyncio.to_thread(disk_space.shortage, folder):
                    kill(process)
                    await ended
                    return f"was killed, because {shortage}"
        return _reason(ended.result())
    finally:
        ended.cancel()


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process of a sandbox and its child processes, which end with it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class SandboxPool:
    """Starts and stops sandboxed processes; used in place of a fork server."""

    alive = True

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The readable program paths, by the worker's folder.
        self.readable: dict[str, tuple[Path, ...]] = {}
        self._environ = forkserver.environment(environ)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._watches: set[asyncio.Task[None]] = set()

    async def spawn(self, order: protocol.SpawnWorker, link: int, output: int) -> asyncio.Future[str]:
        """Start a worker and return a future for the reason of its exit."""
        work = Path(order.scratch)
        cell = Sandbox(
            readable=(work.parent / _INPUTS, *self.readable.pop(order.scratch, ())), writable=(work,)
        )
        process = await asyncio.create_subprocess_exec(
            *bubblewrap.command(cell),
            *(sys.executable, "-m", "sixfold.worker.standalone", str(link), standalone.text(order)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=self._environ,
            pass_fds=(link,),
            start_new_session=True,
        )
        self._processes[order.worker] = process
        exit_future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        watch = asyncio.create_task(self._watch(order.worker, process, work, exit_future))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return exit_future

    def kill(self, worker: str) -> None:
        """Kill the worker and its child processes."""
        process = self._processes.get(worker)
        if process is not None:
            kill(process)

    def pid_of(self, worker: str) -> int | None:
        """Return the id of the process that contains the worker, or None if it is not alive."""
        process = self._processes.get(worker)
        return None if process is None else process.pid

    async def _watch(
        self,
        worker: str,
        process: asyncio.subprocess.Process,
        folder: Path,
        exit_future: asyncio.Future[str],
    ) -> None:
        reason = await wait(process, folder)
        self.kill(worker)
        del self._processes[worker]
        exit_future.set_result(reason)


def _reason(status: int) -> str:
    # The sandbox's exit status encodes a signal inside the sandbox.
    number = -status if status < 0 else status - 128
    if status < 0 or 0 < number < signal.NSIG:
        return f"was killed by signal {number}"
    return f"exited with status {status}"


class SandboxWorker(ProcessWorker):
    """A sandboxed worker: input files are copied into the sandbox, and only regular files are returned."""

    def __init__(self, driver: SandboxDriver, spec: WorkerSpec, starter: WorkerStarter, output: int) -> None:
        super().__init__(driver, spec, starter, output)
        self._cell = spec.scratch.absolute().parent

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        input_folder = self._cell / _INPUTS / secrets.token_hex(8)
        try:
            files = await asyncio.to_thread(_copied, task.files, input_folder)
            outcome = await super().run(msgspec.structs.replace(task, files=files), reports)
            if isinstance(outcome, RunCompleted):
                return await asyncio.to_thread(self._moved, outcome)
            return outcome
        finally:
            await asyncio.to_thread(shutil.rmtree, input_folder, ignore_errors=True)

    def clean(self) -> None:
        """Remove the sandbox's folders."""
        shutil.rmtree(self._cell, ignore_errors=True)

    def _moved(self, outcome: RunCompleted) -> Outcome:
        """Move the files out of the sandbox; the run fails if one of them is not a regular file."""
        staged_files: list[StagedFile] = []
        try:
            for file in outcome.files:
                target = self._cell.parent / file.path.name
                file.path.rename(target)
                staged_files.append(msgspec.structs.replace(file, path=target))
                if not stat.S_ISREG(target.lstat().st_mode):
                    raise FileNotFoundError
        except OSError:
            for file in staged_files:
                _removed(file.path)
            return RunFailed("The model's output must be a regular file.", public=True)
        return msgspec.structs.replace(outcome, files=tuple(staged_files))


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _copied(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """Copy a run's files, because the originals are shared with other runs."""
    if not files:
        return {}
    folder.mkdir(mode=0o700)
    new_worker: dict[str, Path] = {}
    for number, (name, path) in enumerate(files.items()):
        target = folder / f"{number}{path.suffix}"
        shutil.copyfile(path, target)
        new_worker[name] = target
    return new_worker


class SandboxDriver(ProcessDriver):
    """Starts workers in sandboxes.

    A spec's options are `factory`, its `options`, and the paths in `shown`.
    """

    name = KIND

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        failpoints: Mapping[str, protocol.Failpoint] | None = None,
        timeouts: ProcessTimeouts | None = None,
    ) -> None:
        super().__init__(environ=environ, failpoints=failpoints, timeouts=timeouts)
        self._cells = SandboxPool(settings.worker_environment() if environ is None else environ)

    async def start(self, spec: WorkerSpec) -> ProcessWorker:
        """Start a worker and load its engine.

        Raises `WorkerStartFailed`, also if sandboxes are unavailable.
        """
        fault = await asyncio.to_thread(bubblewrap.fault)
        if fault:
            raise StartFailed(f"it requires a sandbox, and {fault}")
        cell = spec.scratch.absolute() / f"{secrets.token_hex(8)}.cell"
        inner = _inner(spec, cell / _WORK)
        for folder in (cell / _WORK, cell / _INPUTS):
            folder.mkdir(mode=0o700, parents=True)
        self._cells.readable[str(inner.scratch)] = tuple(map(Path, spec.options.get("readable", ())))
        return await super().start(inner)

    async def starter(self) -> WorkerStarter:
        return self._cells

    def new_worker(self, spec: WorkerSpec, starter: WorkerStarter, output: int) -> ProcessWorker:
        return SandboxWorker(self, spec, starter, output)


def _inner(spec: WorkerSpec, work: Path) -> WorkerSpec:
    factory: Any = spec.options.get("factory")
    if not isinstance(factory, str):
        raise StartFailed("the sandbox option `factory` is required")
    options: dict[str, Any] = dict(spec.options.get("options", {}))
    return msgspec.structs.replace(spec, factory=factory, options=options, scratch=work)
