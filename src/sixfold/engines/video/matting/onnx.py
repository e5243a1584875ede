"""Background removal from films by an ONNX model: RVM, which remembers, or a model of pictures."""

from __future__ import annotations

import cv2
import numpy as np

from sixfold.engines.image import onnx_session
from sixfold.engines.image.matting.edges import Array, Pixels
from sixfold.engines.image.matting.onnx import OnnxMattingEngine, certainty
from sixfold.engines.image.onnx_session import OnnxSession
from sixfold.engines.video.matting import masks
from sixfold.engines.video.matting.engine import FrameMasks, VideoMattingEngine

_STATES = ("r1", "r2", "r3", "r4")  # of RVM's memory: what goes in as `r1i` came out as `r1o`
_SEEN_SIDE = 512  # pixels of the longer side at which RVM looks at the whole; it refines at full size


class OnnxVideoMattingEngine(VideoMattingEngine):
    """A model file as an engine of films.

    Options: `source` (the file, or a folder that holds one) or `weights` (the folder of installed models).
    A model with the inputs of RVM is run as one; any other is one of pictures, and `like` names its kind.
    """

    name = "weights-film-matting"

    def __init__(self, *, source: str = "", weights: str = "", like: str = "") -> None:
        self._model = OnnxMattingEngine(source=source or weights, like=like)
        self.remembers = {"src", *(f"{state}i" for state in _STATES)} <= self._model.session.names
        self.version = f"1/{self._model.session.stem}"

    def masks(self) -> FrameMasks:
        """The masks of one film."""
        return RecurrentMasks(self._model.session) if self.remembers else PerFrameMasks(self._model)


class _ModelMasks:
    """What both ways have: shots, and how sure the model was of each frame."""

    ahead = 0

    def __init__(self) -> None:
        self._shot = masks.ShotMasks()
        self._sure: list[float] = []

    @property
    def confidence(self) -> float:
        """How decided the model was, 0 to 1."""
        return float(np.mean(self._sure)) if self._sure else 0.0

    def see(self, rgb: Pixels) -> None:
        """What comes says nothing before it is there."""


class RecurrentMasks(_ModelMasks):
    """RVM's masks: what it saw before goes in with each frame, until the film is cut."""

    def __init__(self, session: OnnxSession) -> None:
        super().__init__()
        self._session = session
        self._state: dict[str, Array] = {}

    def alpha(self, rgb: Pixels) -> Array:
        """The mask of the next frame, HxW from 0 to 1."""
        if self._shot.begins(rgb) or not self._state:
            self._state = {f"{state}i": np.zeros((1, 1, 1, 1), np.float32) for state in _STATES}
        ratio = np.array([min(1.0, _SEEN_SIDE / max(rgb.shape[:2]))], np.float32)
        source = onnx_session.planes(rgb.astype(np.float32) / 255)
        made = self._session.outputs({"src": source, "downsample_ratio": ratio, **self._state})
        self._state = {f"{state}i": made[f"{state}o"] for state in _STATES}
        mask = np.clip(np.nan_to_num(made["pha"].reshape(-1, *made["pha"].shape[-2:])[0]), 0, 1)
        self._sure.append(certainty(mask))
        return mask


class PerFrameMasks(_ModelMasks):
    """A model of pictures, asked for every frame; what rests between two frames stays as it was."""

    def __init__(self, model: OnnxMattingEngine) -> None:
        super().__init__()
        self._model = model
        self._given: Array | None = None
        self._before: Array | None = None

    def alpha(self, rgb: Pixels) -> Array:
        """The mask of the next frame, HxW from 0 to 1."""
        fresh = self._shot.begins(rgb)
        found, sure = self._model.alpha(rgb)
        self._sure.append(sure)
        grey = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), (0, 0), 1.5).astype(np.float32) / 255
        if not fresh and self._given is not None and self._before is not None:
            rests = np.exp(-(((grey - self._before) / _CHANGED) ** 2))
            found = found + (self._given - found) * (_KEPT * rests)
        self._given, self._before = found, grey
        return found


_CHANGED = 0.03  # of full brightness by which a pixel may have changed and still rest
_KEPT = 0.7  # of what was given before, where nothing changed
