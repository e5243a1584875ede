"""An ONNX model's file, found and opened: what the engines of images with weights have in common."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError

Array = NDArray[Any]

RECORD = "sixfold.json"
_RECORD_WITHIN = 3  # folders above a model's file
_PREFERRED = ("CUDAExecutionProvider", "CoreMLExecutionProvider", "CPUExecutionProvider")


_TYPES = {"tensor(float16)": np.float16, "tensor(int64)": np.int64}


class OnnxSession:
    """An open model. `shapes` are its inputs' sizes (height, width) in order, None for an open side."""

    def __init__(self, place: str) -> None:
        """Open the file at `place`, or the first in that folder; raises `EngineError`."""
        import onnxruntime

        faults = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        self._faults = (faults.InvalidArgument, faults.RuntimeException, faults.Fail)
        path = found(place)
        self.stem = path.stem
        self.told = told(path)
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), providers=_providers(onnxruntime.get_available_providers())
            )
        except (faults.InvalidProtobuf, faults.InvalidGraph, *self._faults) as error:
            raise EngineError(f"{path.name} is no ONNX model that can be loaded") from error
        self._inputs = self._session.get_inputs()
        self.shapes = tuple(_sides(one.shape) for one in self._inputs)
        self.names = frozenset(one.name for one in self._inputs)

    def run(self, *tensors: Array) -> Array:
        """The first output for the inputs in order, as float32."""
        if len(tensors) != len(self._inputs):
            raise EngineError(f"{self.stem} takes {len(self._inputs)} inputs and not {len(tensors)}")
        names = [one.name for one in self._inputs]
        return next(iter(self.outputs(dict(zip(names, tensors, strict=True))).values()))

    def outputs(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by its name, as float32, for inputs by theirs."""
        fed = {
            one.name: np.ascontiguousarray(tensors[one.name], _TYPES.get(one.type, np.float32))
            for one in self._inputs
        }
        try:
            found = self._session.run(None, fed)
        except self._faults as error:
            raise EngineError(f"{self.stem} does not take a picture as this engine gives it") from error
        names = [one.name for one in self._session.get_outputs()]
        return {name: np.asarray(one, np.float32) for name, one in zip(names, found, strict=True)}


def found(place: str) -> Path:
    """The model's file; raises `EngineError` where it is missing."""
    path = Path(place).expanduser()
    if path.is_dir():
        inside = sorted(one for one in path.rglob("*.onnx") if not _hidden(one.relative_to(path)))
        if not inside:
            raise EngineError(f"There is no ONNX model in {path.name}")
        path = inside[0]
    if not path.is_file():
        raise EngineError(f"There is no ONNX model {path.name}")
    return path


def told(path: Path) -> Mapping[str, Any]:
    """What `engines add` wrote beside a model, or nothing."""
    for folder in path.parents[:_RECORD_WITHIN]:
        try:
            found = json.loads((folder / RECORD).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)  # what is still being fetched


def planes(rgb: Array) -> Array:
    """HxWx3 in 0 to 1 as a batch of one, channels first."""
    return rgb.transpose(2, 0, 1)[None]


def _providers(available: Sequence[str]) -> list[str]:
    return [name for name in _PREFERRED if name in available]


def _sides(shape: Sequence[Any]) -> tuple[int | None, int | None]:
    sides = [side if isinstance(side, int) and side > 0 else None for side in tuple(shape)[-2:]]
    return (sides[0], sides[1]) if len(sides) == 2 else (None, None)
