"""Whole graphs on the operator's ComfyUI, as they came: its classes, a run, what it made."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import httpx

from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui import events as comfyui_events
from sixfold.clients.comfyui import server as comfyui
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.provenance.formats import png
from sixfold.core.workflows import object_info
from sixfold.core.workflows.nodes import Graph, Registry
from sixfold.core.workflows.ports import NodeArtifact, NodeEvent, NodeFile
from sixfold.core.workflows.remote_execution import FetchedOutput, NodeLost, Place

_FRESH_SECONDS = 300.0  # megabytes of schemas are not read more often
_PATIENCE_SECONDS = 5.0  # but again for a class that may have come since
_LOOK = comfyui.ComfyLimits(connect_seconds=1.0, answer_seconds=10.0)  # somebody may be waiting for it
_MOST_BYTES = 512 * 2**20
_NUMBER = re.compile(r"_\d+_?$")


class ComfyWorkflows:
    """`graphs.elsewhere.Elsewhere` on one server."""

    def __init__(self, client: httpx.AsyncClient, address: ComfyAddress) -> None:
        self._client = client
        self._address = address
        self._known: Registry | None = None
        self._looked_at: float | None = None
        self._asked = ""
        self._looking = asyncio.Lock()

    @property
    def known(self) -> Registry | None:
        """Its classes when it was last looked at."""
        return self._known

    async def look(self, wanted: Collection[str] = ()) -> None:
        """Read its classes, where there is a reason to."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            lacking = self._known is None or any(name not in self._known for name in wanted)
            patience = _PATIENCE_SECONDS if lacking else _FRESH_SECONDS
            if not self._address.url:
                return
            if self._address.url != self._asked:
                self._asked, self._looked_at = self._address.url, None
            if self._looked_at is not None and now - self._looked_at < patience:
                return
            try:
                server = self._server(_LOOK)
                await server.stats()  # another Sixfold, or what is none, says so here
                self._known = await asyncio.to_thread(object_info.read, await server.object_info())
            except comfyui_errors.ComfyTimeout:
                pass  # it loads a model, and has what it had
            except comfyui_errors.ComfyError:
                self._known = None
            self._looked_at = now

    async def run(
        self, graph: Graph, files: Mapping[Place, NodeFile], scratch: Path, emit: Callable[[NodeEvent], None]
    ) -> FetchedOutput:
        """Send the files, then the graph; fetch what came of it."""
        watch, server = _WorkflowWatch(emit), self._server()
        try:
            sent = await _with_files(server, graph, files)
            emit(NodeEvent("execution_start", {}))
            outputs = await server.run(sent, self._outputs(sent), watch.heard)
        except comfyui_errors.ComfyNodeFailed as failed:
            raise NodeLost(failed.node_id, failed.class_type, failed.text) from failed
        watch.over()
        shown = {node: await _shown(server, told, scratch) for node, told in outputs.items()}
        return FetchedOutput(shown, tuple(watch.cached))

    def _outputs(self, graph: Graph) -> list[str]:
        """The nodes that show something: an older server tells those that it had kept in its history only."""
        known = self._known or Registry()
        specs = ((node_id, known.get(str(node["class_type"]))) for node_id, node in graph.items())
        return [node_id for node_id, spec in specs if spec is not None and spec.output_node]

    def _server(self, limits: comfyui.ComfyLimits = comfyui.DEFAULT_LIMITS) -> comfyui.ComfyServer:
        return comfyui.ComfyServer(self._client, self._address.url, limits)


async def _with_files(server: comfyui.ComfyServer, graph: Graph, files: Mapping[Place, NodeFile]) -> Graph:
    """The graph with the names that its files have there: by content, so that none is another's."""
    sent = {node_id: {**node, "inputs": dict(node["inputs"])} for node_id, node in graph.items()}
    there: dict[str, str] = {}
    for (node_id, name), file in files.items():
        if file.digest not in there:
            extension = mimetypes.guess_extension(file.content_type) or ""
            data = await asyncio.to_thread(file.path.read_bytes)
            wanted = f"sixfold-{file.digest[:24]}{extension}"
            kept = await server.upload(wanted, data, file.content_type, "input")
            there[file.digest] = f"{kept.subfolder}/{kept.filename}".lstrip("/")
        sent[node_id]["inputs"][name] = there[file.digest]
    return sent


async def _shown(server: comfyui.ComfyServer, told: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """What an output node showed, each file that it names fetched."""
    shown: dict[str, Any] = {}
    for kind, rows in told.items():
        if isinstance(rows, list):
            shown[kind] = [await _row(server, kind, row, scratch) for row in rows]
        else:
            shown[kind] = rows
    return shown


async def _row(server: comfyui.ComfyServer, kind: str, row: Any, scratch: Path) -> Any:
    if not isinstance(row, Mapping) or not isinstance(row.get("filename"), str):
        return row
    name, folder = row["filename"], str(row.get("subfolder") or "")
    file = comfyui.ComfyFile(name, folder, str(row.get("type") or "output"))
    path = scratch / secrets.token_hex(12)
    with path.open("wb") as target:
        content_type = await server.view(file, target, _MOST_BYTES)
    guessed = mimetypes.guess_type(name)[0]
    stem = _NUMBER.sub("", Path(name).stem)
    return NodeArtifact(
        content_type=guessed or content_type or "application/octet-stream",
        path=path,
        kind=kind,
        prefix=f"{folder}/{stem}".lstrip("/"),
        temporary=file.type == "temp",
    )


class _WorkflowWatch:
    """What a run there says, in the words of a run here."""

    def __init__(self, emit: Callable[[NodeEvent], None]) -> None:
        self._emit = emit
        self._node = ""
        self._step: tuple[str, float] = ("", -1.0)
        self.cached: list[str] = []

    def heard(self, event: comfyui_events.Event) -> None:
        """Pass on one word."""
        match event:
            case comfyui_events.NodeStarted(node):
                self.over()
                self._node = node
                self._emit(NodeEvent("executing", {"node": node, "display_node": node}))
            case comfyui_events.NodeProgress(node, done, of):
                if (node, done) != self._step:  # later versions tell each step twice
                    self._step = (node, done)
                    self._emit(NodeEvent("progress", {"value": done, "max": of, "node": node}))
            case comfyui_events.NodesCached(nodes):
                self.cached += nodes
                self._emit(NodeEvent("execution_cached", {"nodes": list(nodes)}))
            case comfyui_events.PreviewImage(data):
                kind = "image/png" if png.matches(data) else "image/jpeg"
                self._emit(NodeEvent("preview", {"node": self._node, "content_type": kind}, data))
            case comfyui_events.NodeFinished():
                pass  # told once its files are here

    def over(self) -> None:
        """The node that ran has nothing left to do: they run one after the other there."""
        if self._node:
            self._emit(NodeEvent("finished", {"node": self._node}))
            self._node = ""
