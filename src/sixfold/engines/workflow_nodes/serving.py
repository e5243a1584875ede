"""A node worker process, which runs the nodes of one graph after another for its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.core.workflows.execution import node_frames
from sixfold.core.workflows.execution.context import GraphRunContext, NodeRunContext
from sixfold.core.workflows.execution.node_frames import NodeFrame, NodeFrameReader
from sixfold.core.workflows.execution.node_sessions import LocalSession, NodeExecution, NodeExecutionResult
from sixfold.core.workflows.ports import NodeChild, NodeEvent
from sixfold.core.workflows.validate import GraphNode
from sixfold.engines.workflow_nodes import registry
from sixfold.engines.workflow_nodes.serialization import NodeValuePacker

_READ_BYTES = 2**18
_THREADS = 2
_DETAIL_CHARACTERS = 8_000
_CV2_OUT_OF_MEMORY = -4  # cv2.Error.StsNoMem
_REGISTRY = registry.registry()  # read at import, once for all workers of a server


class ChildFailed(Exception):
    """Raised for a child prediction that failed; the server stores the reason under `number`."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"child {number} failed")


def serve(link: socket.socket) -> None:
    """Serve requests on the socket until it is closed."""
    asyncio.run(_Server(link).serve())


class _Server:
    """The connection to the server, and the current run."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._run: _NodeRun | None = None

    async def serve(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=_READ_BYTES)
        threads = ThreadPoolExecutor(_THREADS, "nodes")
        asyncio.get_running_loop().set_default_executor(threads)
        frames = NodeFrameReader()
        self.send(NodeFrame({"kind": "ready"}))
        while data := await reader.read(_READ_BYTES):
            for frame in frames.feed(data):
                if frame.payload["kind"] == "begin":
                    if self._run is not None:
                        await self._run.end()
                    self._run = _NodeRun(Path(frame.payload["scratch"]), threads, self.send)
                elif self._run is not None:
                    self._run.handle(frame)
        os.killpg(0, signal.SIGKILL)  # the server is gone, so no result is needed

    def send(self, frame: NodeFrame) -> None:
        self._writer.write(frame.encode())


class _NodeRun:
    """The part of a graph's run that this process executes."""

    def __init__(self, scratch: Path, threads: ThreadPoolExecutor, send: Callable[[NodeFrame], None]) -> None:
        self._scratch = scratch
        self._send = send
        self._session = LocalSession(NodeValuePacker(scratch), threads)
        self._tasks: set[asyncio.Task[None]] = set()
        self._children: dict[int, asyncio.Future[NodeChild]] = {}

    async def end(self) -> None:
        await self._session.close(ended=True)

    def handle(self, frame: NodeFrame) -> None:
        fields = frame.payload
        match fields["kind"]:
            case "run":
                self._begin(fields["number"], self._run_node(fields))
            case "load":
                self._begin(fields["number"], self._load_node(frame))
            case "child":
                self._answer(fields)
            case "release":
                self._session.release(fields["node"])
            case _:
                pass

    def _begin(self, number: int, work: Any) -> None:
        task = asyncio.create_task(self._report(number, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, number: int, work: Any) -> None:
        frame = NodeFrame({"kind": "done", "number": number})
        try:
            result: NodeExecutionResult = await work
            if node_frames.needs_file(result):
                row = await asyncio.to_thread(node_frames.result_row, result, frame, self._scratch)
            else:
                row = node_frames.result_row(result, frame, self._scratch)
            frame.payload["result"] = row
            self._send(frame)
        except BaseException as error:  # noqa: BLE001 - the outermost loop: an exception of a node ends its run
            self._send(NodeFrame({"kind": "failed", "number": number, **_failure(error)}))

    async def _run_node(self, fields: Mapping[str, Any]) -> NodeExecutionResult:
        inputs = {name: node_frames.read_value(row) for name, row in fields["inputs"].items()}
        run_context = GraphRunContext(
            _Location(self._scratch, _Children(fields["number"], self)), self._publisher(fields["number"])
        )
        context = NodeRunContext(fields["node"], "", run_context)
        execution = NodeExecution(
            GraphNode(fields["node"], _REGISTRY[fields["class_type"]]), inputs, fields["packs"]
        )
        return await self._session.run(execution, context)

    async def _load_node(self, frame: NodeFrame) -> NodeExecutionResult:
        fields = frame.payload
        packed = await asyncio.to_thread(frame.take, fields["packed"], self._scratch)
        return await self._session.load(GraphNode(fields["node"], _REGISTRY[fields["class_type"]]), packed)

    def _publisher(self, number: int) -> Callable[[NodeEvent], None]:
        def publish(event: NodeEvent) -> None:
            fields = {"kind": "event", "number": number, "type": event.type, "data": event.data}
            self._send(NodeFrame(fields, event.binary))

        return publish

    # -- children ------------------------------------------------------------------------------------

    async def child(self, number: int, model: str, inputs: Mapping[str, Any]) -> NodeChild:
        """Run a child prediction on the server and return its output."""
        child_id = len(self._children)
        answer = self._children[child_id] = asyncio.get_running_loop().create_future()
        rows = {name: node_frames.value_row(value) for name, value in inputs.items()}
        fields = {"kind": "child", "number": number, "child": child_id, "model": model, "inputs": rows}
        self._send(NodeFrame(fields))
        return await answer

    def _answer(self, fields: Mapping[str, Any]) -> None:
        answer, row = self._children[fields["child"]], fields["given"]
        if row is None:
            answer.set_exception(ChildFailed(fields["child"]))
        else:
            files = tuple(map(node_frames.read_file, row["files"]))
            answer.set_result(NodeChild(files, row["data"], row["preview"]))


class _Children:
    """Implements `NodeChildren` for one node; the server sets the child's key and tracks its progress."""

    def __init__(self, number: int, run: _NodeRun) -> None:
        self._number = number
        self._run = run

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> NodeChild:
        return await self._run.child(self._number, model, inputs)


class _Location:
    """The part of `RunEnvironment` that a node's context uses."""

    def __init__(self, scratch: Path, children: _Children) -> None:
        self.scratch = scratch
        self.children = children


def _failure(error: BaseException) -> dict[str, Any]:
    fields: dict[str, Any] = {"reason": type(error).__name__, "text": ""}
    match error:
        case ChildFailed():
            return {**fields, "sort": "child", "child": error.number}
        case UnusableInput():
            return {**fields, "sort": "unusable", "text": str(error)}
        case EngineError():
            return {**fields, "sort": "engine", "text": str(error)}
        case errors.SixfoldError():
            return {**fields, "sort": "sixfold", "text": error.message}
        case _ if isinstance(error, MemoryError) or getattr(error, "code", None) == _CV2_OUT_OF_MEMORY:
            return {**fields, "sort": "memory"}
        case _:
            detail = ""
            with contextlib.suppress(MemoryError):
                detail = "".join(traceback.format_exception(error))[-_DETAIL_CHARACTERS:]
            return {**fields, "sort": "other", "text": detail}
