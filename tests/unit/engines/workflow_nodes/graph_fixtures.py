"""An environment for graph runs: real engines as children, files in a folder, a cache in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import blake3
from msgspec.structs import replace

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.engines import Task
from sixfold.core.workflows import validate
from sixfold.core.workflows.execution import execute
from sixfold.core.workflows.execution.execute import GraphResult, RunEnvironment
from sixfold.core.workflows.ports import CachedOutput, NodeArtifact, NodeChild, NodeEvent, NodeFile
from sixfold.drivers.node_workers import NodeWorkers
from sixfold.engines.image.scene.engine import SceneEngine
from sixfold.engines.image.styles.engine import StyleEngine
from sixfold.engines.video.engine import CameraEngine
from sixfold.engines.workflow_nodes import registry
from sixfold.engines.workflow_nodes.serialization import NodeValuePacker
from sixfold.errors import NotFound

ENGINES: Mapping[str, Callable[[], Any]] = {
    "graph-image": SceneEngine,
    "graph-restyle": StyleEngine,
    "graph-film": CameraEngine,
}
Graph = dict[str, dict[str, Any]]


class Quiet:
    """A context that ignores progress and log lines."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


class Children:
    """Child predictions in this process, run by the real engine or answered by the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.functions: dict[str, Callable[[Mapping[str, Any]], NodeChild]] = {}

    async def run(
        self, node_key: str, model: str, inputs: Mapping[str, Any], progress: Callable[[float], None]
    ) -> NodeChild:
        self.requests.append((model, inputs))
        if model in self.functions:
            return self.functions[model](inputs)
        scratch = self._folder / node_key
        scratch.mkdir()
        files = {name: value.path for name, value in inputs.items() if isinstance(value, NodeFile)}
        row = app_catalog.models_document()["models"][model]
        plain = {name: value for name, value in inputs.items() if name not in files}
        task = Task(node_key, model, {**plain, **row.get("fixed", {})}, files)
        result = ENGINES[model]().run(task, Quiet(scratch))
        progress(1.0)
        return NodeChild(tuple(self._file(each) for each in result.artifacts), result.data)

    def _file(self, artifact: Any) -> NodeFile:
        data = artifact.path.read_bytes() if artifact.path else artifact.data
        return self.file(data, artifact.content_type)

    def file(self, data: bytes, content_type: str) -> NodeFile:
        digest = blake3.blake3(data).hexdigest()
        path = self._folder / digest
        path.write_bytes(data)
        return NodeFile(digest, content_type, path)


class Inputs:
    """Input files by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def find(self, name: str, kind: str) -> NodeFile:
        path = self._folder / name.removeprefix("input/")
        if not path.exists():
            raise NotFound(f"There is no {kind} {name}")
        types = {".mp4": "video/mp4", ".wav": "audio/wav"}
        digest = blake3.blake3(path.read_bytes()).hexdigest()
        return NodeFile(digest, types.get(path.suffix, "image/png"), path, name)


class OutputRecorder:
    """Records the artifacts of nodes in order."""

    def __init__(self) -> None:
        self.outputs: list[tuple[str, NodeArtifact, bytes]] = []

    async def keep(self, node_id: str, artifact: NodeArtifact, *, preview: bool) -> Mapping[str, Any]:
        data = artifact.path.read_bytes() if artifact.path else artifact.data
        self.outputs.append((node_id, artifact, data))
        kind = "temp" if artifact.temporary else "output"
        return {"filename": f"{artifact.prefix}_{len(self.outputs):05}_", "subfolder": "", "type": kind}


class Cache(dict[str, CachedOutput]):
    """A node output cache in memory."""

    async def find(self, keys: Sequence[str]) -> Mapping[str, CachedOutput]:
        return {key: self[key] for key in keys if key in self}

    async def keep(self, entries: Mapping[str, CachedOutput]) -> None:
        self.update(entries)


class GraphFixture:
    """Runs graphs; with `workers`, nodes run in processes."""

    def __init__(self, folder: Path, workers: NodeWorkers | None = None) -> None:
        self.folder = folder
        self.workers = workers
        for name in ("scratch", "children", "input"):
            (folder / name).mkdir()
        self.children = Children(folder / "children")
        self.outputs = OutputRecorder()
        self.cache = Cache()
        self.events: list[NodeEvent] = []

    @property
    def location(self) -> RunEnvironment:
        scratch, files = self.folder / "scratch", Inputs(self.folder / "input")
        location = RunEnvironment(
            self.children, files, self.outputs, NodeValuePacker(scratch), scratch, self.cache
        )
        workers = self.workers
        return location if workers is None else replace(location, open_session=lambda: workers.open(scratch))

    async def run(self, graph: Graph) -> GraphResult:
        verdict = validate.validate(graph, registry.registry())
        assert verdict.valid, verdict.errors
        self.events.clear()
        return await execute.execute(verdict, self.location, self.events.append)

    def kinds(self) -> list[str]:
        """Return the events of the last run without progress."""
        return [event.type for event in self.events if event.type not in ("progress", "preview")]
