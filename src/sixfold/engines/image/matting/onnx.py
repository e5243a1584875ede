"""Background removal by an ONNX model, with rembg's conventions: IS-Net, BiRefNet, U²-Net and their kin."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.core.work.engines import Context, EngineError, Result, Task
from sixfold.engines.image.matting import edges, engine
from sixfold.engines.image.matting.edges import Array, Pixels

_PHOTOS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # ImageNet's mean and deviation
_FLAT = ((0.5, 0.5, 0.5), (1.0, 1.0, 1.0))
_PREFERRED = ("CUDAExecutionProvider", "CoreMLExecutionProvider", "CPUExecutionProvider")
_MAX_SIDE = 2048


@dataclass(frozen=True, slots=True)
class Convention:
    """How a model wants its picture, and what it gives.

    `side` is used where the model leaves its size open; `logits` says that a sigmoid is still to come.
    """

    side: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    logits: bool = False
    stretched: bool = True


CONVENTIONS = {
    "isnet": Convention(1024, *_FLAT),
    "birefnet": Convention(1024, *_PHOTOS, logits=True, stretched=False),
    "u2net": Convention(320, *_PHOTOS),
    "silueta": Convention(320, *_PHOTOS),
}


def convention(name: str) -> Convention:
    """A model's convention by its file's name; IS-Net's for an unknown one."""
    lowered = name.lower().replace("-", "").replace("_", "")
    return next((known for word, known in CONVENTIONS.items() if word in lowered), CONVENTIONS["isnet"])


class OnnxMattingEngine:
    """A model file as an engine.

    Options: `source` (the file, or a folder that holds one) or `weights` (the folder of installed models),
    and what goes over the convention that its name stands for: `like` (another name), `side`, `logits`.
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
        import onnxruntime

        faults = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")

        path = _model(source or weights)
        self.version = f"1/{path.stem}"
        known = convention(like or path.stem)
        self._convention = replace(known, logits=known.logits if logits is None else logits)
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), providers=_providers(onnxruntime.get_available_providers())
            )
        except (faults.InvalidProtobuf, faults.InvalidGraph, faults.InvalidArgument, faults.Fail) as error:
            raise EngineError(f"{path.name} is no ONNX model that can be loaded") from error
        self._input = self._session.get_inputs()[0]
        self._size = _size(self._input.shape, side or known.side)

    def run(self, task: Task, context: Context) -> Result:
        """A PNG with soft alpha at exactly the picture's size."""
        picture = engine.source(task)
        context.progress(0.1)
        alpha, confidence = self.alpha(picture.rgb)
        context.progress(0.8)
        return engine.finished(picture, alpha, confidence, "full")

    def alpha(self, rgb: Pixels) -> tuple[Array, float]:
        """The soft mask (HxW, 0 to 1) of HxWx3 uint8, and how decided the model is (0 to 1)."""
        seen: Any = self._session.run(None, {self._input.name: self._prepared(rgb)})[0]
        mask = np.asarray(seen, np.float32).reshape(-1, *seen.shape[-2:])[0]
        if self._convention.logits:
            mask = 1 / (1 + np.exp(-np.clip(mask, -30, 30)))
        if self._convention.stretched:
            low, high = float(mask.min()), float(mask.max())
            mask = (mask - low) / max(1e-6, high - low)
        mask = np.nan_to_num(np.clip(mask, 0, 1))
        undecided = 4 * float((mask * (1 - mask)).mean()) / max(1e-3, float(mask.mean()))
        return edges.enlarged(rgb, mask), float(np.clip(1 - undecided, 0, 1))

    def _prepared(self, rgb: Pixels) -> Array:
        scaled = cv2.resize(rgb, self._size, interpolation=cv2.INTER_AREA).astype(np.float32)
        scaled /= max(1.0, float(scaled.max()))
        mean, deviation = self._convention.mean, self._convention.deviation
        scaled = (scaled - np.array(mean, np.float32)) / np.array(deviation, np.float32)
        kind = np.float16 if "float16" in self._input.type else np.float32
        return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], kind)


def _model(place: str) -> Path:
    path = Path(place).expanduser()
    if path.is_dir():
        found = sorted(path.rglob("*.onnx"))
        if not found:
            raise EngineError(f"There is no ONNX model in {path.name}")
        path = found[0]
    if not path.is_file():
        raise EngineError(f"There is no ONNX model {path.name}")
    return path


def _providers(available: Sequence[str]) -> list[str]:
    return [name for name in _PREFERRED if name in available]


def _size(shape: Sequence[Any], side: int) -> tuple[int, int]:
    """Width and height that the model takes; an open side is the convention's."""
    height, width = (given if isinstance(given, int) and given > 0 else side for given in shape[-2:])
    return min(_MAX_SIDE, width), min(_MAX_SIDE, height)
