"""What a run made, on its way from a worker's folder into the store."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.work.manifest import embedding
from sixfold.core.work.media import Media
from sixfold.core.work.ports import StagedFile
from sixfold.store.files import FileStore

NOBODY: Any = None  # what storing an output asks nothing of
LARGE = 48 << 20
TEXT = '{"prompt":"waves"}'


def film(path: Path, size: int) -> StagedFile:
    """An MP4 of nothing, as long as wanted."""
    with path.open("wb") as file:
        file.write(b"\0\0\0\x10ftypisom\0\0\0\0" + size.to_bytes(4) + b"mdat")
        file.truncate(16 + size)
    return StagedFile(path, "video/mp4", {"duration": 600})


@pytest.mark.parametrize("size", [1 << 20, LARGE])
async def test_a_film_is_signed_and_stored_without_ever_being_whole_in_memory(
    tmp_path: Path, size: int
) -> None:
    store = FileStore(tmp_path / "blobs")
    media = Media(NOBODY, store, NOBODY, NOBODY, NOBODY)
    staged = film(tmp_path / "staged", size)
    tracemalloc.start()
    try:
        stored = await media.store_outputs("pred_1", "acct_1", (staged,), (TEXT,))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    (file,) = stored.files
    assert (file.size, stored.total_bytes) == (16 + size + 24 + len(TEXT),) * 2
    kept = await store.local_path(file.blob)
    assert kept.stat().st_size == file.size
    data = await asyncio.to_thread(kept.read_bytes)
    assert embedding.extract(data) == TEXT
    assert not staged.path.exists()
