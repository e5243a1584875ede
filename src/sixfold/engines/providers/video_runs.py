"""A film made at a provider, the same for all of them: what is asked, and what must come of the answer.

Where a model makes whole `lengths` of seconds, its film is cut and scaled; where the frames of an order are
counted and the model has no such inputs (`counted`), each is set to its moment here, with those between.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sixfold.core.catalog.engines import (
    Artifact,
    Canceled,
    Context,
    EngineError,
    Result,
    Task,
    UnusableInput,
)
from sixfold.engines.providers import image_io
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.image_runs import RunContextImages
from sixfold.engines.providers.model_table import ModelRoute, UsedInputs
from sixfold.engines.video import conform, dimensions, probe, task_parser, timing
from sixfold.engines.video.conform import ConformTarget
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.task_parser import VideoTask

PICTURES = ("image_url", "image")
_BILLED_RATE = 16  # film models count seconds at this many frames, whatever rate is asked for
_SPOKEN = ("seed", "negative_prompt", "num_inference_steps", "guidance_scale")  # told where they are left out
_ENOUGH = 0.8  # of the frames that were asked for: its last one holds for the rest
_FROM, _TO = 0.93, 0.99  # of the progress


@dataclass(frozen=True, slots=True)
class VideoRequest:
    """One call: which model, its inputs, the seconds that are billed, and what its film must become."""

    model: str
    inputs: Mapping[str, Any]
    billed_seconds: float
    sent: UploadImage | None = None
    wanted: ConformTarget | None = None
    order: VideoTask | None = None


@dataclass(frozen=True, slots=True)
class VideoResult:
    """What a call gave: the film's address, and the seed where the model tells it."""

    address: str
    seed: int | None = None


Make = Callable[[VideoRequest, RunContextImages], Awaitable[VideoResult]]


async def run(task: Task, route: ModelRoute, make: Make, desk: RunContextImages) -> Result:
    """Have a provider make the film that a task asks for; `make` makes one call."""
    began = time.monotonic()
    asked = await _asked(task, route, desk)
    try:
        async with asyncio.timeout(desk.limits.whole_seconds):
            filmed = await make(asked, desk)
            path = desk.context.scratch / "film"
            await desk.outside.download(filmed.address, path, max_bytes=desk.limits.file_bytes)
    except TimeoutError:
        whole = desk.limits.whole_seconds
        raise EngineError(f"{desk.title} did not finish within {whole:g} seconds.") from None
    artifact = await finished((path,), asked, desk.context, desk.title)
    desk.context.progress(1.0)
    cost = route.price.micros(UsedInputs(seconds=asked.billed_seconds))
    desk.context.log(f"{desk.title} made this with {asked.model} in {time.monotonic() - began:.1f} s")
    data: dict[str, Any] = {"provider": route.provider, "provider_model": asked.model}
    if filmed.seed is not None:
        data["seed"] = filmed.seed
    return Result((artifact,), data, "full", cost)


def picture_of(task: Task) -> Path | None:
    """The picture that a film begins with; none where it is to be of words alone."""
    if task.inputs.get("by_words"):
        return None
    return next((task.files[name] for name in PICTURES if name in task.files), None)


async def _asked(task: Task, route: ModelRoute, desk: RunContextImages) -> VideoRequest:
    """The provider's inputs."""
    order = task_parser.read(task.inputs)
    sent = await _sent(picture_of(task), order, route)
    wanted, billed = None, order.frames / _BILLED_RATE * route.shares.get(order.resolution, 1.0)
    given = dict(task.inputs)
    if route.lengths:
        billed = float(next((one for one in route.lengths if one >= order.seconds), route.lengths[-1]))
        wanted = ConformTarget(order.resolution, order.size, order.seconds, order.sound)
        given |= {"seconds": int(billed), "sound": order.sound}
    if route.sizes:
        given["size"] = route.sizes.said(*(order.size or (sent.size if sent else (16, 9))))
    model = route.pictured if sent and route.pictured else route.model
    inputs = {**route.fixed, **_said(given, route, desk)}
    return VideoRequest(model, inputs, billed, sent, wanted, order if route.counted else None)


async def _sent(source: Path | None, order: VideoTask, route: ModelRoute) -> UploadImage | None:
    """The picture as it leaves the machine; raises `EngineError` where the model cannot do without one."""
    if source is None:
        if "seconds" not in route.fields:
            raise EngineError("This needs a source picture.")
        return None
    shape = dimensions.SHAPES.get(order.aspect) if route.counted else None
    return await asyncio.to_thread(image_io.prepared, source, shape=float(shape) if shape else None)


def _said(given: Mapping[str, Any], route: ModelRoute, desk: RunContextImages) -> dict[str, Any]:
    """What was given, in the provider's words; what it has no word for is left out, and the log says so."""
    given = {name: value for name, value in given.items() if value not in (None, "")}
    for word in _SPOKEN:
        if word in given and word not in route.fields:
            desk.context.log(f"{desk.title}'s {route.model} has no {word}: it is left out")
    return {theirs: route.said(ours, given[ours]) for ours, theirs in route.fields.items() if ours in given}


async def finished(paths: tuple[Path, ...], asked: VideoRequest, context: Context, title: str) -> Artifact:
    """The film as it was ordered, where it did not come so; raises `EngineError`."""
    try:
        found = await asyncio.to_thread(probe.read, paths[0])
        path = paths[0]
        if asked.order is not None:
            shape = dimensions.shape_of(asked.order.aspect, (found.width, found.height))
            size = asked.order.size or dimensions.frame(asked.order.resolution, shape)
            path = await counted(paths, asked.order, size, context)
        elif asked.wanted is not None:
            path = await conform.conform(path, found, asked.wanted, context)
        found = await asyncio.to_thread(probe.read, path)
    except (probe.NotAVideo, conform.VideoUnfit, UnusableInput) as error:
        raise EngineError(f"{title} gave a film that cannot be read; try again.") from error
    return Artifact(found.content_type, b"", found.info(), path)


async def counted(
    paths: tuple[Path, ...], order: VideoTask, size: tuple[int, int], context: Context, rate: int = 0
) -> Path:
    """An order's film of `size` (width, height) out of the frames of others; raises `VideoUnfit`.

    The frames were made at `rate`, or at the order's own; a later file begins with the frame that ended the
    one before it.
    """
    at = Fraction(rate) or order.rate
    target, stop = paths[0].with_name("counted.mp4"), threading.Event()

    def step(share: float) -> None:
        if stop.is_set():
            raise Canceled
        context.progress(_FROM + (_TO - _FROM) * share)

    def write() -> None:
        frames_ = _CountedVideo(paths)
        timing.write_video(iter(frames_), at, order, size, target, step)
        if frames_.count < _ENOUGH * float(order.seconds * at):
            raise conform.VideoUnfit("too short")

    try:
        await asyncio.to_thread(write)
    except asyncio.CancelledError:
        stop.set()  # a thread cannot be canceled from outside
        raise
    return target


class _CountedVideo:
    """The frames of files, one after the other, as RGB."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self.count = 0

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return chain.from_iterable(self._of(path, bool(place)) for place, path in enumerate(self._paths))

    def _of(self, path: Path, skip: bool) -> Iterator[NDArray[Any]]:
        with closing(VideoReader(path)) as reel:
            for number, frame in enumerate(reel.each()):
                if number or not skip:
                    self.count += 1
                    yield reel.pixels(frame, reel.size(frame))[..., :3]
