"""The run of a checked graph: what is cached is left out, what is ready runs, and somebody is told.

One pass gives keys; a walk back from the outputs stops where the cache has an outcome; then whatever has
its inputs runs: nodes on small values at once, all others in a node session, which holds their large values.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold import errors
from sixfold.core.catalog.engines import Canceled, EngineError
from sixfold.core.workflows import cache_keys as merkle
from sixfold.core.workflows.admission import GraphMemory
from sixfold.core.workflows.context import GraphHome, RunContextNodes
from sixfold.core.workflows.limits import GraphTooLarge, count_text
from sixfold.core.workflows.node_call import call, finish
from sixfold.core.workflows.node_sessions import (
    HELD,
    LocalSession,
    NodeSession,
    OpenSession,
    Work,
    Worked,
    text_of,
)
from sixfold.core.workflows.outcome_writer import OutcomeWriter
from sixfold.core.workflows.ports import (
    NodeCachePort,
    NodeChildren,
    NodeEvent,
    NodeFile,
    NodeFiles,
    NodeInputs,
    OutputStore,
    StoredOutput,
    ValuePacker,
)
from sixfold.core.workflows.run_values import RunValues
from sixfold.core.workflows.slices import Slices
from sixfold.core.workflows.validate import GraphNode, ValidationResult

_BREATH_NODES = 256  # trivial nodes between two looks at the rest of the server
_BREATH_TEXT = 2**18  # characters likewise


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Where a run takes place; its nodes work in this process where it names no other session."""

    children: NodeChildren
    files: NodeFiles
    shelf: OutputStore
    packer: ValuePacker
    scratch: Path
    cache: NodeCachePort | None = None
    memory: GraphMemory | None = None
    open_session: OpenSession | None = None


@dataclass(frozen=True, slots=True)
class GraphRunLimits:
    """How much one run may take.

    `memory_bytes` is that of values that wait for another node, `text` are the characters that inline
    nodes take and give.
    """

    seconds: float = 3600.0
    memory_bytes: int = 4 * 2**30
    text: int = 2**25


@dataclass(frozen=True, slots=True)
class GraphEnded:
    """A run that succeeded: what each output node showed, and which nodes ran and which were cached.

    `preview`: a preview engine had a part in it, now or when a cached node ran.
    """

    outputs: Mapping[str, Mapping[str, Any]]
    executed: tuple[str, ...]
    cached: tuple[str, ...]
    preview: bool = False


class NodeError(errors.EngineFailed):
    """A node of the graph failed."""

    code = "node_failed"

    def __init__(self, message: str, node: GraphNode, reason: BaseException) -> None:
        self.node_id = node.id
        self.class_type = node.spec.class_type
        self.reason = reason
        super().__init__(message)


Emit = Callable[[NodeEvent], None]
_Outcome = tuple[Worked, StoredOutput]


async def execute(
    verdict: ValidationResult, place: RunLocation, emit: Emit, limits: GraphRunLimits | None = None
) -> GraphEnded:
    """Run a checked graph to its end, once; cancel the coroutine to interrupt it.

    Raises `NodeError`, `GraphTooLarge`, or what finding a file raises. `emit` is called on the loop.
    """
    bounds = limits or GraphRunLimits()
    run = _GraphRun(verdict, place, emit, bounds)
    try:
        async with asyncio.timeout(bounds.seconds):
            return await run.go()
    except TimeoutError:
        raise errors.EngineFailed(f"The graph took longer than {bounds.seconds:g} seconds") from None


def unrunnable(verdict: ValidationResult) -> tuple[str, ...]:
    """The classes of a checked graph that are known by their schema only."""
    return tuple(sorted({node.spec.class_type for node in verdict.nodes.values() if node.spec.run is None}))


@dataclass(slots=True)
class _ExecutionPlan:
    """What is left to do: for each node how many it waits for, and who waits for it."""

    waits: dict[str, int] = field(default_factory=dict[str, int])
    feeds: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    reads: dict[str, int] = field(default_factory=dict[str, int])
    hits: dict[str, StoredOutput] = field(default_factory=dict[str, StoredOutput])


class _GraphRun:
    """One run and its state."""

    def __init__(
        self, verdict: ValidationResult, place: RunLocation, emit: Emit, limits: GraphRunLimits
    ) -> None:
        self._nodes = verdict.nodes
        self._outputs = verdict.outputs
        self._place = place
        self._emit = emit
        self._limits = limits
        self._keys: dict[str, str] = {}
        self._plan = _ExecutionPlan()
        self._shown: dict[str, Mapping[str, Any]] = {}
        self._outcomes = OutcomeWriter(place.cache)
        self._executed: list[str] = []
        self._previews: set[str] = set()
        self._tasks: dict[asyncio.Task[_Outcome], tuple[str, RunContextNodes]] = {}
        self._ended: asyncio.Queue[asyncio.Task[_Outcome]] = asyncio.Queue()
        self._memory = place.memory or GraphMemory(limits.memory_bytes)
        self._held = self._memory.join()
        self._values = RunValues(self._nodes, place.packer, self._held.hold)
        # Characters since the loop was last given back, and of the whole run.
        self._text = self._all_text = 0
        self._home = GraphHome(place, emit)
        self._session: NodeSession | None = None
        self._opening = asyncio.Lock()

    async def go(self) -> GraphEnded:
        ended = None
        try:
            ended = await self._go()
            return ended
        finally:
            self._held.close()
            if self._session is not None:
                await self._session.close(ended=ended is not None)

    async def _go(self) -> GraphEnded:
        self._tell("execution_start", timestamp=_now_ms())
        await self._find_files()
        self._keys = await Slices().run(merkle.keying(self._nodes))
        cached = await self._look_back()
        self._tell("execution_cached", nodes=cached, timestamp=_now_ms())
        self._values.hits = self._plan.hits
        self._previews.update(node_id for node_id, hit in self._plan.hits.items() if hit.preview)
        for node_id in cached:
            self._show_cached(node_id)
        try:
            await self._work()
        except asyncio.CancelledError:
            await self._stop()
            await self._outcomes.stop()
            self._tell("execution_interrupted", **self._where())
            raise
        except BaseException as error:
            await self._stop()
            self._tell_error(error)
            await self._outcomes.flush()
            raise
        await self._outcomes.flush()
        self._tell("execution_success", timestamp=_now_ms())
        self._tell("executing", node=None)
        preview = not self._previews.isdisjoint(self._outputs)
        shown = {node_id: self._shown[node_id] for node_id in self._outputs if node_id in self._shown}
        return GraphEnded(shown, tuple(self._executed), tuple(cached), preview)

    # -- before ----------------------------------------------------------------------------------

    async def _find_files(self) -> None:
        """Put the files that inputs name in the place of their names."""
        named = [
            (node, name, told)
            for node in self._nodes.values()
            for name, told in merkle.files_named(node).items()
        ]
        wanted = list(dict.fromkeys(told for _, _, told in named))
        found = await asyncio.gather(*(self._place.files.find(*told) for told in wanted))
        by_name: dict[tuple[str, str], NodeFile] = dict(zip(wanted, found, strict=True))
        for node, name, told in named:
            node.values[name] = by_name[told]

    async def _look_back(self) -> list[str]:
        """Plan what has to run, walking back from the outputs; gives what need not."""
        stored = await self._known()
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
        for node_id in (each for each in self._nodes if each in needed):
            origins = {origin for origin, _ in self._nodes[node_id].links.values()}
            plan.waits[node_id] = len(origins & needed)
            for origin in origins & needed:
                plan.feeds.setdefault(origin, []).append(node_id)
        return [node_id for node_id in self._nodes if node_id not in needed]

    async def _known(self) -> Mapping[str, StoredOutput]:
        if self._place.cache is None:
            return {}
        kept = [self._keys[node_id] for node_id, node in self._nodes.items() if _is_kept(node)]
        return await self._place.cache.find(kept)

    def _show_cached(self, node_id: str) -> None:
        hit = self._plan.hits.get(node_id)
        if hit is not None and node_id in self._outputs:
            self._shown[node_id] = hit.ui
            if hit.ui:
                self._tell("executed", node=node_id, display_node=node_id, output=hit.ui)

    # -- the work --------------------------------------------------------------------------------

    async def _work(self) -> None:
        ready = [node_id for node_id, count in reversed(self._plan.waits.items()) if count == 0]
        done = 0
        while ready or self._tasks:
            if not self._tasks:
                await self._held.room()
            # What is pending may be freed by the nodes at work: they end before the run waits for others.
            while ready and not self._held.pending:
                node_id = ready.pop()
                node = self._nodes[node_id]
                self._tell("executing", node=node_id, display_node=node_id)
                context = RunContextNodes(node_id, self._keys[node_id], self._home)
                small = self._values.small_inputs(node) if node.spec.is_plain else None
                if small is None:
                    self._start(node, context)
                    continue
                given, size = self._inline(node, context, *small)
                pause = self._text >= _BREATH_TEXT
                shown = given.made or given.ui
                preview = self._is_preview(node)
                ui: Mapping[str, Any] = await self._kept(node_id, given, preview) if shown else {}
                if self._plan.reads.get(node_id):
                    self._values.keep_small(node_id, given.outputs, size)
                ready += self._done(node_id, StoredOutput(None, ui, preview))
                done += 1
                if done % _BREATH_NODES == 0 or pause:
                    self._text = 0
                    await asyncio.sleep(0)
            if self._tasks:
                ready += self._collect(await self._ended.get())
                while not self._ended.empty():
                    ready += self._collect(self._ended.get_nowait())
                await self._outcomes.room()

    def _inline(
        self, node: GraphNode, context: RunContextNodes, inputs: Mapping[str, Any], characters: int
    ) -> tuple[NodeInputs, int]:
        self._count_text(characters)
        try:
            given = finish(node, call(node, context, inputs))
        except Exception as error:
            raise _failed(node, error) from error
        size = count_text(given.outputs)
        self._count_text(size)
        return given, size

    def _count_text(self, characters: int) -> None:
        self._text += characters
        self._all_text += characters
        if self._all_text > self._limits.text:
            raise GraphTooLarge(f"The graph processes more than {self._limits.text:,} characters of text")

    def _start(self, node: GraphNode, context: RunContextNodes) -> None:
        task = asyncio.create_task(self._ran(node, context))
        self._tasks[task] = (node.id, context)
        task.add_done_callback(self._ended.put_nowait)

    async def _ran(self, node: GraphNode, context: RunContextNodes) -> _Outcome:
        try:
            session = await self._opened()
            inputs = await self._values.inputs(node, session)
            work = Work(node, inputs, self._place.cache is not None and not _is_inline(node))
            if node.spec.where == "thread":
                async with self._memory.working(self._values.needed(node, inputs)):
                    worked = await session.run(work, context)
            else:
                if _is_inline(node):
                    self._count_text(text_of(inputs.values()))
                worked = await session.run(work, context)
                self._count_text(sum(worked.texts))
        except Exception as error:
            raise _failed(node, error) from error
        preview = context.preview_part or self._is_preview(node)
        return worked, StoredOutput(worked.packed, await self._kept(node.id, worked, preview), preview)

    async def _opened(self) -> NodeSession:
        async with self._opening:
            if self._session is None:
                place = self._place
                opened = place.open_session
                self._session = LocalSession(place.packer) if opened is None else await opened()
            return self._session

    def _collect(self, task: asyncio.Task[_Outcome]) -> list[str]:
        node_id, _ = self._tasks.pop(task)
        worked, stored = task.result()
        if self._plan.reads.get(node_id):
            self._values.keep(node_id, worked)
        elif HELD in worked.outputs and self._session is not None:
            self._session.release(node_id)
        return self._done(node_id, stored)

    def _is_preview(self, node: GraphNode) -> bool:
        """Whether something that went into it is one."""
        return any(origin in self._previews for origin, _ in node.links.values())

    def _done(self, node_id: str, stored: StoredOutput) -> list[str]:
        """Tell that a node is done; gives the nodes that are ready now."""
        node, plan, ui = self._nodes[node_id], self._plan, stored.ui
        self._executed.append(node_id)
        if stored.preview:
            self._previews.add(node_id)
        if node_id in self._outputs:
            self._shown[node_id] = ui
        if ui:
            self._tell("executed", node=node_id, display_node=node_id, output=ui)
        self._tell("finished", node=node_id)
        if _is_kept(node) and (stored.packed is not None or node.spec.output_node):
            self._outcomes.add(self._keys[node_id], stored)
        self._release(node)
        fed = plan.feeds.get(node_id, ())
        for each in fed:
            plan.waits[each] -= 1
        return [each for each in fed if plan.waits[each] == 0]

    async def _kept(self, node_id: str, given: NodeInputs | Worked, preview: bool) -> Mapping[str, Any]:
        ui = dict(given.ui)
        for made in given.made:
            told = await self._place.shelf.keep(node_id, made, preview=preview)
            ui.setdefault(made.kind, []).append(told)
        return ui

    def _release(self, node: GraphNode) -> None:
        """Let go of values that nobody waits for any more."""
        for origin, _ in node.links.values():
            self._plan.reads[origin] -= 1
            if not self._plan.reads[origin]:
                self._values.drop(origin, self._session)

    # -- the end ---------------------------------------------------------------------------------

    async def _stop(self) -> None:
        for task, (_, context) in self._tasks.items():
            context.cancel()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._values.stop()

    def _where(self) -> dict[str, Any]:
        running = next((node_id for node_id, _ in self._tasks.values()), None)
        spec = self._nodes[running].spec if running else None
        return {
            "node_id": running,
            "node_type": spec.class_type if spec else None,
            "executed": list(self._executed),
            "timestamp": _now_ms(),
        }

    def _tell_error(self, error: BaseException) -> None:
        told = self._where()
        if isinstance(error, NodeError):
            told |= {"node_id": error.node_id, "node_type": error.class_type}
        reason = error.reason if isinstance(error, NodeError) else error
        self._tell(
            "execution_error",
            **told,
            exception_message=error.message if isinstance(error, errors.SixfoldError) else "Internal error",
            exception_type=type(reason).__name__,
            traceback=[],
            current_inputs={},
            current_outputs=[],
        )

    def _tell(self, kind: str, **data: Any) -> None:
        self._emit(NodeEvent(kind, data))


def _is_kept(node: GraphNode) -> bool:
    """Whether a node's outcome is worth a place in the cache: what is trivial is done again sooner."""
    return node.spec.output_node or not _is_inline(node)


def _is_inline(node: GraphNode) -> bool:
    return node.spec.where == "inline"


def _failed(node: GraphNode, error: BaseException) -> BaseException:
    """A node's failure: sentences meant for the user are kept, others say only where it was."""
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
