"""The image engine on the operator's ComfyUI, which converts inputs to a graph for the installed models."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.events import (
    Event,
    NodeFinished,
    NodeProgress,
    NodesCached,
    NodeStarted,
    PreviewImage,
)
from sixfold.clients.comfyui.server import ComfyFile
from sixfold.core.catalog.engines import (
    Artifact,
    Context,
    EngineError,
    PreviewContext,
    Result,
    Task,
    UnusableInput,
)
from sixfold.engines import image_models
from sixfold.engines.host_services import HostServices
from sixfold.engines.image import sheet
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.providers.comfyui import capabilities, checkpoints, image_graphs, image_io
from sixfold.engines.providers.comfyui.capabilities import (
    FILL,
    IMAGE_TO_IMAGE,
    TEXT_TO_IMAGE,
    UPSCALE,
    FoundModels,
    InstalledModels,
    probe,
)
from sixfold.engines.providers.comfyui.files import options
from sixfold.engines.providers.comfyui.hosts import ComfyHosts, HostRun
from sixfold.engines.providers.comfyui.image_graphs import GraphBuilder, ImageSource, ImageSpec
from sixfold.engines.providers.comfyui.image_io import ImageFinish, InputImage

if TYPE_CHECKING:
    from sixfold.engines.image.inpaint.fill_area import PreparedArea

__all__ = ["ComfyEngine", "FoundModels", "probe"]

MAX_SIDE = 4096  # pixels of an input image
_MAX_UPSCALED_PIXELS = 40_000_000
_DENOISE = 0.6
_GRAPH_VERSION = "1"  # must change whenever the graph for the same inputs changes


class _ImageRequest(msgspec.Struct, frozen=True):
    """A function that builds the graph of a task, and the output format and number of the images.

    `build` takes the index of an image in the batch, or None for the whole batch. `area` is the part of an
    image that is filled; `scratch` is the run's folder for temporary files.
    """

    build: Callable[[int | None], GraphBuilder]
    finish: ImageFinish
    scratch: Path
    count: int = 1
    area: PreparedArea | None = None


class _Moved(Exception):
    """Raised if a run that has not started must use a server other than the one at `url`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class ComfyEngine:
    """Runs text to image, image to image, filling and upscaling on the operator's ComfyUI.

    `task` selects one of them. By default, a request without an image is text to image; with a mask, filling;
    with an image and a prompt, image to image; with only an image, upscaling. `checkpoint` selects the model
    file.
    """

    def __init__(self, outside: HostServices, *, url: str = "", task: str = "", checkpoint: str = "") -> None:
        self.name = "comfyui"
        self._outside = outside
        self._hosts = ComfyHosts(outside, url)
        self._task = task
        self._checkpoint = checkpoint

    @property
    def version(self) -> str:
        """The versions of the graphs, ComfyUI and the models, which together determine the output."""
        installed = self._hosts.last.installed
        if installed is None:
            return _GRAPH_VERSION
        if self._checkpoint:
            with contextlib.suppress(EngineError):
                installed = installed.pinned(self._checkpoint)
        files = dict.fromkeys(PurePosixPath(file).stem for file in installed.serves.values())
        return "/".join((_GRAPH_VERSION, f"comfyui-{installed.stats.version}", *files))

    async def run(self, task: Task, context: Context) -> Result:
        """Run a task on the least busy server that has the model; raises `EngineError`.

        A run that has not started when its server cannot be reached is moved to another server.
        """
        unreachable: set[str] = set()
        while True:
            try:
                async with self._hosts.use(partial(self._select, task), unreachable) as run:
                    return await self._run_on(run, task, context)
            except _Moved as moved:
                unreachable.add(moved.url)

    async def _run_on(self, run: HostRun, task: Task, context: Context) -> Result:
        try:
            return await self._run(run, task, context)
        except comfyui_errors.ComfyRefused as refused:
            run.host.installed = None
            if not refused.unknown_value:
                raise
            # The installed models have changed: read them again and retry once.
            run.installed = self._select(task, await run.host.read())
            return await self._run(run, task, context)
        except comfyui_errors.ComfyNodeFailed as failed:
            run.host.installed = None
            if failed.class_type == "LoadImage":
                raise UnusableInput("ComfyUI could not read the image.") from failed
            raise
        except comfyui_errors.ComfyError as error:
            run.host.installed = None
            lost = isinstance(error, comfyui_errors.ComfyUnreachable) and not run.started
            if lost and self._hosts.has_others(run):
                raise _Moved(run.server.url) from error
            raise

    async def close(self) -> None:
        """Do nothing: no connection stays open between runs."""

    def _select(self, task: Task, installed: InstalledModels) -> InstalledModels:
        """Return the models limited to the task's checkpoint; raises `EngineError` if anything is missing."""
        kind = self._task or _kind(task)
        if kind in installed.missing:
            raise EngineError(installed.missing[kind])
        name = str(task.inputs.get(checkpoints.CHECKPOINT) or "")
        if not name:
            return installed.pinned(self._checkpoint) if self._checkpoint else installed
        file = checkpoints.ids(choice.file for choice in installed.choices).get(name)
        if file is None:
            raise EngineError(f"ComfyUI does not have the checkpoint {name}.")
        _loras(task, installed)
        for name, field in (("sampler", "sampler_name"), ("scheduler", "scheduler")):
            value = task.inputs.get(name)
            if value and value not in options(installed.schemas, "KSampler", field):
                raise EngineError(f"ComfyUI does not have the {name} {value}.")
        return installed.pinned(file)

    async def _run(self, run: HostRun, task: Task, context: Context) -> Result:
        installed = run.installed
        task = await asyncio.to_thread(sheet.merge, task, context)
        kind = self._task or _kind(task)
        request = await self._request(run, kind, task, context.scratch)
        model = installed.serves[kind]
        context.log(f"ComfyUI {installed.stats.version}: {model}")
        try:
            artifacts = await self._generate(run, request, model, None, _ImageProgress(context, task))
        except comfyui_errors.ComfyNodeFailed as failed:
            if request.count == 1 or not failed.memory or not installed.has("LatentFromBatch"):
                raise
            context.log(
                f"ComfyUI has too little memory for {request.count} images at once: generating one by one"
            )
            progress = _ImageProgress(context, task, request.count)
            artifacts = [
                artifact
                for index in range(request.count)
                for artifact in await self._generate(run, request, model, index, progress)
            ]
        context.progress(1.0)
        data: dict[str, Any] = {"checkpoint": model, "comfyui": installed.stats.version}
        return Result(tuple(artifacts), data, "full")

    async def _generate(
        self, run: HostRun, request: _ImageRequest, model: str, alone: int | None, progress: _ImageProgress
    ) -> list[Artifact]:
        graph = request.build(alone)
        handle = progress.begin(graph)
        outputs = await run.run(graph.nodes, {graph.output}, handle, model, previews=progress.wants_previews)
        images: Any = outputs.get(graph.output, {}).get("images")
        images = [image for image in images if isinstance(image, Mapping)] if isinstance(images, list) else []
        count = request.count if alone is None else 1
        if len(images) < count:
            raise EngineError(f"ComfyUI returned {len(images)} of {count} images.")
        return [
            await self._artifact(run, image, request, request.scratch / f"image-{alone or index}")
            for index, image in enumerate(images[:count])
        ]

    async def _request(self, run: HostRun, kind: str, task: Task, scratch: Path) -> _ImageRequest:
        installed = run.installed
        if kind == TEXT_TO_IMAGE:
            spec = _spec(task, _number(task, "width", 1024), _number(task, "height", 1024))
            spec = msgspec.structs.replace(spec, loras=_loras(task, installed))
            build = partial(image_graphs.text_to_image, installed, spec)
            return _ImageRequest(build, _finish(task, spec.width, spec.height), scratch, spec.count)
        if kind == FILL:
            return await self._fill_request(run, task, scratch)
        image, source = await self._upload_source(run, task)
        if kind == UPSCALE:
            width, height = _upscaled_size(task, image)
            graph = image_graphs.upscale(installed, source, width, height)
            return _ImageRequest(lambda _alone: graph, _finish(task, width, height), scratch)
        scale = min(1.0, MAX_SIDE / max(image.width, image.height))
        spec = _spec(task, max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        strength = task.inputs.get("strength")
        denoise = _DENOISE if strength is None else min(1.0, max(0.05, float(strength)))
        build = partial(image_graphs.image_to_image, installed, spec, source, denoise)
        return _ImageRequest(build, _finish(task, spec.width, spec.height, crop=False), scratch, spec.count)

    async def _fill_request(self, run: HostRun, task: Task, scratch: Path) -> _ImageRequest:
        # Imported here, because only masks need OpenCV.
        from sixfold.engines.image.inpaint import fill_area

        area = await asyncio.to_thread(fill_area.prepare, task)
        source, mask = [
            await run.server.upload(image_io.upload_name(data, "png"), data, "image/png")
            for data in (area.image, area.mask)
        ]
        spec = _spec(task, *area.size)
        graph = image_graphs.fill(run.installed, spec, ImageSource(source.annotated), mask.annotated)
        return _ImageRequest(lambda _alone: graph, _finish(task, *area.size), scratch, area=area)

    async def _upload_source(self, run: HostRun, task: Task) -> tuple[InputImage, ImageSource]:
        path = task.files.get("source_image_url") or next(iter(task.files.values()), None)
        if path is None:
            raise UnusableInput("A source image is required.")
        image = await asyncio.to_thread(image_io.read_input, path)
        file = await run.server.upload(image.name, image.data, image.content_type)
        return image, ImageSource(file.annotated, image.alpha)

    async def _artifact(
        self, run: HostRun, image: Mapping[str, Any], request: _ImageRequest, path: Path
    ) -> Artifact:
        file = ComfyFile(*(str(image.get(part) or "") for part in ("filename", "subfolder", "type")))
        with path.open("wb") as content:
            await run.server.view(file, content, image_io.MAX_BYTES)
        if request.area is None:
            return await asyncio.to_thread(image_io.encode_output, path, request.finish)
        return await asyncio.to_thread(request.area.finish, path, request.finish.output)


class _ImageProgress:
    """Reports the progress of a run, which never decreases; most of a run is sampling.

    A run may consist of several `parts` in sequence. The task's input `partial_images` is the number of
    previews that are shown, at equal intervals of the progress.
    """

    def __init__(self, context: Context, task: Task, parts: int = 1) -> None:
        self._context = context
        self._previews = _number(task, "partial_images", 0)
        self._shown = 0
        self._parts = parts
        self._part = -1
        self._graph = GraphBuilder()
        self._started = 0
        self._reported = 0.0

    @property
    def wants_previews(self) -> bool:
        """Whether more previews will be shown."""
        return self._shown < self._previews

    def begin(self, graph: GraphBuilder) -> _ImageProgress:
        """Begin the next part, which runs `graph`, and return this object as its event handler."""
        self._graph, self._started = graph, 0
        self._part += 1
        return self

    def __call__(self, event: Event) -> None:
        match event:
            case NodeProgress(node, done, of) if node == self._graph.sampler or not self._graph.sampler:
                self._report(0.1 + 0.8 * done / of)
            case NodeStarted():
                self._started += 1
                self._report(0.1 * self._started / len(self._graph.nodes))
            case PreviewImage(data):
                self._show(data)
            case NodeFinished():
                self._report(0.95)
            case NodesCached(nodes) if self._graph.output in nodes:
                self._context.log("ComfyUI returned a cached result")
            case _:
                pass

    def _show(self, image: bytes) -> None:
        is_due = self._reported >= (self._shown + 1) / (self._previews + 1)
        if self.wants_previews and is_due and isinstance(self._context, PreviewContext):
            self._shown += 1
            self._context.preview(image)

    def _report(self, fraction: float) -> None:
        total = (self._part + min(1.0, fraction)) / self._parts
        self._reported = max(self._reported, total)
        self._context.progress(self._reported)


def _kind(task: Task) -> str:
    if not task.files:
        return TEXT_TO_IMAGE
    if "mask" in task.files:
        return FILL
    return IMAGE_TO_IMAGE if _prompt(task) else UPSCALE


def _prompt(task: Task) -> str:
    return str(task.inputs.get("style_prompt") or task.inputs.get("prompt") or "")


def _spec(task: Task, width: int, height: int) -> ImageSpec:
    template = capabilities.document()["prompts"].get(task.model, "{}")
    return ImageSpec(
        template.replace("{}", _prompt(task)),
        str(task.inputs.get("negative_prompt") or ""),
        width,
        height,
        _number(task, "seed", 0) % 2**63,
        max(1, _number(task, "num_images", 1)),
        **_sampling(task),
    )


def _sampling(task: Task) -> dict[str, Any]:
    """Return the settings of the sampler, which are inputs only of models for a single checkpoint."""
    if not task.inputs.get(checkpoints.CHECKPOINT):
        return {}
    values = {name: task.inputs.get(name) for name in ("steps", "cfg", "sampler", "scheduler")}
    return {name: value for name, value in values.items() if value is not None}


def _loras(task: Task, installed: InstalledModels) -> tuple[tuple[str, float], ...]:
    """Return the files of the task's LoRAs with their weights; raises `EngineError` if a file is missing."""
    if not task.inputs.get(checkpoints.CHECKPOINT):
        return ()
    files = checkpoints.lora_ids(options(installed.schemas, "LoraLoader", "lora_name"))
    loras: list[tuple[str, float]] = []
    for text in task.inputs.get("lora") or ():
        name, weight = image_models.parse_lora(text)
        if name not in files:
            raise EngineError(f"ComfyUI does not have the LoRA {name}.")
        loras.append((files[name], weight))
    return tuple(loras)


def _finish(task: Task, width: int, height: int, *, crop: bool = True) -> ImageFinish:
    return ImageFinish(width, height, OutputFormat.of(task.inputs), crop)


def _number(task: Task, name: str, default: int) -> int:
    value = task.inputs.get(name)
    return default if value is None else int(value)


def _upscaled_size(task: Task, image: InputImage) -> tuple[int, int]:
    """Return the size by `scale` (2 by default) or by `width`, `height` or both."""
    scale = float(task.inputs.get("scale") or 2)
    width, height = _number(task, "width", 0), _number(task, "height", 0)
    if width or height:
        scale = max(width / image.width, height / image.height)
    width, height = width or round(image.width * scale), height or round(image.height * scale)
    if width < 1 or height < 1 or width * height > _MAX_UPSCALED_PIXELS:
        limit = _MAX_UPSCALED_PIXELS // 1_000_000
        raise UnusableInput(
            f"The upscaled image must have at most {limit} megapixels (got {width} x {height} pixels)."
        )
    return width, height
