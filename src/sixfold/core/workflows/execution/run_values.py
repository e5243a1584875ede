"""The values of a run that later nodes need: small values here, large ones in the node session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from sixfold.core.workflows.execution.node_sessions import (
    IN_SESSION,
    SMALL_TEXT,
    NodeExecutionResult,
    NodeSession,
    OutputRef,
)
from sixfold.core.workflows.limits import count_text
from sixfold.core.workflows.ports import CachedOutput, ValuePacker
from sixfold.core.workflows.validate import GraphNode

_PIXEL_BYTES = 12  # three 32-bit floats


class RunValues:
    """Values by node, and their sizes.

    `weigh` is called with the size in bytes of each added value, and with the negative size of each removed
    value. `hits` are cached outputs: small outputs are unpacked when a node first needs them, and others are
    loaded into the session.
    """

    def __init__(
        self, nodes: Mapping[str, GraphNode], packer: ValuePacker, weigh: Callable[[int], None]
    ) -> None:
        self.hits: Mapping[str, CachedOutput] = {}
        self._nodes = nodes
        self._packer = packer
        self._weigh = weigh
        self._values: dict[str, tuple[Any, ...]] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        # Nodes with outputs in the session, or to be loaded into it.
        self._in_session: set[str] = set()
        self._loading: dict[str, asyncio.Task[None]] = {}

    def small_inputs(self, node: GraphNode) -> tuple[dict[str, Any], int] | None:
        """Return a node's inputs and their total length in characters.

        Returns None if an input is in the session or the inputs are too long.
        """
        values = self._values
        for origin, _ in node.links.values():
            if origin not in values:
                self._unpack_cached(origin)
            if origin in self._in_session:
                return None
        inputs = dict(node.values)
        for name, (origin, slot) in node.links.items():
            inputs[name] = values[origin][slot]
        characters = count_text(inputs.values())
        return None if characters > SMALL_TEXT else (inputs, characters)

    async def inputs(self, node: GraphNode, session: NodeSession) -> dict[str, Any]:
        """Return the inputs of a node that runs in the session; cached inputs are loaded into it first."""
        inputs = dict(node.values)
        for name, (origin, slot) in node.links.items():
            if origin not in self._values:
                self._unpack_cached(origin)
            if origin in self._in_session and origin not in self._sizes:
                await self._loaded(origin, session)
            value = self._values[origin][slot]
            inputs[name] = OutputRef(origin, slot) if value is IN_SESSION else value
        return inputs

    def needed(self, node: GraphNode, inputs: Mapping[str, Any]) -> int:
        """Return the bytes that a running node needs: three times its inputs, or its stated image size."""
        links = node.links.values()
        size = sum(self._sizes[origin][slot] for origin, slot in links if origin in self._in_session)
        sides = [inputs.get(name) for name in ("width", "height", "batch_size")]
        if isinstance(sides[0], int) and isinstance(sides[1], int):
            count = sides[2] if isinstance(sides[2], int) else 1
            size = max(size, sides[0] * sides[1] * count * _PIXEL_BYTES)
        return 3 * size

    def keep(self, node_id: str, result: NodeExecutionResult) -> None:
        """Store a node's result for the nodes that need it."""
        if IN_SESSION in result.outputs:
            self._in_session.add(node_id)
        self._values[node_id], self._sizes[node_id] = result.outputs, result.sizes
        if count := sum(result.sizes):
            self._weigh(count)

    def keep_small(self, node_id: str, outputs: tuple[Any, ...], size: int) -> None:
        """Store the result of a node that ran on the event loop."""
        self._values[node_id] = outputs
        if size:
            self._sizes[node_id] = (size,)
            self._weigh(size)

    def drop(self, node_id: str, session: NodeSession | None) -> None:
        """Free values that are no longer needed."""
        if node_id not in self._values:
            return
        del self._values[node_id]
        if node_id in self._in_session and session is not None:
            session.release(node_id)
        if sizes := self._sizes.pop(node_id, ()):
            self._weigh(-sum(sizes))

    async def stop(self) -> None:
        """Cancel pending loads."""
        for loading in self._loading.values():
            loading.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    def _unpack_cached(self, node_id: str) -> None:
        """Unpack a cached output if it is small; otherwise mark the output to be loaded into the session."""
        if node_id in self._in_session:
            return
        small = self._packer.small(self.hits[node_id].packed or b"")
        if small is None:
            self._in_session.add(node_id)
        else:
            sizes = tuple(map(self._packer.weigh, small))
            self.keep(node_id, NodeExecutionResult(small, sizes))

    async def _loaded(self, node_id: str, session: NodeSession) -> None:
        """Load a cached output into the session, once for all nodes that read it."""
        if node_id not in self._loading:
            self._loading[node_id] = asyncio.create_task(self._load(node_id, session))
        await asyncio.shield(self._loading[node_id])

    async def _load(self, node_id: str, session: NodeSession) -> None:
        packed = self.hits[node_id].packed or b""
        self.keep(node_id, await session.load(self._nodes[node_id], packed))
