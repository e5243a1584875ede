"""Workers as actors of a Ray cluster: one detached actor each, on any machine with free resources.

Ray places actors and detects lost machines; the state of runs and charges stays in the database. Files travel
in pieces, so the machines need no shared folder, only Sixfold installed, and no process holds a large file in
memory. Results are decoded as those of processes (`large_messages`), within the same limits. An actor's name
begins with the name of the server that started the actor, so that actors of a dead server can be found and
stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from sixfold.core.catalog.engines import Task
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.media.ports import StagedFile
from sixfold.core.sessions.engine import StepAnswer, StepRequest
from sixfold.core.workers.ports import (
    Living,
    Outcome,
    RunCompleted,
    RunFailed,
    RunReports,
    RunStopped,
    WorkerLost,
    WorkerSpec,
)
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers import large_messages, results
from sixfold.drivers.inline import InlineDriver, InlineWorker
from sixfold.drivers.temp_dirs import OwnedTempDir
from sixfold.worker import protocol

ray: Any = importlib.import_module("ray")  # an optional dependency without types
RayError: Any = importlib.import_module("ray.exceptions").RayError

NAMESPACE = "sixfold"
START_SECONDS = 120.0
# Attempts to place an actor if its machine is lost before the engine is loaded.
STARTS = 3
_PIECE_BYTES = 8 * 2**20


class RayEvent(msgspec.Struct, frozen=True):
    """An event of a run: its progress, a log line, a piece of the file `name`, or its end.

    The value of an end is the encoded reply of the worker, or None if the worker was lost.
    """

    kind: Literal["progress", "log", "piece", "ended"]
    value: Any
    name: str = ""


class ActorLost(StartFailed):
    """The actor's process or machine was lost while the engine was loading."""


class RaySlot:
    """The actor: a worker in a thread of the actor's process, with a folder on its machine."""

    def __init__(self, failpoints: Mapping[str, protocol.Failpoint], cancel_seconds: float) -> None:
        self._folder = OwnedTempDir()
        self._driver = InlineDriver(failpoints=failpoints, cancel_seconds=cancel_seconds)
        self._worker: InlineWorker | None = None
        self._runs = 0

    async def begin(self, spec: dict[str, Any]) -> str:
        """Load the engine; return the reason if this fails, or an empty string."""
        try:
            self._worker = await self._driver.start(WorkerSpec(scratch=self._folder.path / "staged", **spec))
        except StartFailed as failed:
            return str(failed) or "could not load its engine"
        return ""

    async def run(
        self, task: tuple[str, str, dict[str, Any]], pieces: dict[str, list[Any]], prefix: str
    ) -> AsyncIterator[RayEvent]:
        """Run a task and yield its events; the last one is its end.

        `pieces` are references to the contents of the input files. The names of output files begin with
        `prefix`.
        """
        events: asyncio.Queue[RayEvent] = asyncio.Queue()
        reports = RunReports(
            lambda fraction: events.put_nowait(RayEvent("progress", fraction)),
            lambda line: events.put_nowait(RayEvent("log", line)),
        )
        self._runs += 1
        folder = self._folder.path / f"run-{self._runs}"
        folder.mkdir(mode=0o700)
        work: asyncio.Task[Outcome] | None = None
        try:
            files = {name: folder / str(number) for number, name in enumerate(pieces)}
            for name, path in files.items():
                await _write(path, pieces[name])
            assert self._worker is not None  # noqa: S101 - `begin` came first
            work = asyncio.create_task(self._worker.run(Task(*task, files), reports))
            work.add_done_callback(lambda _: events.put_nowait(RayEvent("ended", None)))
            while (event := await events.get()).kind != "ended":
                yield event
            outcome = work.result()
            names: dict[str, StagedFile] = {}
            if isinstance(outcome, RunCompleted):
                names = {f"{prefix}-{number}": file for number, file in enumerate(outcome.files)}
            for name, file in names.items():
                for piece in _pieces(file.path):
                    yield RayEvent("piece", piece, name)
                file.path.unlink()
            yield RayEvent("ended", results.encoded(outcome, tuple(names)))
        finally:
            if work is not None:
                work.cancel()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        assert self._worker is not None  # noqa: S101 - `begin` came first
        return await self._worker.steps(requests)

    async def cancel(self, task_id: str) -> None:
        if self._worker is not None:
            self._worker.cancel(task_id)

    async def here(self) -> None:
        """Return immediately, which shows that the actor is alive."""

    async def leave(self) -> None:
        """Stop gracefully and remove all files from this machine."""
        if self._worker is not None:
            await self._worker.stop()
        await asyncio.to_thread(self._folder.leave)


async def _write(path: Path, pieces: Sequence[Any]) -> None:
    """Write the pieces that these references name."""
    for reference in pieces:
        await asyncio.to_thread(_append, path, await reference)


def _append(path: Path, piece: bytes) -> None:
    path.touch(mode=0o600)
    with path.open("ab") as file:
        file.write(piece)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, at least one piece."""
    with path.open("rb") as file:
        yield file.read(_PIECE_BYTES)
        while piece := file.read(_PIECE_BYTES):
            yield piece


class _RayRun(msgspec.Struct, eq=False):
    """A run in progress; if `canceled` is set, the end of its worker counts as `RunStopped`."""

    reports: RunReports
    canceled: bool = False
    deadline: asyncio.TimerHandle | None = msgspec.field(default=None)


class RayWorker:
    """The server's view of one actor."""

    def __init__(self, driver: RayDriver, spec: WorkerSpec, actor: Any) -> None:
        self.id = uuid.uuid4().hex
        self._driver = driver
        self._spec = spec
        self._actor = actor
        self._runs: dict[str, _RayRun] = {}
        self._count = 0
        self._alive = True
        self._end_reason = "had ended"
        # Whether the engine is loaded.
        self.begun = False

    @property
    def alive(self) -> bool:
        return self._alive

    async def begin(self) -> None:
        """Wait until the engine is loaded; raises `StartFailed`."""
        spec = self._spec
        about = {
            "engine": spec.engine,
            "factory": spec.factory,
            "memory_bytes": spec.memory_bytes,
            "options": dict(spec.options),
            "max_tasks": spec.max_tasks,
            "cancel_seconds": spec.cancel_seconds,
        }
        try:
            async with asyncio.timeout(max(self._driver.start_seconds, spec.start_seconds)):
                problem = await self._actor.begin.remote(about)
        except TimeoutError as error:
            self.kill_now("did not start in time")
            raise StartFailed(
                "the cluster has no free resources for it, or its engine did not load in time"
            ) from error
        except RayError as error:
            self.kill_now("did not start")
            raise ActorLost(_first_line(error)) from error
        if problem:
            self.kill_now("could not load its engine")
            raise StartFailed(problem)
        self.begun = True

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        if not self._alive:
            return WorkerLost(f"the worker {self._end_reason}")
        if len(self._runs) >= self._spec.max_tasks:
            raise RuntimeError(f"the worker is already running its maximum of {self._spec.max_tasks} tasks")
        try:
            inputs = protocol.decode_plain(protocol.encode(dict(task.inputs)))
        except (TypeError, ValueError, OverflowError) as error:
            return RunFailed(f"The task cannot be sent to a worker: {error}", public=False)
        run = self._runs[task.id] = _RayRun(reports)
        self._count += 1
        try:
            pieces = await asyncio.to_thread(_put, task.files)
            return await self._run_remotely(run, (task.id, task.model, inputs), pieces)
        except asyncio.CancelledError:
            self.cancel(task.id)
            raise
        finally:
            if run.deadline is not None:
                run.deadline.cancel()
            del self._runs[task.id]

    async def _run_remotely(
        self, run: _RayRun, task: tuple[str, str, dict[str, Any]], pieces: dict[str, list[Any]]
    ) -> Outcome:
        scratch, prefix = self._spec.scratch, f"{self.id}-{self._count}"
        events = self._actor.run.options(num_returns="streaming").remote(task, pieces, prefix)
        outcome: Outcome | None = None
        try:
            async for reference in events:
                event: RayEvent = await reference
                match event.kind:
                    case "progress":
                        run.reports.progress(event.value)
                    case "log":
                        run.reports.log(event.value)
                    case "piece":
                        path = results.staged_path(event.name, scratch, prefix)
                        await asyncio.to_thread(_append, path, event.value)
                    case "ended":
                        outcome = await self._outcome(event.value, prefix)
                        return outcome
        # The actor, its machine or the connection is lost.
        except RayError:
            self.kill_now("was lost with its machine, or was killed")
            await self._driver.check_alive()
        except results.VIOLATIONS as error:
            self.kill_now(f"violated the protocol ({error}) and was killed")
        finally:
            if not isinstance(outcome, RunCompleted):
                await asyncio.to_thread(results.remove_staged, scratch, prefix)
        return RunStopped() if run.canceled else WorkerLost(f"the worker {self._end_reason}")

    async def _outcome(self, reply: bytes | None, prefix: str) -> Outcome:
        """Return the outcome of an encoded reply; raises `results.VIOLATIONS`."""
        if reply is None:
            self.kill_now("crashed")
            return WorkerLost("the worker crashed")
        message = await PARSER.run_large(len(reply), large_messages.decode, reply)
        if not isinstance(message, protocol.Reply):
            raise msgspec.ValidationError(f"a run must end with a reply (got {type(message).__name__})")
        return results.outcome(message, self._spec.scratch, prefix)

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        if self._alive:
            try:
                return await self._actor.steps.remote(tuple(requests))
            except RayError:
                self.kill_now("was lost with its machine, or was killed")
        return [WorkerLost(f"the worker {self._end_reason}")] * len(requests)

    async def check_alive(self) -> None:
        """Check whether the actor is still alive; an actor that answers slowly counts as alive."""
        try:
            async with asyncio.timeout(self._driver.look_seconds):
                await self._actor.here.remote()
        except RayError:
            self.kill_now("was lost with its machine, or was killed")
        except TimeoutError:
            pass

    def cancel(self, task_id: str) -> None:
        """Request that the running task stop, and kill the actor if it does not."""
        run = self._runs.get(task_id)
        if run is None or run.canceled or not self._alive:
            return
        run.canceled = True
        self._actor.cancel.remote(task_id)
        # Twice the actor's own timeout, so that the actor's cancellation comes first.
        cancel_seconds = 2 * max(self._driver.cancel_seconds, self._spec.cancel_seconds)
        run.deadline = asyncio.get_running_loop().call_later(
            cancel_seconds, self.kill_now, "did not stop when canceled, and was killed"
        )

    async def give_up(self, task_id: str) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Kill the actor immediately; a run in progress returns `WorkerLost`. Idempotent."""
        self.kill_now("was killed")

    async def stop(self) -> None:
        """Stop the actor gracefully, and kill it after a short grace period. Idempotent."""
        if self._alive:
            with contextlib.suppress(RayError, TimeoutError):
                async with asyncio.timeout(self._driver.stop_seconds):
                    await self._actor.leave.remote()
        await self.kill()

    def kill_now(self, reason: str) -> None:
        """Kill the actor and record the reason. Idempotent."""
        if self._alive:
            self._alive = False
            self._end_reason = reason
            self._driver.workers.discard(self)
            with contextlib.suppress(RayError):
                ray.kill(self._actor)


def _put(files: Mapping[str, Path]) -> dict[str, list[Any]]:
    """Store the contents of files in the cluster, and return references to their pieces."""
    return {name: [ray.put(piece) for piece in _pieces(path)] for name, path in files.items()}


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


class RayDriver:
    """Starts an actor for each worker.

    `address` is the cluster's address; `auto` selects the cluster on this machine.

    An actor requests one CPU and the memory of its spec. `hardware` maps the hardware names that a spec may
    use to the GiB of their GPUs: if the cluster's machines offer some of these names as resources, the actor
    also requests one unit of its name, and a GPU if Ray detects any. `namespace` separates the actors of
    different databases. `failpoints` (tests only) work as in the other drivers.
    """

    name = "ray"

    def __init__(
        self,
        address: str = "auto",
        *,
        namespace: str = NAMESPACE,
        hardware: Mapping[str, int] | None = None,
        failpoints: Mapping[str, protocol.Failpoint] | None = None,
        start_seconds: float = START_SECONDS,
        cancel_seconds: float = 2.0,
    ) -> None:
        self.failpoints: dict[str, protocol.Failpoint] = dict(failpoints or {})
        self.start_seconds = start_seconds
        self.cancel_seconds = cancel_seconds
        self.stop_seconds, self.look_seconds = 2.0, 10.0
        self.workers: set[RayWorker] = set()
        self._address = address
        self._namespace = namespace
        self._hardware = dict(hardware or {})
        self._suspects: frozenset[str] = frozenset()
        self._joining = asyncio.Lock()
        self._closed = False

    async def start(self, spec: WorkerSpec) -> RayWorker:
        """Start an actor and load its engine; raises `WorkerStartFailed`."""
        if self._closed:
            raise StartFailed("the driver is closed")
        await asyncio.to_thread(spec.scratch.mkdir, mode=0o700, parents=True, exist_ok=True)
        await self._join()
        for remaining_starts in reversed(range(STARTS)):
            worker = RayWorker(self, spec, await asyncio.to_thread(self._actor, spec))
            self.workers.add(worker)
            try:
                await worker.begin()
            except ActorLost:
                if not remaining_starts:
                    raise
            else:
                return worker
        raise AssertionError  # the last attempt has returned or raised

    async def check_alive(self) -> None:
        """Detect all workers that were lost with the same machine, before a run is retried.

        Otherwise one dead machine could use up all attempts of a run, because an idle lost worker still looks
        alive.
        """
        await asyncio.gather(*(worker.check_alive() for worker in tuple(self.workers) if worker.begun))

    async def sweep(self, living: Living) -> int:
        """Kill the actors of servers that were missing in two consecutive sweeps; return their number."""
        try:
            await self._join()
            names = [name for name in await asyncio.to_thread(_names) if "/" in name]
            boots = {name.partition("/")[0] for name in names}
            dead_boots = frozenset(boots - set(await living(sorted(boots)))) if boots else frozenset()
            stray = [name for name in names if name.partition("/")[0] in dead_boots & self._suspects]
            self._suspects = dead_boots
            await asyncio.to_thread(_kill, stray)
        except (StartFailed, RayError):
            # The cluster does not respond now; the next sweep retries.
            return 0
        return len(stray)

    async def close(self) -> None:
        """Kill every actor. Idempotent; the cluster continues to run."""
        self._closed = True
        for worker in tuple(self.workers):
            await worker.kill()

    async def _join(self) -> None:
        """Connect to the cluster; raises `StartFailed` if it does not respond."""
        async with self._joining:
            if not ray.is_initialized():
                try:
                    await asyncio.to_thread(_join, self._address, self._namespace)
                except (ConnectionError, RuntimeError, ValueError, RayError) as error:
                    raise StartFailed(
                        f"could not connect to the Ray cluster at {self._address}: {_first_line(error)}"
                    ) from error

    def _actor(self, spec: WorkerSpec) -> Any:
        actor_class: Any = ray.remote(RaySlot)
        offered = ray.cluster_resources()
        placed = spec.hardware in self._hardware and not self._hardware.keys().isdisjoint(offered)
        has_gpu = placed and "GPU" in offered and self._hardware[spec.hardware] > 0
        return actor_class.options(
            name=f"{spec.holder or NAMESPACE}/{uuid.uuid4().hex}",
            lifetime="detached",
            num_cpus=1,
            num_gpus=1 if has_gpu else 0,
            memory=spec.memory_bytes or None,
            resources={spec.hardware: 1} if placed else None,
            # The scheduler retries the run on another worker.
            max_restarts=0,
            max_concurrency=2 * spec.max_tasks + 8,
        ).remote(self.failpoints, max(self.cancel_seconds, spec.cancel_seconds))


def _join(address: str, namespace: str) -> None:
    ray.init(address=address, namespace=namespace, log_to_driver=False, configure_logging=False)


def _names() -> list[str]:
    names: list[str] = ray.util.list_named_actors()
    return names


def _kill(names: Sequence[str]) -> None:
    for name in names:
        # The actor may have ended meanwhile.
        with contextlib.suppress(ValueError, RayError):
            ray.kill(ray.get_actor(name))
