"""Measure the similarity of enlarged photographs and text to the originals: PSNR, SSIM and time.

.venv/bin/python -m bench upscale

Photographs of scikit-image and a page of text, none of which was used to train the network, are reduced by
area averaging and by Lanczos's filter. The network is compared with bicubic interpolation and with `model:
anime`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import skimage.data
from numpy.typing import NDArray
from PIL import Image
from skimage.metrics import structural_similarity

from bench.reporting import Row, calibration, of_samples
from sixfold.engines.image.upscale import network, restore

Array = NDArray[Any]

TITLE = "Upscaling without a download, photographs of scikit-image"
_SIDE = 384
_FILTERS = {"areas": Image.Resampling.BOX, "Lanczos": Image.Resampling.LANCZOS}
METHODS: dict[str, Callable[[Array, int], Array]] = {
    "bicubic": lambda small, scale: network.stretched(small, scale),
    "recipe": restore.enlarge,
    "network": network.enlarge,
}


def photographs() -> Iterator[tuple[str, Array]]:
    for name in ("astronaut", "chelsea", "coffee", "rocket", "page"):
        image = getattr(skimage.data, name)()
        yield name, np.dstack([image] * 3) if image.ndim == 2 else image[..., :3]
    yield (
        "motorcycle",
        np.asarray(Image.open(Path(skimage.data.__file__).with_name("motorcycle_left.png")))[..., :3],
    )


def rows() -> list[Row]:
    """Return the PSNR of each method, with SSIM in the note, and the time of a megapixel."""
    cv2.setNumThreads(1)
    result, times, wins = calibration(), dict[str, list[float]](), list[bool]()
    for scale in (4, 2):
        for kind, filter_ in _FILTERS.items():
            scores: dict[str, list[tuple[float, float]]] = {}
            for name, image in photographs():
                side = [min(_SIDE, length) // scale * scale for length in image.shape[:2]]
                truth = np.ascontiguousarray(image[: side[0], : side[1]])
                reduced = Image.fromarray(truth).resize((side[1] // scale, side[0] // scale), filter_)
                small = np.asarray(reduced).astype(np.float32) / 255
                for method, enlarge in METHODS.items():
                    began = time.process_time()
                    large = np.rint(np.clip(enlarge(small, scale), 0, 1) * 255).astype(np.uint8)
                    times.setdefault(f"{method}, x {scale}", []).append(
                        (time.process_time() - began) / truth[..., 0].size * 1e6
                    )
                    scores.setdefault(method, []).append(_score(large, truth))
                line = ", ".join(f"{method} {s[-1][0]:.2f} dB {s[-1][1]:.3f}" for method, s in scores.items())
                print(f"x {scale}, {kind}, {name}: {line}", flush=True)
                wins.append(all(map(float.__gt__, scores["network"][-1], scores["recipe"][-1])))
            for method, values in scores.items():
                psnr, ssim = np.mean(values, 0)
                result.append(
                    Row(f"{method}, x {scale}, by {kind}", float(psnr), "dB", note=f"SSIM {ssim:.3f}")
                )
    result.append(Row("network ahead of the recipe by PSNR and SSIM", sum(wins), f"of {len(wins)}"))
    result += [of_samples(f"CPU time per megapixel: {name}", values, "s") for name, values in times.items()]
    return result


def _score(large: Array, truth: Array) -> tuple[float, float]:
    error = float(np.mean((large.astype(np.float64) - truth) ** 2))
    ssim: Any = structural_similarity(large, truth, channel_axis=2)
    return 10 * float(np.log10(255**2 / error)), float(ssim)
