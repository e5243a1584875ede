"""The Python client, synchronous and asynchronous, and the one for JavaScript, with a running server."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from sixfold import AsyncClient, Client
from sixfold.app import catalog
from sixfold.client import ApiError, ClientError, ConnectionFailed, PredictionFailed, WaitExpired, requests
from sixfold.client.types.hosting import Prediction
from tests.api.served_app import ServedApp, served_app
from tests.architecture import source
from tests.harness import image_files

SCRIPT = """
import { Client, ApiError } from "%(client)s";
const client = new Client({ apiKey: "%(key)s", baseUrl: "%(url)s" });
const file = new Blob([Buffer.from("%(image)s", "base64")], { type: "image/png" });
const prediction = await client.run("remove-background", { image_url: file });
const events = [];
for await (const event of client.events(prediction.id)) events.push(event.data.status);
const bytes = await client.download(prediction.output.url);
const path = { slug: "people/ann" };
await client.call("PUT /api/pages/{slug}", { path, body: { body: "Ann lives in Oslo." } });
const page = await client.call("GET /api/pages/{slug}", { path });
const found = await client.call("POST /api/search", { body: { query: "Oslo" } });
const listed = await client.call("GET /api/pages", { query: { prefix: "people/", limit: 5 } });
let failure;
try {
  await client.call("GET /api/pages/{slug}", { path: { slug: "no/such" } });
} catch (error) { failure = error; }
console.log(JSON.stringify({
  status: prediction.status, events, bytes: bytes.length, title: page.title, first: found.results[0].slug,
  pages: listed.pages.length, failure: [failure instanceof ApiError, failure.status, failure.code],
}));
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    with served_app(tmp_path_factory.mktemp("client"), models=catalog.models_document()) as result:
        yield result


@pytest.fixture
def client(served: ServedApp) -> Iterator[Client]:
    with Client(served.key, served.url) as result:
        yield result


def png() -> bytes:
    return image_files.encode(Image.new("RGB", (64, 48), (200, 30, 30)))


def test_a_model_runs_and_its_output_is_saved(client: Client, tmp_path: Path) -> None:
    prediction = client.run("ra1", {"prompt": "a red boat", "size": "1024x1024"})
    assert prediction["status"] == "succeeded"
    client.save(prediction, tmp_path / "boat.png")
    with Image.open(tmp_path / "boat.png") as image:
        assert image.size[0] > 0
    names = [name for name, _ in client.predictions.events(prediction["id"])]
    assert names
    predictions = client.predictions.list(model="ra1", limit=1)
    assert [each["id"] for each in predictions["predictions"]] == [prediction["id"]]
    assert client.account.usage(days=1, by="model")["usage"][0]["requests"] >= 1


@pytest.mark.parametrize(
    "make", [lambda path: path, lambda path: path.read_bytes(), lambda path: path.open("rb")]
)
def test_files_among_the_inputs_are_uploaded(
    client: Client, tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    (tmp_path / "photo.png").write_bytes(png())
    source_file = make(tmp_path / "photo.png")
    prediction = client.run("remove-background", {"image_url": source_file})
    assert prediction["status"] == "succeeded"
    if isinstance(source_file, io.IOBase):
        source_file.close()
    assert client.media.create("remove-background", {"image_url": tmp_path / "photo.png"})["image"]["url"]


def test_repeated_idempotency_key_is_charged_once(client: Client) -> None:
    before = client.account.get()["balance_usd"]
    first, second = [
        client.predictions.create("ra1", {"prompt": "once"}, wait=30, idempotency_key="the-same")
        for _ in range(2)
    ]
    assert first["id"] == second["id"]
    charged = float(before) - float(client.account.get()["balance_usd"])
    assert charged == pytest.approx(float(first["cost"]))


def test_an_error_names_its_inputs(client: Client, served: ServedApp) -> None:
    with pytest.raises(ApiError) as excinfo:
        client.run("ra1", {"prompt": "", "size": "huge"})
    assert excinfo.value.status == 400
    assert set(excinfo.value.problems) == {"prompt", "size"}
    assert excinfo.value.request_id
    with pytest.raises(ApiError, match="401"), Client("sk-wrong", served.url) as wrong:
        wrong.account.get()
    with pytest.raises(ClientError, match="slug is empty"):
        client.memory.get("")
    with pytest.raises(ConnectionFailed), Client("k", "http://127.0.0.1:9", max_retries=0) as away:
        away.account.get()
    with pytest.raises(ClientError, match="is not a URL"):
        Client("k", "127.0.0.1:8600")


def test_the_official_openai_client_uses_the_same_server(client: Client, served: ServedApp) -> None:
    with openai.OpenAI(api_key=served.key, base_url=client.openai_base_url) as official:
        assert "ra1" in {model.id for model in official.models.list()}


def test_memory_is_written_read_and_exported(client: Client, tmp_path: Path) -> None:
    page = client.memory.create(slug="people/bob", body="Bob leads [[projects/sail]].", tags=["team"])
    client.memory.edit("people/bob", operation="append", content="He moved to Bergen.")
    client.memory.add_to_timeline("people/bob", date="2026-05-01", summary="Moved to Bergen")
    client.memory.add_link("people/bob", to="companies/acme", type="works_at")
    assert client.memory.search(query="who moved to Bergen?", limit=3)["results"][0]["slug"] == "people/bob"
    assert {each["to"] for each in client.memory.links("people/bob")["links"]} >= {"companies/acme"}
    assert client.memory.timeline("people/bob")["timeline"][0]["summary"] == "Moved to Bergen"
    assert (
        client.memory.restore("people/bob", page["version"])["body"].strip() == "Bob leads [[projects/sail]]."
    )
    client.memory.export(tmp_path / "pages.zip")
    with zipfile.ZipFile(tmp_path / "pages.zip") as archive:
        assert "people/bob.md" in archive.namelist()
    imported = client.memory.import_archive(tmp_path / "pages.zip")
    assert imported["created"] + imported["updated"] + imported["skipped"] >= 1
    client.memory.delete("people/bob")
    with pytest.raises(ApiError, match="404"):
        client.memory.get("people/bob")


def test_a_workflow_is_imported_and_run(client: Client) -> None:
    graph = {
        "1": {"class_type": "PrimitiveString", "inputs": {"value": "hello"}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    assert client.workflows.validate(graph)["valid"]
    own = client.workflows.create(json.dumps(graph).encode(), "Say hello")
    assert own["slug"] in {each["slug"] for each in client.workflows.list()["spaces"]}
    prediction = client.workflows.run(own["slug"])
    assert prediction["status"] == "succeeded"
    client.workflows.delete(own["slug"])
    with pytest.raises(ApiError, match="404"):
        client.workflows.get(own["slug"])


async def test_asynchronous_client_has_the_same_methods(served: ServedApp, tmp_path: Path) -> None:
    async with AsyncClient(served.key, served.url) as client:
        prediction = await client.run("ra1", {"prompt": "a lake", "size": "1024x1024"})
        await client.save(prediction, tmp_path / "lake.png")
        events = [name async for name, _ in client.predictions.events(prediction["id"])]
        await client.memory.create(slug="notes/lake", body="The lake is calm.")
        result = await client.memory.search(query="calm lake")
        spaces = await client.workflows.list()
    assert (tmp_path / "lake.png").stat().st_size > 0
    assert events
    assert "notes/lake" in {each["slug"] for each in result["results"]}
    assert len(spaces["spaces"]) >= 18


def prediction(status: str) -> Prediction:
    row: Any = {"id": "pred_1", "model": "m", "status": status, "error": None, "output": [1]}
    return row


def client_with(answers: list[httpx.Response | Exception], requests: list[httpx.Request]) -> Client:
    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        result = answers.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    return Client("k", http_client=httpx.Client(transport=httpx.MockTransport(answer)))


def test_requests_are_repeated_only_where_that_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = requests.pause
    monkeypatch.setattr(requests, "pause", lambda *each: None if pause(*each) is None else 0.0)
    observed_requests: list[httpx.Request] = []
    busy = httpx.Response(503, json={"error": "full"}, headers={"Retry-After": "0"})
    response = httpx.Response(200, json=prediction("succeeded"))
    client = client_with([busy, httpx.ConnectError("gone"), response], observed_requests)
    assert client.predictions.create("m")["id"] == "pred_1"
    assert len({each.headers["idempotency-key"] for each in observed_requests}) == 1
    assert len(observed_requests) == 3
    final = httpx.Response(503, json={"error": "no"}, headers={"x-should-retry": "false"})
    with pytest.raises(ApiError, match="503: no"):
        client_with([final], observed_requests).predictions.create("m")
    with pytest.raises(ConnectionFailed):
        client_with([httpx.ReadError("")], observed_requests).predictions.cancel("pred_1")
    with pytest.raises(PredictionFailed, match="pred_1 of m: canceled"):
        client_with([response, httpx.Response(200, json=prediction("canceled"))], observed_requests).run("m")
    with pytest.raises(WaitExpired, match="within 0 seconds"):
        client_with([httpx.Response(200, json=prediction("running"))], observed_requests).predictions.wait(
            "pred_1", 0
        )
    with pytest.raises(ClientError, match="is not a file"):
        client.save(prediction("succeeded"), io.BytesIO())


def test_the_key_is_not_sent_to_another_server(tmp_path: Path) -> None:
    requests: list[httpx.Request] = []
    client = client_with([httpx.Response(200, content=b"a"), httpx.Response(200, content=b"b")], requests)
    client.download("https://example.com/a.png", tmp_path / "a")
    client.download("/media/b.png", tmp_path / "b")
    assert ["authorization" in each.headers for each in requests] == [False, True]


def test_failed_download_keeps_the_existing_file(tmp_path: Path) -> None:
    target = tmp_path / "fox.png"
    target.write_bytes(b"earlier")
    with pytest.raises(ApiError, match="404"):
        client_with([httpx.Response(404, json={"error": "gone"})], []).download("/media/fox.png", target)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("fox.png", b"earlier")]


@pytest.mark.parametrize("slug", ["../keys", "notes/../../keys", "."])
def test_an_id_cannot_name_another_path(slug: str) -> None:
    requests: list[httpx.Request] = []
    with pytest.raises(ClientError, match="must not have a segment"):
        client_with([httpx.Response(200, json={})], requests).memory.get(slug)
    assert requests == []


def test_the_client_starts_without_the_server() -> None:
    code = "import sys, sixfold; sixfold.Client; print([n for n in sys.modules if n.startswith('sixfold.')])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    names = {name.split(".")[1] for name in eval(result.stdout)}  # noqa: S307 - a list that this test printed
    assert names == {"client", "disk_space", "model_api"}


def test_javascript_client_runs_uploads_and_downloads(served: ServedApp, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on this machine")
    path = source.ROOT / "clients/typescript/client.js"
    values = {"client": path, "key": served.key, "url": served.url, "image": base64.b64encode(png()).decode()}
    (tmp_path / "use.mjs").write_text(SCRIPT % values)
    process = subprocess.run(
        [node, str(tmp_path / "use.mjs")], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result.pop("events")
    assert result.pop("bytes") > 0
    assert result == {
        "status": "succeeded",
        "title": "people/ann",
        "first": "people/ann",
        "pages": 1,
        "failure": [True, 404, "not_found"],
    }
