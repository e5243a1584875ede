"""The first film of newly added weights: it shows that they load, run and fit each other."""

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
_MIDDLE = 0.3  # seconds: a frame of the middle


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A frame of a short film as PNG, and the line that says how it was made; raises `EngineError`."""
    engine = VideoDiffusersEngine(source=str(folder))
    size = engine.profile_of(engine.load()).size_for((480, 272))
    inputs = {"prompt": PROMPT, "seed": 1, "width": size[0], "height": size[1], "num_frames": _FRAMES}
    asked = {**inputs, "frames_per_second": 24, "num_inference_steps": STEPS}
    with tempfile.TemporaryDirectory() as scratch:
        listener = SelfCheckListener(Path(scratch), report)
        result = engine.run(Task("selfcheck", "selfcheck", asked), listener)
        path = result.artifacts[0].path
        if path is None:
            raise EngineError("The weights gave no film.")
        with closing(VideoReader(path)) as reel:
            rgb = reel.pixels(reel.at(_MIDDLE), size)
    if image_checks.is_noise(rgb):
        raise EngineError("The weights give noise instead of a film: they do not fit each other.")
    return encode.encode(rgb, None, format="png"), listener.lines[0].replace(f" {folder.name}", "")
