"""Pictures that the server decodes for ComfyUI's clients, within one limit of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from sixfold.core.workflows.admission import GraphMemory

Load = Callable[[], Awaitable[Path]]
_MEMORY_BYTES = 512 * 2**20
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class PictureCodecs:
    """Functions on pictures, and the bytes of memory that each takes; all raise `UnusableInput`.

    `viewed` gives a picture as a preview or by its channels, with its type; `masked` writes a picture as PNG
    with the alpha of another.
    """

    viewed: Callable[[Path, str | None, str], tuple[bytes, str]]
    viewed_bytes: Callable[[Path, str | None], int]
    masked: Callable[[Path, Path, Path], None]
    masked_bytes: Callable[[Path, Path], int]


class PictureEditor:
    """Runs the codecs in threads: two at a time, of which the second waits until its memory fits."""

    def __init__(self, codecs: PictureCodecs, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._codecs = codecs
        self._memory = GraphMemory(memory_bytes)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def viewed(self, load: Load, preview: str | None, channel: str) -> tuple[bytes, str]:
        """The picture as a preview or by its channels, and its type; raises `UnusableInput`."""
        async with self._turns:
            picture = await load()
            needed = await asyncio.to_thread(self._codecs.viewed_bytes, picture, preview)
            async with self._memory.working(needed):
                return await asyncio.to_thread(self._codecs.viewed, picture, preview, channel)

    async def masked(self, picture: Path, mask: Path, result: Path) -> None:
        """Write the picture as PNG with the alpha of the mask; raises `UnusableInput`."""
        async with self._turns:
            needed = await asyncio.to_thread(self._codecs.masked_bytes, picture, mask)
            async with self._memory.working(needed):
                await asyncio.to_thread(self._codecs.masked, picture, mask, result)
