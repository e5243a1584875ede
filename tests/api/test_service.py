"""`/api/service`: one URL and one format for every service."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.api.gateway import service, services_list
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.harness import image_files

RUN, LIST = "/api/service", "/api/services"
SHAPE = {
    "id",
    "service",
    "status",
    "output",
    "output_kind",
    "engine",
    "quality",
    "understood",
    "ignored",
    "usage",
    "cost",
    "credits_charged",
    "created_at",
}


async def ask(app: AppFixture, body: Any, key: str | None = None, **headers: str) -> Any:
    who = app.bearer if key is None else bearer(key)
    return await app.client.post(RUN, json=body, headers={**who, **headers})


async def test_image_response_has_url_price_and_engine(app: AppFixture) -> None:
    response = await ask(app, {"service": "ra2", "prompt": "a fox", "width": 320, "height": 256, "seed": 5})
    assert response.status_code == 200, response.text
    body = response.json()
    assert body.keys() == SHAPE | {"image_url", "images"}
    assert (body["service"], body["status"], body["output_kind"]) == ("ra2", "succeeded", "image")
    assert (body["cost"], body["credits_charged"]) == ("0.04", 4)
    assert body["images"] == [body["image_url"]]
    assert body["output"]["url"] == body["image_url"]
    assert (await app.client.get(body["image_url"])).status_code == 200
    assert response.headers["x-sixfold-engine"] == body["engine"]
    assert await app.balance() == ("4.96", "0.00")


async def test_several_images_are_listed_and_each_is_charged(app: AppFixture) -> None:
    body = (await ask(app, {"service": "anime", "prompt": "a fox", "num_images": 3})).json()
    assert (body["cost"], body["credits_charged"], len(body["images"])) == ("0.021", 3, 3)


_PICTURE = image_files.data_uri(image_files.encode(Image.new("RGB", (64, 64), "teal")))
_TEXT = {"type": "text", "clips": [{"text": "Hi", "start": 0, "duration": 0.2}]}
_PROJECT = {"width": 64, "height": 48, "fps": 10, "tracks": [_TEXT]}


@pytest.mark.parametrize(
    ("service", "inputs", "kind", "cost"),
    [
        ("sound-effects", {"prompt": "rain", "duration_seconds": 1}, "audio", "0.002"),
        ("text-to-3d", {"prompt": "a red chair"}, "model3d", None),
        ("render", {"project": _PROJECT}, "video", None),
        ("style-transfer", {"source_image_url": _PICTURE, "style_prompt": "watercolor"}, "image", "0.04"),
    ],
)
async def test_models_of_other_apis_run_as_services(
    tmp_path: Path, service: str, inputs: dict[str, Any], kind: str, cost: str | None
) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        response = await ask(app, {"service": service, **inputs})
        assert response.status_code == 200, response.text
        body = response.json()
        assert (body["output_kind"], body["cost"]) == (kind, cost or body["cost"])
        assert (await app.client.get(body["output"]["url"])).status_code == 200
        assert Decimal((await app.balance())[0]) == 5 - Decimal(body["cost"])


async def test_list_has_every_model_but_those_of_other_apis(app: AppFixture) -> None:
    rows = (await app.client.get(LIST)).json()["services"]
    names = [row["service"] for row in rows]
    assert names[:3] == [services_list.DEFAULT, "ra1", "anime"]
    # Templates follow the other models, and workflows follow both.
    templates = [name in app.server.templates for name in names if not name.startswith("space:")]
    assert templates == sorted(templates)
    assert names[len(templates)].startswith("space:")
    without_service = {"create_image", "create_image_klein", "training"}
    without_service |= {"graph-image", "graph-restyle", "graph-film"}
    assert set(names) == {model.name for model in app.predictions.catalog.models()} - without_service
    assert len(names) == len(set(names))


async def test_async_request_returns_a_prediction_to_poll(app: AppFixture) -> None:
    response = await ask(app, {"service": "ra1", "prompt": "a fox", "async": True})
    assert response.status_code == 202
    document = response.json()
    assert document["status_url"] == f"/api/containers/predictions/{document['id']}"
    await app.until("4.96", "0.00")
    body = (await app.client.get(document["status_url"], headers=app.bearer)).json()
    assert (body["status"], body["cost"]) == ("succeeded", "0.04")


async def test_template_is_a_service_charged_by_time(app: AppFixture) -> None:
    body = (await ask(app, {"service": "piano", "bars": 1})).json()
    assert body["status"] == "succeeded"
    assert 0 < float(body["cost"]) < 0.07
    assert await app.faults() == ()


async def test_embeddings_cost_by_text_here_and_by_time_as_a_template(app: AppFixture) -> None:
    body = (await ask(app, {"service": "embeddings", "texts": ["a", "b"]})).json()
    assert body["cost"] == "0.0002"
    run = {"model": "embeddings", "input": {"texts": "a"}}
    ran = (await app.client.post("/api/containers/run", json=run, headers=app.bearer)).json()
    assert (ran["status"], ran["hardware"]) == ("succeeded", "gpu-16gb-a")
    assert await app.faults() == ()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"service": "nothing", "prompt": "x"}, 404, "unknown_service"),
        ({"service": "custom:nobody", "prompt": "x"}, 404, "unknown_service"),
        ({"service": "space:nowhere"}, 404, "unknown_service"),
        ({"service": "create_image", "prompt": "x"}, 404, "unknown_service"),
        ({"prompt": "x"}, 400, "invalid_input"),
        ({"service": 7}, 400, "invalid_input"),
        ({"service": "ra2"}, 400, "invalid_input"),
        ({"service": "ra2", "prompt": "x", "width": 1}, 400, "invalid_input"),
        ({"service": "ra2", "prompt": "x", "async": "yes"}, 400, "invalid_input"),
        ({"service": "ra2", "prompt": "x", "stream": True}, 400, "invalid_input"),
        ({"service": "chat", "prompt": "x"}, 503, "engine_unavailable"),
        ({"service": "vision", "prompt": "x"}, 400, "invalid_input"),
        ({"service": "chat"}, 400, "invalid_input"),
        ([], 400, "bad_request"),
    ],
)
async def test_invalid_service_request_has_a_code_and_is_free(
    app: AppFixture, body: Any, status: int, code: str
) -> None:
    response = await ask(app, body)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert response.json().keys() >= {"error", "code", "status", "request_id"}
    assert await app.balance() == ("5.00", "0.00")


async def test_every_invalid_input_is_in_one_error(app: AppFixture) -> None:
    body = (await ask(app, {"service": "ra2", "width": 1, "height": "x"})).json()
    assert [problem["input"] for problem in body["errors"]] == ["prompt", "width", "height"]


_PATHS = {"smart-resize": "smart-resize", "render": "video-editor/render"}


@pytest.mark.parametrize("image", ["nope", "blob_unknown", "/media/unknown.png"])
async def test_vision_names_an_invalid_image_beside_another_input(app: AppFixture, image: str) -> None:
    body = {"service": "vision", "prompt": "x", "max_tokens": 0, "image_url": image}
    for form in (body, {**body, "async": True}, {**body, "stream": True}):
        response = (await ask(app, form)).json()
        assert [problem["input"] for problem in response["errors"]] == ["max_tokens", "image_url"]


@pytest.mark.parametrize(
    ("name", "inputs", "failing"),
    [
        ("smart-resize", {"image_url": _PICTURE, "target_sizes": "64x64"}, "target_sizes"),
        ("render", {"project": json.dumps(_PROJECT)}, "project"),
    ],
)
async def test_lists_and_objects_are_not_strings_in_json(
    app: AppFixture, name: str, inputs: dict[str, Any], failing: str
) -> None:
    run = {"model": name, "input": inputs}
    ran = await app.client.post("/api/containers/run", json=run, headers=app.bearer)
    made = await app.client.post(f"/api/{_PATHS[name]}", json=inputs, headers=app.bearer)
    served = await ask(app, {"service": name, **inputs})
    assert [response.status_code for response in (ran, made, served)] == [400, 400, 400]
    for response in (ran, served):
        assert [problem["input"] for problem in response.json()["errors"]] == [failing]
    form = {"api_key": app.key, **inputs}
    sent = await app.client.post(f"/api/{_PATHS[name]}", data=form)
    assert sent.status_code in (200, 202), sent.text


async def test_invalid_project_is_named_beside_another_input(app: AppFixture) -> None:
    body = (await ask(app, {"service": "render", "project": {"tracks": 5}, "format": "avi"})).json()
    assert [problem["input"] for problem in body["errors"]] == ["format", "project.tracks"]


async def test_a_failure_is_502_and_free(app: AppFixture) -> None:
    response = await ask(app, {"service": "ra2", "prompt": "FAIL"})
    assert (response.status_code, response.json()["code"]) == (502, "generation_failed")
    assert await app.balance() == ("5.00", "0.00")


async def test_requests_without_credit_key_or_right_are_refused(app: AppFixture) -> None:
    body = {"service": "ra2", "prompt": "x"}
    assert (await ask(app, body, app.poor)).status_code == 402
    assert (await ask(app, body, "sf_wrong")).status_code == 401
    assert (await app.client.post(RUN, content=b"{")).status_code == 401
    reader = await app.limited_key(KeyLimits(read_only=True))
    other = await app.limited_key(KeyLimits(services=("tts",)))
    assert (await ask(app, body, reader)).status_code == 403
    assert (await ask(app, body, other)).status_code == 403


async def test_repeated_idempotency_key_returns_the_same_response(app: AppFixture) -> None:
    body = {"service": "ra2", "prompt": "x"}
    first = await ask(app, body, **{"Idempotency-Key": "k"})
    second_response = await ask(app, body, **{"Idempotency-Key": "k"})
    assert second_response.json() == first.json()
    assert await app.balance() == ("4.96", "0.00")


def test_text_field_repeats_the_text_of_the_output() -> None:
    assert service.text_of("hello") == "hello"
    assert service.text_of({"text": "hello", "segments": []}) == "hello"
    assert (service.text_of({"url": "/media/a.png"}), service.text_of([1])) == (None, None)


async def test_service_list_has_inputs_prices_and_availability(app: AppFixture) -> None:
    rows = {row["service"]: row for row in (await app.client.get(LIST)).json()["services"]}
    expected = (
        "ra2 ra1 anime photoreal video-a video-b video-c video-text video-image ra2v forecast tts stt chat"
    )
    assert rows.keys() >= {*expected.split(), "vision", "caption", "embeddings"}
    assert rows.keys() >= {template.name for template in app.server.templates}
    for row in rows.values():
        assert {"service", "description", "inputs", "output_kind", "price", "available"} <= row.keys()
        assert row["available"] or row["unlock"]
    assert rows["ra1"]["price"] == "0.04 USD per image"
    assert rows["photoreal"]["price"] == "0.07 to 0.15 USD per image"
    assert rows["piano"]["price"] == "0.42 USD per hour"
    names = [each["name"] for each in rows["ra2"]["inputs"]]
    assert names == ["prompt", "negative_prompt", "width", "height", "seed"]
    assert rows["chat"]["available"] is False
    assert "Ollama" in rows["chat"]["unlock"]


async def test_unknown_service_or_model_is_404_and_names_the_list(app: AppFixture) -> None:
    texts = {"zzz": "`GET /api/services` lists the services", "anmie": "did you mean anime?"}
    for name, text in texts.items():
        response = await app.client.post("/api/service", json={"service": name}, headers=app.bearer)
        assert response.status_code == 404
        assert response.json()["error"] == f"The service {name} was not found; {text}"
    response = await app.client.post("/api/containers/run", json={"model": "upscalr"}, headers=app.bearer)
    assert (response.status_code, response.json()["error"]) == (
        404,
        "Model upscalr not found; did you mean upscaler?",
    )
    response = await app.client.post("/api/graph/spaces/text-to-vidoe/run", json={}, headers=app.bearer)
    assert response.status_code == 404
    assert response.json()["error"].startswith("Workflow text-to-vidoe not found; did you mean text-to-video")
    body = {"model": "nope", "input": {}}
    response = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
    assert response.status_code == 404
    assert (
        response.json()["error"] == "Model nope not found; `GET /api/containers/templates` lists the models"
    )
    for path in ("/api/services", "/api/containers/templates"):
        assert (await app.client.get(path, headers=app.bearer)).status_code == 200


@pytest.mark.parametrize("area", ["gateway", "workflows"])
async def test_prediction_can_be_polled_without_hosting(tmp_path: Path, area: str) -> None:
    async with running_app(tmp_path, areas=(area,)) as app:
        if area == "gateway":
            response = await ask(app, {"service": "ra1", "prompt": "a fox", "async": True})
            url = response.json()["status_url"]
        else:
            body = {"input": {"text": "x"}, "wait": 0}
            path = "/api/graph/spaces/api-contract/run"
            response = await app.client.post(path, json=body, headers=app.bearer)
            url = response.json()["urls"]["get"]
        assert response.status_code == 202
        assert (await app.client.get(url, headers=app.bearer)).json()["id"] == response.json()["id"]
        assert (await app.client.delete(url, headers=app.bearer)).status_code == 200
        assert (await app.client.get("/api/containers/config")).status_code == 404
