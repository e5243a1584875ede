"""Self-check of newly installed video weights: they load, run and match each other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.image import encode
from sixfold.engines.image.diffusers import image_checks
from sixfold.engines.image.diffusers.selfcheck import PROMPT, STEPS, SelfCheckListener
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.diffusers.engine import VideoDiffusersEngine

_FRAMES = 17
_MIDDLE_SECONDS = 0.3


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a frame of a short video as PNG and a summary line; raises `EngineError`."""
    engine = VideoDiffusersEngine(source=str(folder))
    size = engine.profile_of(engine.load()).size_for((480, 272))
    inputs = {"prompt": PROMPT, "seed": 1, "width": size[0], "height": size[1], "num_frames": _FRAMES}
    inputs |= {"frames_per_second": 24, "num_inference_steps": STEPS}
    with tempfile.TemporaryDirectory() as scratch:
        listener = SelfCheckListener(Path(scratch), report)
        result = engine.run(Task("selfcheck", "selfcheck", inputs), listener)
        path = result.artifacts[0].path
        if path is None:
            raise EngineError("Self-check failed: the weights did not produce a video.")
        with closing(VideoReader(path)) as reader:
            rgb = reader.pixels(reader.at(_MIDDLE_SECONDS), size)
    if image_checks.is_noise(rgb):
        raise EngineError("Self-check failed: the weights produce noise; their components do not match.")
    return encode.encode(rgb, None, format="png"), listener.lines[0].replace(f" {folder.name}", "")
