"""The first map of newly added weights: what they say of a jug before a wall is not the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.image.depth import maps
from sixfold.engines.image.depth.onnx import DepthModel
from sixfold.engines.image.matting import selfcheck

_SPREAD = 0.05  # of nearness


def picture(folder: Path, heard: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A PNG of the nearness that these weights see, and the line that says so; raises `EngineError`."""
    model = DepthModel(str(folder))
    heard(0.3)
    rgb, subject = selfcheck.scene()
    near = model.nearness(rgb)
    heard(1.0)
    if not float(near.std()) > _SPREAD:
        raise EngineError("The weights see one nearness everywhere: they tell no depth.")
    apart = float(near[subject].mean() - near[~subject].mean())
    where = "nearer than" if apart > 0 else "no nearer than"
    data = encode.encode(maps.MAPS["depth"](near, 1.0), None, format="png")
    return data, f"{model.stem} sees a jug {where} the wall behind it ({apart:.2f})"
