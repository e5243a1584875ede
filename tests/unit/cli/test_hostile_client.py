"""The Python client, and `sixfold mcp`, with a server that is not a Sixfold server."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from sixfold import Client, disk_space
from sixfold.cli import mcp
from sixfold.cli.client import ServerClient
from sixfold.cli.terminal import CommandError
from sixfold.client import ApiError, ClientError, requests
from sixfold.client.errors import retry_after
from sixfold.client.requests import ApiCall
from tests.unit.cli.test_hostile_server import endless, serving

DEEP = b"[" * 200_000 + b"]" * 200_000
_BLOCK = b'"' + b"a" * 65_536 + b'",'


def client_of(
    body: Iterator[bytes], sent: list[int], status: int = 200, encoding: str = "identity"
) -> Client:
    """Return a client of a server that sends this body, and the sizes of the parts that were read."""

    def parts() -> Iterator[bytes]:
        for part in body:
            sent.append(len(part))
            yield part

    headers = {"Content-Encoding": encoding}
    transport = httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, content=parts()))
    return Client("sf_x", "http://127.0.0.1:1", max_retries=0, http_client=httpx.Client(transport=transport))


@pytest.mark.parametrize("status", [200, 500])
def test_endless_response_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(requests, "MAX_RESPONSE_BYTES", 2**20)
    sent: list[int] = []
    with (
        client_of(endless(_BLOCK), sent, status) as client,
        pytest.raises(ClientError, match="more than 1 MiB"),
    ):
        client.request(ApiCall("GET", "/api/account"))
    assert sum(sent) < 2 * 2**20


@pytest.mark.parametrize("part", [b"a" * 65_536, b"data: " + b"a" * 65_536 + b"\n", b"x\n"])
def test_endless_event_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    monkeypatch.setattr(requests, "MAX_RESPONSE_BYTES", 2**20)
    sent: list[int] = []
    with client_of(endless(part), sent) as client, pytest.raises(ClientError, match="more than 1 MiB"):
        list(client.stream("/events"))
    assert sum(sent) < 2 * 2**20


def test_events_are_read_from_parts_of_any_size() -> None:
    text = b': ping\n\nevent: status\r\ndata: {"a":\r\ndata: "\xc3\xa9"}\r\n\r\ndata: x\n\n'
    for size in (1, 7, len(text)):
        parts = iter([text[at : at + size] for at in range(0, len(text), size)])
        with client_of(parts, []) as client:
            assert list(client.stream("/events")) == [("status", {"a": "é"}), ("message", "x")]


@pytest.mark.parametrize("body", [DEEP, b"{", b"1" * 10_000])
def test_response_that_is_not_json_is_an_error_of_the_client(body: bytes) -> None:
    with client_of(iter([body]), []) as client, pytest.raises(ClientError, match="did not return JSON"):
        client.request(ApiCall("GET", "/api/account"))
    with client_of(iter([body]), [], 500) as client, pytest.raises(ApiError):
        client.request(ApiCall("GET", "/api/account"))
    if body[:1] in b"[{":
        events = client_of(iter([b"data: " + body + b"\n\n"]), [])
        with events as client, pytest.raises(ClientError, match="did not return JSON"):
            list(client.stream("/events"))


def test_compressed_response_is_refused() -> None:
    bomb = gzip.compress(b" " * 2**20)
    sent: list[int] = []
    with (
        client_of(iter([bomb]), sent, encoding="gzip") as client,
        pytest.raises(ClientError, match="compressed"),
    ):
        client.request(ApiCall("GET", "/api/account"))
    assert sent == []


def test_pause_of_a_response_is_a_number() -> None:
    assert retry_after(httpx.Response(429, headers=[(b"retry-after", b"\xb2")])) is None


def test_download_leaves_a_part_of_the_disk_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def usage(folder: Path) -> SimpleNamespace:
        written = sum(path.stat().st_size for path in folder.iterdir())
        return SimpleNamespace(total=2**30, free=2**30 // 20 + 2**20 - written)

    monkeypatch.setattr(disk_space, "shutil", SimpleNamespace(disk_usage=usage))
    sent: list[int] = []
    with client_of(endless(_BLOCK), sent) as client, pytest.raises(OSError, match="would remain free"):
        client.download("/media/x", tmp_path / "x")
    assert sum(sent) < 2 * 2**20
    with serving(endless(_BLOCK)) as (asker, _), pytest.raises(CommandError, match="would remain free"):
        asker.download("/media/x", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


class FakeResponse(io.BytesIO):
    """A response of POST /mcp."""

    def __init__(self, body: bytes, kind: str) -> None:
        super().__init__(body)
        self.status, self._kind = 200, kind

    def getheader(self, _name: str, _default: str = "") -> str:
        return self._kind


def test_download_that_ends_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    response: Any = FakeResponse(b"abc", "")
    response.length = 9
    asker = ServerClient("http://127.0.0.1:1", None)
    monkeypatch.setattr(asker, "_open", lambda *_: response)
    with pytest.raises(CommandError, match="closed the connection"):
        asker.download("/media/x", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"a" * 2000, "application/json", "more than 0 MiB"),
        (b"a" * 2000, "text/event-stream", "more than 0 MiB"),
        (b"data: x\n" * 2000, "text/event-stream", "more than 0 MiB"),
        (b"data: " + b"[" * 900 + b"\n\n", "text/event-stream", "not JSON"),
        (b"[" * 900, "application/json", "without a message"),
    ],
)
def test_hostile_responses_of_mcp_are_errors(
    monkeypatch: pytest.MonkeyPatch, body: bytes, kind: str, reason: str
) -> None:
    monkeypatch.setattr(mcp, "_MAX_MESSAGE_BYTES", 1000)
    proxy = mcp.StdioProxy(ServerClient("http://127.0.0.1:1", None), io.BytesIO(), io.BytesIO())
    response: Any = FakeResponse(body, kind)
    with pytest.raises(CommandError, match=reason):
        list(proxy._read_response(response))


def test_deeply_nested_message_of_an_agent_is_not_json() -> None:
    target = io.BytesIO()
    mcp.StdioProxy(ServerClient("http://127.0.0.1:1", None), io.BytesIO(DEEP + b"\n"), target).serve()
    assert json.loads(target.getvalue())["error"]["code"] == -32700
