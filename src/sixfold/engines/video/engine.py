"""Engine without weights that turns an image or a prompt into a video.

The camera follows the moves in the prompt through the input image, or through a scene painted from the
prompt. Water, clouds, particles, vehicles and animals move as well, and models with sound get a synthesized
audio track.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import Artifact, Context, Result, Task
from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.audio.ambience import track
from sixfold.engines.image.scene import prompt_parser
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.video import (
    camera_moves,
    dimensions,
    encode,
    layers,
    parallax,
    source_image,
    task_parser,
)
from sixfold.engines.video.camera_moves import CameraPath, MovePath
from sixfold.engines.video.layers import SourceStill
from sixfold.engines.video.motion import ambient, movers
from sixfold.engines.video.task_parser import VideoTask

_IMAGE_INPUTS = ("image_url", "image")
# The still image may be this many times larger than the video, so that zooming in stays sharp.
_MAX_STILL_SCALE = 1.5
# Progress after the still image is prepared.
_PREPARED = 0.12
_PAINTER_STAGES = 7
# Number of poses that are sampled to find the margin around the video.
_SAMPLES = 49


class CameraEngine:
    """Renders videos without weights; the same inputs produce the same bytes.

    With the option `by_words`, input images are ignored.
    """

    name = "camera"
    version = "10"

    def __init__(self, *, by_words: bool = False) -> None:
        self._by_words = by_words

    def run(self, task: Task, context: Context) -> Result:
        request = task_parser.parse(task.inputs)
        plan = camera_moves.parse(request.prompt, request.negative)
        scene = prompt_parser.parse(plan.rest, request.negative)
        image = None if self._by_words else _input_image(task, request)
        shape = None if image is None else (image.shape[1], image.shape[0])
        size = request.size or dimensions.frame(
            request.resolution, dimensions.aspect_ratio(request.aspect, shape)
        )
        path = MovePath(plan, request.seconds, request.seed)
        base_zoom = parallax.margin((path.at(step / (_SAMPLES - 1)) for step in range(_SAMPLES)), size)
        still = _still(image, _CameraRequest(scene, request, size, base_zoom), context)
        context.progress(_PREPARED)
        motion = ambient.AmbientMotion.of(scene, request, still, size)
        target = context.scratch / "video.mp4"
        stage = parallax.ParallaxStage(layers.separate(still, parallax.grid(size)), size, base_zoom)
        sprites = movers.MoverAnimation(
            still.sprites, (still.rgb.shape[1], still.rgb.shape[0]), request.seconds
        )
        reused = _render(target, _CameraShot(stage, path, motion, sprites, request, size), context)
        rate = request.output_rate
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(request.seconds, 3),
            "fps": float(rate) if rate.denominator > 1 else int(rate),
        }
        data: dict[str, Any] = {
            "seed": request.seed,
            "camera": plan.description,
            "moving": [*motion.names, *sprites.names],
        }
        if request.reuse_frames:
            data["reused_frames"] = reused
        if request.sound:
            data["sound"] = track.mix_of(request.prompt).description
        words = _words(request, scene, plan, (motion, sprites), painted=image is None)
        return Result((Artifact("video/mp4", b"", info, target),), data, words=words)


def _words(
    request: VideoTask,
    scene: ParsedScene,
    plan: CameraPath,
    motions: tuple[ambient.AmbientMotion, movers.MoverAnimation],
    *,
    painted: bool,
) -> PromptWords:
    """Return the words of the prompt that affect the video's scene, camera, motion or sound."""
    parts = [plan.words, *(motion.words(request.prompt) for motion in motions)]
    if painted:
        parts.append(scene.words)
    if request.sound:
        parts.append(track.words(request.prompt))
    return prompt_words.of_parts(request.prompt, parts)


class _CameraRequest(msgspec.Struct, frozen=True):
    scene: ParsedScene
    request: VideoTask
    size: tuple[int, int]
    base_zoom: float


class _CameraShot(msgspec.Struct, frozen=True):
    stage: parallax.ParallaxStage
    path: MovePath
    motion: ambient.AmbientMotion
    sprites: movers.MoverAnimation
    request: VideoTask
    size: tuple[int, int]


def _input_image(task: Task, request: VideoTask) -> Any:
    source = next((task.files[name] for name in _IMAGE_INPUTS if name in task.files), None)
    if source is None:
        return None
    side = round(dimensions.SHORT_SIDES[request.resolution] * 2 * _MAX_STILL_SCALE)
    return source_image.open_rgb(source, side)


def _still(image: Any, shot: _CameraRequest, context: Context) -> SourceStill:
    """Return the still image, enlarged by the base zoom, or as far as the source contains detail."""
    if image is None:
        done = 0

        def step(_name: str) -> None:
            nonlocal done
            done += 1
            context.progress(_PREPARED * min(0.95, done / _PAINTER_STAGES))

        size = _even(shot.size, shot.base_zoom)
        return source_image.paint(shot.scene, shot.request.seed, size, step, shot.request.effort)
    width, height = shot.size
    detail = min(image.shape[1] / width, image.shape[0] / height)
    return source_image.from_image(image, _even(shot.size, min(shot.base_zoom, detail)))


def _even(size: tuple[int, int], scale: float) -> tuple[int, int]:
    limited = min(_MAX_STILL_SCALE, max(1.0, scale))
    return 2 * round(size[0] * limited / 2), 2 * round(size[1] * limited / 2)


def _render(target: Path, shot: _CameraShot, context: Context) -> int:
    """Render and encode the frames one by one; return the number of reused frames."""
    request, count = shot.request, shot.request.output_frames
    wave = track.render(request.prompt, request.seconds, request.seed) if request.sound else None
    audio = None if wave is None else encode.AudioSource.of(wave)
    frames = parallax.FrameSource(shot.stage, reuse=request.reuse_frames)
    with encode.VideoEncoder(target, shot.size, request.output_rate, audio) as video:
        for index in range(count):
            second = float(index / request.output_rate)
            pose = shot.path.at(index / (count - 1))
            planes = frames.at(pose, lambda second=second: shot.motion.ripples(second))
            planes = shot.motion.draw_behind(planes, shot.stage, pose, second)
            planes = shot.sprites.draw(planes, shot.stage, pose, second)
            video.add(shot.motion.apply(planes, second))
            context.progress(_PREPARED + (0.99 - _PREPARED) * (index + 1) / count)
    return frames.reused
