"""Copies of files without their metadata, for posts that do not show the prompt."""

from __future__ import annotations

import asyncio
import filecmp
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

# Files that are read and copied at the same time: a video may have hundreds of megabytes.
CONCURRENCY = 2


class PublishedFile(NamedTuple):
    """A file to publish, the blob of which it may be a copy, and the run in its valid manifest."""

    source: MediaSource
    original: str
    prediction_id: str = ""


class PrivateCopies:
    """Copies files, few at a time; `folder` is for temporary files."""

    def __init__(self, media: MediaService, signer: Signer, folder: Path) -> None:
        self._media = media
        self._signer = signer
        self._folder = folder
        self.semaphore = asyncio.Semaphore(CONCURRENCY)

    async def make(self, account_id: str, source: MediaSource, *, is_output: bool = False) -> PublishedFile:
        """Store a copy whose manifest names the model, but no inputs, seed and parents.

        Other metadata is removed: that of an output can contain a graph, and that of a photo its place. A
        file without a valid manifest of this server gets none. A file without metadata is not copied, unless
        it is an output.
        """
        original = await self._media.blobs.local_path(source.blob)
        async with self.semaphore, temporary_path(self._folder) as path:
            manifest = await asyncio.to_thread(_manifest, original, self._signer)
            text = manifest and self._signer.sign(replace(manifest, inputs={}, seed=None, parents=()))
            await asyncio.to_thread(rewrite, original, path, source.content_type, text)
            if text is None and not is_output and await asyncio.to_thread(filecmp.cmp, original, path, False):
                return PublishedFile(source, source.blob)
            if text is not None and self._media.credentials is not None:
                await self._media.credentials.sign(path, source.content_type, text)
            stored = await self._media.store_unnamed_file(path, source.content_type, account_id)
        return PublishedFile(stored, source.blob, "" if manifest is None else manifest.prediction_id)


def _manifest(path: Path, signer: Signer) -> Manifest | None:
    """Return the manifest of a file if this server has signed it."""
    with path.open("rb") as file, edits.mapped(file) as data:
        text = embed.extract(data)
    try:
        signed = None if text is None else signer.read(text)
    except NotAManifest:
        return None
    return signed.manifest if signed is not None and signed.valid else None


def rewrite(original: Path, path: Path, content_type: str, text: str | None) -> None:
    """Write a copy of a file whose only metadata is `text`, if any."""
    shutil.copyfile(original, path)
    private_metadata.remove(path)
    if text is not None:
        embed.embed_file(path, content_type, text)
