"""Generate the documentation's images of background removal and smart resize; part of `make gallery`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.engines.image import encode
from sixfold.engines.image.matting import edges, segmentation
from sixfold.engines.image.resize import canvas
from sixfold.engines.image.resize.plan import find_region, plan
from sixfold.engines.image.scene import painter, prompt_parser
from tests.corpora import composites
from tests.corpora.composites import Stratum

PICTURES = Path("docs/pictures")
CUTS: tuple[tuple[Stratum, int], ...] = (
    ("plain", 7003),
    ("plain", 400),
    ("textured", 402),
    ("shadow", 7001),
    ("cluttered", 5009),
)
SHAPES = ((200, 200), (113, 200), (356, 200), (400, 100))


def main() -> None:
    """Write both images."""
    columns = [_cutout_column(stratum, seed) for stratum, seed in CUTS]
    _save("cut-outs.webp", np.hstack(columns))
    _save("resized.webp", _resize_row())


def _save(name: str, sheet: Any) -> None:
    data = encode.encode(np.ascontiguousarray(sheet, np.uint8), format="webp", quality=88)
    (PICTURES / name).write_bytes(data)
    print(f"{PICTURES / name}  {len(data):,} bytes")


def _cutout_column(stratum: Stratum, seed: int) -> Any:
    """Return a column with a composite, its cut-out on a checkerboard, and the confidence."""
    sample = composites.composite(seed, stratum, (240, 280))
    alpha, confidence = segmentation.alpha(sample.rgb)
    rows, columns = np.indices(alpha.shape)
    squares = np.where((rows // 10 + columns // 10) % 2, 205, 245).astype(np.float32)[..., None]
    clean = edges.decontaminate(sample.rgb, alpha)
    cutout = clean * alpha[..., None] + squares * (1 - alpha[..., None])
    label = np.full((26, 280, 3), 255, np.uint8)
    text = f"{stratum}, confidence {confidence:.2f}"
    cv2.putText(label, text, (8, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (60, 60, 60), 1, cv2.LINE_AA)
    column = np.vstack([sample.rgb, cutout.astype(np.uint8), label])
    return np.pad(column, ((0, 0), (0, 6), (0, 0)), constant_values=255)


def _resize_row() -> Any:
    """Return a painted image beside its resized versions."""
    scene = prompt_parser.parse("a lighthouse at sunset over a calm sea", "")
    painted = painter.paint(scene, "photoreal", 7, (400, 640), lambda _name: None)
    rgb = np.clip(np.rint(painted * 255), 0, 255).astype(np.uint8)
    region = find_region(rgb)
    images = [cv2.resize(rgb, (320, 200), interpolation=cv2.INTER_AREA)]
    for size in SHAPES:
        result = canvas.apply(rgb, plan(region, (640, 400), size), size)
        images.append(np.pad(result, ((0, 200 - result.shape[0]), (0, 0), (0, 0)), constant_values=255))
    return np.hstack([np.pad(one, ((0, 0), (0, 8), (0, 0)), constant_values=255) for one in images])


if __name__ == "__main__":
    main()
