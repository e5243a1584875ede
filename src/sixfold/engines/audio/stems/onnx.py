"""Taking a mix apart by an ONNX model of the Demucs kind: a stereo wave in, four stereo waves out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.files import Array
from sixfold.engines.audio.stems import engine

MODEL_RATE = 44_100
SOURCES = ("drums", "bass", "other", "vocals")  # in the models' order
_SECONDS = 7.8  # that a model hears at once where its file leaves it open
_OVERLAP = 0.25
_PREFERRED = ("CUDAExecutionProvider", "CoreMLExecutionProvider", "CPUExecutionProvider")
_APART = 0.8


class OnnxStemEngine:
    """Model files as an engine; the one that is called like the input `model` is taken, else the first.

    Options: `source` (a file, or a folder that holds some) or `weights` (the folder of installed models).
    """

    name = "weights-stems"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._paths = _models(source or weights)
        self._open: tuple[Path, Any] | None = None
        self._session(self._paths[0])
        self.version = f"1/{'+'.join(path.stem for path in self._paths)}"

    def run(self, task: Task, context: Context) -> Result:
        """Two or four named files, as the embedded engine gives them."""
        mix = engine.heard(task)
        wanted = str(task.inputs["model"])
        path = next((path for path in self._paths if path.stem == wanted), self._paths[0])
        if path.stem != wanted:
            context.log(f"{wanted} is not installed: {path.stem} serves")

        def step(part: float) -> None:
            context.progress(_APART * part)

        sources = self._apart(self._session(path), files.resampled(mix, files.RATE, MODEL_RATE), step)
        back = [files.resampled(part, MODEL_RATE, files.RATE) for part in sources]
        found = {name: _fitted(part, mix.shape[1]) for name, part in zip(SOURCES, back, strict=True)}
        stems = engine.STEMS[str(task.inputs["stems"])]
        named = {name: np.sum([found[one] for one in held], axis=0) for name, held in stems.items()}
        return Result(engine.finished(named, str(task.inputs["format"]), context), quality="full")

    def parts(self, mix: Array, step: Callable[[float], None]) -> Array:
        """A mix at the models' rate, (2, samples), as `SOURCES` by the first model: (4, 2, samples)."""
        return self._apart(self._session(self._paths[0]), mix, step)

    def _session(self, path: Path) -> Any:
        """The model of a file, open; one at a time is."""
        if self._open is None or self._open[0] != path:
            self._open = (path, _opened(path))
        return self._open[1]

    def _apart(self, session: Any, mix: Array, step: Callable[[float], None]) -> Array:
        """(2, samples) as (4, 2, samples): overlapping windows, each at the level that models know."""
        first = session.get_inputs()[0]
        length = first.shape[-1] if isinstance(first.shape[-1], int) else round(_SECONDS * MODEL_RATE)
        stride = max(1, round(length * (1 - _OVERLAP)))
        ramp = np.minimum(np.arange(1, length + 1), np.arange(length, 0, -1)).astype(np.float32)
        mean, spread = float(mix.mean()), max(1e-5, float(mix.mean(0).std()))
        out = np.zeros((len(SOURCES), 2, mix.shape[1]), np.float32)
        weight = np.zeros(mix.shape[1], np.float32)
        for begin in range(0, mix.shape[1], stride):
            part = (mix[:, begin : begin + length] - mean) / spread
            held = part.shape[1]
            heard = np.pad(part, ((0, 0), (0, length - held)))[None]
            made = np.asarray(session.run(None, {first.name: heard.astype(np.float32)})[0], np.float32)
            if made.shape != (1, len(SOURCES), 2, length):
                raise EngineError(f"The model gives {made.shape}, and not four stereo waves as Demucs does")
            out[..., begin : begin + held] += made[0, ..., :held] * ramp[:held]
            weight[begin : begin + held] += ramp[:held]
            step(min(1.0, (begin + length) / mix.shape[1]))
        return out / weight * np.float32(spread)


def _models(place: str) -> list[Path]:
    path = Path(place).expanduser()
    found = sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise EngineError(f"There is no ONNX model in {path.name}")
    return found


def _opened(path: Path) -> Any:
    import onnxruntime

    faults = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    providers = [name for name in _PREFERRED if name in onnxruntime.get_available_providers()]
    try:
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    except (faults.InvalidProtobuf, faults.InvalidGraph, faults.InvalidArgument, faults.Fail) as error:
        raise EngineError(f"{path.name} is no ONNX model that can be loaded") from error
    if len(session.get_inputs()) != 1 or len(session.get_inputs()[0].shape) != 3:
        raise EngineError(f"{path.name} does not take one stereo wave, as models of the Demucs kind do")
    return session


def _fitted(wave: Array, samples: int) -> Array:
    return np.pad(wave, ((0, 0), (0, max(0, samples - wave.shape[1]))))[:, :samples]
