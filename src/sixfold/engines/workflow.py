"""The engine of graphs: a coroutine of the server that runs a graph's nodes and orders its heavy ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import blake3

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.media import media as media_files
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions import lineage, outputs
from sixfold.core.predictions.child_runs import ChildRun, ChildRunPort
from sixfold.core.predictions.events import ProgressEvent
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance.formats.edits import Unembeddable
from sixfold.core.provenance.manifest import Manifest
from sixfold.core.workers.remote_engines import HostServices
from sixfold.core.workflows import execute, workflows
from sixfold.core.workflows import ports as graphs
from sixfold.core.workflows.admission import GraphMemory
from sixfold.core.workflows.execute import GraphEnded, GraphRunLimits, RunLocation
from sixfold.core.workflows.fileorder import FileOrder
from sixfold.core.workflows.image_metadata import GraphEmbedder
from sixfold.core.workflows.node_sessions import LocalSession, NodeSession
from sixfold.core.workflows.ports import NodeArtifact, NodeEvent, NodeFile
from sixfold.core.workflows.remote_execution import NodeLost, RemoteGraphRunner
from sixfold.core.workflows.run_events import EventSinks, RunEventPublisher, public
from sixfold.core.workflows.service import GraphService
from sixfold.core.workflows.storage import GIVEN, Run, StoredName
from sixfold.core.workflows.validate import ValidationResult

_REMEMBERED_BYTES = 2**20
_MADE_HERE = 2  # threads for pixels and sound, where no process runs them
OpenNodes = Callable[[Path], Awaitable[NodeSession]]


class GraphEngine:
    """Runs graphs; one for the server, many runs at a time."""

    name = "graph"
    version = "1"

    def __init__(
        self,
        outside: HostServices,
        *,
        limit_seconds: float = GraphRunLimits.seconds,
        memory_bytes: int = GraphRunLimits.memory_bytes,
    ) -> None:
        self._limits = GraphRunLimits(seconds=limit_seconds)
        self._memory = GraphMemory(memory_bytes)
        self._children = outside.children
        self._workshop: GraphService = outside.workshop
        self._open_session: OpenNodes | None = outside.nodes
        self._threads = ThreadPoolExecutor(_MADE_HERE, "nodes")

    async def run(self, task: Task, context: Context) -> Result:
        """Run the task's graph to its end."""
        parent = await self._children.parent(task.id)
        run = _WorkflowRun(task, context, parent, self._workshop, self._children)
        try:
            with self._workshop.as_quoted(task.id):
                return await run.go(self._session, self._memory, self._limits)
        except execute.NodeError as error:
            if isinstance(error.reason, UnusableInput | errors.BadRequest):
                raise UnusableInput(error.message) from error
            raise EngineError(error.message) from error
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error

    async def _session(self, scratch: Path) -> NodeSession:
        """Where the nodes of a run work: a process, or threads where the operator wants no processes."""
        if self._open_session is not None:
            return await self._open_session(scratch)
        return LocalSession(self._workshop.packer(scratch), self._threads)

    async def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _WorkflowRun:
    """One graph's run: the ports that `execute` asks for, and what its end is as a result."""

    def __init__(
        self, task: Task, context: Context, parent: Prediction, workshop: GraphService, children: ChildRunPort
    ) -> None:
        self._task = task
        self._context = context
        self._parent = parent
        self._tenant = Tenant.of(parent)
        self._run = Run(self._tenant, parent.id if parent.price else None)
        self._workshop = workshop
        self._children = children
        self._graph = workflows.ordered(task.inputs, task.files)
        extra: Mapping[str, Any] = task.inputs.get("extra_data") or {}
        info: Mapping[str, Any] = extra.get("extra_pnginfo") or {}
        self._embedder = GraphEmbedder(self._graph, info.get("workflow"))
        self._ordered = 0  # micro-dollars
        self._order = FileOrder(())
        self._naming = asyncio.Lock()
        self._signed: dict[str, Manifest] = {}
        self._data: dict[str, bytes] = {}  # of small files that were just made
        self._telling = RunEventPublisher(
            parent, self._graph, context, EventSinks(workshop.hub, workshop.bus)
        )

    async def go(self, nodes: OpenNodes, memory: GraphMemory, limits: GraphRunLimits) -> Result:
        workshop = self._workshop
        await workshop.look(self._graph)
        verdict = await workshop.verdict(self._graph, targets=self._task.inputs.get("targets"))
        if verdict.missing_classes or (not verdict.elsewhere and execute.unrunnable(verdict)):
            raise EngineError(workshop.lacking(verdict))
        if verdict.error is not None:
            raise UnusableInput("; ".join(str(each["message"]) for each in verdict.errors))
        self._telling.begin(len(verdict.nodes))
        self._order = FileOrder(
            (node_id, verdict.nodes[node_id].spec.class_type) for node_id in verdict.outputs
        )
        if verdict.elsewhere and workshop.elsewhere is not None:
            return await self._elsewhere(workshop.elsewhere, verdict)
        place = RunLocation(
            children=self,
            files=self,
            shelf=self,
            packer=workshop.packer(self._context.scratch),
            scratch=self._context.scratch,
            cache=workshop.outcomes(self._tenant).of_run(self._run),
            memory=memory,
            open_session=lambda: nodes(self._context.scratch),
        )
        ended = await execute.execute(verdict, place, self._heard, limits)
        return await self._result(ended)

    def _heard(self, event: NodeEvent) -> None:
        if event.type == "finished":
            self._order.finish(str(event.data["node"]))
        self._telling.heard(event)

    # -- what the graph asks for (ports.Children, Files, Shelf) -------------------------------------

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> graphs.NodeChild:
        """Order a child, and take what it gave."""
        most = self._afford(graphs.ChildRequest(model, inputs))
        files = {name: value for name, value in inputs.items() if isinstance(value, NodeFile)}
        plain = {name: value for name, value in inputs.items() if name not in files}
        sources = {name: await self._stored(file) for name, file in files.items()}
        async with self._followed(ids.derived(self._parent.id, node_key), progress):
            ended = await self._children.run(self._parent, ChildRun(node_key, model, plain, sources, most))
        if ended.state is not PredictionState.SUCCEEDED or ended.output is None:
            raise errors.EngineFailed(ended.error or f"{model} was {ended.state}")
        blobs = self._workshop.media.blobs
        given: list[NodeFile] = []
        output = outputs.first(ended.output)
        for file in output.files:
            path = await blobs.local_path(file.blob)
            digest = media_files.content_digest(file.blob) or file.blob
            given.append(NodeFile(digest, file.content_type, path, str(file.info.get("name", "")), file.info))
        return graphs.NodeChild(tuple(given), output.data, ended.quality == "preview")

    def _afford(self, asked: graphs.ChildRequest) -> int | None:
        """What an order may cost, in micro-dollars; None where nothing is charged.

        Raises `EngineFailed` for one that is not within what was held for the graph.
        """
        parent = self._parent
        if parent.meter != CHILDREN:
            return None
        most = self._workshop.price_of(asked, parent.account_id, charged=True).micros
        self._ordered += most
        if self._ordered > parent.price:
            held = money.format_usd(parent.price)
            raise errors.EngineFailed(f"it would cost more than the {held} USD held for this graph")
        return most

    @contextlib.asynccontextmanager
    async def _followed(self, child_id: str, progress: Callable[[float], None]) -> AsyncIterator[None]:
        async def follow() -> None:
            with self._workshop.bus.listen(child_id) as events:
                while True:
                    event = await events.get()
                    if isinstance(event, ProgressEvent):
                        progress(event.fraction)

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()

    async def _stored(self, file: NodeFile) -> MediaSource:
        data = await asyncio.to_thread(file.path.read_bytes)
        return await self._workshop.media.store_unnamed(data, file.content_type)

    async def find(self, name: str, kind: str) -> NodeFile:
        """The file of an input: one that came with the order, or by its name."""
        if name.startswith(GIVEN):
            path = self._task.files[name.removeprefix(GIVEN)]
            digest = await asyncio.to_thread(lambda: blake3.blake3(path.read_bytes()).hexdigest())
            return NodeFile(digest, _TYPES.get(kind, "application/octet-stream"), path, name)
        source = await self._workshop.names.source(self._tenant, name, kind)
        return await self._workshop.names.file(source, name)

    async def keep(self, node_id: str, made: NodeArtifact, *, preview: bool) -> Mapping[str, Any]:
        """Keep a file under a name of its own: signed, and a PNG or WebP with the graph that made it."""
        manifest = self._manifest(self._order.next(node_id, temporary=made.temporary), preview=preview)
        data = await asyncio.to_thread(self._written, made, manifest)
        source = await self._workshop.media.store_unnamed(data, made.content_type)
        self._signed[source.blob] = manifest
        if len(data) <= _REMEMBERED_BYTES:
            self._data[source.blob] = data
        kind = "temp" if made.temporary else "output"
        # The number in a name is counted in the store: two files at once would get the same.
        async with self._naming:
            name = await self._workshop.names.kept(self._run, kind, made.prefix, source)
        told = {"filename": name.name, "subfolder": name.subfolder, "type": name.kind}
        return {**told, "blob": source.blob, "content_type": made.content_type, "info": dict(made.info)}

    def _manifest(self, index: int, *, preview: bool) -> Manifest:
        quality = "preview" if preview else "full"
        return lineage.manifest(self._parent, index, GraphEngine.version, quality)

    def _written(self, made: NodeArtifact, manifest: Manifest) -> bytes:
        data = made.data or _taken(made)
        if made.content_type in ("image/png", "image/webp"):
            with contextlib.suppress(Unembeddable):
                data = self._embedder.embed(data)
        return self._workshop.names.signed(data, made.content_type, manifest)

    # -- what came of it -----------------------------------------------------------------------------

    async def _result(self, ended: GraphEnded) -> Result:
        """Its files with the data beside; previews are files only where there are no others."""
        shown = [(node_id, row) for node_id, ui in ended.outputs.items() for row in _files(ui)]
        rows = [each for each in shown if each[1]["type"] != "temp"] or shown
        texts = [str(text) for ui in ended.outputs.values() for text in ui.get("text", ())]
        told: dict[str, Any] = {}
        if self._parent.face == "comfyui":
            outputs = {node_id: public(ui) for node_id, ui in ended.outputs.items()}
            told = {"outputs": outputs, "cached": list(ended.cached)}
        elif texts:
            unlike = list(dict.fromkeys(texts))
            told = {"text" if rows else "value": unlike[0] if len(unlike) == 1 else unlike}
        rows = [
            (node_id, await self._placed(row, self._manifest(index, preview=ended.preview)))
            for index, (node_id, row) in enumerate(rows)
        ]
        artifacts = [await self._artifact(node_id, row, named=bool(told)) for node_id, row in rows]
        return Result(tuple(artifacts), told, quality="preview" if ended.preview else "full")

    async def _placed(self, row: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
        """A file that was signed before its place among all was known is signed anew under its name."""
        if self._signed.get(row["blob"], manifest) == manifest:
            return row
        workshop, content_type = self._workshop, row["content_type"]
        data = await self._bytes(row)
        signed = await asyncio.to_thread(workshop.names.signed, data, content_type, manifest)
        source = await workshop.media.store_unnamed(signed, content_type)
        name = StoredName(row["filename"], row["subfolder"], row["type"])
        await workshop.names.put(self._run, name, source)
        return {**row, "blob": source.blob}

    async def _artifact(self, node_id: str, row: Mapping[str, Any], *, named: bool) -> Artifact:
        info = {**row["info"], "node": node_id, "filename": row["filename"]}
        if named:
            info["name"] = "file" if self._parent.face != "comfyui" else "files"
        return Artifact(row["content_type"], await self._bytes(row), info)

    async def _bytes(self, row: Mapping[str, Any]) -> bytes:
        return self._data.pop(row["blob"], b"") or await self._workshop.media.blobs.get(row["blob"])

    # -- on a ComfyUI --------------------------------------------------------------------------------

    async def _elsewhere(self, elsewhere: RemoteGraphRunner, verdict: ValidationResult) -> Result:
        """The whole graph as it is, on a ComfyUI that has its classes; paid like the same work here."""
        files = {place: await self.find(*told) for place, told in self._named(verdict).items()}
        heard, scratch = self._telling.heard, self._context.scratch
        graph = self._graph
        if self._task.inputs.get("targets"):
            graph = {node_id: node for node_id, node in graph.items() if node_id in verdict.nodes}
        try:
            fetched = await elsewhere.run(graph, files, scratch, heard)
        except NodeLost as lost:
            told = {"node_id": lost.node_id, "node_type": lost.class_type, "exception_message": str(lost)}
            heard(NodeEvent("execution_error", {**_FAILED, **told}))
            raise
        outputs = {node_id: await self._brought(node_id, shown) for node_id, shown in fetched.shown.items()}
        for node_id, ui in outputs.items():
            heard(NodeEvent("executed", {"node": node_id, "display_node": node_id, "output": ui}))
        result = await self._result(GraphEnded(outputs, tuple(verdict.nodes), fetched.cached))
        cost = self._workshop.estimate(verdict, without=fetched.cached)
        return dataclasses.replace(result, billed=cost.list_micros, lines=cost.list_lines)

    async def _brought(self, node_id: str, shown: Mapping[str, Any]) -> dict[str, Any]:
        """What an output node showed there, its files kept here."""

        async def here(row: Any) -> Any:
            return await self.keep(node_id, row, preview=False) if isinstance(row, NodeArtifact) else row

        return {
            kind: [await here(row) for row in rows] if isinstance(rows, list) else rows
            for kind, rows in shown.items()
        }

    def _named(self, verdict: ValidationResult) -> dict[tuple[str, str], tuple[str, str]]:
        """The files that inputs name, with their kinds: what came with the order, and what a class loads."""
        uploads = {node_id: node.spec.uploads for node_id, node in verdict.nodes.items()}
        return {
            (node_id, name): (value, uploads.get(node_id, {}).get(name, "file"))
            for node_id, node in self._graph.items()
            if node_id in verdict.nodes
            for name, value in node["inputs"].items()
            if isinstance(value, str)
            and (value.startswith(GIVEN) or (value and name in uploads.get(node_id, ())))
        }


def _files(ui: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The files that a node showed."""
    for rows in ui.values():
        if isinstance(rows, list | tuple):
            yield from (row for row in rows if isinstance(row, Mapping) and "blob" in row)


def _taken(made: NodeArtifact) -> bytes:
    if made.path is None:
        return b""
    data = made.path.read_bytes()
    made.path.unlink(missing_ok=True)
    return data


# What ComfyUI says of a failure beside where and why it was.
_FAILED: Mapping[str, Any] = {
    "executed": [],
    "exception_type": "NodeLost",
    "traceback": [],
    "current_inputs": {},
    "current_outputs": [],
}
# What a file is taken for; whoever reads it looks at its bytes.
_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}
