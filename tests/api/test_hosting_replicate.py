"""Replicate's own client, unmodified, with its base URL changed."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from replicate.client import Client
from replicate.exceptions import ModelError, ReplicateError

from sixfold.api.hosting.replicate import files
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import ORIGIN, AppFixture, running_app
from tests.api.gateway import running_gateway
from tests.api.test_hosting_runs import models
from tests.api.test_hosting_webhooks import INSIDE, wait_for_messages, webhook_url
from tests.api.test_model_removal import stored_document
from tests.fakes.fault_server import Faults

BASE = "/replicate/v1"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with templates of tiny engines."""
    async with running_app(tmp_path, models(), **INSIDE) as result:
        yield result


def client(app: AppFixture, key: str | None = None) -> Client:
    """Return the official client for the server in this process."""
    transport = httpx.ASGITransport(app.asgi, raise_app_exceptions=False)
    return Client(key or app.key, base_url=f"{ORIGIN}/replicate", transport=transport)


async def test_run_returns_the_url_of_an_image(app: AppFixture) -> None:
    output = await client(app).async_run("sixfold/anime-image", {"prompt": "a fox"})
    # The client returns a URL, because only URLs with https become files.
    assert isinstance(output, str)
    image = Image.open(io.BytesIO((await app.client.get(output)).content))
    assert image.size == (32, 32)
    (prediction,) = (await client(app).predictions.async_list()).results
    assert (prediction.model, prediction.status) == ("sixfold/anime-image", "succeeded")


async def test_version_of_a_model_is_run(app: AppFixture) -> None:
    official = client(app)
    model = await official.models.async_get("sixfold/anime-image")
    assert model.latest_version is not None
    schema = model.latest_version.openapi_schema["components"]["schemas"]["Input"]
    assert schema["required"] == ["prompt"]
    assert schema["properties"]["prompt"]["x-order"] == 0
    version = await model.versions.async_get(model.latest_version.id)
    assert [each.id for each in (await model.versions.async_list()).results] == [version.id]
    result = await official.predictions.async_create(version=version, input={"prompt": "a fox"}, wait=True)
    assert (result.status, result.version) == ("succeeded", version.id)
    assert result.metrics is not None
    assert result.metrics["predict_time"] >= 0
    named = await official.async_run(f"sixfold/anime-image:{version.id}", {"prompt": "a fox"})
    assert isinstance(named, str)
    for field in ("version", "model"):
        body = {field: "anime-image", "input": {"prompt": "a fox"}}
        plain = await app.client.post(f"{BASE}/predictions", json=body, headers=app.bearer)
        assert (plain.status_code, plain.json()["model"]) == (201, "sixfold/anime-image")


async def test_only_the_own_model_of_a_version_is_read(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, own = any_database_app, any_database_app.predictions.custom_models
    for name in ("first", "second"):
        await own.put(app.account.id, "model", name, stored_document(name))
    model = await client(app).models.async_get("sixfold/second")
    assert model.latest_version is not None
    reads, find = list[str](), own.find

    async def record(name: str, account_id: str) -> Any:
        reads.append(name)
        return await find(name, account_id)

    monkeypatch.setattr(own, "find", record)
    monkeypatch.setattr(own, "page", None)
    for version, status in ((model.latest_version.id, 201), ("a" * 64, 422), ("none", 422)):
        body = {"version": version, "input": {}}
        response = await app.client.post(f"{BASE}/predictions", json=body, headers=app.bearer)
        assert response.status_code == status, response.text
    assert set(reads) - {"a" * 64, "none", model.latest_version.id} == {"second"}


async def test_prediction_is_created_polled_and_canceled(app: AppFixture) -> None:
    official = client(app)
    result = await official.models.predictions.async_create(
        ("sixfold", "anime-image"), {"prompt": "SLOW"}, wait=False
    )
    assert result.status in {"starting", "processing"}
    await result.async_cancel()
    assert (result.status, result.output) == ("canceled", None)
    assert await app.balance() == ("5.00", "0.00")


async def test_failed_run_raises_model_error(app: AppFixture) -> None:
    with pytest.raises(ModelError) as excinfo:
        await client(app).async_run("sixfold/anime-image", {"prompt": "FAIL"})
    assert excinfo.value.prediction.error == "The paint has run out"


async def test_file_of_the_client_is_an_input(app: AppFixture) -> None:
    file = io.BytesIO(b"twelve bytes")
    response: Any = await client(app).async_run("sixfold/media-encode", {"media": file})
    assert response["files"] == {"media": 12}


async def test_all_models_the_account_and_the_hardware_are_listed(app: AppFixture) -> None:
    official = client(app)
    models = {model.name: model for model in (await official.models.async_list()).results}
    assert {"ra2", "anime-image", "text-llm"} <= models.keys()
    assert {"sixfold", "black-forest-labs"} <= {model.owner for model in models.values()}
    assert (await official.accounts.async_current()).name == "ada@example.com"
    assert next(kind.sku for kind in await official.hardware.async_list()) == "gpu-80gb-a"


REFUSED = [
    ("models/sixfold/anime-image/predictions", {"input": {}}, 422),
    ("models/sixfold/nothing/predictions", {"input": {}}, 404),
    ("models/other/anime-image/predictions", {"input": {"prompt": "x"}}, 404),
    ("models/sixfold/text-llm/predictions", {"input": {"prompt": "x"}}, 503),
    ("predictions", {"version": "0" * 64, "input": {}}, 422),
    ("predictions", {"version": "nothing", "input": {}}, 422),
    ("predictions", {"input": {}}, 422),
    ("predictions", {"version": "sixfold/anime-image", "input": []}, 422),
    ("predictions", {"version": "sixfold/anime-image", "input": {}, "webhook": "x"}, 422),
    ("nothing", {}, 404),
]


@pytest.mark.parametrize(("path", "body", "status"), REFUSED)
async def test_errors_have_replicates_shape(app: AppFixture, path: str, body: Any, status: int) -> None:
    response = await app.client.post(f"{BASE}/{path}", json=body, headers=app.bearer)
    document = response.json()
    assert (response.status_code, document["status"]) == (status, status)
    assert document["detail"]
    assert document["title"]
    assert set(document) - {"invalid_fields"} == {"detail", "status", "title"}


async def test_invalid_key_raises_replicate_error(app: AppFixture) -> None:
    with pytest.raises(ReplicateError) as excinfo:
        await client(app, "sf_wrong").async_run("sixfold/anime-image", {"prompt": "x"})
    assert excinfo.value.status == 401


async def test_prefer_header_sets_the_time_to_wait(app: AppFixture) -> None:
    body = {"input": {"prompt": "SLOW"}}
    path = f"{BASE}/models/sixfold/anime-image/predictions"
    at_once = await app.client.post(path, json=body, headers=app.bearer)
    assert (at_once.status_code, at_once.json()["status"]) == (201, "starting")
    waited = await app.client.post(path, json=body, headers={**app.bearer, "Prefer": "wait=1"})
    assert (waited.status_code, waited.json()["output"]) == (201, None)
    for response in (at_once, waited):
        await app.client.post(response.json()["urls"]["cancel"], headers=app.bearer)
    await app.until("5.00", "0.00")


# -- names of Replicate ------------------------------------------------------------------------------

FLUX = "black-forest-labs/flux-schnell"
SDXL = "39ed52f2a78e934b3ba6e2a89f5b1c712de7dfea535525255b1aa35c5565e08b"


async def test_public_name_runs_the_model_that_serves_it(app: AppFixture) -> None:
    official = client(app)
    inputs = {"prompt": "a fox", "aspect_ratio": "16:9", "num_outputs": 1, "go_fast": True}
    outputs: Any = await official.async_run(FLUX, inputs)
    (output,) = outputs
    assert (await app.client.get(output)).status_code == 200
    (prediction,) = (await official.predictions.async_list()).results
    model = await official.models.async_get(FLUX)
    assert model.latest_version is not None
    assert (prediction.model, prediction.version) == (FLUX, model.latest_version.id)
    assert prediction.input is not None
    assert (prediction.input["width"], prediction.input["height"]) == (1360, 768)
    schema = model.latest_version.openapi_schema["components"]["schemas"]["Input"]
    assert (list(schema["properties"]), schema["required"]) == (
        ["prompt", "seed", "aspect_ratio"],
        ["prompt"],
    )
    assert await app.balance() == ("4.96", "0.00")


async def test_a_published_version_runs_by_its_id(app: AppFixture) -> None:
    official = client(app)
    result = await official.predictions.async_create(version=SDXL, input={"prompt": "a fox"}, wait=True)
    assert (result.model, result.status) == ("stability-ai/sdxl", "succeeded")
    outputs: Any = await official.async_run(f"stability-ai/sdxl:{SDXL}", {"prompt": "a fox"})
    assert len(outputs) == 1
    version = await (await official.models.async_get("stability-ai/sdxl")).versions.async_get(SDXL)
    assert version.id == SDXL


async def test_errors_of_public_names_use_their_input_names(app: AppFixture) -> None:
    path = f"{BASE}/models/{FLUX}/predictions"
    for inputs, field in (
        ({}, "input.prompt"),
        ({"prompt": "x", "num_outputs": 4}, "input.num_outputs"),
        ({"prompt": "x", "aspect_ratio": "wide"}, "input.aspect_ratio"),
    ):
        response = await app.client.post(path, json={"input": inputs}, headers=app.bearer)
        assert (response.status_code, response.json()["invalid_fields"][0]["field"]) == (422, field)
    assert await app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize("model", ["sixfold/anime-image", FLUX])
async def test_webhook_gets_the_prediction_for_subscribed_events(app: AppFixture, model: str) -> None:
    faults, (owner, name) = Faults(), model.split("/")
    async with webhook_url(faults) as url:
        result = await client(app).models.predictions.async_create(
            (owner, name), {"prompt": "a fox"}, wait=True, webhook=url, webhook_events_filter=["completed"]
        )
        await wait_for_messages(app, result.id, lambda rows: len(rows) == 1 and bool(rows[0]["ended_at"]))
    (request,) = faults.steps("webhook")
    response = json.loads(request.document)
    assert {name: response[name] for name in ("id", "status", "model", "output")} == {
        "id": result.id,
        "status": "succeeded",
        "model": model,
        "output": result.output,
    }


# -- search, collections, files, the rest ------------------------------------------------------------


async def test_models_are_found_by_query_and_collection(app: AppFixture) -> None:
    official = client(app)
    results = {
        f"{model.owner}/{model.name}"
        for model in (await official.models.async_search("FLUX schnell")).results
    }
    assert results == {FLUX}
    response = await app.client.get(f"{BASE}/search", params={"query": "flux"}, headers=app.bearer)
    assert {row["model"]["owner"] for row in response.json()["models"]} == {"black-forest-labs"}
    slugs = [result.slug for result in (await official.collections.async_list()).results]
    assert "text-to-image" in slugs
    painters = await official.collections.async_get("text-to-image")
    assert {"ra1", "flux-schnell"} <= {model.name for model in painters.models or []}
    with pytest.raises(ReplicateError) as excinfo:
        await official.collections.async_get("nothing")
    assert excinfo.value.status == 404


async def test_files_are_listed_shown_and_deleted(app: AppFixture) -> None:
    official = client(app)
    first = await official.files.async_create(io.BytesIO(b"twelve bytes"))
    second = await official.files.async_create(io.BytesIO(b"other bytes!"))
    assert [file.id for file in await official.files.async_list()] == [second.id, first.id]
    assert (await official.files.async_get(first.id)).checksums == first.checksums
    assert await client(app, app.other).files.async_list() == []
    with pytest.raises(ReplicateError):
        await client(app, app.other).files.async_delete(first.id)
    await official.files.async_delete(first.id)
    assert [file.id for file in await official.files.async_list()] == [second.id]
    assert (await app.client.get(first.urls["get"])).status_code == 404
    with pytest.raises(ReplicateError) as excinfo:
        await official.files.async_get(first.id)
    assert excinfo.value.status == 404


async def test_webhook_secret_is_returned_and_needs_a_right(app: AppFixture) -> None:
    secret = await client(app).webhooks.default.async_secret()
    account = (await app.client.get("/api/account", headers=app.bearer)).json()
    assert secret.key == account["webhook_secret"]
    limited = await app.limited_key(KeyLimits(services=("ra2",)))
    with pytest.raises(ReplicateError) as excinfo:
        await client(app, limited).webhooks.default.async_secret()
    assert excinfo.value.status == 403


async def test_unsupported_routes_respond_with_replicate_errors(app: AppFixture) -> None:
    official = client(app)
    assert (await official.deployments.async_list()).results == []
    assert (await official.trainings.async_list()).results == []
    for method, path, status in (
        ("GET", "deployments/sixfold/mine", 404),
        ("POST", "deployments", 400),
        ("POST", "models", 400),
        ("POST", f"models/{FLUX}/versions/{SDXL}/trainings", 400),
        ("GET", "trainings/pred_1", 404),
    ):
        response = await app.client.request(method, f"{BASE}/{path}", json={}, headers=app.bearer)
        assert (response.status_code, set(response.json())) == (status, {"detail", "status", "title"})


async def test_every_server_gives_a_version_the_same_date(tmp_path: Path) -> None:
    dates: list[str] = []
    for name in ("first", "second"):
        async with running_app(tmp_path / name) as app:
            response = await app.client.get(f"{BASE}/models/sixfold/ra1", headers=app.bearer)
            dates.append(response.json()["latest_version"]["created_at"])
    assert dates == ["2025-11-21T00:00:00.000Z"] * 2


async def test_a_prediction_of_another_model_is_not_a_training(app: AppFixture) -> None:
    prediction = await client(app).models.predictions.async_create(
        ("sixfold", "anime-image"), {"prompt": "a fox"}, wait=True
    )
    for method, path in (
        ("GET", f"trainings/{prediction.id}"),
        ("POST", f"trainings/{prediction.id}/cancel"),
    ):
        response = await app.client.request(method, f"{BASE}/{path}", headers=app.bearer)
        assert (response.status_code, response.json()["detail"]) == (
            404,
            f"Training {prediction.id} not found",
        )
    response = await app.client.get(f"{BASE}/predictions/{prediction.id}", headers=app.bearer)
    assert response.json()["status"] == "succeeded"


async def test_only_text_outputs_have_a_stream(app: AppFixture) -> None:
    result = await client(app).models.predictions.async_create(
        ("sixfold", "anime-image"), {"prompt": "a fox"}, wait=True
    )
    assert "stream" not in (result.urls or {})
    response = await app.client.get(f"{BASE}/predictions/{result.id}/stream", headers=app.bearer)
    assert response.status_code == 400


async def streamed(app: AppFixture, inputs: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the events of a streamed text model, with their data."""
    events = await client(app).async_stream("meta/meta-llama-3-8b-instruct", inputs)
    return [(event.event.value, event.data) async for event in events]


async def test_chat_stream_has_output_and_done_events(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        inputs = {"prompt": "say 3 words", "max_new_tokens": 9}
        assert await streamed(gateway.app, inputs) == [("output", "word word word"), ("done", "{}")]
        assert gateway.acme.requests[-1].document["max_tokens"] == 9
        (result,) = (await client(gateway.app).predictions.async_list()).results
        assert result.output == ["word word word"]
        gateway.acme.mode = "refuse"
        # The client raises this error for the event `error`.
        with pytest.raises(RuntimeError, match="It says so"):
            await streamed(gateway.app, inputs)


async def test_files_are_listed_in_pages(app: AppFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAGE", 1)
    results = [(await client(app).files.async_create(io.BytesIO(b"%d" % number))).id for number in range(2)]
    first = (await app.client.get(f"{BASE}/files", headers=app.bearer)).json()
    second = (await app.client.get(first["next"], headers=app.bearer)).json()
    assert [row["id"] for row in first["results"] + second["results"]] == results[::-1]
    assert second["next"] is None
