"""Fetches of inputs: slots of the fetcher, and memory of large images."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.media import save_paths
from sixfold.core.media.media import MAX_ACCOUNT_FETCHES, MediaService, MediaSource
from sixfold.core.media.ports import MediaLimits
from sixfold.core.media.uploaded_files import UploadedFiles
from sixfold.store.file_store import FileStore
from tests.harness import image_files

UNUSED: Any = None
PNG = image_files.encode(Image.new("RGB", (8, 8)))


class SlowServers:
    """A fetcher whose servers do not respond until `released` is set."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.open: list[str] = []
        self.condition = asyncio.Condition()

    def check_url(self, url: str) -> None:
        """Accept every URL."""

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        async with self.condition:
            self.open.append(url)
            self.condition.notify_all()
        await self.released.wait()
        raise errors.FetchFailed("no response")


@pytest.mark.parametrize("kind", ["image", "video"])
async def test_one_account_fetches_few_urls_at_a_time(tmp_path: Path, kind: Any) -> None:
    servers = SlowServers()
    limits = MediaLimits(2**20, 1_000_000, 5, 2**30, 1)
    media = MediaService(UNUSED, FileStore(tmp_path), servers, UNUSED, limits)

    def fetch(account: str, number: int) -> asyncio.Task[Any]:
        url = f"http://{account}.example/{number}"
        return asyncio.create_task(media.resolve(Tenant(account), Descriptor("source", kind), url))

    tasks = [fetch("slow", number) for number in range(2 * MAX_ACCOUNT_FETCHES)]
    tasks.append(fetch("other", 0))
    async with asyncio.timeout(30), servers.condition:
        await servers.condition.wait_for(lambda: "http://other.example/0" in servers.open)
    assert len(servers.open) == MAX_ACCOUNT_FETCHES + 1
    servers.released.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert len(servers.open) == len(tasks)
    assert all(isinstance(result, errors.InvalidInput) for result in results)


async def test_video_a_second_too_long_is_told_apart(tmp_path: Path) -> None:
    blobs = FileStore(tmp_path)
    await blobs.put("video", b"header")
    limits = MediaLimits(2**20, 1_000_000, 5, 2**30, 1)
    media = MediaService(UNUSED, blobs, SlowServers(), UNUSED, limits, lambda _path, _kind: 1801.0)
    with pytest.raises(errors.TooLarge, match=r"at most 30 minutes long \(got 30 min 1 s\)"):
        await media.check_duration(MediaSource("video", "video/mp4", 6), "video")


def probe(_path: Path) -> tuple[str, int, int]:
    return "PNG", 8, 8


class LargeImages:
    """A fetcher of a PNG file of 16 MB."""

    def check_url(self, url: str) -> None:
        """Accept every URL."""

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        with into.open("wb") as file:
            file.write(PNG)
            for _ in range(16):
                file.write(bytes(1_000_000))
        return "image/png"


async def test_images_of_urls_are_not_read_into_memory(tmp_path: Path) -> None:
    limits = MediaLimits(2**25, 1_000_000, 5, 2**30, 1)
    media = MediaService(UNUSED, FileStore(tmp_path), LargeImages(), probe, limits)
    tracemalloc.start()
    try:
        descriptor = Descriptor("source", "image")
        source = await media.resolve(Tenant(""), descriptor, "http://large.example/a.png")
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (source.size > 16_000_000, grown < 4 * 2**20) == (True, True)


async def test_own_uploaded_images_are_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    await store.put("folder/a.png", PNG + bytes(16_000_000))

    async def folder(_self: UploadedFiles, _path: str) -> None:
        return None

    async def secret_path(_self: UploadedFiles, _folder: None, path: str) -> str:
        return path

    monkeypatch.setattr(UploadedFiles, "_folder", folder)
    monkeypatch.setattr(UploadedFiles, "_secret_path", secret_path)
    monkeypatch.setattr(save_paths, "key", lambda path: path)
    limits = MediaLimits(2**25, 1_000_000, 5, 2**30, 1)
    media = MediaService(UNUSED, store, UNUSED, probe, limits)
    tracemalloc.start()
    try:
        source = await media.resolve(Tenant(""), Descriptor("source", "image"), "/uploads/folder/a.png")
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (source.content_type, source.size > 16_000_000) == ("image/png", True)
    assert grown < 6 * 2**20
