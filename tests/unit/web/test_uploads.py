"""Uploads in progress, which are on disk and in no quota, are limited for each account and by the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from sixfold import disk_space, errors
from sixfold.core.concurrency import fair_threads
from sixfold.web import uploads

MOST = 16


async def test_uploads_in_progress_of_one_account_are_limited(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await released.wait()
        return {"type": "http.request", "body": b"x", "more_body": False}

    async def upload(owner: str, number: int) -> int:
        fair_threads.owner.set(owner)
        request = Request({"type": "http", "method": "POST", "headers": []}, receive)
        return (await uploads.receive(request, tmp_path / f"{owner}{number}")).size

    tasks = [asyncio.create_task(upload("ann", number)) for number in range(MOST)]
    await asyncio.sleep(0)
    with pytest.raises(errors.TooManyRequests, match="may run at most 16 uploads"):
        await asyncio.create_task(upload("ann", MOST))
    tasks.append(asyncio.create_task(upload("ben", 0)))
    released.set()
    assert await asyncio.gather(*tasks) == [1] * (MOST + 1)
    assert await asyncio.create_task(upload("ann", MOST)) == 1


async def test_uploads_leave_a_part_of_the_disk_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    monkeypatch.setattr(disk_space, "_RESERVE_BYTES", 2**62)
    monkeypatch.setattr(disk_space, "_RESERVE_PART", 1)
    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(errors.StoreFailed, match=r"could not be stored: less than .* of the disk"):
        await uploads.receive(request, tmp_path / "large")
    assert not (tmp_path / "large").read_bytes()
