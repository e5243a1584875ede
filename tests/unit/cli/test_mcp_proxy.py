"""`sixfold mcp`: how long it waits for a server that does not respond."""

from __future__ import annotations

import io
import json
import socket
from typing import Any

import pytest

from sixfold.cli import mcp
from sixfold.cli.client import ServerClient

PING = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}\n'


class FakeClock:
    """A clock that advances only while a task sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    result = FakeClock()
    monkeypatch.setattr(mcp, "time", result)
    return result


def test_unreachable_server_is_reported_within_3_s(clock: FakeClock) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{unused.getsockname()[1]}"
        target = io.BytesIO()
        mcp.StdioProxy(ServerClient(origin, "sf_x"), io.BytesIO(PING), target).serve()
    answer: dict[str, Any] = json.loads(target.getvalue())
    assert answer["id"] == 7
    assert answer["error"]["message"] == f"No server responds at {origin}: start it and call again"
    assert 1 < clock.now < 3
