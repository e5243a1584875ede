"""Decoding and editing of images for ComfyUI clients, within a memory limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from sixfold.core.workflows.execution.admission import GraphMemory

Load = Callable[[], Awaitable[Path]]
_MEMORY_BYTES = 512 * 2**20
_MAX_CONCURRENT = 2


class ImageCodecs(msgspec.Struct, frozen=True):
    """Functions on images, and the bytes of memory that each needs; all raise `UnusableInput`.

    `viewed` returns an image as a preview or by its channels, with its content type; `masked` writes an image
    as PNG with the alpha of another.
    """

    viewed: Callable[[Path, str | None, str], tuple[bytes, str]]
    viewed_bytes: Callable[[Path, str | None], int]
    masked: Callable[[Path, Path, Path], None]
    masked_bytes: Callable[[Path, Path], int]


class ImageEditor:
    """Runs the codecs in threads: at most two at a time, and the second only if its memory is available."""

    def __init__(self, codecs: ImageCodecs, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._codecs = codecs
        self._memory = GraphMemory(memory_bytes)
        self._turns = asyncio.Semaphore(_MAX_CONCURRENT)

    async def viewed(self, load: Load, preview: str | None, channel: str) -> tuple[bytes, str]:
        """Return the image as a preview or by its channels, and its type; raises `UnusableInput`."""
        async with self._turns:
            image = await load()
            needed = await asyncio.to_thread(self._codecs.viewed_bytes, image, preview)
            async with self._memory.working(needed):
                return await asyncio.to_thread(self._codecs.viewed, image, preview, channel)

    async def masked(self, image: Path, mask: Path, result: Path) -> None:
        """Write the image as PNG with the alpha of the mask; raises `UnusableInput`."""
        async with self._turns:
            needed = await asyncio.to_thread(self._codecs.masked_bytes, image, mask)
            async with self._memory.working(needed):
                await asyncio.to_thread(self._codecs.masked, image, mask, result)
