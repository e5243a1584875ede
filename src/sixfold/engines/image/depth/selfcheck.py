"""Self-check of new depth weights: the map of a jug in front of a wall must not be constant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.image.depth import maps
from sixfold.engines.image.depth.onnx import DepthModel
from sixfold.engines.image.matting import selfcheck

# Smallest standard deviation of nearness that passes.
_SPREAD = 0.05


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of the depth map and a summary line; raises `EngineError` if the map is constant."""
    model = DepthModel(str(folder))
    report(0.3)
    rgb, subject = selfcheck.scene()
    near = model.nearness(rgb)
    report(1.0)
    if not float(near.std()) > _SPREAD:
        raise EngineError("Self-check failed: the model returned a constant depth map.")
    difference = float(near[subject].mean() - near[~subject].mean())
    where = "nearer than" if difference > 0 else "not nearer than"
    data = encode.encode(maps.MAPS["depth"](near, 1.0), None, format="png")
    return data, f"{model.stem} sees a jug {where} the wall behind it ({difference:.2f})"
