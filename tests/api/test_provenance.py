"""Provenance of outputs: manifests in files, lineage, and replays with the same bytes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sixfold.core.concurrency import loaded_objects, memory_limit
from sixfold.core.predictions import lineage
from sixfold.core.provenance import embed, manifest
from sixfold.ui.predictions import provenance
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_pages import signed_in
from tests.harness import image_files
from tests.unit.core import test_manifest_containers as containers

RUN = "/api/containers/run"
FOX = {"prompt": "a fox", "seed": 7}


async def run(app: AppFixture, model: str, inputs: dict[str, Any], key: str = "") -> dict[str, Any]:
    """Run a model; return the prediction as the API shows it."""
    headers = bearer(key or app.key)
    response = await app.client.post(RUN, json={"model": model, "input": inputs}, headers=headers)
    assert response.json()["status"] == "succeeded", response.text
    return dict(response.json())


async def drop(app: AppFixture, token: str, data: bytes) -> dict[str, Any]:
    """Return what the page shows about a dropped file."""
    headers = {"X-CSRF-Token": token, "Content-Type": "image/png"}
    response = await app.client.post("/pages/origin", content=data, headers=headers)
    return {**response.json(), "code": response.status_code}


async def test_dropped_file_returns_form_inputs_and_prediction(app: AppFixture) -> None:
    token = await signed_in(app)
    result = await run(app, "ra1", FOX)
    data = (await app.client.get(result["output"]["url"])).content
    response = await drop(app, token, data)
    assert (response["kind"], response["model"], response["signature"]) == ("output", "ra1", "ours")
    assert (response["prediction"], response["withheld"]) == (result["id"], [])
    assert FOX.items() <= response["inputs"].items()


async def test_output_file_of_every_format_opens_its_form(app: AppFixture) -> None:
    token = await signed_in(app)
    result = await run(app, "ra1", FOX)
    text = embed.extract((await app.client.get(result["output"]["url"])).content)
    assert text is not None
    for kind, data in {
        "image/png": containers.image("PNG"),
        "image/jpeg": containers.image("JPEG"),
        "image/webp": containers.image("WEBP"),
        "video/mp4": containers.video("mp4", "libx264"),
        "video/webm": containers.video("webm", "libvpx-vp9"),
        "audio/wav": containers.sound("wav", "pcm_s16le"),
        "audio/mpeg": containers.sound("mp3", "libmp3lame"),
        "model/gltf-binary": containers.glb(),
        "image/svg+xml": containers.SVG.encode(),
    }.items():
        response = await drop(app, token, embed.embed(data, kind, text))
        assert (kind, response.get("prediction")) == (kind, result["id"])


@pytest.mark.parametrize(
    "data",
    [
        containers.video("mp4", "libx264"),
        b"PK\x03\x04" + bytes(60),
        b"%PDF-1.7\n",
        b"GIF89a" + bytes(60),
        b"{",
        b"",
    ],
    ids=["mp4", "zip", "pdf", "gif", "json", "empty"],
)
async def test_a_file_without_a_manifest_is_refused(app: AppFixture, data: bytes) -> None:
    headers = {"X-CSRF-Token": await signed_in(app), "Content-Type": "application/octet-stream"}
    response = await app.client.post("/pages/origin", content=data, headers=headers)
    assert response.status_code == 400, response.text
    assert "manifest" in response.text or not data


@pytest.mark.parametrize("kind", ["PNG", "JSON"])
def test_metadata_of_a_large_file_takes_little_memory(tmp_path: Path, kind: str) -> None:
    size, path = 32 * 2**20, tmp_path / "file"
    head, tail = b"{", b"}"
    if kind == "PNG":
        image = containers.image("PNG")
        end_of_header = 33
        head, tail = image[:end_of_header] + size.to_bytes(4) + b"prVt", bytes(4) + image[end_of_header:]
    with path.open("wb") as file:
        file.write(head)
        file.write(b" " * size)
        file.write(tail)
    tracemalloc.start()
    try:
        assert provenance._metadata(path, with_graph=True) == (None, False)
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
    finally:
        tracemalloc.stop()


async def test_foreign_file_opens_the_form_without_a_prediction(app: AppFixture) -> None:
    token = await signed_in(app)
    result = await run(app, "ra1", FOX, app.other)
    response = await drop(app, token, (await app.client.get(result["output"]["url"])).content)
    assert response["prediction"] is None
    assert response["inputs"]["prompt"] == "a fox"


async def test_changed_and_foreign_files_have_no_valid_signature(app: AppFixture) -> None:
    token = await signed_in(app)
    result = await run(app, "ra1", FOX)
    data = (await app.client.get(result["output"]["url"])).content
    text = embed.extract(data)
    assert text is not None
    response = await drop(app, token, embed.embed(data, "image/png", text.replace("a fox", "a cat")))
    assert (response["signature"], response["prediction"], response["inputs"]["prompt"]) == (
        "broken",
        None,
        "a cat",
    )
    for other in (b"\x89PNG\r\n\x1a\nnothing", b"words"):
        response = await drop(app, token, other)
        assert (response["code"], "does not contain a manifest" in response["error"]) == (400, True)


async def test_digest_in_a_manifest_becomes_the_url_of_the_file(app: AppFixture) -> None:
    token = await signed_in(app)
    first = await run(app, "ra1", FOX)
    data = (await app.client.get(first["output"]["url"])).content
    inline = image_files.data_uri(data)
    result = await run(app, "style-transfer", {"source_image_url": inline, "style_prompt": "ink"})
    response = await drop(app, token, (await app.client.get(result["output"]["url"])).content)
    url = response["inputs"]["source_image_url"]
    assert "/media/" in url
    assert (await app.client.get(url)).content == data
    form = (await app.client.get(f"/catalog/style-transfer?from={result['id']}")).text
    assert url in form


async def test_prediction_page_shows_sources_and_derived_files(any_database_app: AppFixture) -> None:
    app = any_database_app
    await signed_in(app)
    first = await run(app, "ra1", FOX)
    inputs = {"source_image_url": first["output"]["url"], "style_prompt": "ink"}
    second = await run(app, "style-transfer", inputs)
    above = (await app.client.get(f"/predictions/{first['id']}")).text
    below = (await app.client.get(f"/predictions/{second['id']}")).text
    assert above.index("Used in") < above.index(f"/predictions/{second['id']}")
    assert "<b>Style transfer</b>" in above
    assert "<b>Painterly image</b>" in below
    assert below.index("Made from") < below.index(f"/predictions/{first['id']}") < below.index("Used in")
    stolen = await run(app, "style-transfer", inputs, app.other)
    assert stolen["id"] not in (await app.client.get(f"/predictions/{first['id']}")).text


async def test_lineage_has_no_runs_of_other_accounts(any_database_app: AppFixture) -> None:
    app = any_database_app
    await signed_in(app)
    theirs = await run(app, "ra1", FOX, app.other)
    mine = await run(app, "ra1", FOX)
    copy = (await app.client.get(theirs["output"]["url"])).content
    body = (await app.client.post("/api/uploads", content=copy, headers=app.bearer)).json()
    of_copy = await run(app, "style-transfer", {"source_image_url": body["url"], "style_prompt": "ink"})
    of_mine = {"source_image_url": mine["output"]["url"], "style_prompt": "ink"}
    of_theirs = await run(app, "style-transfer", of_mine, app.other)
    pages = [(await app.client.get(f"/predictions/{result['id']}")).text for result in (mine, of_copy)]
    assert "Made from" in pages[1]
    for result in (theirs, of_theirs):
        assert not any(f"/predictions/{result['id']}" in page for page in pages)


@pytest.mark.parametrize("model", ["ra1", "style-transfer", "fast-image-space"])
async def test_replay_returns_identical_bytes(app: AppFixture, model: str) -> None:
    token = await signed_in(app)
    inputs: dict[str, Any] = {"prompt": "a fox"}
    if model == "style-transfer":
        source = await run(app, "ra1", FOX)
        inputs = {"source_image_url": source["output"]["url"], "style_prompt": "ink"}
    result = await run(app, model, inputs)
    path = f"/predictions/{result['id']}/replay"
    assert (await app.client.post(path, data={"csrf": "wrong"})).status_code == 403
    response = await app.client.post(path, data={"csrf": token})
    replay_id = response.headers["location"].rpartition("/")[2]
    prediction = await app.predictions.wait(await app.predictions.get_any(replay_id), 60)
    assert str(prediction.state) == "succeeded"
    page = (await app.client.get(f"/predictions/{replay_id}")).text
    assert "identical output" in page
    assert response.status_code == 303


async def test_manifest_does_not_give_access_to_the_input(any_database_app: AppFixture) -> None:
    """The file of a shared run contained the URL of its input, which anyone who knows the URL can read."""
    app = any_database_app
    source = (await run(app, "ra1", FOX))["output"]["url"]
    result = await run(app, "bg-remover", {"image": source})
    data = (await app.client.get(result["output"]["url"])).content
    folder, _, name = source.rpartition("/")
    assert name.encode() not in data
    found, _ = manifest.parse(str(embed.extract(data)))
    assert found.inputs["image"] == {"url": f"{folder}/", "withheld": "name"}
    described = await drop(app, await signed_in(app), data)
    assert described["withheld"] == []
    assert "/media/" in described["inputs"]["image"], "the owner's form is filled from the run"


async def test_lineage_reads_no_large_outputs(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app
    await signed_in(app)
    runs = [await run(app, "ra1", FOX) for _ in range(3)]
    first = await app.predictions.get_any(runs[0]["id"])
    related = await app.database.read(lineage.get(first), in_thread=True)
    assert [(other.id, is_same) for other, is_same in related.same] == [
        (each["id"], True) for each in runs[1:]
    ]
    assert all(other.output is not None for other, _ in related.same)
    monkeypatch.setattr(lineage, "_MAX_OUTPUT_CHARS", 100)
    related = await app.database.read(lineage.get(first), in_thread=True)
    assert [(other.id, other.output) for other, _ in related.same] == [
        (each["id"], None) for each in runs[1:]
    ]


async def test_large_outputs_of_repeated_runs_are_not_compared(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signed_in(app)
    runs = [await run(app, "ra1", FOX) for _ in range(2)]
    first = await app.predictions.get_any(runs[0]["id"])
    related = await app.database.read(lineage.get(first))
    different = [(other, False) for other, _ in related.same]
    read: list[str] = []

    async def recording_get(key: str) -> bytes:
        read.append(key)
        return b""

    services = SimpleNamespace(blobs=SimpleNamespace(get=recording_get))
    monkeypatch.setattr(provenance, "_MAX_COMPARED_BYTES", 10)
    result = await provenance.compared(cast("Any", services), first, different)
    assert ([equal for _, equal in result], read) == ([None], [])


async def test_memory_is_reserved_for_the_largest_compared_files(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signed_in(app)
    runs = [await run(app, "ra1", FOX) for _ in range(3)]
    first = await app.predictions.get_any(runs[0]["id"])
    small, large = (other for other, _ in (await app.database.read(lineage.get(first))).same)
    assert first.output is not None
    assert large.output is not None
    files = tuple(replace(file, size=file.size + 2**20) for file in large.output.files)
    large = replace(large, output=replace(large.output, files=files))
    size = sum(file.size for file in (*first.output.files, *files))

    async def read_file(key: str) -> bytes:
        return key.encode()

    services = cast("Any", SimpleNamespace(blobs=SimpleNamespace(get=read_file)))
    request = memory_limit.MemoryScope()
    memory_limit.scope.set(request)
    monkeypatch.setattr(loaded_objects, "_SMALL_BYTES", 0)
    await loaded_objects.reserve(1, 1, first.id)
    result = await provenance.compared(services, first, [(small, False), (large, False)])
    lease = loaded_objects._lease()
    assert lease is not None
    assert lease.size == 1 + loaded_objects.DOCUMENT_COPIES * size
    assert [equal for _, equal in result] == [True, True]
    request.close()
