"""Commands with a server that is not a Sixfold server."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sixfold.cli import client, main
from sixfold.cli.client import ServerClient
from sixfold.cli.terminal import CommandError

_BLOCK = b'"' + b"a" * 65_536 + b'",'
_DEEP = b"[" * 200_000 + b"]" * 200_000


@contextmanager
def serving(body: Iterator[bytes]) -> Iterator[tuple[ServerClient, list[int]]]:
    """Yield a client of a server that sends this body, and the sizes of the sent parts."""
    sent: list[int] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            for part in body:
                try:
                    self.wfile.write(part)
                except OSError:
                    return
                sent.append(len(part))

        do_POST = do_GET  # noqa: N815 - a name of the base class

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield ServerClient(f"http://127.0.0.1:{server.server_address[1]}", None), sent
        finally:
            server.shutdown()
            thread.join()


def endless(part: bytes) -> Iterator[bytes]:
    while True:
        yield part


@pytest.mark.parametrize(
    "call", [lambda asker: asker.get("/a"), lambda asker: asker.ask("GET", "/a")], ids=["get", "ask"]
)
def test_endless_response_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[ServerClient], object]
) -> None:
    monkeypatch.setattr(client, "_MAX_RESPONSE_BYTES", 2**20)
    with serving(endless(_BLOCK)) as (asker, sent), pytest.raises(CommandError, match="more than 1 MiB"):
        call(asker)
    # The buffers of both sockets.
    assert sum(sent) < 16 * 2**20


def test_deeply_nested_response_is_not_json() -> None:
    with serving(iter([_DEEP])) as (asker, _), pytest.raises(CommandError, match="did not return JSON"):
        asker.get("/a")
    with serving(iter([_DEEP])) as (asker, _):
        assert asker.ask("GET", "/a").document is None


@pytest.mark.parametrize("part", [b"a" * 65_536, b"data: " + b"a" * 65_536 + b"\n"], ids=["line", "event"])
def test_endless_event_ends_the_events(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    monkeypatch.setattr(client, "_MAX_RESPONSE_BYTES", 2**20)
    with serving(endless(part)) as (asker, sent):
        assert list(asker.events("pred_1")) == []
    assert sum(sent) < 16 * 2**20


def test_deeply_nested_event_is_ignored() -> None:
    events = [b"data: " + _DEEP + b"\n\n", b'data: {"status": "succeeded"}\n\n']
    with serving(iter(events)) as (asker, _):
        assert list(asker.events("pred_1")) == [{"status": "succeeded"}]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ("run ra1 prompt=x", "services"),
        ("predictions list", "model"),
        ("memory search x", "results"),
        ("memory list", "pages"),
        ("workflow list", "spaces"),
    ],
)
def test_missing_field_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, field: str
) -> None:
    monkeypatch.setenv("SIXFOLD_API_KEY", "sf_key")
    with serving(iter([b'{"predictions": [{}]}'])) as (asker, _):
        assert main.main([*command.split(), "--api-url", asker.origin]) == 1
    sentence = f"The response of the server has no '{field}': is it a Sixfold server?"
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "field"),
    [("memory search x", "results"), ("memory list", "pages"), ("workflow list", "spaces")],
)
def test_value_of_another_type_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, field: str
) -> None:
    monkeypatch.setenv("SIXFOLD_API_KEY", "sf_key")
    with serving(iter([b'{"results": 5, "pages": 5, "spaces": 5}'])) as (asker, _):
        assert main.main([*command.split(), "--api-url", asker.origin]) == 1
    expected = (
        f"sixfold: The field '{field}' of the server's response is invalid (Expected `array`, got `int`)"
    )
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"id": "pred_1"}, "has no 'status'"),
        ({"id": "pred_1", "status": "done"}, "has the unknown status 'done'"),
        ({"id": "pred_1", "status": ["queued"]}, "'status' .* is invalid"),
    ],
)
def test_run_with_an_unknown_status_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], sentence: str
) -> None:
    asker = ServerClient("http://127.0.0.1:1", None)
    monkeypatch.setattr(asker, "events", lambda _id: iter(()))
    monkeypatch.setattr(asker, "prediction", lambda _id: client.ResponseObject(document))
    with pytest.raises(CommandError, match=sentence):
        asker.follow({"id": "pred_1"}, lambda _document: None)


@pytest.mark.parametrize(
    "url", ["http://[bad", "http://a:port", "http://a:0", "http://a b:1", "http://a/b c"]
)
def test_invalid_url_is_not_a_failure_of_the_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["run", "ra1", "prompt=x", "--api-url", url]) == 1
    assert f"{url!r} is not a URL such as" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["secret\nkey", "secret\u20ac"])
def test_invalid_key_is_not_a_failure_of_the_server(
    key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIXFOLD_API_KEY", key)
    assert main.main(["run", "ra1", "prompt=x", "--api-url", "http://127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert "must have only printable ASCII characters" in error
    assert "secret" not in error
