"""Commands with responses of which one field has a value of another type, and with faults of their own."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold.cli import client, dispatch, main, run
from sixfold.cli.client import ServerClient

URL = "http://127.0.0.1:1"
PREDICTION = {
    "id": "pred_1",
    "model": "ra1",
    "status": "succeeded",
    "created_at": "2026-11-30T12:00:00Z",
    "metrics": {"queue_ms": 1, "predict_ms": 70_000},
    "receipt": [
        {"name": "run", "at": "2026-11-30T12:00:00Z", "ms": 20, "usd": "0.04"},
        {"name": "captured", "at": "x", "charge": {"sum": "1 × 0.04", "lines": [{"list_rate_usd": "1"}]}},
    ],
    "ignored": ["word"],
    "output": {"url": "/media/x.png", "content_type": "image/png"},
    "outputs": {"text": "a lake"},
    "error": "none",
    "list_price": "0.04",
}
SPACE = {
    "slug": "a-space",
    "name": "A space",
    "description": "",
    "kind": "image",
    "nodeCount": 3,
    "apiInputs": [{"name": "prompt", "type": "string", "required": True, "default": "x"}],
    "verification": {"status": "unverified"},
}
LINK = {"type": "knows", "to": "b", "from": "c", "origin": "explicit", "context": "", "resolved": False}
PAGE = {"slug": "a", "title": "A", "type": "note", "updated_at": "2026-11-30T12:00:00Z"}
RESPONSES: Mapping[str, dict[str, Any]] = {
    "predictions": {"predictions": [PREDICTION]},
    "predictions pred_1": PREDICTION,
    "predictions cancel pred_1": PREDICTION,
    "model logs ra1": {"predictions": [PREDICTION]},
    "workflow list": {"spaces": [SPACE], "next_cursor": None},
    "workflow show a-space": SPACE,
    "workflow copy a-space": SPACE,
    "memory search x": {"results": [{**PAGE, "score": 0.5, "snippet": "a", "citation": "b", "explain": {}}]},
    "memory list": {"pages": [PAGE], "next_cursor": None},
    "memory tag a": {"tags": ["b"]},
    "memory link a": {"links": [LINK], "backlinks": [LINK]},
    "memory forget": {
        "batches": [
            dict.fromkeys(("batch", "created_at", "state", "folder", "source", "cost_usd"), "2026-11-30")
        ]
    },
    "memory forget batch_1": {"restored": ["a"], "deleted": ["b"]},
    "memory answer why": {
        "sentences": [{"text": "a", "sources": [1]}],
        "sources": [{"number": 1, "slug": "a"}],
        "known": False,
        "text": "b",
    },
}
WRONG: tuple[Any, ...] = (5, 1e300, "x", "http://[", [], [5], [[5]], {}, {"x": [5]}, None, True)


class FakeResponse(io.BytesIO):
    """A complete response with status 200."""

    status, length = 200, 0

    def getheaders(self) -> list[tuple[str, str]]:
        return []


def changed(document: Any) -> Iterator[Any]:
    """Yield copies of a document in each of which one value is replaced or missing."""
    items = list(enumerate(document) if isinstance(document, list) else document.items())
    for key, value in items:
        for wrong in WRONG:
            duplicate = copy.copy(document)
            duplicate[key] = wrong
            yield duplicate
        if isinstance(value, dict | list):
            for inner in changed(value):
                duplicate = copy.copy(document)
                duplicate[key] = inner
                yield duplicate
        elif isinstance(document, dict):
            yield {name: each for name, each in items if name != key}


@pytest.mark.parametrize("command", RESPONSES)
def test_a_field_of_another_type_is_never_a_traceback(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIXFOLD_API_KEY", "sf_key")
    bodies: list[bytes] = []
    monkeypatch.setattr(ServerClient, "_open", lambda *_: FakeResponse(bodies[-1]))
    arguments = main.build_parser().parse_args([*command.split(), "--api-url", URL])
    for document in (RESPONSES[command], *changed(RESPONSES[command])):
        bodies.append(json.dumps(document).encode())
        status = dispatch.run(arguments)
        error = capsys.readouterr().err
        assert status in (0, 1), bodies[-1]
        assert len(error.splitlines()) <= 1, error
        if document is RESPONSES[command]:
            assert (status, error) == (0, "")


def test_a_fault_of_a_command_is_not_one_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("own fault")

    monkeypatch.setattr("sixfold.cli.predictions._row", fail)
    body = json.dumps(RESPONSES["predictions"]).encode()
    monkeypatch.setattr(ServerClient, "_open", lambda *_: FakeResponse(body))
    with pytest.raises(ValueError, match="own fault"):
        main.main(["predictions", "--api-url", URL])


@pytest.mark.parametrize(
    ("model", "url", "name"),
    [
        ("docker", "/media/x.yml", "docker-compose-2.yml"),
        ("../../.ssh/x", "/x.y\0z", "ssh-x-compose.y-z"),
        ("-rf", "http://[bad", "rf-compose.png"),
        ("space:a", "/media/b.png?c=.sh#d.py", "space-a-compose.png"),
    ],
)
def test_a_server_names_no_existing_and_no_other_file(
    model: str, url: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docker-compose.yml").write_text("own")
    asker = ServerClient(URL, None)
    monkeypatch.setattr(asker, "download", lambda _url, target: target.write_bytes(b"x"))
    file = {"url": url, "content_type": "image/png"}
    document = client.ResponseObject({"id": "pred_compose", "model": model, "output": [[file]]})
    monkeypatch.setattr(run, "_ID_TAIL", 7)
    assert run.save(asker, document, None) == [(Path(name), 1)]
    assert Path("docker-compose.yml").read_text() == "own"
