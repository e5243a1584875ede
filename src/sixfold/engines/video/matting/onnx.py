"""Engine for background removal from videos by an ONNX model: the recurrent RVM, or an image model."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image import onnx_session
from sixfold.engines.image.matting.edges import Array, Pixels
from sixfold.engines.image.matting.onnx import OnnxMattingEngine, certainty
from sixfold.engines.image.onnx_session import OnnxSession
from sixfold.engines.video.matting import masks
from sixfold.engines.video.matting.engine import FrameMasks, VideoMattingEngine

# The recurrent states of RVM: output `r1o` is input `r1i` of the next frame.
_STATES = ("r1", "r2", "r3", "r4")
# The longer side, in pixels, of RVM's coarse pass; it refines at full size.
_COARSE_SIDE = 512


class OnnxVideoMattingEngine(VideoMattingEngine):
    """Removes the background of videos with a model file.

    Options: `source` (the file, or a folder that contains one) or `weights` (the folder of installed models).
    A model with the inputs of RVM is run as RVM; any other model is an image model of the kind that `like`
    names.
    """

    name = "weights-film-matting"

    def __init__(self, *, source: str = "", weights: str = "", like: str = "") -> None:
        self._model = OnnxMattingEngine(source=source or weights, like=like)
        self.recurrent = {"src", *(f"{state}i" for state in _STATES)} <= self._model.session.names
        self.version = f"1/{self._model.session.stem}"

    def masks(self) -> FrameMasks:
        return RecurrentMasks(self._model.session) if self.recurrent else PerFrameMasks(self._model)


class _ModelMasks:
    """The common part of mask sources: the detection of cuts and the model's confidence."""

    ahead = 0

    def __init__(self) -> None:
        self._shot = masks.ShotMasks()
        self._confidences: list[float] = []

    @property
    def confidence(self) -> float:
        """The mean certainty of the masks, 0 to 1."""
        return float(np.mean(self._confidences)) if self._confidences else 0.0

    def preview(self, rgb: Pixels) -> None:
        """Ignore the frame; the model does not use later frames."""


class RecurrentMasks(_ModelMasks):
    """The masks of RVM, whose recurrent state is reset at cuts."""

    def __init__(self, session: OnnxSession) -> None:
        super().__init__()
        self._session = session
        self._state: dict[str, Array] = {}

    def alpha(self, rgb: Pixels) -> Array:
        """Return the mask of the next frame, HxW from 0 to 1."""
        if self._shot.begins(rgb) or not self._state:
            self._state = {f"{state}i": np.zeros((1, 1, 1, 1), np.float32) for state in _STATES}
        ratio = np.array([min(1.0, _COARSE_SIDE / max(rgb.shape[:2]))], np.float32)
        source = onnx_session.to_batch(rgb.astype(np.float32) / 255)
        outputs = self._session.outputs({"src": source, "downsample_ratio": ratio, **self._state})
        self._state = {f"{state}i": outputs[f"{state}o"] for state in _STATES}
        mask = np.clip(np.nan_to_num(outputs["pha"].reshape(-1, *outputs["pha"].shape[-2:])[0]), 0, 1)
        self._confidences.append(certainty(mask))
        return mask


class PerFrameMasks(_ModelMasks):
    """The masks of an image model, with unchanged values where two frames are equal."""

    def __init__(self, model: OnnxMattingEngine) -> None:
        super().__init__()
        self._model = model
        self._mask: Array | None = None
        self._before: Array | None = None

    def alpha(self, rgb: Pixels) -> Array:
        """Return the mask of the next frame, HxW from 0 to 1."""
        fresh = self._shot.begins(rgb)
        mask, confidence = self._model.alpha(rgb)
        self._confidences.append(confidence)
        grey = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (0, 0), 1.5).astype(np.float32) / 255
        if not fresh and self._mask is not None and self._before is not None:
            unchanged = np.exp(-(((grey - self._before) / _CHANGE) ** 2))
            mask = mask + (self._mask - mask) * (_HOLD * unchanged)
        self._mask, self._before = mask, grey
        return mask


# The change of brightness, relative to full brightness, at which the weight of the previous mask is 1/e.
_CHANGE = 0.03
# The weight of the previous mask where the image is unchanged.
_HOLD = 0.7
