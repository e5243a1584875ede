"""What happens to the parts of a run: the nodes of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NodeState = Literal["started", "progress", "finished", "cached", "failed"]


@dataclass(frozen=True, slots=True)
class NodeStateChanged:
    """A node of a graph took a step; `progress` runs from 0 to 1, which is its end."""

    node: str
    class_type: str
    state: NodeState
    progress: float = 0.0

    @property
    def record(self) -> dict[str, str | float]:
        """As JSON."""
        told = {"node": self.node, "class_type": self.class_type, "state": self.state}
        return {**told, "progress": round(self.progress, 4)}
