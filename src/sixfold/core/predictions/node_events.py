"""Events of the nodes of a workflow run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NodeState = Literal["started", "progress", "finished", "cached", "failed"]


@dataclass(frozen=True, slots=True)
class NodeStateChanged:
    """A node changed its state; `progress` is from 0 to 1."""

    node: str
    class_type: str
    state: NodeState
    progress: float = 0.0

    @property
    def record(self) -> dict[str, str | float]:
        """The event as JSON."""
        told = {"node": self.node, "class_type": self.class_type, "state": self.state}
        return {**told, "progress": round(self.progress, 4)}
