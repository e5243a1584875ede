"""The engine: images from words, from images and from outlines, by a diffusion model's weights."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from sixfold.core.catalog.engines import Artifact, BatchJob, Canceled, Context, EngineError, Result, Task
from sixfold.engines.image import encode
from sixfold.engines.image.diffusers import (
    loading,
    options,
    placement,
    prompts,
    sampling,
    task_parser,
)
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.image.diffusers.prompts import PromptEncoding
from sixfold.engines.image.diffusers.sampling import SamplingPlan
from sixfold.engines.image.diffusers.task_parser import DiffusersTask, Pixels, SamplingRecipe, SizeRow

_LOADED, _DENOISED = 0.02, 0.95  # progress when the pipeline is there, and when only encoding is left
_ENCODERS = 4  # images encoded at once; the encoders let go of Python's lock
_TOO_LARGE = "The picture is too large for this machine's memory: ask for a smaller one, or fewer at once."


@dataclass(slots=True)
class _DiffusionRun:
    """One job on its way: what was made of it so far, and how it ended."""

    job: BatchJob
    wanted: DiffusersTask | None = None
    pictures: list[Pixels] = field(default_factory=list["Pixels"])
    ending: Result | Exception | Canceled | None = None
    reached: float = 0.0

    def progress(self, fraction: float) -> None:
        """Tell how far it is, never less than before; a canceled run ends here."""
        if self.ending is None:
            self.reached = max(self.reached, fraction)
            try:
                self.job.context.progress(self.reached)
            except Canceled as canceled:
                self.ending = canceled

    def log(self, line: str) -> None:
        """Add a line to the log."""
        self.job.context.log(line)


class DiffusersEngine:
    """Serves every model of the image family; `DiffusersOptions` says with which weights."""

    name = "weights-image"
    version = "1"

    def __init__(self, **given: Any) -> None:
        self._options = options.parse(given)
        self._shelf = loading.PipelineCache(self._options)
        self._encoders = ThreadPoolExecutor(_ENCODERS, "encode")
        with suppress(EngineError):  # whoever asks for them will be told, in these very words
            self.load()

    @property
    def loaded(self) -> Mapping[str, LoadedPipeline]:
        """The pipelines at hand, by where they came from; the least recently used first."""
        return self._shelf.loaded

    def load(self) -> LoadedPipeline:
        """Have the weights at hand that serve whatever has none of its own; raises `EngineError`."""
        return self._shelf.get(self._options.source_of(""))

    @property
    def device(self) -> str:
        """Where it runs: cuda, mps or cpu."""
        return self._shelf.where.kind

    def run(self, task: Task, context: Context) -> Result:
        """Make a task's images.

        Inputs: `prompt` (or `style_prompt`), `negative_prompt`, `width`, `height`, `seed`, `num_images`,
        `format`, `quality`, `steps`, `guidance`, `enable_safety_checker`; `strength` for an image to
        start from (`source_image_url` or `image`); `control`, `control_scale`, `control_start` and
        `control_end` for one to be led by (`control_image`); `loras`.
        """
        (ending,) = self.run_many([BatchJob(task, context)])
        if isinstance(ending, Result):
            return ending
        raise ending

    def shape(self, task: Task) -> Hashable:
        """What tasks must agree in to share a denoising loop."""
        try:
            return task_parser.recipe_of(task, self._options)
        except EngineError:
            return None  # alone, it will say what is wrong with it

    def run_many(self, jobs: Sequence[BatchJob]) -> list[Result | Exception | Canceled]:
        """Make the images of several tasks, those that agree in one loop."""
        runs = [_DiffusionRun(job) for job in jobs]
        groups: dict[SamplingRecipe, list[_DiffusionRun]] = defaultdict(list)
        for owner, run in enumerate(runs):
            try:
                run.wanted = task_parser.read(run.job.task, owner, self._options)
            except EngineError as error:
                run.ending = error
            else:
                groups[run.wanted.recipe].append(run)
        for recipe, members in groups.items():
            try:
                self._make(recipe, members, runs)
            except EngineError as error:
                _end(members, error)
            except (torch.OutOfMemoryError, MemoryError):
                _end(members, EngineError(_TOO_LARGE))
        return [run.ending or EngineError("The model gave nothing.") for run in runs]

    # -- one recipe --------------------------------------------------------------------------------

    def _make(self, recipe: SamplingRecipe, members: list[_DiffusionRun], runs: list[_DiffusionRun]) -> None:
        loaded = self._shelf.get(recipe.source)
        if recipe.control is not None:
            self._shelf.control(loaded, recipe.control.kind)
        try:
            loaded.adapters.wear(recipe.adapters)
        except EngineError:
            self._shelf.drop(loaded)  # half a LoRA may hang on it
            raise
        plan = sampling.plan(loaded, recipe)
        for run in members:
            run.log(_introduced(loaded, plan, len(members)))
            run.progress(_LOADED)
        try:
            for rows, readings in _loops(loaded, plan, members):
                self._paint(loaded, plan, _SamplingLoop(rows, readings, runs))
        finally:
            if recipe.adapters:
                loaded.adapters.wear(())
        for run in members:
            if run.ending is None:
                run.ending = self._result(run, loaded, plan)

    def _paint(self, loaded: LoadedPipeline, plan: SamplingPlan, loop: _SamplingLoop) -> None:
        """Denoise these rows, in as many loops as memory wants."""
        loop = loop.living()
        if len(loop.rows) > loaded.rows:
            for part in loop.halves():
                self._paint(loaded, plan, part)
            return
        if not loop.rows:
            return
        try:
            made = sampling.sample(loaded, plan, loop.rows, loop.readings, loop)
        except _RunAbandoned:
            return
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            placement.release(loaded.where.kind)
            self._yield_memory(loaded, loop)
            self._paint(loaded, plan, loop)
            return
        loop.keep(made)

    def _yield_memory(self, loaded: LoadedPipeline, loop: _SamplingLoop) -> None:
        """Want less from now on: half the rows, else less on the device; raises `EngineError` at the end."""
        if len(loop.rows) > 1:
            loaded.rows = len(loop.rows) // 2
            loop.log(f"out of memory with {len(loop.rows)} pictures at once: {loaded.rows} from now on")
        elif loaded.harder():
            tiles = ", decoding in tiles" if loaded.tiled else ""
            loop.log(f"out of memory: {loaded.offload} offload{tiles} from now on")
        else:
            raise EngineError(_TOO_LARGE)

    def _result(self, run: _DiffusionRun, loaded: LoadedPipeline, plan: SamplingPlan) -> Result | Canceled:
        wanted = run.wanted
        assert wanted is not None  # noqa: S101 - a run without one has ended
        coded = list(
            self._encoders.map(
                lambda rgb: encode.encode(rgb, wanted.alpha, format=wanted.format, quality=wanted.quality),
                run.pictures,
            )
        )
        width, height = wanted.recipe.size
        info = {"width": width, "height": height}
        kind = encode.CONTENT_TYPES[wanted.format]
        data = {
            "pipeline": type(loaded.pipeline).__name__,
            "weights": loaded.source.name,
            "steps": plan.steps,
            "seeds": [row.seed for row in wanted.rows],
        }
        run.progress(1.0)
        if isinstance(run.ending, Canceled):
            return run.ending
        return Result(tuple(Artifact(kind, one, info) for one in coded), data, "full")


class _RunAbandoned(Exception):
    """Nobody wants any row of this loop any more."""


@dataclass(slots=True)
class _SamplingLoop:
    """Rows that are denoised together, with the runs that they belong to."""

    rows: Sequence[SizeRow]
    readings: Sequence[PromptEncoding]
    runs: list[_DiffusionRun]

    @property
    def owners(self) -> list[_DiffusionRun]:
        """The runs of these rows that still wait."""
        numbers = dict.fromkeys(row.owner for row in self.rows)
        return [run for number in numbers if (run := self.runs[number]).ending is None]

    def living(self) -> _SamplingLoop:
        """The same without the rows of runs that ended."""
        pairs = zip(self.rows, self.readings, strict=True)
        kept = [(row, reading) for row, reading in pairs if self.runs[row.owner].ending is None]
        return _SamplingLoop([row for row, _ in kept], [reading for _, reading in kept], self.runs)

    def halves(self) -> tuple[_SamplingLoop, _SamplingLoop]:
        """Two loops of about half the rows."""
        middle = (len(self.rows) + 1) // 2
        return (
            _SamplingLoop(self.rows[:middle], self.readings[:middle], self.runs),
            _SamplingLoop(self.rows[middle:], self.readings[middle:], self.runs),
        )

    def step(self, fraction: float) -> None:
        """Pass progress on; raises `_RunAbandoned` when all were canceled."""
        for run in self.owners:
            wanted = run.wanted.rows if run.wanted else self.rows
            mine = sum(self.runs[row.owner] is run for row in self.rows)
            done = (len(run.pictures) + fraction * mine) / len(wanted)
            run.progress(_LOADED + (_DENOISED - _LOADED) * min(1.0, done))
        if not self.owners:
            raise _RunAbandoned

    def log(self, line: str) -> None:
        """Say a line to everyone concerned."""
        for run in self.owners:
            run.log(line)

    def keep(self, made: Sequence[Pixels | EngineError]) -> None:
        """Give each run its images; a failed row ends its run alone."""
        for row, picture in zip(self.rows, made, strict=True):
            run = self.runs[row.owner]
            if run.ending is not None:
                continue
            if isinstance(picture, EngineError):
                run.ending = picture
            else:
                run.pictures.append(picture)


def _loops(
    loaded: LoadedPipeline, plan: SamplingPlan, members: list[_DiffusionRun]
) -> list[tuple[list[SizeRow], list[PromptEncoding]]]:
    """The rows of a recipe in loops: prompts of as many pieces, at most as many rows as are allowed."""
    by_length: dict[int, list[tuple[SizeRow, PromptEncoding]]] = defaultdict(list)
    for run in members:
        for row in run.wanted.rows if run.wanted else ():
            negative = row.negative if plan.negative else ""
            reading = prompts.read(loaded.pipeline, loaded.profile, row.prompt, negative)
            by_length[reading.length].append((row, reading))
            if row is run.wanted.rows[0]:  # pyright: ignore[reportOptionalMemberAccess]  # iterated just above
                _say_how_read(run, reading, loaded)
    loops: list[tuple[list[SizeRow], list[PromptEncoding]]] = []
    for pairs in by_length.values():
        for first in range(0, len(pairs), loaded.rows):
            part = pairs[first : first + loaded.rows]
            loops.append(([row for row, _ in part], [reading for _, reading in part]))
    return loops


def _say_how_read(run: _DiffusionRun, reading: PromptEncoding, loaded: LoadedPipeline) -> None:
    if reading.length > 1:
        run.log(f"the prompt is longer than the text encoder's window: it is read in {reading.length} pieces")
    if reading.unread:
        limit = type(loaded.pipeline).__name__
        run.log(f"the prompt's last {reading.unread} tokens are not read: {limit} takes no more")


def _introduced(loaded: LoadedPipeline, plan: SamplingPlan, members: int) -> str:
    line = plan.words(loaded)
    if members > 1:
        line += f", with {members - 1} more at once"
    if plan.recipe.negative and not plan.negative:
        line += "; it takes no negative prompt"
    return line


def _end(runs: Sequence[_DiffusionRun], error: Exception) -> None:
    for run in runs:
        if run.ending is None:
            run.ending = error


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Also Apple's and the processor's allocators, which have no class of their own for it."""
    said = str(error).lower()
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or any(word in said for word in words)
