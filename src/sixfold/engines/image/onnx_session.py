"""Sessions of ONNX Runtime, shared by the image engines that run ONNX models."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError
from sixfold.engines import model_files

Array = NDArray[Any]

RECORD = "sixfold.json"
# Number of folders above a model file in which its record is searched.
_RECORD_WITHIN = 3
_PREFERRED = ("CUDAExecutionProvider", "CoreMLExecutionProvider", "CPUExecutionProvider")


_TYPES = {"tensor(float16)": np.float16, "tensor(int64)": np.int64}


class OnnxSession:
    """A loaded ONNX model; `shapes` are the (height, width) of its inputs, None for a dynamic side."""

    def __init__(self, source: str) -> None:
        """Load the file at `source`, or the first model in that folder; raises `EngineError`."""
        import onnxruntime

        faults = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        self._faults = (faults.InvalidArgument, faults.RuntimeException, faults.Fail)
        path = find_model(source)
        self.stem = path.stem
        self.record = read_record(path)
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), providers=_providers(onnxruntime.get_available_providers())
            )
        except (faults.InvalidProtobuf, faults.InvalidGraph, *self._faults) as error:
            raise EngineError(f"{path.name} is not a valid ONNX model") from error
        self._inputs = self._session.get_inputs()
        self.shapes = tuple(_sides(node.shape) for node in self._inputs)
        self.names = frozenset(node.name for node in self._inputs)

    def run(self, *tensors: Array) -> Array:
        """Return the first output as float32, for inputs in the model's order."""
        if len(tensors) != len(self._inputs):
            raise EngineError(
                f"{self.stem} has {len(self._inputs)} inputs, but this engine passes {len(tensors)}"
            )
        names = [node.name for node in self._inputs]
        return next(iter(self.outputs(dict(zip(names, tensors, strict=True))).values()))

    def outputs(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by name as float32, for inputs by name."""
        feeds = {
            node.name: np.ascontiguousarray(tensors[node.name], _TYPES.get(node.type, np.float32))
            for node in self._inputs
        }
        try:
            values = self._session.run(None, feeds)
        except self._faults as error:
            raise EngineError(
                f"{self.stem} does not accept the inputs of this engine: install a model for this task"
            ) from error
        names = [node.name for node in self._session.get_outputs()]
        return {name: np.asarray(node, np.float32) for name, node in zip(names, values, strict=True)}


def find_model(source: str) -> Path:
    """Return the path of the model file; raises `EngineError` if the file does not exist."""
    paths = model_files.find(source, "*.onnx")
    if not paths:
        path = Path(source).expanduser()
        raise EngineError(f"ONNX model not found{' in' if path.is_dir() else ':'} {path.name}")
    return paths[0]


def read_record(path: Path) -> Mapping[str, Any]:
    """Return the record that `engines add` wrote beside a model, or an empty mapping."""
    for folder in path.parents[:_RECORD_WITHIN]:
        try:
            record = json.loads((folder / RECORD).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return record if isinstance(record, dict) else {}
    return {}


def to_batch(rgb: Array) -> Array:
    """Return an HxWx3 image as a batch of one with the channels first."""
    return rgb.transpose(2, 0, 1)[None]


def _providers(available: Sequence[str]) -> list[str]:
    return [name for name in _PREFERRED if name in available]


def _sides(shape: Sequence[Any]) -> tuple[int | None, int | None]:
    sides = [side if isinstance(side, int) and side > 0 else None for side in tuple(shape)[-2:]]
    return (sides[0], sides[1]) if len(sides) == 2 else (None, None)
