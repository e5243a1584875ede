"""Copies of outputs without their inputs, for posts that do not show the prompt."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from sixfold.core.media.media import MediaService, MediaSource
from sixfold.core.provenance import embed, private_metadata
from sixfold.core.provenance.formats import edits
from sixfold.core.provenance.manifest import Manifest, NotAManifest
from sixfold.core.provenance.signing import Signer
from sixfold.core.temporary_files import temporary_path

# Copies that are written at the same time: a video may have hundreds of megabytes.
CONCURRENCY = 2


class PublishedFile(NamedTuple):
    """A file to publish, and the blob of which it is a copy without inputs, or None."""

    source: MediaSource
    original: str | None = None


class PrivateCopies:
    """Copies files that this server generated, few at a time; `folder` is for temporary files."""

    def __init__(self, media: MediaService, signer: Signer, folder: Path) -> None:
        self._media = media
        self._signer = signer
        self._folder = folder
        self.semaphore = asyncio.Semaphore(CONCURRENCY)

    async def make(self, account_id: str, source: MediaSource) -> PublishedFile:
        """Store a copy whose manifest names the model, but no inputs, seed and parents.

        Metadata of other formats, which can contain a graph, is removed. A file without a valid manifest of
        this server is not copied, because it is not one of its outputs.
        """
        original = await self._media.blobs.local_path(source.blob)
        manifest = await asyncio.to_thread(_manifest, original, self._signer)
        if manifest is None:
            return PublishedFile(source)
        text = self._signer.sign(replace(manifest, inputs={}, seed=None, parents=()))
        async with self.semaphore, temporary_path(self._folder) as path:
            await asyncio.to_thread(rewrite, original, path, source.content_type, text)
            if self._media.credentials is not None:
                await self._media.credentials.sign(path, source.content_type, text)
            stored = await self._media.store_unnamed_file(path, source.content_type, account_id)
        return PublishedFile(stored, source.blob)


def _manifest(path: Path, signer: Signer) -> Manifest | None:
    """Return the manifest of a file if this server has signed it."""
    with path.open("rb") as file, edits.mapped(file) as data:
        text = embed.extract(data)
    try:
        signed = None if text is None else signer.read(text)
    except NotAManifest:
        return None
    return signed.manifest if signed is not None and signed.valid else None


def rewrite(original: Path, path: Path, content_type: str, text: str) -> None:
    """Write a copy of a file whose only metadata is `text`."""
    shutil.copyfile(original, path)
    private_metadata.remove(path)
    embed.embed_file(path, content_type, text)
