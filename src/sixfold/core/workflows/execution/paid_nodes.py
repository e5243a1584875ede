"""The nodes of remote runs that an account has already paid for, which are free if ComfyUI has them cached.

ComfyUI shares its cache among all accounts, and also caches the nodes of runs that failed or were canceled.
Therefore a record of each paid node is stored in the account's node output cache, where it is found only
while the run that paid for the node counts as succeeded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

import msgspec

from sixfold import errors
from sixfold.core.workflows import slices
from sixfold.core.workflows.execution import cache_keys
from sixfold.core.workflows.execution.remote import Place
from sixfold.core.workflows.ports import PAYMENT_PREFIX, CachedOutput, NodeCachePort, NodeFile
from sixfold.core.workflows.validate import GraphNode

_RECORD = CachedOutput(None, {})


class PaidNodes:
    """The keys of one graph's nodes, and their records in the node output cache."""

    def __init__(self, keys: Mapping[str, str], cache: NodeCachePort) -> None:
        self._keys = keys
        self._cache = cache

    @classmethod
    async def of_graph(
        cls, nodes: Mapping[str, GraphNode], files: Mapping[Place, NodeFile], cache: NodeCachePort
    ) -> PaidNodes:
        """Compute the keys of a graph whose inputs refer to `files`."""
        values = {node_id: dict(node.values) for node_id, node in nodes.items()}
        for (node_id, name), file in files.items():
            values[node_id][name] = file
        read = {
            node_id: msgspec.structs.replace(node, values=values[node_id]) for node_id, node in nodes.items()
        }
        keys = await slices.run(cache_keys.key_steps(read))
        return cls({node_id: PAYMENT_PREFIX + key for node_id, key in keys.items()}, cache)

    async def among(self, node_ids: Collection[str]) -> frozenset[str]:
        """Return those of the nodes that the account has paid for."""
        keys = {node_id: self._keys[node_id] for node_id in node_ids if node_id in self._keys}
        cached_outputs = await self._cache.find(tuple(keys.values()))
        return frozenset(node_id for node_id, key in keys.items() if key in cached_outputs)

    async def record(self, node_ids: Collection[str]) -> None:
        """Record that the current run pays for the nodes, if it succeeds."""
        with contextlib.suppress(OSError, errors.StoreFailed):
            await self._cache.keep({self._keys[node_id]: _RECORD for node_id in node_ids})
