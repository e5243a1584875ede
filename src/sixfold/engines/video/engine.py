"""The engine: a picture or a prompt in, a film out, without weights.

A camera moves as the prompt says through a picture that was sent in or painted, what moves of its own moves,
and where the model has sound, sound is made to fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import Artifact, Context, Result, Task
from sixfold.engines.audio.ambience import track
from sixfold.engines.image.scene import prompt_parser
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.video import (
    ambient,
    camera_moves,
    dimensions,
    encode,
    layers,
    parallax,
    source_image,
    task_parser,
)
from sixfold.engines.video.camera_moves import MovePath as CameraPath
from sixfold.engines.video.layers import SourceStill
from sixfold.engines.video.task_parser import VideoTask

_PICTURES = ("image_url", "image")
_SHARPEST = 1.5  # times the film's size that a still is kept at, for what comes closer
_PREPARED = 0.12  # of the progress: the still is there
_STAGES = 7  # of the painter
_SAMPLES = 49  # poses by which a film's margin is found


class CameraEngine:
    """Films without weights; the same inputs give the same bytes.

    With the option `by_words` a picture that comes along is not looked at.
    """

    name = "camera"
    version = "5"

    def __init__(self, *, by_words: bool = False) -> None:
        self._by_words = by_words

    def run(self, task: Task, context: Context) -> Result:
        """Make one film."""
        order = task_parser.read(task.inputs)
        plan = camera_moves.read(order.prompt, order.negative)
        scene = prompt_parser.parse(plan.rest, order.negative)
        picture = None if self._by_words else _picture(task, order)
        shape = None if picture is None else (picture.shape[1], picture.shape[0])
        size = order.size or dimensions.frame(order.resolution, dimensions.shape_of(order.aspect, shape))
        path = CameraPath(plan, order.seconds, order.seed)
        base_zoom = parallax.margin((path.at(step / (_SAMPLES - 1)) for step in range(_SAMPLES)), size)
        still = _still(picture, _CameraRequest(scene, order, size, base_zoom), context)
        context.progress(_PREPARED)
        life = ambient.AmbientMotion.of(scene, order, still, size)
        target = context.scratch / "film.mp4"
        stage = parallax.ParallaxStage(layers.apart(still, parallax.grid(size)), size, base_zoom)
        reused = _film(target, _CameraShot(stage, path, life, order, size), context)
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(order.seconds, 3),
            "fps": float(order.shown_rate) if order.shown_rate.denominator > 1 else int(order.shown_rate),
        }
        data: dict[str, Any] = {"seed": order.seed, "camera": plan.told, "moving": list(life.told)}
        if order.sparing:
            data["reused_frames"] = reused
        if order.sound:
            data["sound"] = track.mix_of(order.prompt).told
        return Result((Artifact("video/mp4", b"", info, target),), data)


@dataclass(frozen=True, slots=True)
class _CameraRequest:
    scene: ParsedScene
    order: VideoTask
    size: tuple[int, int]
    base_zoom: float


@dataclass(frozen=True, slots=True)
class _CameraShot:
    stage: parallax.ParallaxStage
    path: CameraPath
    life: ambient.AmbientMotion
    order: VideoTask
    size: tuple[int, int]


def _picture(task: Task, order: VideoTask) -> Any:
    """The picture that came with the task, or None."""
    source = next((task.files[name] for name in _PICTURES if name in task.files), None)
    if source is None:
        return None
    return source_image.opened(source, round(dimensions.SHORT_SIDES[order.resolution] * 2 * _SHARPEST))


def _still(picture: Any, wanted: _CameraRequest, context: Context) -> SourceStill:
    """What is filmed, as much larger than the film as the camera begins closer, where there is the detail."""
    if picture is None:
        done = 0

        def step(_name: str) -> None:
            nonlocal done
            done += 1
            context.progress(_PREPARED * min(0.95, done / _STAGES))

        size = _even(wanted.size, wanted.base_zoom)
        return source_image.painted(wanted.scene, wanted.order.seed, size, step, wanted.order.effort)
    width, height = wanted.size
    detail = min(picture.shape[1] / width, picture.shape[0] / height)
    return source_image.sent(picture, _even(wanted.size, min(wanted.base_zoom, detail)))


def _even(size: tuple[int, int], scale: float) -> tuple[int, int]:
    kept = min(_SHARPEST, max(1.0, scale))
    return 2 * round(size[0] * kept / 2), 2 * round(size[1] * kept / 2)


def _film(target: Path, shot: _CameraShot, context: Context) -> int:
    """Every frame rendered and encoded, one at a time; gives how many came of the one before."""
    order, count = shot.order, shot.order.all_frames
    sound = track.made(order.prompt, order.seconds, order.seed) if order.sound else None
    heard = None if sound is None else encode.AudioSource.of(sound)
    frames = parallax.FrameSource(shot.stage, sparing=order.sparing)
    with encode.VideoEncoder(target, shot.size, order.shown_rate, heard) as film:
        for index in range(count):
            second = float(index / order.shown_rate)
            pose = shot.path.at(index / (count - 1))
            planes = frames.at(pose, lambda second=second: shot.life.ripples(second))
            film.add(shot.life.over(planes, second))
            context.progress(_PREPARED + (0.99 - _PREPARED) * (index + 1) / count)
    return frames.moved
