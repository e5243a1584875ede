"""The diffusion engine: images from prompts, from other images and from control images."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
import torch

from sixfold.core.catalog.engines import (
    MORE_IMAGES,
    Artifact,
    BatchJob,
    Canceled,
    Context,
    EngineError,
    PreviewContext,
    Result,
    Task,
)
from sixfold.engines.image import sheet
from sixfold.engines.image.diffusers import loading, options, placement, prompts, sampling, task_parser
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.image.diffusers.prompts import PromptEncoding
from sixfold.engines.image.diffusers.sampling import SamplingPlan
from sixfold.engines.image.diffusers.task_parser import DiffusersTask, Pixels, SamplingRecipe, SizeRow

# Progress after loading the pipeline, and before encoding.
_LOADED, _DENOISED = 0.02, 0.95
# Number of images encoded at once; the encoders release the GIL.
_ENCODERS = 4
_TOO_LARGE = "The image is too large for this machine's memory: request a smaller one, or fewer at once."


class _DiffusionRun(msgspec.Struct):
    """One job: the images generated so far, and its outcome."""

    job: BatchJob
    request: DiffusersTask | None = None
    images: list[Pixels] = []
    outcome: Result | Exception | Canceled | None = None
    reached: float = 0.0
    shown: int = 0

    def progress(self, fraction: float) -> None:
        """Report progress, which never decreases; cancellation ends this run."""
        if self.outcome is None:
            self.reached = max(self.reached, fraction)
            try:
                self.job.context.progress(self.reached)
            except Canceled as canceled:
                self.outcome = canceled

    def is_due(self, fraction: float) -> bool:
        """Return whether a partial image is due at this progress, and count it as shown if so."""
        count = int(self.job.task.inputs.get("partial_images") or 0)
        if self.shown >= count or fraction < (self.shown + 1) / (count + 1):
            return False
        self.shown += 1
        return isinstance(self.job.context, PreviewContext)

    def preview(self, image: bytes) -> None:
        if isinstance(self.job.context, PreviewContext):
            self.job.context.preview(image)

    def log(self, line: str) -> None:
        self.job.context.log(line)


class DiffusersEngine:
    """Generates images for every diffusion model; `DiffusersOptions` selects the weights."""

    name = "weights-image"
    version = "1"

    def __init__(self, **settings: Any) -> None:
        self._options = options.parse(settings)
        self._cache = loading.PipelineCache(self._options)
        self._encoders = ThreadPoolExecutor(_ENCODERS, "encode")
        # An error is raised again when a caller first needs the weights.
        with suppress(EngineError):
            self.load()

    @property
    def loaded(self) -> Mapping[str, LoadedPipeline]:
        """Loaded pipelines by source, least recently used first."""
        return self._cache.loaded

    def load(self) -> LoadedPipeline:
        """Load the default weights; raises `EngineError`."""
        return self._cache.get(self._options.source_of(""))

    @property
    def device(self) -> str:
        """Device type: cuda, mps or cpu."""
        return self._cache.where.kind

    def run(self, task: Task, context: Context) -> Result:
        """Generate the images of a task.

        Inputs: `prompt` (or `style_prompt`), `negative_prompt`, `width`, `height`, `seed`, `num_images`,
        `format`, `quality`, `steps`, `guidance`, `enable_safety_checker`; `strength` for an image to start
        from (`source_image_url` or `image`); `grow` and `feather` for its `mask`; `control`, `control_scale`,
        `control_start` and `control_end` for a control image (`control_image`); `loras`.
        """
        (outcome,) = self.run_many([BatchJob(task, context)])
        if isinstance(outcome, Result):
            return outcome
        raise outcome

    def shape(self, task: Task) -> Hashable:
        """Return the key that tasks of a batch share; None for an invalid task, a mask or several images."""
        if "mask" in task.files or any(name.startswith(MORE_IMAGES) for name in task.files):
            # The size of the area around the mask, or of the sheet, is known only after decoding.
            return None
        try:
            return task_parser.recipe_of(task, self._options)
        except EngineError:
            # The error is raised when the task runs on its own.
            return None

    def run_many(self, jobs: Sequence[BatchJob]) -> list[Result | Exception | Canceled]:
        """Generate the images of several tasks; tasks with the same recipe are denoised together."""
        runs = [_DiffusionRun(job) for job in jobs]
        groups: dict[SamplingRecipe, list[_DiffusionRun]] = defaultdict(list)
        for owner, run in enumerate(runs):
            try:
                task = sheet.merge(run.job.task, run.job.context)
                run.request = task_parser.parse(task, owner, self._options)
            except EngineError as error:
                run.outcome = error
            else:
                groups[run.request.recipe].append(run)
        for recipe, members in groups.items():
            try:
                self._run_recipe(recipe, members, runs)
            except EngineError as error:
                _end(members, error)
            except (torch.OutOfMemoryError, MemoryError):
                _end(members, EngineError(_TOO_LARGE))
        return [run.outcome or EngineError("The model did not return images.") for run in runs]

    # -- one recipe --------------------------------------------------------------------------------

    def _run_recipe(
        self, recipe: SamplingRecipe, members: list[_DiffusionRun], runs: list[_DiffusionRun]
    ) -> None:
        loaded = self._cache.get(recipe.source)
        if recipe.control is not None:
            self._cache.control(loaded, recipe.control.kind)
        try:
            loaded.adapters.activate(recipe.adapters)
        except EngineError:
            # The LoRA may be partly applied.
            self._cache.drop(loaded)
            raise
        plan = sampling.plan(loaded, recipe)
        for run in members:
            run.log(_describe(loaded, plan, len(members)))
            run.progress(_LOADED)
        try:
            for rows, encodings in _batches(loaded, plan, members):
                self._denoise(loaded, plan, _SamplingLoop(rows, encodings, runs))
        finally:
            if recipe.adapters:
                loaded.adapters.activate(())
        for run in members:
            if run.outcome is None:
                run.outcome = self._result(run, loaded, plan)

    def _denoise(self, loaded: LoadedPipeline, plan: SamplingPlan, loop: _SamplingLoop) -> None:
        """Denoise the rows in as many batches as memory requires."""
        loop = loop.active()
        if len(loop.rows) > loaded.rows:
            for part in loop.halves():
                self._denoise(loaded, plan, part)
            return
        if not loop.rows:
            return
        try:
            images = sampling.sample(loaded, plan, loop.rows, loop.encodings, loop)
        except _RunAbandoned:
            return
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            placement.release(loaded.where.kind)
            self._reduce_memory(loaded, loop)
            self._denoise(loaded, plan, loop)
            return
        loop.store(images)

    def _reduce_memory(self, loaded: LoadedPipeline, loop: _SamplingLoop) -> None:
        """Halve the rows per batch, or offload more weights; raises `EngineError` if neither is possible."""
        if len(loop.rows) > 1:
            loaded.rows = len(loop.rows) // 2
            loop.log(f"out of memory with {len(loop.rows)} images per batch; using {loaded.rows} from now on")
        elif loaded.offload_more():
            tiles = ", decoding in tiles" if loaded.tiled else ""
            loop.log(f"out of memory; using {loaded.offload} offload{tiles} from now on")
        else:
            raise EngineError(_TOO_LARGE)

    def _result(self, run: _DiffusionRun, loaded: LoadedPipeline, plan: SamplingPlan) -> Result | Canceled:
        request = run.request
        assert request is not None  # noqa: S101 - a run without one has ended
        images = [request.complete(pixels) for pixels in run.images]
        coded = list(self._encoders.map(lambda rgb: request.output.encode(rgb, request.alpha), images))
        height, width = images[0].shape[:2]
        info = {"width": width, "height": height}
        kind = request.output.content_type
        data = {
            "pipeline": type(loaded.pipeline).__name__,
            "weights": loaded.source.name,
            "steps": plan.steps,
            "seeds": [row.seed for row in request.rows],
        }
        run.progress(1.0)
        if isinstance(run.outcome, Canceled):
            return run.outcome
        return Result(tuple(Artifact(kind, content, info) for content in coded), data, "full")


class _RunAbandoned(Exception):
    """Raised when every job of a batch was canceled."""


class _SamplingLoop(msgspec.Struct):
    """Rows that are denoised together, and the runs to which they belong."""

    rows: Sequence[SizeRow]
    encodings: Sequence[PromptEncoding]
    runs: list[_DiffusionRun]

    @property
    def owners(self) -> list[_DiffusionRun]:
        """The runs of these rows that have not ended."""
        numbers = dict.fromkeys(row.owner for row in self.rows)
        return [run for number in numbers if (run := self.runs[number]).outcome is None]

    def active(self) -> _SamplingLoop:
        """Return a loop without the rows of the runs that ended."""
        pairs = zip(self.rows, self.encodings, strict=True)
        remaining = [(row, encoding) for row, encoding in pairs if self.runs[row.owner].outcome is None]
        return _SamplingLoop(
            [row for row, _ in remaining], [encoding for _, encoding in remaining], self.runs
        )

    def halves(self) -> tuple[_SamplingLoop, _SamplingLoop]:
        middle = (len(self.rows) + 1) // 2
        return (
            _SamplingLoop(self.rows[:middle], self.encodings[:middle], self.runs),
            _SamplingLoop(self.rows[middle:], self.encodings[middle:], self.runs),
        )

    def step(self, fraction: float) -> None:
        """Report progress to the runs; raises `_RunAbandoned` if all were canceled."""
        for run in self.owners:
            rows = run.request.rows if run.request else self.rows
            mine = sum(self.runs[row.owner] is run for row in self.rows)
            share = (len(run.images) + fraction * mine) / len(rows)
            run.progress(_LOADED + (_DENOISED - _LOADED) * min(1.0, share))
        if not self.owners:
            raise _RunAbandoned

    def due_previews(self, fraction: float) -> list[int]:
        """Return the first row of each run whose partial image is due."""
        rows: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            rows.setdefault(row.owner, number)
        active = ((self.runs[owner], number) for owner, number in rows.items())
        return [number for run, number in active if run.outcome is None and run.is_due(fraction)]

    def preview(self, row: int, image: bytes) -> None:
        self.runs[self.rows[row].owner].preview(image)

    def log(self, line: str) -> None:
        for run in self.owners:
            run.log(line)

    def store(self, results: Sequence[Pixels | EngineError]) -> None:
        """Add the images to their runs; a failed row ends only its own run."""
        for row, image in zip(self.rows, results, strict=True):
            run = self.runs[row.owner]
            if run.outcome is not None:
                continue
            if isinstance(image, EngineError):
                run.outcome = image
            else:
                run.images.append(image)


def _batches(
    loaded: LoadedPipeline, plan: SamplingPlan, members: list[_DiffusionRun]
) -> list[tuple[list[SizeRow], list[PromptEncoding]]]:
    """Group the rows of a recipe into batches with equally many prompt chunks, within the row limit."""
    by_length: dict[int, list[tuple[SizeRow, PromptEncoding]]] = defaultdict(list)
    for run in members:
        for row in run.request.rows if run.request else ():
            negative = row.negative if plan.negative else ""
            encoding = prompts.read(loaded.pipeline, loaded.profile, row.prompt, negative)
            by_length[encoding.length].append((row, encoding))
            if row is run.request.rows[0]:  # pyright: ignore[reportOptionalMemberAccess]  # iterated just above
                _log_encoding(run, encoding, loaded)
    loops: list[tuple[list[SizeRow], list[PromptEncoding]]] = []
    for pairs in by_length.values():
        for first in range(0, len(pairs), loaded.rows):
            part = pairs[first : first + loaded.rows]
            loops.append(([row for row, _ in part], [encoding for _, encoding in part]))
    return loops


def _log_encoding(run: _DiffusionRun, encoding: PromptEncoding, loaded: LoadedPipeline) -> None:
    if encoding.length > 1:
        run.log(f"the prompt exceeds the text encoder's window and is encoded in {encoding.length} chunks")
    if encoding.unread:
        limit = type(loaded.pipeline).__name__
        run.log(
            f"the last {encoding.unread} tokens of the prompt are ignored: they exceed the limit of {limit}"
        )


def _describe(loaded: LoadedPipeline, plan: SamplingPlan, members: int) -> str:
    line = plan.describe(loaded)
    if members > 1:
        line += f", batched with {members - 1} more"
    if plan.recipe.negative and not plan.negative:
        line += "; the negative prompt is not supported and is ignored"
    return line


def _end(runs: Sequence[_DiffusionRun], error: Exception) -> None:
    for run in runs:
        if run.outcome is None:
            run.outcome = error


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether memory could not be allocated; only CUDA's allocator raises a specific exception."""
    message = str(error).lower()
    phrases = ("out of memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or any(word in message for word in phrases)
