"""Storing the outputs of a run from a worker's folder."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import MediaLimits, ObjectInfo, StagedFile
from sixfold.core.provenance import embed
from sixfold.store.file_store import FileStore

# A dependency that is not used when outputs are stored.
UNUSED: Any = None
LIMITS = MediaLimits(2**20, 1_000_000, 5, 2**30, 1)
LARGE = 48 << 20
TEXT = '{"prompt":"waves"}'


def video_file(path: Path, size: int) -> StagedFile:
    """Return an MP4 file without content of the given length."""
    with path.open("wb") as file:
        file.write(b"\0\0\0\x10ftypisom\0\0\0\0" + size.to_bytes(4) + b"mdat")
        file.truncate(16 + size)
    return StagedFile(path, "video/mp4", {"duration": 600})


@pytest.mark.parametrize("size", [1 << 20, LARGE])
async def test_video_is_signed_and_stored_in_bounded_memory(tmp_path: Path, size: int) -> None:
    store = FileStore(tmp_path / "blobs")
    media = MediaService(UNUSED, store, UNUSED, UNUSED, LIMITS)
    staged = video_file(tmp_path / "staged", size)
    tracemalloc.start()
    try:
        stored = await media.store_outputs("pred_1", "acct_1", (staged,), (TEXT,))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    (file,) = stored.files
    assert (file.size, stored.total_bytes) == (16 + size + 24 + len(TEXT),) * 2
    remaining = await store.local_path(file.blob)
    assert remaining.stat().st_size == file.size
    data = await asyncio.to_thread(remaining.read_bytes)
    assert embed.extract(data) == TEXT
    assert not staged.path.exists()


class Watched(FileStore):
    """Blob store that records what is written to it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.put_keys: list[str] = []

    async def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        self.put_keys.append(key)
        return await super().put(key, data, content_type=content_type)

    async def put_file(self, key: str, path: Path, *, content_type: str | None = None) -> ObjectInfo:
        self.put_keys.append(key)
        return await super().put_file(key, path, content_type=content_type)


async def test_output_stored_by_the_run_is_not_stored_again(tmp_path: Path) -> None:
    store = Watched(tmp_path / "blobs")
    media = MediaService(UNUSED, store, UNUSED, UNUSED, LIMITS)
    staged = video_file(tmp_path / "staged", 100)
    signed = embed.embed(staged.path.read_bytes(), staged.content_type, TEXT)
    held = await media.store_unnamed(signed, staged.content_type)
    staged.path.unlink()
    staged = msgspec.structs.replace(staged, stored=(held.blob, held.size))
    stored = await media.store_outputs("pred_1", "acct_1", (staged,), (TEXT,))
    (file,) = stored.files
    assert (file.blob, file.size, store.put_keys) == (held.blob, len(signed), [held.blob])
    assert (stored.total_bytes, await store.get(file.blob)) == (len(signed), signed)


async def test_output_with_another_manifest_is_stored_separately(tmp_path: Path) -> None:
    store = Watched(tmp_path / "blobs")
    media = MediaService(UNUSED, store, UNUSED, UNUSED, LIMITS)
    staged = video_file(tmp_path / "staged", 100)
    held = await media.store_unnamed(staged.path.read_bytes(), staged.content_type)
    (file,) = (await media.store_outputs("pred_1", "acct_1", (staged,), (TEXT,))).files
    assert store.put_keys == [held.blob, file.blob]
    assert embed.extract(await store.get(file.blob)) == TEXT
