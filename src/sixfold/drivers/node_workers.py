"""Node workers: processes that each run the nodes of one workflow run, under the workers' memory limit."""

from __future__ import annotations

import asyncio
import builtins
import itertools
import logging
import os
import shutil
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.core.workers.ports import Worker, WorkerSpec, WorkerStartFailed
from sixfold.core.workflows.execution import node_frames
from sixfold.core.workflows.execution.context import NodeRunContext
from sixfold.core.workflows.execution.node_frames import BadFrame, NodeFrame, NodeFrameReader
from sixfold.core.workflows.execution.node_sessions import NodeExecution, NodeExecutionResult, NodeSession
from sixfold.core.workflows.ports import ChildRequest, NodeEvent
from sixfold.core.workflows.validate import GraphNode
from sixfold.drivers.forkserver import ForkServerGone
from sixfold.drivers.process import ProcessDriver, WorkerStarter
from sixfold.worker import protocol

_LOG = logging.getLogger("sixfold.nodes")
_FACTORY = "sixfold.engines.workflow_nodes.serving:serve"
_NICENESS = 5
_START_SECONDS = 60.0
_END_SECONDS = 2.0
# The number of nodes that compute at the same time.
_MAX_COMPUTING = 2
# The number of idle workers that are kept for later runs.
_MAX_IDLE = 2
# A batch of images sends a frame for each image; other callers may continue between these frames.
FRAMES_PER_TURN = 32
_EVENTS = frozenset({"progress", "preview", "image"})


class NodeWorkerLost(EngineError):
    """A node worker ended during a run, or a node exceeded its memory limit."""


class NodeWorkers:
    """Forks node workers from a driver's fork server; closed in the same way as a driver.

    At most two nodes compute at the same time, across all runs.
    """

    name = "nodes"

    def __init__(self, driver: ProcessDriver, scratch: Path, memory_bytes: int, *, owned: bool) -> None:
        self.turns = asyncio.Semaphore(_MAX_COMPUTING)
        self._driver = driver
        self._owned = owned
        self._scratch = scratch
        self._memory_bytes = memory_bytes
        self._idle: list[_NodeWorker] = []
        self._workers: set[_NodeWorker] = set()

    async def open(self, scratch: Path) -> NodeSession:
        """Open a session in a separate worker; `scratch` is the run's folder.

        Raises `EngineUnavailable`.
        """
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                break
        else:
            worker = await self._started()
        return _ProcessSession(self, worker, scratch)

    async def start(self, spec: WorkerSpec) -> Worker:
        """Raise `WorkerStartFailed`, because node workers do not run tasks."""
        raise WorkerStartFailed("node workers run only workflow nodes, not tasks")

    async def close(self) -> None:
        """Kill every worker. Idempotent."""
        await asyncio.gather(*(worker.kill() for worker in tuple(self._workers)))
        if self._owned:
            await self._driver.close()

    def release(self, worker: _NodeWorker) -> bool:
        """Keep a worker for another run if the limit allows it; return whether it was kept."""
        if not worker.alive or len(self._idle) >= _MAX_IDLE:
            return False
        self._idle.append(worker)
        return True

    def forget(self, worker: _NodeWorker) -> None:
        """Remove a worker that has ended."""
        self._workers.discard(worker)

    @property
    def limit(self) -> str:
        """The clause that states the memory limit in error messages."""
        if not self._memory_bytes:
            return "its memory is limited only by this machine"
        return f"its limit is {self._memory_bytes // 2**20:,} MiB (SIXFOLD_WORKER_MEMORY_BYTES)"

    async def _started(self) -> _NodeWorker:
        try:
            try:
                return await self._start()
            except ForkServerGone:
                # Retry once, with a new fork server.
                return await self._start()
        except (ForkServerGone, WorkerStartFailed, OSError, TimeoutError) as error:
            raise errors.EngineUnavailable(f"A node worker could not be started: {error}") from error

    async def _start(self) -> _NodeWorker:
        starter = await self._driver.starter()
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker = _NodeWorker(self, starter, self._scratch.absolute())
        ours, theirs = socket.socketpair()
        output = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._workers.add(worker)
        try:
            ours.setblocking(False)
            await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
            await worker.begin(self._order(worker.id), theirs.fileno(), output)
        except BaseException:
            await worker.kill()
            raise
        finally:
            theirs.close()
            os.close(output)
        async with asyncio.timeout(_START_SECONDS):
            await worker.ready
        return worker

    def _order(self, worker_id: str) -> protocol.SpawnWorker:
        scratch = str(self._scratch.absolute())
        return protocol.SpawnWorker(
            worker_id, _FACTORY, self._memory_bytes, scratch, _NICENESS, resident=True, serves=True
        )


class _NodeWorker(asyncio.Protocol):
    """One worker process, and the session that uses it."""

    def __init__(self, workers: NodeWorkers, starter: WorkerStarter, scratch: Path) -> None:
        self.id = uuid.uuid4().hex
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.session: _ProcessSession | None = None
        self._workers = workers
        self._starter = starter
        self._scratch = scratch
        self._frames = NodeFrameReader()
        self._transport: asyncio.Transport | None = None
        self._exited: asyncio.Future[str] | None = None
        self.alive = True

    @property
    def pid(self) -> int | None:
        return self._starter.pid_of(self.id)

    async def begin(self, order: protocol.SpawnWorker, link: int, output: int) -> None:
        """Fork the process; raises `ForkServerGone`."""
        self._exited = await self._starter.spawn(order, link, output)
        self._exited.add_done_callback(lambda exited: self._lost(exited.result()))

    async def kill(self) -> None:
        """Kill the process immediately. Idempotent."""
        self._end("was stopped")
        if self._exited is not None and not self._exited.done():
            self._starter.kill(self.id)
            await asyncio.wait({self._exited}, timeout=_END_SECONDS)

    def send(self, frame: NodeFrame) -> None:
        """Send a frame, unless the worker has ended."""
        if self.alive and self._transport is not None:
            self._transport.write(frame.encode())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a socket's is a Transport

    def data_received(self, data: bytes) -> None:
        if not self.alive:
            return
        try:
            frames = self._frames.feed(data, FRAMES_PER_TURN)
            for frame in frames:
                if frame.payload["kind"] == "ready":
                    self.ready.set_result(None)
                elif self.session is not None:
                    self.session.handle(frame)
        except (BadFrame, LookupError, TypeError, ValueError) as error:
            _LOG.warning("a node worker violated the protocol", extra={"reason": str(error)})
            self._end("violated the protocol")
            self._starter.kill(self.id)
        else:
            self._read_on(more=len(frames) == FRAMES_PER_TURN)

    def _read_on(self, *, more: bool) -> None:
        """Resume reading from the worker; if `more` is set, handle the buffered frames first."""
        if not self.alive or self._transport is None:
            return
        if more:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.data_received, b"")
        else:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait briefly for the exit reason before the worker counts as lost."""
        asyncio.get_running_loop().call_later(_END_SECONDS, self._lost, "hung up")

    def _lost(self, reason: str) -> None:
        if self.alive:
            _LOG.warning("a node worker was lost", extra={"reason": reason})
            self._end(reason)
            self._starter.kill(self.id)

    def _end(self, reason: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self._workers.forget(self)
        if self._transport is not None:
            self._transport.abort()
        if not self.ready.done():
            self.ready.set_exception(WorkerStartFailed(reason))
            self.ready.exception()
        if self.session is not None:
            self.session.fail_all(reason)
        asyncio.get_running_loop().run_in_executor(None, self._clean)

    def _clean(self) -> None:
        shutil.rmtree(self._scratch / f"{self.id}.tmp", ignore_errors=True)


class _ProcessSession:
    """A node session in a worker process."""

    def __init__(self, workers: NodeWorkers, worker: _NodeWorker, scratch: Path) -> None:
        self._workers = workers
        self._worker = worker
        self._scratch = scratch.absolute()
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[asyncio.Future[NodeFrame], NodeRunContext | None]] = {}
        self._children: dict[asyncio.Task[None], int] = {}
        self._failed: dict[int, Exception] = {}
        worker.session = self
        worker.send(NodeFrame({"kind": "begin", "scratch": str(self._scratch)}))

    async def run(self, execution: NodeExecution, context: Any) -> NodeExecutionResult:
        node = execution.node
        payload = {
            "kind": "run",
            "node": node.id,
            "class_type": node.spec.class_type,
            "inputs": {name: node_frames.value_row(value) for name, value in execution.inputs.items()},
            "packs": execution.packs,
        }
        if node.spec.where == "thread":
            async with self._workers.turns:
                return await self._request(NodeFrame(payload), context)
        return await self._request(NodeFrame(payload), context)

    async def load(self, node: GraphNode, packed: bytes) -> NodeExecutionResult:
        frame = NodeFrame({"kind": "load", "node": node.id, "class_type": node.spec.class_type})
        frame.payload["packed"] = await asyncio.to_thread(frame.put, packed, self._scratch)
        return await self._request(frame, None)

    def release(self, node_id: str) -> None:
        self._worker.send(NodeFrame({"kind": "release", "node": node_id}))

    async def close(self, *, ended: bool) -> None:
        """Keep the worker for another run if this run ended normally, otherwise kill it."""
        for child in self._children:
            child.cancel()
        self._worker.session = None
        if not (ended and not self._open and self._workers.release(self._worker)):
            await self._worker.kill()

    async def _request(self, frame: NodeFrame, context: NodeRunContext | None) -> NodeExecutionResult:
        if not self._worker.alive:
            raise self._lost_error("had ended")
        number = frame.payload["number"] = next(self._numbers)
        answer: asyncio.Future[NodeFrame] = asyncio.get_running_loop().create_future()
        self._open[number] = answer, context
        self._worker.send(frame)
        # A canceled request stays registered, so that the worker is not used again.
        response = await answer
        del self._open[number]
        if response.payload["kind"] == "failed":
            raise self._failure(response.payload)
        row = response.payload["result"]
        if node_frames.has_file(row):
            return await asyncio.to_thread(node_frames.read_result, row, response, self._scratch)
        return node_frames.read_result(row, response, self._scratch)

    # -- messages from the worker --------------------------------------------------------------------

    def handle(self, frame: NodeFrame) -> None:
        payload = frame.payload
        answer, context = self._open[payload["number"]]
        match payload["kind"]:
            case "done" | "failed":
                if not answer.done():
                    answer.set_result(frame)
            case "event":
                if context is not None and payload["type"] in _EVENTS:
                    context.emit_event(NodeEvent(payload["type"], payload["data"], frame.binary))
            case "child":
                if context is not None:
                    task = asyncio.create_task(self._child(payload, context))
                    self._children[task] = payload["child"]
                    task.add_done_callback(self._children.pop)
            case kind:
                raise ValueError(kind)

    async def _child(self, payload: Mapping[str, Any], context: NodeRunContext) -> None:
        inputs = {name: node_frames.read_value(row) for name, row in payload["inputs"].items()}
        result: Mapping[str, Any] | None = None
        try:
            child = await context.child(ChildRequest(payload["model"], inputs))
            files = [node_frames.file_row(file) for file in child.files]
            result = {"files": files, "data": dict(child.data), "preview": child.preview}
        except (errors.SixfoldError, EngineError) as error:
            self._failed[payload["child"]] = error
        self._worker.send(NodeFrame({"kind": "child", "child": payload["child"], "given": result}))

    def fail_all(self, reason: str) -> None:
        for answer, _ in self._open.values():
            if not answer.done():
                answer.set_exception(self._lost_error(reason))

    def _lost_error(self, reason: str) -> NodeWorkerLost:
        return NodeWorkerLost(f"the node worker {reason}; {self._workers.limit}")

    def _failure(self, payload: Mapping[str, Any]) -> Exception:
        """Reconstruct the exception that a node raised."""
        text, reason = str(payload["text"]), str(payload["reason"])
        match payload["sort"]:
            case "child":
                return self._failed.pop(payload["child"])
            case "unusable":
                return UnusableInput(text)
            case "engine":
                return EngineError(text)
            case "memory":
                return NodeWorkerLost(f"the node exceeds the memory of a node worker; {self._workers.limit}")
            case "sixfold":
                kind = getattr(errors, reason, errors.EngineFailed)
                return errors.BadRequest(text) if kind is errors.InvalidInput else kind(text)
            case _:
                _LOG.error("a node failed", extra={"reason": text})
                exception_type = getattr(builtins, reason, None)
                is_known = isinstance(exception_type, type) and issubclass(exception_type, Exception)
                return exception_type(reason) if is_known else RuntimeError(reason)  # pyright: ignore[reportOptionalCall] # checked above
