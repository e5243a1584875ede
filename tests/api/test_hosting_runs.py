"""Runs of templates: hourly price, other hardware, queue, quotes and mounted files."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.core.accounts import keys, rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import many
from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.states import PredictionState
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.harness import image_files

RUN = "/api/containers/run"
HOUR_US = 3_600_000_000


def models() -> Mapping[str, Any]:
    """The small catalog, with three templates served by tiny engines: a painter, an echo, a slow one."""
    document = small_models()
    prompt = {"type": "string", "required": True, "max_chars": 100}
    base = {"title": "t", "description": "d", "output_kind": "file", "price": "container-time"}
    engine = {**document["engines"]["scene-painter"], "concurrency": 1}
    echo = {**engine, "factory": "tests.fakes.engines:EchoEngine"}
    tiny = {
        "anime-image": {**base, "engines": ["scene-painter"], "inputs": {"prompt": prompt}},
        "embeddings": {**base, "price": "embeddings", "engines": ["echo"], "inputs": {"prompt": prompt}},
        "media-encode": {
            **base,
            "engines": ["echo"],
            "inputs": {"media": {"type": "file", "required": True}, "width": {"type": "integer", "min": 16}},
        },
        "bg-remover": {**base, "engines": ["echo"], "inputs": {"image": {"type": "image", "required": True}}},
        "upscaler": {
            **base,
            "engines": ["echo"],
            "inputs": {name: {"type": "image", "required": True} for name in ("image", "mask")},
        },
    }
    return {
        "engines": {**document["engines"], "scene-painter": engine, "echo": echo},
        "models": {**document["models"], **tiny},
    }


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with the templates of `models`."""
    async with running_app(tmp_path, models()) as result:
        yield result


def image_run(prompt: str = "a fox", **more: Any) -> dict[str, Any]:
    return {"model": "anime-image", "input": {"prompt": prompt}, **more}


async def post(app: AppFixture, path: str, body: Any, status: int) -> dict[str, Any]:
    """Return the response to a POST of the first account."""
    response = await app.client.post(path, json=body, headers=app.bearer)
    assert response.status_code == status, response.text
    document: dict[str, Any] = response.json()
    return document


async def cost_of(app: AppFixture, prediction_id: str) -> int:
    """Return the captured amount in micro-dollars."""
    row = await app.predictions.get(prediction_id, Tenant(app.account.id))
    return row.cost


async def test_run_time_is_charged_at_the_price_of_the_template(app: AppFixture) -> None:
    response = await post(app, RUN, image_run("LATE"), 200)
    run_us = round(response["metrics"]["predict_ms"] * 1000)
    assert run_us >= 200_000
    assert await cost_of(app, response["id"]) == -(-1_650_000 * run_us // HOUR_US)
    assert response["hardware"] == "gpu-48gb-b"
    assert (response["queue_position"], response["eta_seconds"]) == (None, None)
    other = await post(app, RUN, image_run("LATE", hardware="gpu-48gb-a"), 200)
    run_us = round(other["metrics"]["predict_ms"] * 1000)
    assert await cost_of(app, other["id"]) == -(-640_000 * run_us // HOUR_US)
    assert other["hardware"] == "gpu-48gb-a"
    assert await app.faults() == ()


async def test_hold_is_the_price_of_the_longest_run(app: AppFixture) -> None:
    queued = await post(app, RUN, image_run("SLOW", wait=0), 202)
    assert await app.balance() == ("5.00", "0.275")  # 1.65 USD x 600 s / 3600 s
    canceled = await post(app, queued["urls"]["cancel"], {}, 200)
    assert canceled["status"] == "canceled"
    assert await app.balance() == ("5.00", "0.00")


async def test_service_with_a_template_is_charged_by_time(app: AppFixture) -> None:
    response = await post(app, RUN, {"model": "embeddings", "input": {"prompt": "x"}}, 200)
    run_us = round(response["metrics"]["predict_ms"] * 1000)
    assert await cost_of(app, response["id"]) == -(-300_000 * run_us // HOUR_US)


REFUSED: list[tuple[dict[str, Any], int, list[str]]] = [
    (image_run(hardware="gpu-9000"), 400, ["hardware"]),
    (image_run(hardware="gpu-24gb-a"), 400, ["hardware"]),
    (image_run(variant="auto"), 400, ["variant"]),
    ({"model": "text-llm", "input": {"prompt": "x"}, "variant": "other"}, 400, ["variant"]),
    (
        {"model": "text-llm", "input": {"top_p": 2, "temperature": "x"}},
        400,
        ["prompt", "temperature", "top_p"],
    ),
    ({"model": "ra2", "input": {"prompt": "x"}, "hardware": "gpu-16gb-a"}, 400, ["hardware"]),
    (image_run(webhook="ftp://example.com"), 400, ["webhook"]),
    (
        {"model": 1, "hardware": 1, "variant": [], "webhook": {}},
        400,
        ["model", "hardware", "variant", "webhook"],
    ),
    ({"model": "media-encode", "input": {"media": "/mnt/sixfold/artifacts/a.mp4"}}, 400, ["media"]),
    ({"model": "media-encode", "input": {"media": "a.mp4", "width": 1}}, 400, ["width", "media"]),
    ({"model": "upscaler", "input": {"image": "blob_1", "mask": "data:,x"}}, 400, ["image", "mask"]),
    ({"model": "media-encode", "input": {"media": "blob_1", "width": 1}}, 400, ["width", "media"]),
    ({"model": "media-encode", "input": {"media": "/media/no.mp4", "width": 1}}, 400, ["width", "media"]),
    ({"model": "media-encode", "input": {"media": "data:;base64,*", "width": 1}}, 400, ["width", "media"]),
    ({"model": "media-encode", "input": {"media": "http://10.0.0.1/a", "width": 1}}, 400, ["width", "media"]),
    ({"model": "upscaler", "input": {"mask": "blob_1"}}, 400, ["image", "mask"]),
    (image_run(_artifacts_mounts=["x"]), 400, ["_artifacts_mounts"]),
    (image_run(_artifacts_mounts={"../x": "blob_1"}), 400, ["_artifacts_mounts"]),
    (image_run(_artifacts_mounts={"../x": "blob_1", "a": "", "b": 1}), 400, ["_artifacts_mounts"] * 3),
    (
        image_run(
            _artifacts_mounts={"a": "http://example.com/a", "b": "blob_1", "c": "blob_2", "d": "ftp:x"}
        ),
        400,
        ["_artifacts_mounts.b", "_artifacts_mounts.c", "_artifacts_mounts.d"],
    ),
]


@pytest.mark.parametrize(("body", "status", "names"), REFUSED)
async def test_run_with_invalid_inputs_names_each_of_them(
    app: AppFixture, body: dict[str, Any], status: int, names: list[str]
) -> None:
    response = await post(app, RUN, body, status)
    assert response["code"] == "invalid_input"
    assert [item["input"] for item in response["errors"]] == names


async def test_files_of_invalid_requests_are_not_fetched_or_kept(app: AppFixture) -> None:
    stored = await app.client.post("/api/uploads", content=b"notes", headers=app.bearer)
    for media in (stored.json()["id"], stored.json()["url"], "http://a.example/a.mp4", "data:,x"):
        body = {"model": "media-encode", "input": {"media": media, "width": 1}}
        response = await post(app, RUN, body, 400)
        assert [item["input"] for item in response["errors"]] == ["width"]
    name = stored.json()["url"].rpartition("/")[2]
    rows = await app.database.read(many("media_by_name", name=name))
    assert rows[0]["expires_at"] is not None


async def test_queue_join_has_the_documented_response(app: AppFixture) -> None:
    response = await post(app, "/api/containers/anime-image/queue/join", {"input": {"prompt": "SLOW"}}, 202)
    prediction_id = response["prediction_id"]
    own = f"/api/containers/predictions/{prediction_id}"
    assert response == {
        "prediction_id": prediction_id,
        "status": "queued",
        "queue_position": 0,
        "status_url": own,
        "cancel_url": f"{own}/cancel",
        "events_url": f"{own}/events",
    }
    behind = [
        await post(app, "/api/containers/anime-image/queue/join", {"input": {"prompt": "SLOW"}}, 202)
        for _ in range(2)
    ]
    body = (await app.client.get(behind[1]["status_url"], headers=app.bearer)).json()
    assert body["status"] == "queued"
    assert body["queue_position"] == 1
    assert body["eta_seconds"] > 0
    foreign = await app.client.get(response["status_url"], headers=bearer(app.other))
    assert foreign.status_code == 404
    for each in (response, *behind):
        await post(app, each["cancel_url"], {}, 200)
    await app.until("5.00", "0.00")


async def test_quote_has_price_hold_and_eta_and_changes_nothing(app: AppFixture) -> None:
    path = "/api/containers/anime-image/quote"
    response = await post(app, path, {"input": {"prompt": "x"}}, 200)
    assert set(response) == {"price_usd", "hold_usd", "eta_seconds", "cold"}
    assert (response["hold_usd"], response["cold"]) == ("0.275", True)
    assert 0 < float(response["price_usd"]) < 0.275
    await post(app, RUN, image_run(), 200)
    warm = await post(app, path, {"input": {"prompt": "x"}, "hardware": "gpu-48gb-a"}, 200)
    assert warm["cold"] is False
    assert warm["eta_seconds"] < response["eta_seconds"]
    assert float(warm["price_usd"]) < float(response["price_usd"])
    fixed = await post(app, "/api/containers/ra2/quote", {"input": {"prompt": "x"}}, 200)
    assert (fixed["price_usd"], fixed["hold_usd"]) == ("0.04", "0.04")
    await post(app, path, {"input": {}}, 400)
    await post(app, "/api/containers/nothing/quote", {"input": {}}, 404)


async def test_model_without_an_engine_responds_503_with_remedies(app: AppFixture) -> None:
    for path, body in (
        (RUN, {"model": "text-llm", "input": {"prompt": "x"}, "variant": "dynamic-v3"}),
        ("/api/containers/text-llm/queue/join", {"input": {"prompt": "x"}}),
        ("/api/containers/text-llm/quote", {"input": {"prompt": "x"}}),
    ):
        response = await post(app, path, body, 503)
        assert response["code"] == "engine_unavailable"
        assert all(word in response["error"] for word in ("Ollama", "llama.cpp", "vLLM", "OPENAI_API_KEY"))
    response_body = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()
    assert response_body["predictions"] == []


async def test_full_queue_response_has_a_retry_after_header(tmp_path: Path) -> None:
    async with running_app(tmp_path, models(), queue_limit=1, drain_seconds=0) as app:
        first = await post(app, RUN, image_run("SLOW", wait=0), 202)
        prediction = await app.predictions.get(first["id"], Tenant(app.account.id))
        async for event in app.predictions.events(prediction):
            if isinstance(event, StateChanged) and event.prediction.state is PredictionState.RUNNING:
                break
        await post(app, RUN, image_run("SLOW", wait=0), 202)
        response = await app.client.post(RUN, json=image_run(wait=0), headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (429, "queue_full")
        assert int(response.headers["Retry-After"]) >= 1


async def test_mounted_files_reach_the_inputs_and_the_worker(app: AppFixture) -> None:
    upload = (
        await app.client.post(
            "/api/uploads", content=b"twelve bytes", headers={**app.bearer, "Content-Type": "text/plain"}
        )
    ).json()
    mounted = {"notes.txt": upload["id"], "same.txt": upload["url"]}
    inputs = {"media": "/mnt/sixfold/artifacts/notes.txt"}
    beside = await post(
        app, RUN, {"model": "media-encode", "input": inputs, "_artifacts_mounts": mounted}, 200
    )
    inside = await post(
        app, RUN, {"model": "media-encode", "input": {**inputs, "_artifacts_mounts": mounted}}, 200
    )
    for response in (beside, inside):
        assert response["output"]["files"] == {
            "media": 12,
            "artifacts/notes.txt": 12,
            "artifacts/same.txt": 12,
        }
        assert response["input"]["media"] == inputs["media"]


async def test_mounted_image_is_validated_like_an_input(app: AppFixture) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    image = image_files.data_uri(file.getvalue())
    body = {"model": "bg-remover", "input": {"image": "/mnt/sixfold/artifacts/a"}}
    response = await post(app, RUN, {**body, "_artifacts_mounts": {"a": image}}, 200)
    assert response["output"]["files"]["image"] == len(file.getvalue())
    wrong = await post(app, RUN, {**body, "_artifacts_mounts": {"a": "data:text/plain,no"}}, 400)
    assert [item["input"] for item in wrong["errors"]] == ["image"]


async def test_container_images_need_the_operator_and_a_runtime(app: AppFixture) -> None:
    path, body = "/api/containers/templates", {"image": "example/echo:1"}
    assert (await app.client.post(path, json=body, headers=app.bearer)).status_code == 403
    key = (await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key
    wrong = await app.client.post(path, json={"image": "-x"}, headers=bearer(key))
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_input")
    response = await app.client.post(path, json=body, headers=bearer(key))
    assert (response.status_code, response.json()["code"]) in (
        (503, "engine_unavailable"),
        (400, "bad_request"),
    )
