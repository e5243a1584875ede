"""Streams of unfinished responses: how often they read the response."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sixfold.api.gateway.openai.responses import replay


async def test_reads_of_an_unfinished_response_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def record(seconds: float) -> None:
        pauses.append(seconds)

    async def find() -> bytes:
        status = "in_progress" if len(pauses) < 20 else "completed"
        return json.dumps({"id": "resp_1", "status": status, "background": True, "output": []}).encode()

    monkeypatch.setattr(asyncio, "sleep", record)
    blocks = [block async for block in replay.stream(find, -1, 15.0)]
    last: Any = json.loads(blocks[-1].partition(b"data: ")[2])
    assert last["type"] == "response.completed"
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.25, 2.0)
