"""Node sessions, which run the nodes of one graph run and store their large values.

The run itself has only small values, and passes a `OutputRef` in place of a large value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, Protocol

import msgspec

from sixfold.core.workflows.execution.node_call import call, finish
from sixfold.core.workflows.limits import count_text
from sixfold.core.workflows.ports import NodeArtifact, NodeContext, NodeResult, ValuePacker
from sixfold.core.workflows.validate import GraphNode

# Nodes on texts of up to this many characters take less than 1 ms, so they may run on the event loop.
SMALL_TEXT: Final = 2**14
_SMALL_TYPES = (bool, int, float)


class ValueInSession:
    """A marker for an output that the session stores."""


IN_SESSION: Final = ValueInSession()


class OutputRef(msgspec.Struct, frozen=True):
    """An input that the session stores: an output of a node that ran or was loaded there."""

    node_id: str
    slot: int


class NodeExecution(msgspec.Struct, frozen=True):
    """A node and its inputs, with a `OutputRef` for each large input.

    `packs` requests the packed outputs for the cache.
    """

    node: GraphNode
    inputs: Mapping[str, Any]
    packs: bool = False


class NodeExecutionResult(msgspec.Struct, frozen=True):
    """A node's small outputs, `IN_SESSION` for large ones, and the bytes and characters of each."""

    outputs: tuple[Any, ...]
    sizes: tuple[int, ...]
    texts: tuple[int, ...] = ()
    artifacts: tuple[NodeArtifact, ...] = ()
    ui: Mapping[str, Any] = {}
    packed: bytes | None = None


class NodeSession(Protocol):
    """Runs the nodes of one graph run."""

    async def run(self, execution: NodeExecution, context: NodeContext) -> NodeExecutionResult:
        """Run a node whose inputs are ready; an error of the node is raised unchanged."""
        ...

    async def load(self, node: GraphNode, packed: bytes) -> NodeExecutionResult:
        """Load the cached outputs of a node into the session."""
        ...

    def release(self, node_id: str) -> None:
        """Free a node's outputs."""
        ...

    async def close(self, *, ended: bool) -> None:
        """Free all values; stop the running nodes unless the run has `ended`."""
        ...


OpenSession = Callable[[], Awaitable[NodeSession]]


def is_small(value: object) -> bool:
    """Return whether a value may leave its session: a number or a short string."""
    return value is None or type(value) in _SMALL_TYPES or (type(value) is str and len(value) <= SMALL_TEXT)


class LocalSession:
    """A session in this process: CPU-bound nodes run in threads, asynchronous ones on the event loop."""

    def __init__(self, packer: ValuePacker, threads: Executor | None = None) -> None:
        self._packer = packer
        self._threads = threads
        self._values: dict[str, tuple[Any, ...]] = {}

    async def run(self, execution: NodeExecution, context: NodeContext) -> NodeExecutionResult:
        node = execution.node
        inputs = {
            name: self._values[value.node_id][value.slot] if isinstance(value, OutputRef) else value
            for name, value in execution.inputs.items()
        }
        if node.spec.where == "await":
            result = finish(node, await call(node, context, inputs))
            packed = await self._in_thread(self._pack, execution, result) if execution.packs else None
        elif node.spec.where == "thread" or count_text(inputs.values()) > SMALL_TEXT:
            result, packed = await self._in_thread(self._call_and_pack, execution, context, inputs)
        else:
            result, packed = self._call_and_pack(execution, context, inputs)
        return self._result(node, result, packed)

    async def load(self, node: GraphNode, packed: bytes) -> NodeExecutionResult:
        values = await self._in_thread(self._packer.unpack, packed)
        return self._result(node, NodeResult(values), None)

    def release(self, node_id: str) -> None:
        self._values.pop(node_id, None)

    async def close(self, *, ended: bool) -> None:
        """Free all values; a running thread is not stopped, but ends with its node."""
        self._values.clear()

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _call_and_pack(
        self, execution: NodeExecution, context: NodeContext, inputs: Mapping[str, Any]
    ) -> tuple[NodeResult, bytes | None]:
        result = finish(execution.node, call(execution.node, context, inputs))
        return result, self._pack(execution, result)

    def _pack(self, execution: NodeExecution, result: NodeResult) -> bytes | None:
        return self._packer.pack(result.outputs) if execution.packs and result.outputs else None

    def _result(self, node: GraphNode, result: NodeResult, packed: bytes | None) -> NodeExecutionResult:
        is_text = node.spec.where == "inline"
        outputs = tuple(value if is_small(value) else IN_SESSION for value in result.outputs)
        texts = tuple(count_text((value,)) for value in result.outputs) if is_text else ()
        sizes = texts if is_text else tuple(map(self._packer.weigh, result.outputs))
        if IN_SESSION in outputs:
            self._values[node.id] = result.outputs
        return NodeExecutionResult(outputs, sizes, texts, result.artifacts, result.ui, packed)


def text_of(values: Iterable[object]) -> int:
    """Return the number of characters in the inputs that are not in the session."""
    return count_text(value for value in values if not isinstance(value, OutputRef))
