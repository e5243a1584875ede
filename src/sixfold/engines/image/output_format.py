"""The output format of an image, without the libraries that encode it, which the server does not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from sixfold.core.catalog.engines import EngineError

if TYPE_CHECKING:
    from sixfold.engines.image.encode import Pixels

CONTENT_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp", "avif": "image/avif"}


class OutputFormat(msgspec.Struct, frozen=True, array_like=True):
    """The format of a finished image, one of `CONTENT_TYPES`, and its quality, 1 to 100.

    Raises `EngineError` if the format is unknown.
    """

    name: str = "png"
    quality: int = 90

    def __post_init__(self) -> None:
        if self.name not in CONTENT_TYPES:
            raise EngineError(f"format must be one of {', '.join(CONTENT_TYPES)}.")

    @classmethod
    def of(cls, inputs: Mapping[str, Any], default: str = "png", quality: int = 90) -> OutputFormat:
        """Return the format that the inputs of a task select."""
        name = str(inputs.get("format") or default).lower().replace("jpg", "jpeg")
        value = inputs.get("quality")
        return cls(name, quality if value is None else min(100, max(1, round(float(value)))))

    @property
    def content_type(self) -> str:
        return CONTENT_TYPES[self.name]

    @property
    def keeps_png(self) -> bool:
        """Whether a PNG of the right size can be delivered without encoding it again."""
        return self.name == "png"

    def encode(self, rgb: Pixels, alpha: Pixels | None = None) -> bytes:
        from sixfold.engines.image.encode import encode

        return encode(rgb, alpha, format=self.name, quality=self.quality)
