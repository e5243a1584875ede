"""Container images that become models: what is read of one, through a port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class ImageInspector(Protocol):
    """Starts an image once and asks what it takes and gives."""

    async def inspect(self, image: str, hardware: str | None, name: str = "") -> Mapping[str, Any]:
        """The catalogue's document of one model, by the image's own name unless another is given.

        Raises `EngineUnavailable` where no container can be started, `BadRequest` for an image of no use.
        """
        ...
