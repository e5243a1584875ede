"""Complete workflows on the operator's ComfyUI, and its node classes."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui import events as comfyui_events
from sixfold.clients.comfyui import server as comfyui
from sixfold.clients.comfyui import shared_gpu
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.provenance.formats import png
from sixfold.core.workflows import object_info
from sixfold.core.workflows.execution.remote import FetchedOutput, NodeLost, Place
from sixfold.core.workflows.nodes import Graph, Registry
from sixfold.core.workflows.ports import NodeArtifact, NodeEvent, NodeFile
from sixfold.disk_space import SpaceLimitedFile

_CACHE_SECONDS = 300.0  # between reads of the schemas, which have several megabytes
_RETRY_SECONDS = 5.0  # between reads while a class is missing, which may have been installed since
# The timeouts are short, because a request may wait for the schemas.
_SCHEMA_LIMITS = comfyui.ComfyLimits(connect_seconds=1.0, answer_seconds=10.0)
# The bytes of one file, and the bytes and the number of all files of a run.
_MAX_BYTES, _MAX_TOTAL_BYTES, _MAX_FILES = 512 * 2**20, 2 * 2**30, 1_000
# Names of cached nodes that a run reports.
_MAX_CACHED = 5_000
_MODEL_FILES = (".safetensors", ".sft", ".gguf", ".ckpt", ".pt", ".pth", ".bin")
_MAX_MODEL_TEXT = 200
_NUMBER = re.compile(r"_\d+_?$")


class ComfyWorkflows:
    """Implements `RemoteGraphRunner` on one ComfyUI server."""

    def __init__(self, client: httpx.AsyncClient, address: ComfyAddress) -> None:
        self._client = client
        self._address = address
        self._known: Registry | None = None
        self._read_at: float | None = None
        self._read_from = ""
        self._lock = asyncio.Lock()

    @property
    def known(self) -> Registry | None:
        """The node classes of the last read, or None."""
        return self._known

    async def refresh(self, class_types: Collection[str] = ()) -> None:
        """Read the node classes again if they are old, or if one of `class_types` is missing."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            missing = self._known is None or any(name not in self._known for name in class_types)
            max_age = _RETRY_SECONDS if missing else _CACHE_SECONDS
            if not self._address.url:
                return
            if self._address.url != self._read_from:
                self._read_from, self._read_at = self._address.url, None
            if self._read_at is not None and now - self._read_at < max_age:
                return
            try:
                server = self._server(_SCHEMA_LIMITS)
                await server.stats()  # fails for a server other than ComfyUI, also for Sixfold
                self._known = await asyncio.to_thread(object_info.read, await server.object_info())
            except comfyui_errors.ComfyTimeout:
                pass  # The server is loading a model; its classes have not changed.
            except comfyui_errors.ComfyError:
                self._known = None
            self._read_at = now

    async def run(
        self, graph: Graph, files: Mapping[Place, NodeFile], scratch: Path, emit: Callable[[NodeEvent], None]
    ) -> FetchedOutput:
        """Upload the files, run the graph and download its outputs."""
        events, server = _EventTranslator(emit), self._server()
        try:
            uploaded = await _with_files(server, graph, files)
            emit(NodeEvent("execution_start", {}))
            gpu, model = self._address.gpus.get(server.url), _models(uploaded)
            run = partial(server.run, uploaded, self._outputs(uploaded))
            outputs = await shared_gpu.run(gpu, model, run, events.handle)
        except comfyui_errors.ComfyNodeFailed as failed:
            raise NodeLost(failed.node_id, failed.class_type, failed.text) from failed
        events.finish()
        downloads = _Downloads(server, scratch)
        with comfyui_errors.parse_errors():
            downloaded = {node: await downloads.output(ui) for node, ui in outputs.items()}
        return FetchedOutput(downloaded, tuple(events.cached))

    def _outputs(self, graph: Graph) -> list[str]:
        """Return the output nodes; an older server reports cached nodes only in its history."""
        registry = self._known or Registry()
        specs = ((node_id, registry.get(str(node["class_type"]))) for node_id, node in graph.items())
        return [node_id for node_id, spec in specs if spec is not None and spec.output_node]

    def _server(self, limits: comfyui.ComfyLimits = comfyui.DEFAULT_LIMITS) -> comfyui.ComfyServer:
        return comfyui.ComfyServer(self._client, self._address.url, limits)


def _models(graph: Graph) -> str:
    """Return the model files that a graph loads, on which its memory depends."""
    values = (value for node in graph.values() for value in node["inputs"].values())
    files = {value for value in values if isinstance(value, str) and value.endswith(_MODEL_FILES)}
    return " + ".join(sorted(files))[:_MAX_MODEL_TEXT] or "a workflow"


async def _with_files(server: comfyui.ComfyServer, graph: Graph, files: Mapping[Place, NodeFile]) -> Graph:
    """Upload the files and return the graph with their names, which derive from their content."""
    updated = {node_id: {**node, "inputs": dict(node["inputs"])} for node_id, node in graph.items()}
    names: dict[str, str] = {}
    for (node_id, name), file in files.items():
        if file.digest not in names:
            extension = mimetypes.guess_extension(file.content_type) or ""
            data = await asyncio.to_thread(file.path.read_bytes)
            target = f"sixfold-{file.digest[:24]}{extension}"
            stored = await server.upload(target, data, file.content_type, "input")
            names[file.digest] = f"{stored.subfolder}/{stored.filename}".lstrip("/")
        updated[node_id]["inputs"][name] = names[file.digest]
    return updated


class _Downloads:
    """Downloads the files of a run into a folder, within limits for all of them."""

    def __init__(self, server: comfyui.ComfyServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._files = 0
        self._left = _MAX_TOTAL_BYTES

    async def output(self, ui: Mapping[str, Any]) -> dict[str, Any]:
        """Download the files that the output of a node refers to, and return the output."""
        output: dict[str, Any] = {}
        for kind, rows in ui.items():
            output[kind] = [await self._row(kind, row) for row in rows] if isinstance(rows, list) else rows
        return output

    async def _row(self, kind: str, row: Any) -> Any:
        if not isinstance(row, Mapping) or not isinstance(row.get("filename"), str):
            return row
        self._files += 1
        if self._files > _MAX_FILES:
            raise comfyui_errors.ComfyError(f"ComfyUI returned more than {_MAX_FILES:,} files.")
        name, folder = row["filename"], comfyui_errors.short_text(row.get("subfolder"))
        file = comfyui.ComfyFile(name, folder, comfyui_errors.short_text(row.get("type")) or "output")
        path = self._folder / secrets.token_hex(12)
        try:
            with path.open("wb") as target:
                limited_target = SpaceLimitedFile(target, self._folder)
                content_type = await self._server.view(file, limited_target, min(_MAX_BYTES, self._left))
        except OSError as error:
            raise comfyui_errors.ComfyError(
                f"A result of ComfyUI was not stored: {error.strerror}."
            ) from error
        self._left -= path.stat().st_size
        guessed = mimetypes.guess_type(name)[0]
        stem = _NUMBER.sub("", Path(name).stem)
        return NodeArtifact(
            content_type=guessed or content_type or "application/octet-stream",
            path=path,
            kind=kind,
            prefix=f"{folder}/{stem}".lstrip("/"),
            temporary=file.type == "temp",
        )


class _EventTranslator:
    """Translates ComfyUI's events to the events of a local run."""

    def __init__(self, emit: Callable[[NodeEvent], None]) -> None:
        self._emit = emit
        self._node = ""
        self._step: tuple[str, float] = ("", -1.0)
        self.cached: list[str] = []

    def handle(self, event: comfyui_events.Event) -> None:
        match event:
            case comfyui_events.NodeStarted(node):
                self.finish()
                self._node = node
                self._emit(NodeEvent("executing", {"node": node, "display_node": node}))
            case comfyui_events.NodeProgress(node, done, of):
                if (node, done) != self._step:  # later versions report each step twice
                    self._step = (node, done)
                    self._emit(NodeEvent("progress", {"value": done, "max": of, "node": node}))
            case comfyui_events.NodesCached(nodes):
                self.cached += nodes[: _MAX_CACHED - len(self.cached)]
                self._emit(NodeEvent("execution_cached", {"nodes": list(nodes)}))
            case comfyui_events.PreviewImage(data):
                kind = "image/png" if png.matches(data) else "image/jpeg"
                self._emit(NodeEvent("preview", {"node": self._node, "content_type": kind}, data))
            case comfyui_events.NodeFinished():
                pass  # `finish` reports the end of a node after its files are downloaded

    def finish(self) -> None:
        """Report the end of the running node; ComfyUI runs nodes one at a time."""
        if self._node:
            self._emit(NodeEvent("finished", {"node": self._node}))
            self._node = ""
