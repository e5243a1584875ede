"""Fetches of inputs: slow servers of one account do not take all slots of the fetcher."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.media.media import MAX_ACCOUNT_FETCHES, MediaService, MediaSource
from sixfold.core.media.ports import MediaLimits
from sixfold.store.file_store import FileStore

UNUSED: Any = None


class SlowServers:
    """A fetcher whose servers do not respond before `released`."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.open: list[str] = []
        self.condition = asyncio.Condition()

    async def fetch_bytes(self, url: str, *, max_bytes: int, timeout_seconds: float) -> Any:
        async with self.condition:
            self.open.append(url)
            self.condition.notify_all()
        await self.released.wait()
        raise errors.FetchFailed("no response")

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        return await self.fetch_bytes(url, max_bytes=max_bytes, timeout_seconds=timeout_seconds)


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
