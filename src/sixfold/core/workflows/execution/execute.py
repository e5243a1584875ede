"""Execution of a validated graph: skips cached nodes, runs the ready nodes, and emits events.

One pass computes cache keys; a walk back from the outputs stops at cached nodes; then each node runs once its
inputs are ready. Nodes on small values run on the event loop, all others in a node session, which stores
their large values.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.catalog.engines import Canceled, EngineError
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.workflows import slices
from sixfold.core.workflows.execution import cache_keys
from sixfold.core.workflows.execution.admission import GraphMemory
from sixfold.core.workflows.execution.cache_writer import CacheWriter
from sixfold.core.workflows.execution.context import GraphRunContext, NodeRunContext
from sixfold.core.workflows.execution.node_call import call, finish
from sixfold.core.workflows.execution.node_sessions import (
    IN_SESSION,
    LocalSession,
    NodeExecution,
    NodeExecutionResult,
    NodeSession,
    OpenSession,
    text_of,
)
from sixfold.core.workflows.execution.run_values import RunValues
from sixfold.core.workflows.limits import GraphTooLarge, count_text, shown_text
from sixfold.core.workflows.ports import (
    CachedOutput,
    NodeCachePort,
    NodeChildren,
    NodeEvent,
    NodeFile,
    NodeFiles,
    NodeResult,
    OutputStore,
    ValuePacker,
)
from sixfold.core.workflows.validate import GraphNode, ValidationResult

# Inline nodes between two points at which the event loop can run other tasks.
_YIELD_NODES = 256
# Characters between two points at which the event loop can run other tasks.
_YIELD_TEXT = 2**18


class RunEnvironment(msgspec.Struct, frozen=True):
    """The services and folder of a run; if `open_session` is None, nodes run in this process."""

    children: NodeChildren
    files: NodeFiles
    output_store: OutputStore
    packer: ValuePacker
    scratch: Path
    cache: NodeCachePort | None = None
    memory: GraphMemory | None = None
    open_session: OpenSession | None = None


class GraphRunLimits(msgspec.Struct, frozen=True):
    """The limits of one run.

    `memory_bytes` limits the values that wait for other nodes, and `text` limits the characters that inline
    nodes read and write.
    """

    seconds: float = 3600.0
    memory_bytes: int = 4 * 2**30
    text: int = 2**25


class GraphResult(msgspec.Struct, frozen=True):
    """The result of a successful run: the UI data of output nodes, and the nodes that ran or were cached.

    `preview` is True if a preview engine contributed, now or when a cached node ran; `words` are the words
    that the engines understood and ignored.
    """

    outputs: Mapping[str, Mapping[str, Any]]
    executed: tuple[str, ...]
    cached: tuple[str, ...]
    preview: bool = False
    words: PromptWords = NO_WORDS


class NodeError(errors.EngineFailed):
    """A node of the graph has failed."""

    code = "node_failed"

    def __init__(self, message: str, node: GraphNode, reason: BaseException) -> None:
        self.node_id = node.id
        self.class_type = node.spec.class_type
        self.reason = reason
        super().__init__(message)


Emit = Callable[[NodeEvent], None]
_FinishedNode = tuple[NodeExecutionResult, CachedOutput]


async def execute(
    validation: ValidationResult,
    environment: RunEnvironment,
    emit: Emit,
    limits: GraphRunLimits | None = None,
) -> GraphResult:
    """Run a validated graph to its end; cancel the coroutine to interrupt it.

    Raises `NodeError`, `GraphTooLarge`, or the errors of `NodeFiles.find`. `emit` is called on the event
    loop.
    """
    run_limits = limits or GraphRunLimits()
    run = _GraphRun(validation, environment, emit, run_limits)
    try:
        async with asyncio.timeout(run_limits.seconds):
            return await run.run()
    except TimeoutError:
        raise errors.EngineFailed(
            f"The graph took longer than {run_limits.seconds:g} seconds: split it into smaller graphs"
        ) from None


def unrunnable(validation: ValidationResult) -> tuple[str, ...]:
    """Return the classes of a validated graph that have a schema but no function on this server."""
    return tuple(
        sorted({node.spec.class_type for node in validation.nodes.values() if node.spec.run is None})
    )


class _ExecutionPlan(msgspec.Struct):
    """The remaining work: dependencies, consumers and reads by node, and the cached outputs."""

    pending_counts: dict[str, int] = {}
    consumers: dict[str, list[str]] = {}
    reads: dict[str, int] = {}
    hits: dict[str, CachedOutput] = {}


class _GraphRun:
    def __init__(
        self, validation: ValidationResult, environment: RunEnvironment, emit: Emit, limits: GraphRunLimits
    ) -> None:
        self._nodes = validation.nodes
        self._outputs = validation.outputs
        self._environment = environment
        self._emit = emit
        self._limits = limits
        self._keys: dict[str, str] = {}
        self._plan = _ExecutionPlan()
        self._output_ui: dict[str, Mapping[str, Any]] = {}
        self._cache_writer = CacheWriter(environment.cache)
        self._executed: list[str] = []
        self._previews: set[str] = set()
        # Contains only nodes with dependencies.
        self._words: dict[str, PromptWords] = {}
        self._tasks: dict[asyncio.Task[_FinishedNode], tuple[str, NodeRunContext]] = {}
        self._ended: asyncio.Queue[asyncio.Task[_FinishedNode]] = asyncio.Queue()
        self._memory = environment.memory or GraphMemory(limits.memory_bytes)
        self._memory_share = self._memory.join()
        self._values = RunValues(self._nodes, environment.packer, self._memory_share.hold)
        # Characters since the last pause for the event loop, and of the whole run.
        self._text = self._all_text = 0
        self._shown = shown_text()
        self._run_context = GraphRunContext(environment, emit)
        self._session: NodeSession | None = None
        self._opening = asyncio.Lock()

    async def run(self) -> GraphResult:
        result = None
        try:
            result = await self._run()
            return result
        finally:
            self._memory_share.close()
            if self._session is not None:
                await self._session.close(ended=result is not None)

    async def _run(self) -> GraphResult:
        self._send_event("execution_start", timestamp=_now_ms())
        await self._find_files()
        self._keys = await slices.run(cache_keys.key_steps(self._nodes))
        cached = await self._plan_run()
        self._send_event("execution_cached", nodes=cached, timestamp=_now_ms())
        self._values.hits = self._plan.hits
        self._previews.update(node_id for node_id, hit in self._plan.hits.items() if hit.preview)
        self._words.update(
            (node_id, hit.words) for node_id, hit in self._plan.hits.items() if hit.words != NO_WORDS
        )
        for node_id in cached:
            self._show_cached(node_id)
        try:
            await self._run_nodes()
        except asyncio.CancelledError:
            await self._stop()
            await self._cache_writer.stop()
            self._send_event("execution_interrupted", **self._position())
            raise
        except BaseException as error:
            await self._stop()
            self._send_error(error)
            await self._cache_writer.flush()
            raise
        await self._cache_writer.flush()
        self._send_event("execution_success", timestamp=_now_ms())
        self._send_event("executing", node=None)
        preview = not self._previews.isdisjoint(self._outputs)
        outputs = {
            node_id: self._output_ui[node_id] for node_id in self._outputs if node_id in self._output_ui
        }
        words = self._words_of(self._outputs)
        return GraphResult(outputs, tuple(self._executed), tuple(cached), preview, words)

    # -- planning --------------------------------------------------------------------------------

    async def _find_files(self) -> None:
        """Replace the file names in inputs with the files."""
        named = [
            (node, name, reference)
            for node in self._nodes.values()
            for name, reference in cache_keys.files_named(node).items()
        ]
        names = list(dict.fromkeys(reference for _, _, reference in named))
        references = await asyncio.gather(*(self._environment.files.find(*reference) for reference in names))
        by_name: dict[tuple[str, str], NodeFile] = dict(zip(names, references, strict=True))
        for node, name, reference in named:
            node.values[name] = by_name[reference]

    async def _plan_run(self) -> list[str]:
        """Plan the nodes to run by walking back from the outputs; return the other nodes."""
        stored = await self._load_cached()
        plan = self._plan
        stack = list(self._outputs)
        needed: set[str] = set()
        outputs = set(self._outputs)
        while stack:
            node_id = stack.pop()
            if node_id in needed:
                continue
            hit = stored.get(self._keys[node_id])
            if hit is not None and (hit.packed is not None or node_id in outputs):
                plan.hits[node_id] = hit
                if hit.packed is not None or not plan.reads.get(node_id):
                    continue
            needed.add(node_id)
            plan.hits.pop(node_id, None)
            for origin, _ in self._nodes[node_id].links.values():
                plan.reads[origin] = plan.reads.get(origin, 0) + 1
                stack.append(origin)
        for node_id in (consumer for consumer in self._nodes if consumer in needed):
            origins = {origin for origin, _ in self._nodes[node_id].links.values()}
            plan.pending_counts[node_id] = len(origins & needed)
            for origin in origins & needed:
                plan.consumers.setdefault(origin, []).append(node_id)
        return [node_id for node_id in self._nodes if node_id not in needed]

    async def _load_cached(self) -> Mapping[str, CachedOutput]:
        if self._environment.cache is None:
            return {}
        keys = [self._keys[node_id] for node_id, node in self._nodes.items() if _is_cacheable(node)]
        return await self._environment.cache.find(keys)

    def _show_cached(self, node_id: str) -> None:
        hit = self._plan.hits.get(node_id)
        if hit is not None and node_id in self._outputs:
            self._output_ui[node_id] = hit.ui
            self._show(node_id, hit.ui)

    def _show(self, node_id: str, ui: Mapping[str, Any]) -> None:
        """Send the texts and files of a node that clients show; raises `GraphTooLarge`."""
        if ui:
            self._shown.spend(characters=count_text(ui.values()))
            self._send_event("executed", node=node_id, display_node=node_id, output=ui)

    # -- running ---------------------------------------------------------------------------------

    async def _run_nodes(self) -> None:
        ready = [node_id for node_id, count in reversed(self._plan.pending_counts.items()) if count == 0]
        finished = 0
        while ready or self._tasks:
            if not self._tasks:
                await self._memory_share.wait_for_capacity()
            # Running nodes may free pending memory, so they finish before the run waits for other runs.
            while ready and not self._memory_share.pending:
                node_id = ready.pop()
                node = self._nodes[node_id]
                self._send_event("executing", node=node_id, display_node=node_id)
                context = NodeRunContext(node_id, self._keys[node_id], self._run_context)
                small = self._values.small_inputs(node) if node.spec.is_plain else None
                if small is None:
                    self._start(node, context)
                    continue
                result, size = self._inline(node, context, *small)
                pause = self._text >= _YIELD_TEXT
                outputs = result.artifacts or result.ui
                preview = self._is_preview(node)
                ui: Mapping[str, Any] = await self._store_files(node_id, result, preview) if outputs else {}
                if self._plan.reads.get(node_id):
                    self._values.keep_small(node_id, result.outputs, size)
                ready += self._record_done(
                    node_id, CachedOutput(None, ui, preview, self._words_of(_origins(node)))
                )
                finished += 1
                if finished % _YIELD_NODES == 0 or pause:
                    self._text = 0
                    await asyncio.sleep(0)
            if self._tasks:
                ready += self._collect(await self._ended.get())
                while not self._ended.empty():
                    ready += self._collect(self._ended.get_nowait())
                await self._cache_writer.wait_for_capacity()

    def _inline(
        self, node: GraphNode, context: NodeRunContext, inputs: Mapping[str, Any], characters: int
    ) -> tuple[NodeResult, int]:
        self._count_text(characters)
        try:
            result = finish(node, call(node, context, inputs))
        except Exception as error:
            raise _node_error(node, error) from error
        size = count_text(result.outputs)
        self._count_text(size)
        return result, size

    def _count_text(self, characters: int) -> None:
        self._text += characters
        self._all_text += characters
        if self._all_text > self._limits.text:
            raise GraphTooLarge(
                f"The graph processes more than {self._limits.text:,} characters of text; "
                "split it into smaller graphs"
            )

    def _start(self, node: GraphNode, context: NodeRunContext) -> None:
        task = asyncio.create_task(self._run_node(node, context))
        self._tasks[task] = (node.id, context)
        task.add_done_callback(self._ended.put_nowait)

    async def _run_node(self, node: GraphNode, context: NodeRunContext) -> _FinishedNode:
        try:
            session = await self._open_session()
            inputs = await self._values.inputs(node, session)
            execution = NodeExecution(
                node, inputs, self._environment.cache is not None and not _is_inline(node)
            )
            if node.spec.where == "thread":
                async with self._memory.working(self._values.needed(node, inputs)):
                    result = await session.run(execution, context)
            else:
                if _is_inline(node):
                    self._count_text(text_of(inputs.values()))
                result = await session.run(execution, context)
                self._count_text(sum(result.texts))
        except Exception as error:
            raise _node_error(node, error) from error
        preview = context.preview_part or self._is_preview(node)
        words = context.words | self._words_of(_origins(node))
        ui = await self._store_files(node.id, result, preview)
        return result, CachedOutput(result.packed, ui, preview, words)

    async def _open_session(self) -> NodeSession:
        async with self._opening:
            if self._session is None:
                environment = self._environment
                opener = environment.open_session
                self._session = LocalSession(environment.packer) if opener is None else await opener()
            return self._session

    def _collect(self, task: asyncio.Task[_FinishedNode]) -> list[str]:
        node_id, _ = self._tasks.pop(task)
        result, output = task.result()
        if self._plan.reads.get(node_id):
            self._values.keep(node_id, result)
        elif IN_SESSION in result.outputs and self._session is not None:
            self._session.release(node_id)
        return self._record_done(node_id, output)

    def _is_preview(self, node: GraphNode) -> bool:
        """Return whether one of the node's inputs comes from a preview engine."""
        return any(origin in self._previews for origin in _origins(node))

    def _words_of(self, node_ids: Iterable[str]) -> PromptWords:
        words = NO_WORDS
        for node_id in node_ids:
            words |= self._words.get(node_id, NO_WORDS)
        return words

    def _record_done(self, node_id: str, stored: CachedOutput) -> list[str]:
        """Record that a node has finished; return the nodes that have become ready."""
        node, plan, ui = self._nodes[node_id], self._plan, stored.ui
        self._executed.append(node_id)
        if stored.preview:
            self._previews.add(node_id)
        if stored.words != NO_WORDS:
            self._words[node_id] = stored.words
        if node_id in self._outputs:
            self._output_ui[node_id] = ui
        self._show(node_id, ui)
        self._send_event("finished", node=node_id)
        if _is_cacheable(node) and (stored.packed is not None or node.spec.output_node):
            self._cache_writer.add(self._keys[node_id], stored)
        self._release(node)
        consumers = plan.consumers.get(node_id, ())
        for consumer in consumers:
            plan.pending_counts[consumer] -= 1
        return [consumer for consumer in consumers if plan.pending_counts[consumer] == 0]

    async def _store_files(
        self, node_id: str, result: NodeResult | NodeExecutionResult, preview: bool
    ) -> Mapping[str, Any]:
        ui = dict(result.ui)
        for artifact in result.artifacts:
            reference = await self._environment.output_store.keep(node_id, artifact, preview=preview)
            ui.setdefault(artifact.kind, []).append(reference)
        return ui

    def _release(self, node: GraphNode) -> None:
        """Free values that are no longer needed by waiting nodes."""
        for origin, _ in node.links.values():
            self._plan.reads[origin] -= 1
            if not self._plan.reads[origin]:
                self._values.drop(origin, self._session)

    # -- ending ----------------------------------------------------------------------------------

    async def _stop(self) -> None:
        for task, (_, context) in self._tasks.items():
            context.cancel()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._values.stop()

    def _position(self) -> dict[str, Any]:
        running = next((node_id for node_id, _ in self._tasks.values()), None)
        spec = self._nodes[running].spec if running else None
        return {
            "node_id": running,
            "node_type": spec.class_type if spec else None,
            "executed": list(self._executed),
            "timestamp": _now_ms(),
        }

    def _send_error(self, error: BaseException) -> None:
        reference = self._position()
        if isinstance(error, NodeError):
            reference |= {"node_id": error.node_id, "node_type": error.class_type}
        reason = error.reason if isinstance(error, NodeError) else error
        self._send_event(
            "execution_error",
            **reference,
            exception_message=error.message if isinstance(error, errors.SixfoldError) else "Internal error",
            exception_type=type(reason).__name__,
            traceback=[],
            current_inputs={},
            current_outputs=[],
        )

    def _send_event(self, kind: str, **data: Any) -> None:
        self._emit(NodeEvent(kind, data))


def _is_cacheable(node: GraphNode) -> bool:
    """Return whether a node's output is cached; running an inline node again is faster."""
    return node.spec.output_node or not _is_inline(node)


def _origins(node: GraphNode) -> Iterator[str]:
    return (origin for origin, _ in node.links.values())


def _is_inline(node: GraphNode) -> bool:
    return node.spec.where == "inline"


def _node_error(node: GraphNode, error: BaseException) -> BaseException:
    """Return a failed node's error: a message meant for the user, or only the node's name."""
    if isinstance(error, NodeError | GraphTooLarge | asyncio.CancelledError):
        return error
    if isinstance(error, Canceled):
        return asyncio.CancelledError()
    where = f"{node.spec.class_type} (node {node.id})"
    if isinstance(error, errors.SixfoldError):
        return NodeError(f"{where}: {error.message}", node, error)
    if isinstance(error, EngineError):
        return NodeError(f"{where}: {error}", node, error)
    return NodeError(f"{where} failed", node, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
