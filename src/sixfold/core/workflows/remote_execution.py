"""A ComfyUI server that runs whole graphs, with classes that are not known here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows.nodes import Graph, NodeSpec, Registry
from sixfold.core.workflows.ports import NodeEvent, NodeFile

Place = tuple[str, str]  # a node and its input


@dataclass(frozen=True, slots=True)
class FetchedOutput:
    """What a run there gave: what its output nodes showed (files as `Made`), and which nodes were cached."""

    shown: Mapping[str, Mapping[str, Any]]
    cached: tuple[str, ...]


class NodeLost(EngineError):
    """A node failed there; the text names it as a run here would."""

    def __init__(self, node_id: str, class_type: str, reason: str) -> None:
        self.node_id = node_id
        self.class_type = class_type
        super().__init__(f"{class_type} (node {node_id}): {reason}")


class RemoteGraphRunner(Protocol):
    """The way to that server."""

    @property
    def known(self) -> Registry | None:
        """Its classes when it was last looked at; None where it did not answer."""
        ...

    async def look(self, wanted: Collection[str] = ()) -> None:
        """Ask what it has, where that is unknown or old, or a class that is `wanted` is not among it."""
        ...

    async def run(
        self, graph: Graph, files: Mapping[Place, NodeFile], scratch: Path, emit: Callable[[NodeEvent], None]
    ) -> FetchedOutput:
        """Run a graph there as it is, but for the names of files; what it made is fetched into `scratch`.

        Raises `NodeLost` for a node that failed, `EngineError` for anything else. Canceling interrupts it.
        """
        ...


def import_file(theirs: Iterable[NodeSpec], ours: Registry) -> Iterator[NodeSpec]:
    """Their classes by their own schemas; what is known of one here (what it orders) stays known."""
    for spec in theirs:
        known = ours.get(spec.class_type)
        if known is None or known.run is None:
            yield spec
        else:
            yield replace(spec, run=known.run, where=known.where, estimate=known.estimate)
