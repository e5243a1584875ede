"""An order: what a task asks for, in words that do not yet belong to any provider."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.image import encode

_SOURCES = ("source_image_url", "image", "image_url")
_MOST_IMAGES = 16


@dataclass(frozen=True, slots=True)
class ProviderTask:
    """One picture or several. `size` is what must come out, or None: as large as it is made.

    `seed`, `strength`, `scale` and `faces` are None where the model has no such input.
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
    format: str = "png"
    quality: int = 90

    def asked(self) -> Mapping[str, Any]:
        """What was asked for beyond the prompt, by our word for it."""
        wanted = {
            "negative": self.negative or None,
            "seed": self.seed,
            "strength": self.strength,
            "scale": self.scale,
            "faces": self.faces or None,
        }
        return {word: value for word, value in wanted.items() if value is not None}

    def seed_of(self, call: int) -> int | None:
        """The seed of the n-th call: the first has the order's own, so that one picture is what it says."""
        if self.seed is None or call == 0:
            return self.seed
        digest = hashlib.blake2s(f"{self.seed}/{call}".encode(), digest_size=4).digest()
        return int.from_bytes(digest) & 0x7FFF_FFFF


def read(task: Task) -> ProviderTask:
    """The order of a task; raises `EngineError` for a format that nobody can give."""
    inputs = task.inputs
    format_ = str(inputs.get("format") or "png").lower().replace("jpg", "jpeg")
    if format_ not in encode.CONTENT_TYPES:
        raise EngineError(f"The format must be one of {', '.join(encode.CONTENT_TYPES)}.")
    width, height = inputs.get("width"), inputs.get("height")
    size = (int(width), int(height)) if width is not None and height is not None else None
    quality = inputs.get("quality")
    return ProviderTask(
        model=task.model,
        prompt=str(inputs.get("prompt") or inputs.get("style_prompt") or ""),
        negative=str(inputs.get("negative_prompt") or "").strip(),
        seed=_whole(inputs.get("seed")),
        count=min(_MOST_IMAGES, max(1, _whole(inputs.get("num_images")) or 1)),
        size=size,
        source=next((task.files[name] for name in _SOURCES if name in task.files), None),
        strength=_number(inputs.get("strength")),
        scale=_number(inputs.get("scale")),
        faces=bool(inputs["face_enhance"]) if "face_enhance" in inputs else None,
        format=format_,
        quality=min(100, max(1, int(quality))) if isinstance(quality, int | float) else 90,
    )


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
