"""Documents that are fetched from slow servers occupy few slots of the fetcher."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from sixfold import errors
from sixfold.core.memory.import_export.documents import (
    MAX_ACCOUNT_FETCHES,
    DocumentImports,
    DocumentOptions,
)
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller


async def test_slow_servers_of_an_account_delay_no_other_account(tmp_path: Path) -> None:
    started: list[str] = []
    is_full, release = asyncio.Event(), asyncio.Event()

    async def fetch(url: str, into: Path) -> None:
        started.append(url)
        if len(started) == MAX_ACCOUNT_FETCHES:
            is_full.set()
        if "slow" in url:
            await release.wait()
        raise errors.FetchFailed("closed")

    def take(account_id: str, url: str) -> asyncio.Task[Any]:
        caller = Caller(account_id, "key_1")
        return asyncio.create_task(imports.take_sent(caller, "a.pdf", DocumentOptions(), url=url))

    imports = DocumentImports(cast("Any", None), MemoryLimits(), cast("Any", None), tmp_path, fetch)
    slow = [take("acct_1", f"http://slow.example/{number}") for number in range(MAX_ACCOUNT_FETCHES)]
    await is_full.wait()
    with pytest.raises(errors.TooManyRequests, match="at most 4 fetches of documents at a time"):
        await take("acct_1", "http://quick.example")
    with pytest.raises(errors.FetchFailed):
        await take("acct_2", "http://quick.example")
    release.set()
    assert {type(each) for each in await asyncio.gather(*slow, return_exceptions=True)} == {
        errors.FetchFailed
    }
    with pytest.raises(errors.FetchFailed):
        await take("acct_1", "http://quick.example")
