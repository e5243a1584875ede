"""The port to a ComfyUI server that runs whole graphs with classes that this server does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows.nodes import Graph, NodeSpec, Registry
from sixfold.core.workflows.ports import NodeEvent, NodeFile

# A node id and the name of its input.
Place = tuple[str, str]


class FetchedOutput(msgspec.Struct, frozen=True):
    """The result of a remote run: UI data by output node (with `NodeArtifact`s), and the cached nodes."""

    ui: Mapping[str, Mapping[str, Any]]
    cached: tuple[str, ...]


class NodeLost(EngineError):
    """A node has failed on the remote server; the message names the node as in a local run."""

    def __init__(self, node_id: str, class_type: str, reason: str) -> None:
        self.node_id = node_id
        self.class_type = class_type
        super().__init__(f"{class_type} (node {node_id}): {reason}")


class RemoteGraphRunner(Protocol):
    """A connection to the remote ComfyUI server."""

    @property
    def known(self) -> Registry | None:
        """The server's classes as of the last refresh, or None if it did not respond."""
        ...

    async def refresh(self, class_types: Collection[str] = ()) -> None:
        """Refresh the classes if they are unknown or outdated, or if one of `class_types` is missing."""
        ...

    async def run(
        self, graph: Graph, files: Mapping[Place, NodeFile], scratch: Path, emit: Callable[[NodeEvent], None]
    ) -> FetchedOutput:
        """Run a graph remotely, unchanged except for file names; download its files into `scratch`.

        Raises `NodeLost` if a node fails and `EngineError` for other errors. Cancelation interrupts the run.
        """
        ...


def merge_specs(remote: Iterable[NodeSpec], local: Registry) -> Iterator[NodeSpec]:
    """Yield the remote classes with their schemas, but with local functions and estimates."""
    for spec in remote:
        existing = local.get(spec.class_type)
        if existing is None or existing.run is None:
            yield spec
        else:
            yield replace(spec, run=existing.run, where=existing.where, estimate=existing.estimate)
