"""The video engine on the operator's ComfyUI, which converts inputs to a graph for Wan or LTX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold.clients.comfyui.events import Event, NodeProgress, NodesCached
from sixfold.clients.comfyui.server import ComfyFile
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.audio.ambience import track
from sixfold.engines.host_services import HostServices
from sixfold.engines.providers import video_io, video_runs
from sixfold.engines.providers.comfyui import video_graphs
from sixfold.engines.providers.comfyui.capabilities import NOT_FOUND, InstalledModels
from sixfold.engines.providers.comfyui.engine import ComfyEngine
from sixfold.engines.providers.comfyui.hosts import HostRun
from sixfold.engines.providers.comfyui.video_graphs import IMAGE_TO_VIDEO, Graph, VideoModelChoice, VideoSpec
from sixfold.engines.providers.video_io import VideoFit
from sixfold.engines.video import dimensions, task_parser
from sixfold.engines.video.task_parser import VideoTask

_MAX_BYTES = 512 * 2**20  # the largest file of a segment
_START, _SAMPLED = 0.02, 0.85  # the progress before and after sampling
_DEFAULT_PROMPT = "the scene comes to life with gentle, natural movement"


class ComfyVideoEngine(ComfyEngine):
    """Generates videos from text or images on the operator's ComfyUI.

    `task` is `image-to-film` for models that can start from an image, or `text-to-film`. `checkpoint` selects
    the model file. The server enforces `limit_seconds`.
    """

    def __init__(
        self,
        outside: HostServices,
        *,
        url: str = "",
        task: str = IMAGE_TO_VIDEO,
        checkpoint: str = "",
        limit_seconds: float = 0,
    ) -> None:
        del limit_seconds
        super().__init__(outside, url=url, task=task)
        self._checkpoint_file = checkpoint

    def _select(self, task: Task, installed: InstalledModels) -> InstalledModels:
        """Return the models; raises `EngineError` if none of them can run the task."""
        if self._task in installed.missing:
            raise EngineError(installed.missing[self._task])
        return installed

    async def _run(self, run: HostRun, task: Task, context: Context) -> Result:
        installed = run.installed
        if self._task in installed.missing:
            raise EngineError(installed.missing[self._task])
        choice = installed.videos.best(self._task == IMAGE_TO_VIDEO, self._checkpoint_file)
        if choice is None:
            raise EngineError(NOT_FOUND.format(self._checkpoint_file))
        video = task_parser.parse(task.inputs)
        shape, image_name = (16, 9), ""
        if video_runs.source_image(task) is not None:
            image, source = await self._upload_source(run, task)
            shape, image_name = (image.width, image.height), source.name
        size = video.size or dimensions.frame(video.resolution, dimensions.aspect_ratio(video.aspect, shape))
        spec = _spec(task, video, choice, size, image_name)
        graph = video_graphs.build(installed.schemas, choice, spec)
        context.log(
            f"ComfyUI {installed.stats.version}: {choice.file}, {spec.frames} frames of {_pixels(spec.size)}"
        )
        progress = _VideoProgress(context, graph)
        outputs = await run.run(graph.nodes, set(graph.outputs), progress, choice.file)
        paths = [await self._download(run, outputs.get(node, {}), context, node) for node in graph.outputs]
        fit = VideoFit(task=msgspec.structs.replace(video, size=size), rate=spec.rate)
        artifact = await video_io.fit_video(paths, fit, "ComfyUI")
        context.progress(1.0)
        data: dict[str, Any] = {
            "seed": video.seed,
            "checkpoint": choice.file,
            "comfyui": installed.stats.version,
            "steps": spec.steps,
        }
        if video.sound:
            data["sound"] = track.mix_of(video.prompt).description
        return Result((artifact,), data, "full")

    async def _download(self, run: HostRun, output: Mapping[str, Any], context: Context, node: str) -> Path:
        """Download the file of a segment; each saver node returns the file under a different key."""
        row = next(_files(output), None)
        if row is None:
            raise EngineError("ComfyUI did not return a video.")
        path = context.scratch / f"segment-{node}"
        file = ComfyFile(*(str(row.get(part) or "") for part in ("filename", "subfolder", "type")))
        with path.open("wb") as target:
            await run.server.view(file, target, _MAX_BYTES)
        return path


def _files(output: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for rows in output.values():
        yield from (row for row in rows if isinstance(row, dict) and row.get("filename"))


def _spec(
    task: Task, video: VideoTask, choice: VideoModelChoice, size: tuple[int, int], image: str
) -> VideoSpec:
    """Return the spec of a video; the rate is the request's if it counts frames, else the model's."""
    family, counts_frames = choice.family, bool(task.inputs.get("num_frames"))
    rate = int(video.rate) if counts_frames else family.rate
    frames = video.frames if counts_frames else math.ceil(video.seconds * rate) + 1
    if not family.pictured and len(family.segments(frames)) > 1:
        limit = family.frames / rate
        raise EngineError(
            f"ComfyUI's {choice.file} generates videos of at most {limit:.3g} seconds: request a shorter one."
        )
    steps, cfg = task.inputs.get("num_inference_steps"), task.inputs.get("guidance_scale")
    distilled = family.cfg <= 1  # a distilled model needs few steps and ignores the negative prompt
    return VideoSpec(
        prompt=video.prompt or _DEFAULT_PROMPT,
        negative=video.negative,
        seed=video.seed,
        frames=frames,
        rate=rate,
        size=family.size_for(size),
        steps=family.steps if distilled or not steps else int(steps),
        cfg=family.cfg if distilled or cfg is None else float(cfg),
        image=image,
    )


def _pixels(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


class _VideoProgress:
    """Reports the progress of a run, most of which is sampling its segments."""

    def __init__(self, context: Context, graph: Graph) -> None:
        self._context = context
        self._samplers = graph.samplers
        self._output = graph.outputs[-1]
        self._reported = _START

    def __call__(self, event: Event) -> None:
        match event:
            case NodeProgress(node, done, of) if node in self._samplers:
                share = (self._samplers.index(node) + done / of) / len(self._samplers)
                self._reported = max(self._reported, _START + (_SAMPLED - _START) * share)
            case NodesCached(nodes) if self._output in nodes:
                self._context.log("ComfyUI returned a cached result")
            case _:
                pass
        self._context.progress(self._reported)
