"""The engine of workflows: a coroutine in the server that runs nodes and starts child predictions."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.core.catalog.metering import CHILDREN
from sixfold.core.media import blob_keys
from sixfold.core.media.media import MediaSource
from sixfold.core.predictions import lineage, repository
from sixfold.core.predictions.child_runs import ChildRun, ChildRunPort
from sixfold.core.predictions.events import ProgressEvent
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance.formats.edits import Unembeddable
from sixfold.core.provenance.manifest import Manifest
from sixfold.core.workflows import ports as graphs
from sixfold.core.workflows import workflows
from sixfold.core.workflows.execution import execute
from sixfold.core.workflows.execution.admission import GraphMemory
from sixfold.core.workflows.execution.execute import GraphResult, GraphRunLimits, RunEnvironment
from sixfold.core.workflows.execution.file_order import FileOrder
from sixfold.core.workflows.execution.node_sessions import LocalSession, NodeSession
from sixfold.core.workflows.execution.paid_nodes import PaidNodes
from sixfold.core.workflows.execution.remote import NodeLost, RemoteGraphRunner
from sixfold.core.workflows.image_metadata import GraphEmbedder
from sixfold.core.workflows.ports import NodeArtifact, NodeEvent, NodeFile
from sixfold.core.workflows.run_events import EventSinks, RunEventPublisher, public
from sixfold.core.workflows.service import GraphService
from sixfold.core.workflows.storage import SENT_FILE, Run, StoredName
from sixfold.core.workflows.validate import ValidationResult
from sixfold.engines.host_services import HostServices, OpenNodes

LARGE_BYTES = 8 * 2**20  # largest file that is read into memory
MEMORY_BYTES = 16 * 2**20  # of the files of one run in memory; the others are copies on disk
_WITH_GRAPH = frozenset({"image/png", "image/webp"})
_THREADS = 2  # for nodes, if they do not run in a process


class GraphEngine:
    """Runs workflows; one instance serves concurrent runs."""

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
        self._workshop = outside.workflows
        self._open_session = outside.open_nodes
        self._threads = ThreadPoolExecutor(_THREADS, "nodes")

    async def run(self, task: Task, context: Context) -> Result:
        parent = await self._children.parent(task.id)
        run = _WorkflowRun(task, context, parent, self._workshop, self._children)
        try:
            with self._workshop.as_quoted(task.id):
                return await run.execute(self._session, self._memory, self._limits)
        except execute.NodeError as error:
            if isinstance(error.reason, UnusableInput | errors.BadRequest):
                raise UnusableInput(error.message) from error
            raise EngineError(error.message) from error
        except errors.SixfoldError as error:
            raise EngineError(error.message) from error

    async def _session(self, scratch: Path) -> NodeSession:
        """Open a session that runs nodes in a process, or in threads if the operator disabled processes."""
        if self._open_session is not None:
            return await self._open_session(scratch)
        return LocalSession(self._workshop.packer(scratch), self._threads)

    async def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _WorkflowRun:
    """One run of a graph: the ports that `execute.execute` needs, and the result."""

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
        self._children_cost = 0  # micro-dollars
        self._order = FileOrder(())
        self._name_lock = asyncio.Lock()
        self._stored: dict[str, tuple[Manifest, int]] = {}  # the files of this run, by blob, with their sizes
        self._memory_bytes = 0  # of files in memory
        self._publisher = RunEventPublisher(
            parent, self._graph, context, EventSinks(workshop.hub, workshop.bus)
        )

    async def execute(self, nodes: OpenNodes, memory: GraphMemory, limits: GraphRunLimits) -> Result:
        workshop = self._workshop
        await workshop.refresh_remote(self._graph)
        validation = await workshop.validate(self._graph, targets=self._task.inputs.get("targets"))
        if validation.missing_classes or (not validation.needs_remote and execute.unrunnable(validation)):
            raise EngineError(workshop.missing_classes_message(validation))
        if validation.error is not None:
            raise UnusableInput("; ".join(str(error["message"]) for error in validation.errors))
        self._publisher.begin(len(validation.nodes))
        self._order = FileOrder(
            (node_id, validation.nodes[node_id].spec.class_type) for node_id in validation.outputs
        )
        if validation.needs_remote and workshop.remote is not None:
            return await self._run_remotely(workshop.remote, validation)
        location = RunEnvironment(
            children=self,
            files=self,
            output_store=self,
            packer=workshop.packer(self._context.scratch),
            scratch=self._context.scratch,
            cache=workshop.output_cache(self._tenant).of_run(self._run),
            memory=memory,
            open_session=lambda: nodes(self._context.scratch),
        )
        outcome = await execute.execute(validation, location, self._publish, limits)
        return await self._result(outcome)

    def _publish(self, event: NodeEvent) -> None:
        if event.type == "finished":
            self._order.finish(str(event.data["node"]))
        self._publisher.publish(event)

    # -- ports of `execute` (NodeChildren, NodeFiles, OutputStore) -----------------------------------

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> graphs.NodeChild:
        max_cost = self._reserve(graphs.ChildRequest(model, inputs))
        files = {name: value for name, value in inputs.items() if isinstance(value, NodeFile)}
        values = {name: value for name, value in inputs.items() if name not in files}
        sources = {name: await self._store(file) for name, file in files.items()}
        async with self._forward_progress(ids.derived(self._parent.id, node_key), progress):
            child = await self._children.run(
                self._parent, ChildRun(node_key, model, values, sources, max_cost)
            )
        if child.state is not PredictionState.SUCCEEDED or child.output is None:
            failure = errors.BadRequest if child.error_kind == repository.UNUSABLE else errors.EngineFailed
            raise failure(child.error or f"{model} ended as {child.state}")
        blobs = self._workshop.media.blobs
        node_files: list[NodeFile] = []
        output = child.output.first
        for file in output.files:
            path = await blobs.local_path(file.blob)
            digest = blob_keys.content_digest(file.blob) or file.blob
            node_files.append(
                NodeFile(digest, file.content_type, path, str(file.info.get("name", "")), file.info)
            )
        is_preview = child.quality == "preview"
        return graphs.NodeChild(tuple(node_files), output.data, is_preview, child.output.words, child.id)

    def _reserve(self, request: graphs.ChildRequest) -> int | None:
        """Return the price of a child in micro-dollars, or None when nothing is charged.

        Raises `EngineFailed` when the children would cost more than the hold of the graph.
        """
        parent = self._parent
        if parent.meter != CHILDREN:
            return None
        price = self._workshop.price_of(request, parent.account_id, charged=True).micros
        self._children_cost += price
        if self._children_cost > parent.price:
            hold = money.format_usd(parent.price)
            raise errors.EngineFailed(f"it would cost more than the {hold} USD held for this graph")
        return price

    @contextlib.asynccontextmanager
    async def _forward_progress(
        self, child_id: str, progress: Callable[[float], None]
    ) -> AsyncIterator[None]:
        async def follow() -> None:
            with self._workshop.bus.listen(child_id) as events:
                while True:
                    event = await events.get()
                    if isinstance(event, ProgressEvent):
                        progress(event.fraction)

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()

    async def _store(self, file: NodeFile) -> MediaSource:
        media = self._workshop.media
        if await asyncio.to_thread(_is_large, file.path):
            return await media.store_unnamed_file(await self._copy(file.path), file.content_type)
        data = await asyncio.to_thread(file.path.read_bytes)
        return await media.store_unnamed(data, file.content_type)

    async def _copy(self, path: Path) -> Path:
        """Copy a large file to the folder of the run."""
        copy = self._context.scratch / secrets.token_hex(12)
        await asyncio.to_thread(shutil.copyfile, path, copy)
        return copy

    async def find(self, name: str, kind: str) -> NodeFile:
        """Return the file of an input: a file of the request, or a stored file with this name."""
        if name.startswith(SENT_FILE):
            path = self._task.files[name.removeprefix(SENT_FILE)]
            digest = await asyncio.to_thread(blob_keys.file_digest, path)
            return NodeFile(digest, _TYPES.get(kind, "application/octet-stream"), path, name)
        source = await self._workshop.names.source(self._tenant, name, kind)
        return await self._workshop.names.file(source, name)

    async def keep(self, node_id: str, artifact: NodeArtifact, *, preview: bool) -> Mapping[str, Any]:
        """Sign a file and store it under a new name; the graph is embedded in a PNG or WebP."""
        manifest = self._manifest(self._order.next(node_id, temporary=artifact.temporary), preview=preview)
        source = await self._store_signed(artifact, manifest)
        self._stored[source.blob] = (manifest, source.size)
        kind = "temp" if artifact.temporary else "output"
        # Names are numbered by the files in the store, so concurrent calls would get the same number.
        async with self._name_lock:
            name = await self._workshop.names.put_numbered(self._run, kind, artifact.prefix, source)
        fields = {"filename": name.name, "subfolder": name.subfolder, "type": name.kind}
        return {
            **fields,
            "blob": source.blob,
            "content_type": artifact.content_type,
            "info": dict(artifact.info),
        }

    def _manifest(self, index: int, *, preview: bool) -> Manifest:
        quality = "preview" if preview else "full"
        return lineage.manifest(self._parent, index, GraphEngine.version, quality)

    async def _store_signed(self, artifact: NodeArtifact, manifest: Manifest) -> MediaSource:
        path = artifact.path
        is_image = artifact.content_type in _WITH_GRAPH
        if path is not None and not is_image and await asyncio.to_thread(_is_large, path):
            return await self._store_large(path, artifact.content_type, manifest)
        data = await asyncio.to_thread(self._signed_bytes, artifact, manifest)
        return await self._workshop.media.store_unnamed(data, artifact.content_type)

    async def _store_large(self, path: Path, content_type: str, manifest: Manifest) -> MediaSource:
        """Sign and store a file of the run, which is removed."""
        await asyncio.to_thread(self._workshop.names.sign_file, path, content_type, manifest)
        source = await self._workshop.media.store_unnamed_file(path, content_type)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        return source

    def _signed_bytes(self, artifact: NodeArtifact, manifest: Manifest) -> bytes:
        data = artifact.data or _take(artifact)
        if artifact.content_type in _WITH_GRAPH:
            with contextlib.suppress(Unembeddable):
                data = self._embedder.embed(data)
        return self._workshop.names.sign(data, artifact.content_type, manifest)

    # -- result ---------------------------------------------------------------------------------------

    async def _result(self, outcome: GraphResult) -> Result:
        """Return the output files and data; temporary files are included only without other output files."""
        all_rows = [(node_id, row) for node_id, ui in outcome.outputs.items() for row in _files(ui)]
        rows = [row for row in all_rows if row[1]["type"] != "temp"] or all_rows
        texts = [str(text) for ui in outcome.outputs.values() for text in ui.get("text", ())]
        data: dict[str, Any] = {}
        if self._parent.face == "comfyui":
            outputs = {node_id: public(ui) for node_id, ui in outcome.outputs.items()}
            data = {"outputs": outputs, "cached": list(outcome.cached)}
        elif texts:
            distinct = list(dict.fromkeys(texts))
            data = {"text" if rows else "value": distinct[0] if len(distinct) == 1 else distinct}
        rows = [
            (node_id, await self._resign(row, self._manifest(index, preview=outcome.preview)))
            for index, (node_id, row) in enumerate(rows)
        ]
        artifacts = [await self._artifact(node_id, row, named=bool(data)) for node_id, row in rows]
        quality = "preview" if outcome.preview else "full"
        return Result(tuple(artifacts), data, quality=quality, words=outcome.words)

    async def _resign(self, row: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
        """Sign a stored file again after its index among the outputs has changed."""
        if row["blob"] not in self._stored or self._stored[row["blob"]][0] == manifest:
            return row
        workshop, content_type = self._workshop, row["content_type"]
        content = await self._content(row)
        if isinstance(content, Path):
            source = await self._store_large(content, content_type, manifest)
        else:
            signed = await asyncio.to_thread(workshop.names.sign, content, content_type, manifest)
            source = await workshop.media.store_unnamed(signed, content_type)
        self._stored[source.blob] = (manifest, source.size)
        name = StoredName(row["filename"], row["subfolder"], row["type"])
        await workshop.names.put(self._run, name, source)
        return {**row, "blob": source.blob}

    async def _artifact(self, node_id: str, row: Mapping[str, Any], *, named: bool) -> Artifact:
        info = {**row["info"], "node": node_id, "filename": row["filename"]}
        if named:
            info["name"] = "file" if self._parent.face != "comfyui" else "files"
        # Content credentials are added only to the output of the run, so its files are stored again.
        if row["blob"] in self._stored and self._workshop.media.credentials is None:
            stored = row["blob"], self._stored[row["blob"]][1]
            return Artifact(row["content_type"], info=info, stored=stored)
        content = await self._content(row)
        if isinstance(content, Path):
            return Artifact(row["content_type"], info=info, path=content)
        return Artifact(row["content_type"], content, info)

    async def _content(self, row: Mapping[str, Any]) -> bytes | Path:
        """Return the bytes of a stored file, or a copy of a file that is large or one of many."""
        blobs = self._workshop.media.blobs
        path = await blobs.local_path(row["blob"])
        size = await asyncio.to_thread(_size, path)
        if size > LARGE_BYTES or not self._fits(size):
            return await self._copy(path)
        return await blobs.get(row["blob"])

    def _fits(self, size: int) -> bool:
        """Count bytes of a file that is about to be in memory; return False if there are too many."""
        if self._memory_bytes + size > MEMORY_BYTES:
            return False
        self._memory_bytes += size
        return True

    # -- on ComfyUI ----------------------------------------------------------------------------------

    async def _run_remotely(self, runner: RemoteGraphRunner, validation: ValidationResult) -> Result:
        """Run the graph on a ComfyUI server that has its classes, at the price of the same work here."""
        files = {place: await self.find(*file) for place, file in self._input_files(validation).items()}
        publish, scratch = self._publisher.publish, self._context.scratch
        graph = self._graph
        if self._task.inputs.get("targets"):
            graph = {node_id: node for node_id, node in graph.items() if node_id in validation.nodes}
        try:
            fetched = await runner.run(graph, files, scratch, publish)
        except NodeLost as lost:
            details = {"node_id": lost.node_id, "node_type": lost.class_type, "exception_message": str(lost)}
            publish(NodeEvent("execution_error", {**_ERROR_FIELDS, **details}))
            raise
        outputs = {node_id: await self._store_output(node_id, ui) for node_id, ui in fetched.ui.items()}
        for node_id, ui in outputs.items():
            publish(NodeEvent("executed", {"node": node_id, "display_node": node_id, "output": ui}))
        result = await self._result(GraphResult(outputs, tuple(validation.nodes), fetched.cached))
        cache = self._workshop.output_cache(self._tenant).of_run(self._run)
        nodes = await PaidNodes.of_graph(validation.nodes, files, cache)
        cost = self._workshop.estimate(validation, without=await nodes.among(fetched.cached))
        await nodes.record({node_id for node_id, _, _ in cost.child_runs})
        return msgspec.structs.replace(result, billed=cost.list_micros, lines=cost.list_lines)

    async def _store_output(self, node_id: str, ui: Mapping[str, Any]) -> dict[str, Any]:
        async def store(row: Any) -> Any:
            return await self.keep(node_id, row, preview=False) if isinstance(row, NodeArtifact) else row

        return {
            kind: [await store(row) for row in rows] if isinstance(rows, list) else rows
            for kind, rows in ui.items()
        }

    def _input_files(self, validation: ValidationResult) -> dict[tuple[str, str], tuple[str, str]]:
        """Return the files that inputs refer to, with their kinds, by node and input."""
        uploads = {node_id: node.spec.uploads for node_id, node in validation.nodes.items()}
        return {
            (node_id, name): (value, uploads.get(node_id, {}).get(name, "file"))
            for node_id, node in self._graph.items()
            if node_id in validation.nodes
            for name, value in node["inputs"].items()
            if isinstance(value, str)
            and (value.startswith(SENT_FILE) or (value and name in uploads.get(node_id, ())))
        }


def _files(ui: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for rows in ui.values():
        if isinstance(rows, list | tuple):
            yield from (row for row in rows if isinstance(row, Mapping) and "blob" in row)


def _size(path: Path) -> int:
    return path.stat().st_size


def _is_large(path: Path) -> bool:
    return _size(path) > LARGE_BYTES


def _take(artifact: NodeArtifact) -> bytes:
    if artifact.path is None:
        return b""
    data = artifact.path.read_bytes()
    artifact.path.unlink(missing_ok=True)
    return data


# Fields that ComfyUI's clients expect in an error event.
_ERROR_FIELDS: Mapping[str, Any] = {
    "executed": [],
    "exception_type": "NodeLost",
    "traceback": [],
    "current_inputs": {},
    "current_outputs": [],
}
# Assumed content types by kind of input; readers detect the type from the bytes.
_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}
