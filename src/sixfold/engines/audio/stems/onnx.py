"""Engine for stem separation with an ONNX model such as Demucs, which converts a stereo signal to four."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines import model_files
from sixfold.engines.audio import files
from sixfold.engines.audio.files import Array
from sixfold.engines.audio.stems import engine

MODEL_RATE = 44_100
SOURCES = ("drums", "bass", "other", "vocals")  # in the order of the models' outputs
# The window of a model without a fixed input length.
_SECONDS = 7.8
_OVERLAP = 0.25
_PREFERRED = ("CUDAExecutionProvider", "CoreMLExecutionProvider", "CPUExecutionProvider")
_SEPARATED = 0.8


class OnnxStemEngine:
    """Separates stems with the model file named like the input `model`, or else with the first model file.

    Options: `source` (a file, or a folder of files) or `weights` (the folder of installed models).
    """

    name = "weights-stems"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._paths = _models(source or weights)
        self._open: tuple[Path, Any] | None = None
        self._session(self._paths[0])
        self.version = f"1/{'+'.join(path.stem for path in self._paths)}"

    def run(self, task: Task, context: Context) -> Result:
        """Return two or four files named by stem."""
        mix = engine.read_mix(task)
        model = str(task.inputs["model"])
        path = next((path for path in self._paths if path.stem == model), self._paths[0])
        if path.stem != model:
            context.log(f"{model} is not installed; using {path.stem}")

        def progress(fraction: float) -> None:
            context.progress(_SEPARATED * fraction)

        sources = self._separate(self._session(path), files.resample(mix, files.RATE, MODEL_RATE), progress)
        resampled = [files.resample(part, MODEL_RATE, files.RATE) for part in sources]
        waves = {name: _fit(part, mix.shape[1]) for name, part in zip(SOURCES, resampled, strict=True)}
        stems = engine.STEMS[str(task.inputs["stems"])]
        waves_by_stem = {
            name: np.sum([waves[part] for part in parts], axis=0) for name, parts in stems.items()
        }
        return Result(engine.write_stems(waves_by_stem, str(task.inputs["format"]), context), quality="full")

    def parts(self, mix: Array, progress: Callable[[float], None]) -> Array:
        """Separate a mix (2, samples) at `MODEL_RATE` into `SOURCES` (4, 2, samples) by the first model."""
        return self._separate(self._session(self._paths[0]), mix, progress)

    def _session(self, path: Path) -> Any:
        """Return the session of a file; only one session is open at a time."""
        if self._open is None or self._open[0] != path:
            self._open = (path, _load(path))
        return self._open[1]

    def _separate(self, session: Any, mix: Array, progress: Callable[[float], None]) -> Array:
        """Separate a mix in overlapping windows of normalized level."""
        first = session.get_inputs()[0]
        length = first.shape[-1] if isinstance(first.shape[-1], int) else round(_SECONDS * MODEL_RATE)
        stride = max(1, round(length * (1 - _OVERLAP)))
        ramp = np.minimum(np.arange(1, length + 1), np.arange(length, 0, -1)).astype(np.float32)
        mean, spread = float(mix.mean()), max(1e-5, float(mix.mean(0).std()))
        out = np.zeros((len(SOURCES), 2, mix.shape[1]), np.float32)
        weight = np.zeros(mix.shape[1], np.float32)
        for begin in range(0, mix.shape[1], stride):
            part = (mix[:, begin : begin + length] - mean) / spread
            size = part.shape[1]
            padded = np.pad(part, ((0, 0), (0, length - size)))[None]
            waves = np.asarray(session.run(None, {first.name: padded.astype(np.float32)})[0], np.float32)
            if waves.shape != (1, len(SOURCES), 2, length):
                raise EngineError(
                    f"The model must output four stereo signals, as Demucs does (got {waves.shape})"
                )
            out[..., begin : begin + size] += waves[0, ..., :size] * ramp[:size]
            weight[begin : begin + size] += ramp[:size]
            progress(min(1.0, (begin + length) / mix.shape[1]))
        return out / weight * np.float32(spread)


def _models(place: str) -> list[Path]:
    paths = model_files.find(place, "*.onnx")
    if not paths:
        raise EngineError(f"{Path(place).name} does not contain an ONNX model")
    return paths


def _load(path: Path) -> Any:
    import onnxruntime

    errors = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    providers = [name for name in _PREFERRED if name in onnxruntime.get_available_providers()]
    try:
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    except (errors.InvalidProtobuf, errors.InvalidGraph, errors.InvalidArgument, errors.Fail) as error:
        raise EngineError(f"{path.name} is not a readable ONNX model") from error
    if len(session.get_inputs()) != 1 or len(session.get_inputs()[0].shape) != 3:
        raise EngineError(f"{path.name} must have one stereo wave as its input, as Demucs does")
    return session


def _fit(wave: Array, samples: int) -> Array:
    return np.pad(wave, ((0, 0), (0, max(0, samples - wave.shape[1]))))[:, :samples]
