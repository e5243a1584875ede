"""Downloads from a Hub on this machine: complete, resumed, verified, and rejected with one sentence."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sixfold.clients import huggingface
from sixfold.clients.huggingface import HubError, HuggingFaceHub
from tests.fakes.huggingface import COMMIT, LoopbackHub, serving

BIG = "unet/model.safetensors"
DATA = random.Random(1).randbytes(300_000)  # noqa: S311 - any bytes


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LoopbackHub]:
    """A Hub with one repository of eight files."""
    root = tmp_path / "hub" / "someone" / "tiny"
    (root / "unet").mkdir(parents=True)
    (root / BIG).write_bytes(DATA)
    for number in range(7):
        (root / f"{number}.json").write_text(f'{{"number": {number}}}')
    with serving(tmp_path / "hub") as current_hub:
        yield current_hub


class Fetching:
    """A client that records its pauses and does not wait."""

    def __init__(self, hub: LoopbackHub, target: Path) -> None:
        self.pauses: list[float] = []
        self.client = HuggingFaceHub(hub.url, pause=self.pauses.append)
        self.target = target

    def __call__(self, path: str = BIG) -> bytes:
        with self.client as client:
            tree = client.tree("someone/tiny", "main")
            file = next(file for file in tree.files if file.path == path)
            client.fetch(tree, file, self.target / path)
        return (self.target / path).read_bytes()


@pytest.fixture
def fetching(hub: LoopbackHub, tmp_path: Path) -> Fetching:
    return Fetching(hub, tmp_path / "here")


def test_a_repository_is_listed_page_by_page_at_one_commit(hub: LoopbackHub) -> None:
    with HuggingFaceHub(hub.url) as client:
        tree = client.tree("someone/tiny", "main")
    assert tree.commit == COMMIT
    assert [file.path for file in tree.files] == [*(f"{n}.json" for n in range(7)), BIG]
    assert tree.files[-1].size == len(DATA)


def test_large_file_is_redirected_and_small_one_is_direct(fetching: Fetching) -> None:
    assert fetching() == DATA


def test_small_file_is_verified_by_its_git_hash(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.faults["3.json"] = ["wrong"]
    with pytest.raises(HubError, match=r"3.json does not match the hash"):
        fetching("3.json")


def test_interrupted_download_resumes_by_range(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.faults[BIG] = [100_000, 50_000]
    assert fetching() == DATA
    assert hub.ranges_of(BIG) == ["", "bytes=100000-", "bytes=150000-"]
    assert fetching.pauses == []


def test_partial_file_of_an_earlier_attempt_is_resumed(hub: LoopbackHub, fetching: Fetching) -> None:
    part = fetching.target / f"{BIG}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA[:123_456])
    assert fetching() == DATA
    assert hub.ranges_of(BIG) == ["bytes=123456-"]
    assert not part.exists()


def test_download_restarts_without_range_support(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.faults[BIG] = [100_000, "no-range"]
    assert fetching() == DATA


def test_busy_hub_is_retried_after_the_stated_time(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.faults[BIG] = ["429", "503"]
    hub.faults["api/tree"] = ["429"]
    assert fetching() == DATA
    assert fetching.pauses == [3.0, 3.0, 3.0]


def test_busy_hub_fails_after_five_retries(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.faults[BIG] = ["503"] * 20
    with pytest.raises(HubError, match="could not be fetched: the Hub returned status 503"):
        fetching()
    assert len(fetching.pauses) == 5


def test_file_with_a_wrong_hash_is_deleted(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.faults[BIG] = ["wrong"]
    with pytest.raises(HubError, match="does not match the hash"):
        fetching()
    assert [path for path in fetching.target.rglob("*") if path.is_file()] == []


def test_download_longer_than_stated_is_aborted(hub: LoopbackHub, fetching: Fetching) -> None:
    hub.claims["3.json"] = {"size": 4}
    with pytest.raises(HubError, match="larger than the"):
        fetching("3.json")


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("404", "was not found on the Hub"),
        ("401", "requires you to accept the license"),
        ("418", "returned status 418"),
    ],
)
def test_refused_request_is_one_sentence(
    hub: LoopbackHub, fetching: Fetching, status: str, sentence: str
) -> None:
    hub.faults[BIG] = [status]
    with pytest.raises(HubError, match=sentence):
        fetching()


def test_unknown_repository_is_named_in_the_error(hub: LoopbackHub) -> None:
    with HuggingFaceHub(hub.url) as client:
        with pytest.raises(HubError, match="someone/else at main was not found on the Hub"):
            client.tree("someone/else", "main")
        with pytest.raises(HubError, match="is not a repository name"):
            client.tree("../../etc", "main")


@pytest.mark.parametrize("path", ["../outside.json", "/etc/passwd", "a\\b.json", "C:/x.json"])
def test_path_outside_the_folder_is_refused(hub: LoopbackHub, path: str) -> None:
    hub.claims["3.json"] = {"path": path}
    with HuggingFaceHub(hub.url) as client, pytest.raises(HubError, match="is not safe to write"):
        client.tree("someone/tiny", "main")


def test_unreachable_hub_is_named_in_the_error() -> None:
    with (
        HuggingFaceHub("http://127.0.0.1:9", pause=lambda _: None) as client,
        pytest.raises(HubError, match="does not respond"),
    ):
        client.tree("someone/tiny", "main")


def test_endless_answer_of_a_hub_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def endless() -> Iterator[bytes]:
        while True:
            sent.append(65_536)
            yield b" " * 65_536

    monkeypatch.setattr(huggingface, "_MAX_RESPONSE_BYTES", 2**20)
    with HuggingFaceHub("http://127.0.0.1:9") as client:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=endless()))
        monkeypatch.setattr(client, "_client", httpx.Client(transport=transport))
        with pytest.raises(HubError, match="more than 1 MiB"):
            client.tree("someone/tiny", "main")
    assert sum(sent) < 2 * 2**20


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"[1]", b"1", b'[{"type": "file", "path": "a", "size": []}]']
)
def test_malformed_answers_of_a_hub_are_errors(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        is_tree = "/tree/" in request.url.path and body[:2] != b"[["
        return httpx.Response(200, content=iter([body if is_tree else b'{"sha": "%s"}' % COMMIT.encode()]))

    with HuggingFaceHub("http://127.0.0.1:9") as client:
        monkeypatch.setattr(client, "_client", httpx.Client(transport=httpx.MockTransport(answer)))
        if body[:2] == b"[[":
            monkeypatch.setattr(huggingface, "_body", lambda *_: body)
        with pytest.raises(HubError, match="The Hub's response"):
            client.tree("someone/tiny", "main")
