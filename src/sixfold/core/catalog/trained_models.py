"""Registration of the model produced by a finished training run, as `custom:<name>`."""

from __future__ import annotations

from typing import Any

import msgspec

from sixfold.core.catalog.engines import TaskRecord
from sixfold.core.database import Row
from sixfold.core.input_limits import json_decoding

MODEL = "training"
KIND = "custom"
PREFIX = "custom:"
_ADAPTER = "adapter"
_SIDE: dict[str, Any] = {"type": "integer", "default": 1024, "min": 64, "max": 2048}
_INPUTS: dict[str, dict[str, Any]] = {
    "prompt": {"type": "string", "required": True, "max_chars": 4000, "description": "What the image shows"},
    "negative_prompt": {
        "type": "string",
        "default": "",
        "max_chars": 4000,
        "description": "Content to avoid",
    },
    "width": {**_SIDE, "description": "Width in pixels"},
    "height": {**_SIDE, "description": "Height in pixels"},
    "seed": {
        "type": "integer",
        "min": 0,
        "max": 2147483647,
        "description": "The same seed and prompt give the same image; random when omitted",
    },
}


class _Weights(msgspec.Struct):
    blob: str


class _Output(msgspec.Struct):
    files: tuple[_Weights, ...]


_decode_task = msgspec.json.Decoder(TaskRecord, float_hook=json_decoding.number).decode
_decode_output = msgspec.json.Decoder(_Output).decode


def document(row: Row) -> tuple[str, dict[str, Any]]:
    """Return the name and document of a trained model, whose field `training` is the id of the training."""
    inputs = _decode_task(row["task"]).inputs
    name = PREFIX + str(inputs["name"])
    model: dict[str, Any] = {
        "title": f"Images of {inputs['name']}",
        "description": f"Images from weights trained on {inputs['name']}.",
        "output_kind": "image",
        "price": "custom",
        "engines": ["weights-image"],
        "fixed": {"format": "png", "base": inputs["base"], "loras": [{"file": _ADAPTER}]},
        "files": {_ADAPTER: _decode_output(row["output"]).files[0].blob},
        "inputs": _INPUTS,
    }
    return name, {"training": row["id"], "models": {name: model}}
