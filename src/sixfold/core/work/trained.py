"""What a training that succeeded becomes: the service `custom:<name>`, which draws with what was learnt."""

from __future__ import annotations

from typing import Any

from sixfold.core.work.records import Prediction

MODEL = "training"
KIND = "custom"
PREFIX = "custom:"
_ADAPTER = "adapter"
_SIDE: dict[str, Any] = {"type": "integer", "default": 1024, "min": 64, "max": 2048}
_INPUTS: dict[str, dict[str, Any]] = {
    "prompt": {"type": "string", "required": True, "max_chars": 4000, "description": "What to paint"},
    "negative_prompt": {
        "type": "string",
        "default": "",
        "max_chars": 4000,
        "description": "What to leave out",
    },
    "width": {**_SIDE, "description": "Width in pixels"},
    "height": {**_SIDE, "description": "Height in pixels"},
    "seed": {
        "type": "integer",
        "min": 0,
        "max": 2147483647,
        "description": "The same seed and prompt give the same picture; random when omitted",
    },
}


def document(training: Prediction) -> tuple[str, dict[str, Any]]:
    """The name and the document of what this training made; `training` in it says which one that was."""
    assert training.output is not None  # noqa: S101 - it succeeded
    given = training.task.inputs
    name = PREFIX + str(given["name"])
    row: dict[str, Any] = {
        "title": f"Pictures of {given['name']}",
        "description": f"Pictures by weights that were taught {given['name']}.",
        "output_kind": "image",
        "price": "custom",
        "engines": ["weights-image"],
        "fixed": {"format": "png", "base": given["base"], "loras": [{"file": _ADAPTER}]},
        "files": {_ADAPTER: training.output.files[0].blob},
        "inputs": _INPUTS,
    }
    return name, {"training": training.id, "models": {name: row}}
