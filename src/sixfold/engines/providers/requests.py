"""A task's inputs as a request that is independent of any provider."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import Task
from sixfold.engines.image.output_format import OutputFormat

_SOURCES = ("source_image_url", "image", "image_url")
_MAX_IMAGES = 16


class ProviderTask(msgspec.Struct, frozen=True):
    """A request for one or more images. `size` is the exact output size; None keeps the provider's size.

    `seed`, `strength`, `scale` and `faces` are None if the task lacks the input.
    """

    model: str
    prompt: str
    negative: str = ""
    seed: int | None = None
    count: int = 1
    size: tuple[int, int] | None = None
    source: Path | None = None
    strength: float | None = None
    scale: float | None = None
    faces: bool | None = None
    output: OutputFormat = OutputFormat()

    def optional_inputs(self) -> Mapping[str, Any]:
        """Return the inputs that are set, except the prompt, by their names in `providers.toml`."""
        inputs = {
            "negative": self.negative or None,
            "seed": self.seed,
            "strength": self.strength,
            "scale": self.scale,
            "faces": self.faces or None,
        }
        return {name: value for name, value in inputs.items() if value is not None}

    def seed_for(self, call: int) -> int | None:
        """Return the seed of a call by its index, or None without a seed; the first is the request's seed."""
        if self.seed is None or call == 0:
            return self.seed
        digest = hashlib.blake2s(f"{self.seed}/{call}".encode(), digest_size=4).digest()
        return int.from_bytes(digest) & 0x7FFF_FFFF


def parse(task: Task) -> ProviderTask:
    """Parse a task's inputs; raises `EngineError` for an unknown format."""
    inputs = task.inputs
    width, height = inputs.get("width"), inputs.get("height")
    size = (int(width), int(height)) if width is not None and height is not None else None
    return ProviderTask(
        model=task.model,
        prompt=str(inputs.get("prompt") or inputs.get("style_prompt") or ""),
        negative=str(inputs.get("negative_prompt") or "").strip(),
        seed=_as_int(inputs.get("seed")),
        count=min(_MAX_IMAGES, max(1, _as_int(inputs.get("num_images")) or 1)),
        size=size,
        source=next((task.files[name] for name in _SOURCES if name in task.files), None),
        strength=_as_float(inputs.get("strength")),
        scale=_as_float(inputs.get("scale")),
        faces=bool(inputs["face_enhance"]) if "face_enhance" in inputs else None,
        output=OutputFormat.of(inputs),
    )


def _as_int(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _as_float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
