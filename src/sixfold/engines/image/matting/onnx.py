"""Background removal with ONNX models, in rembg's conventions: IS-Net, BiRefNet, U²-Net and others."""

from __future__ import annotations

import cv2
import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.image import onnx_session
from sixfold.engines.image.matting import edges, engine, guided
from sixfold.engines.image.matting.edges import Array, Pixels

# ImageNet's mean and standard deviation.
_PHOTOS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_FLAT = ((0.5, 0.5, 0.5), (1.0, 1.0, 1.0))
_MAX_SIDE = 2048
_SUBJECT = 0.5


class ModelConvention(msgspec.Struct, frozen=True):
    """The input and output format of a model.

    `side` is used if the model's size is dynamic; with `logits`, the output needs a sigmoid; with
    `stretched`, the output is scaled to 0 to 1.
    """

    side: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    logits: bool = False
    stretched: bool = True


CONVENTIONS = {
    "isnet": ModelConvention(1024, *_FLAT),
    "birefnet": ModelConvention(1024, *_PHOTOS, logits=True, stretched=False),
    "u2net": ModelConvention(320, *_PHOTOS),
    "silueta": ModelConvention(320, *_PHOTOS),
}


def convention(name: str) -> ModelConvention:
    """Return the input and output format for a model's file name; the default is IS-Net's."""
    lowered = name.lower().replace("-", "").replace("_", "")
    return next((row for word, row in CONVENTIONS.items() if word in lowered), CONVENTIONS["isnet"])


class OnnxMattingEngine:
    """Background removal with an ONNX model.

    Options: `source` (the file, or a folder that contains one) or `weights` (the folder of installed models),
    and overrides of the convention derived from the name: `like` (another name), `side`, `logits`.
    """

    name = "weights-matting"

    def __init__(
        self,
        *,
        source: str = "",
        weights: str = "",
        like: str = "",
        side: int = 0,
        logits: bool | None = None,
    ) -> None:
        self.session = onnx_session.OnnxSession(source or weights)
        self.version = f"5/{self.session.stem}"
        normalization = convention(like or str(self.session.record.get("like", "")) or self.session.stem)
        self._convention = replace(normalization, logits=normalization.logits if logits is None else logits)
        height, width = (fixed or side or normalization.side for fixed in self.session.shapes[0])
        self._size = min(_MAX_SIDE, width), min(_MAX_SIDE, height)

    def run(self, task: Task, context: Context) -> Result:
        """Return a PNG with soft alpha at the image's size."""
        image = engine.source(task)
        marks = guided.read(task, (image.width, image.height))
        context.progress(0.1)
        if marks is None:
            alpha, confidence = self.alpha(image.rgb)
        else:
            # The model cannot process marks, so its mask only initializes the segmentation.
            mask, _ = self.alpha(image.rgb)
            alpha, confidence = guided.alpha(image.rgb, marks, mask > _SUBJECT)
        context.progress(0.8)
        return engine.build_result(image, alpha, confidence, "full")

    def alpha(self, rgb: Pixels) -> tuple[Array, float]:
        """Return the soft mask (HxW, 0 to 1) of an HxWx3 uint8 image, and the model's certainty (0 to 1)."""
        output = self.session.run(self._normalize(rgb))
        mask = output.reshape(-1, *output.shape[-2:])[0]
        if self._convention.logits:
            mask = 1 / (1 + np.exp(-np.clip(mask, -30, 30)))
        if self._convention.stretched:
            low, high = float(mask.min()), float(mask.max())
            mask = (mask - low) / max(1e-6, high - low)
        mask = np.nan_to_num(np.clip(mask, 0, 1))
        return edges.upsample(rgb, mask), certainty(mask)

    def _normalize(self, rgb: Pixels) -> Array:
        scaled = cv2.resize(rgb, self._size, interpolation=cv2.INTER_AREA).astype(np.float32)
        scaled /= max(1.0, float(scaled.max()))
        mean, deviation = self._convention.mean, self._convention.deviation
        scaled = (scaled - np.array(mean, np.float32)) / np.array(deviation, np.float32)
        return onnx_session.to_batch(scaled)


def certainty(mask: Array) -> float:
    """Return the certainty of a mask, 0 to 1: it is high if the values are close to 0 or 1."""
    uncertainty = 4 * float((mask * (1 - mask)).mean()) / max(1e-3, float(mask.mean()))
    return float(np.clip(1 - uncertainty, 0, 1))
