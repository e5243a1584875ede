"""Small WebP images of stored files, created once and stored.

They are copies of images and of the first frames of videos, waveforms of audio, and pictures of 3D models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sixfold import errors
from sixfold.core.media.ports import BlobStore, ObjectInfo

# Widths of the copies in pixels.
WIDTHS = (160, 320, 480, 960)
MEDIA_TYPE = "image/webp"
_BLOBS = "blobs/"
_MAX_UNDECODABLE = 1000
_NO_IMAGES = ("audio/", "model/")
# Types without a small image: browsers scale the first, and the second does not state its sampling rate.
_WITHOUT = frozenset({"image/svg+xml", "audio/pcm"})
_MODEL = "model/gltf-binary"


def is_offered(content_type: str) -> bool:
    """Return whether pages show a small image of files of this type."""
    kind = content_type.partition(";")[0].strip()
    return kind == _MODEL or (kind.startswith(("image/", "video/", "audio/")) and kind not in _WITHOUT)


class ThumbnailStore:
    """Creates and stores small images of images, videos, audio and 3D models.

    `renderers` contains a function for each of these types of files. It returns an image with a given width,
    and raises `BadRequest` for a file that cannot be decoded. Other files have no small image, and neither
    have files of which pages show none (`is_offered`).
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        # One thread decodes one image at a time.
        self._semaphore = asyncio.Semaphore(1)
        self.renderers: dict[str, Callable[[Path, int], bytes]] = {}
        # Blobs that could not be decoded, which are not tried again; the oldest are dropped.
        self._undecodable: dict[str, None] = {}

    async def find(self, blob: str, content_type: str, width: int) -> ObjectInfo | None:
        """Return the small image of a file, creating it if it is missing; None for a file without one.

        Raises `BadRequest` for a width that is not in `WIDTHS`, and `NotFound` if the bytes are missing or if
        the file is audio or a 3D model without a small image: browsers do not show the file as an image.
        """
        if width not in WIDTHS:
            raise errors.BadRequest(f"w must be one of {', '.join(map(str, WIDTHS))}")
        small = await self._find(blob, content_type, width)
        if small is None and content_type.startswith(_NO_IMAGES):
            raise errors.NotFound("This file has no small image: request the file without w")
        return small

    async def _find(self, blob: str, content_type: str, width: int) -> ObjectInfo | None:
        render = self.renderers.get(content_type.partition("/")[0])
        if render is None or not is_offered(content_type) or blob in self._undecodable:
            return None
        key = _key(blob, width)
        stored = await self._blobs.stat(key)
        if stored is not None:
            return stored
        async with self._semaphore:
            if blob in self._undecodable:
                return None
            stored = await self._blobs.stat(key)
            return stored if stored is not None else await self._make(render, key, blob, width)

    async def _make(
        self, render: Callable[[Path, int], bytes], key: str, blob: str, width: int
    ) -> ObjectInfo | None:
        try:
            path = await self._blobs.local_path(blob)
            data = await asyncio.to_thread(render, path, width)
        except KeyError:
            raise errors.NotFound("The file was not found") from None
        except errors.BadRequest:
            self._undecodable[blob] = None
            if len(self._undecodable) > _MAX_UNDECODABLE:
                del self._undecodable[next(iter(self._undecodable))]
            return None
        return await self._blobs.put(key, data, content_type=MEDIA_TYPE)

    async def delete(self, blob: str) -> None:
        for width in WIDTHS:
            await self._blobs.delete(_key(blob, width))


def _key(blob: str, width: int) -> str:
    return f"thumbnails/{blob.removeprefix(_BLOBS)}/{width}.webp"
