"""Runs of a video task at any provider: the preparation of the request and the fitting of the video.

The video of a model with fixed `durations` is cut and scaled here. If a request counts frames and the model
lacks such inputs (`retime`), the video is retimed here by interpolation of frames.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Canceled, Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.providers import image_io
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.model_table import ModelRoute, UsedInputs
from sixfold.engines.providers.provider import ProviderRun
from sixfold.engines.video import conform, dimensions, probe, task_parser, timing
from sixfold.engines.video.conform import ConformTarget
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.task_parser import VideoTask

IMAGES = ("image_url", "image")
_BILLED_RATE = 16  # frames per second by which these models bill, independent of the requested rate
# Inputs that the log mentions when a model does not support them.
_REPORTED = ("seed", "negative_prompt", "num_inference_steps", "guidance_scale")
# A video with this share of the requested frames is accepted; its last frame is held for the rest.
_ENOUGH = 0.8
_FROM, _TO = 0.93, 0.99  # the progress at the start and end of fitting


class VideoRequest(msgspec.Struct, frozen=True):
    """One call: the model, its inputs, the billed seconds, and the fitting of its video.

    `target` is set for models with fixed durations, `task` for models whose video is retimed here.
    """

    model: str
    inputs: Mapping[str, Any]
    billed_seconds: float
    upload: UploadImage | None = None
    target: ConformTarget | None = None
    task: VideoTask | None = None


class VideoResult(msgspec.Struct, frozen=True):
    """Result of one call: the URL of the video, and the seed if the model reports it."""

    address: str
    seed: int | None = None


Generate = Callable[[VideoRequest, ProviderRun], Awaitable[VideoResult]]


async def generate_video(task: Task, route: ModelRoute, generate: Generate, run: ProviderRun) -> Result:
    """Return the video of a task, made by one call of `generate`."""
    began = time.monotonic()
    request = await _request(task, route, run)
    async with run.time_limit():
        video = await generate(request, run)
        path = run.context.scratch / "video"
        await run.outside.download(video.address, path, max_bytes=run.limits.file_bytes)
    artifact = await _fit((path,), request, run.context, run.title)
    run.context.progress(1.0)
    cost = route.cost.micros(UsedInputs(seconds=request.billed_seconds))
    run.context.log(f"{run.title}'s {request.model} took {time.monotonic() - began:.1f} s")
    data: dict[str, Any] = {"provider": route.provider, "provider_model": request.model}
    if video.seed is not None:
        data["seed"] = video.seed
    return Result((artifact,), data, "full", cost)


def source_image(task: Task) -> Path | None:
    """Return the image that the video begins with, or None for a video from text alone."""
    if task.inputs.get("by_words"):
        return None
    return next((task.files[name] for name in IMAGES if name in task.files), None)


async def _request(task: Task, route: ModelRoute, run: ProviderRun) -> VideoRequest:
    video = task_parser.parse(task.inputs)
    upload = await _upload(source_image(task), video, route)
    target, billed = None, video.frames / _BILLED_RATE * route.cost_factors.get(video.resolution, 1.0)
    values = dict(task.inputs)
    if route.durations:
        billed = float(
            next((length for length in route.durations if length >= video.seconds), route.durations[-1])
        )
        target = ConformTarget(video.resolution, video.size, video.seconds, video.sound)
        values |= {"seconds": int(billed), "sound": video.sound}
    if route.sizes:
        values["size"] = route.sizes.encode(*(video.size or (upload.size if upload else (16, 9))))
    model = route.image_model if upload and route.image_model else route.model
    inputs = {**route.fixed, **_inputs(values, route, run)}
    return VideoRequest(model, inputs, billed, upload, target, video if route.retime else None)


async def _upload(source: Path | None, video: VideoTask, route: ModelRoute) -> UploadImage | None:
    """Return the source image for upload; raises `EngineError` where the model requires one."""
    if source is None:
        if "seconds" not in route.fields:
            raise EngineError("A source image is required.")
        return None
    shape = dimensions.SHAPES.get(video.aspect) if route.retime else None
    return await asyncio.to_thread(image_io.prepare_upload, source, shape=float(shape) if shape else None)


def _inputs(values: Mapping[str, Any], route: ModelRoute, run: ProviderRun) -> dict[str, Any]:
    """Return the provider's inputs; the log names inputs that the model does not support."""
    values = {name: value for name, value in values.items() if value not in (None, "")}
    for name in _REPORTED:
        if name in values and name not in route.fields:
            run.context.log(f"{run.title}'s {route.model} does not support {name}: it is left out")
    return {
        theirs: route.provider_value(ours, values[ours])
        for ours, theirs in route.fields.items()
        if ours in values
    }


async def _fit(paths: tuple[Path, ...], request: VideoRequest, context: Context, title: str) -> Artifact:
    """Return the video in the requested size, length and rate; raises `EngineError`."""
    try:
        info = await asyncio.to_thread(probe.read, paths[0])
        path = paths[0]
        if request.task is not None:
            shape = dimensions.aspect_ratio(request.task.aspect, (info.width, info.height))
            size = request.task.size or dimensions.frame(request.task.resolution, shape)
            path = await retime(paths, request.task, size, context)
        elif request.target is not None:
            path = await conform.conform(path, info, request.target, context)
        info = await asyncio.to_thread(probe.read, path)
    except (probe.NotAVideo, conform.VideoUnfit, UnusableInput) as error:
        raise EngineError(f"{title} returned a video that cannot be read; try again.") from error
    return Artifact(info.content_type, b"", info.info(), path)


async def retime(
    paths: tuple[Path, ...], task: VideoTask, size: tuple[int, int], context: Context, rate: int = 0
) -> Path:
    """Write one video of `size` (width, height) from the frames of several; raises `VideoUnfit`.

    `rate` is the frame rate of the files, or 0 for the task's rate. Each file after the first begins with the
    last frame of the previous file.
    """
    source_rate = Fraction(rate) or task.rate
    target, stop = paths[0].with_name("counted.mp4"), threading.Event()

    def step(share: float) -> None:
        if stop.is_set():
            raise Canceled
        context.progress(_FROM + (_TO - _FROM) * share)

    def write() -> None:
        frames = _ChainedFrames(paths)
        timing.write_video(iter(frames), source_rate, task, size, target, step)
        if frames.count < _ENOUGH * float(task.seconds * source_rate):
            raise conform.VideoUnfit("too short")

    try:
        await asyncio.to_thread(write)
    except asyncio.CancelledError:
        stop.set()  # a thread cannot be canceled from outside
        raise
    return target


class _ChainedFrames:
    """The RGB frames of several files in sequence; `count` is the number read so far."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self.count = 0

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return chain.from_iterable(self._frames(path, bool(index)) for index, path in enumerate(self._paths))

    def _frames(self, path: Path, skip_first: bool) -> Iterator[NDArray[Any]]:
        with closing(VideoReader(path)) as reel:
            for number, frame in enumerate(reel.each()):
                if number or not skip_first:
                    self.count += 1
                    yield reel.pixels(frame, reel.size(frame))[..., :3]
