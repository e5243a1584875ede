"""Training on images: the account gets a model that uses the trained adapter."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions.states import PredictionState
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.harness import image_files

OPTIONS = {"weights-image": {"steps": 2, "threads": 1}}
TRAINING_TABLES = {"weights-training": {"steps": 4, "rank": 2, "rate": 3e-3, "threads": 1}}


def shade(color: str) -> str:
    """Return an image of one color as a `data:` URI."""
    return image_files.data_uri(image_files.encode(Image.new("RGB", (32, 24), color)))


BODY: dict[str, Any] = {"name": "glow", "images": [shade("red"), shade("orange")], "base": "ra2", "seed": 3}
DRAWN = {"service": "custom:glow", "prompt": "a fox", "width": 64, "height": 64, "seed": 5}


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path / "data", app_catalog.models_document()) as result:
        yield result


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with its own workers, and a tiny pipeline added."""
    pytest.importorskip("diffusers", reason="the extra `weights` is not installed (make weights)")
    from tests.unit.engines.diffusers import tiny  # noqa: PLC0415 - it needs torch

    folder = tiny.stable_diffusion(tmp_path / "data" / "weights" / "image" / "tiny")
    (folder / "sixfold.json").write_text(json.dumps({"added": "2026-01-01T00:00:00+00:00"}))
    models, tables = app_catalog.models_document(), {"engines": {**OPTIONS, **TRAINING_TABLES}}
    async with running_app(
        tmp_path / "data", models, driver="process", tables=tables, inline_seconds=60
    ) as result:
        yield result


async def finished_training(app: AppFixture, **changes: Any) -> Any:
    """Return a finished training prediction."""
    response = await app.client.post("/api/training", json={**BODY, **changes}, headers=app.bearer)
    assert response.status_code == 202, response.text
    body = response.json()
    assert body["service"] == "training"
    assert body["status_url"].endswith(body["id"])
    pipeline = app.predictions
    return await pipeline.wait(await pipeline.get(body["id"], Tenant(app.account.id)), 60)


async def generated_image(app: AppFixture, body: dict[str, Any]) -> bytes:
    """Return the pixels of a model's image."""
    answer = await app.client.post("/api/service", json=body, headers=app.bearer)
    assert answer.status_code == 200, answer.text
    response = await app.client.get(answer.json()["image_url"])
    with Image.open(io.BytesIO(response.content)) as image:
        return image.convert("RGB").tobytes()


@pytest.mark.weights
async def test_trained_model_is_a_service_of_its_account_only(app: AppFixture) -> None:
    prediction = await finished_training(app)
    assert prediction.state is PredictionState.SUCCEEDED, prediction.error
    await app.until("4.00", "0.00")
    response = await app.client.get(f"/api/containers/predictions/{prediction.id}", headers=app.bearer)
    output = response.json()["output"]
    assert output["name"] == "glow"
    assert output["loss"][-1] < output["loss"][0]
    assert (await app.client.get(output["adapter"]["url"])).status_code == 200
    services = (await app.client.get("/api/services", headers=app.bearer)).json()["services"]
    (row,) = [each for each in services if each["service"] == "custom:glow"]
    assert row["available"]
    assert await generated_image(app, DRAWN) != await generated_image(app, {**DRAWN, "service": "ra2"})
    await app.until("3.92", "0.00")
    theirs = (await app.client.get("/api/services", headers=bearer(app.other))).json()["services"]
    assert "custom:glow" not in [each["service"] for each in theirs]
    other = await app.client.post("/api/service", json=DRAWN, headers=bearer(app.other))
    assert other.status_code == 404
    assert other.json()["code"] == "unknown_service"
    assert await app.faults() == ()


@pytest.mark.weights
async def test_failed_training_is_free_and_creates_no_model(app: AppFixture) -> None:
    flux = app.settings.data_dir / "weights" / "image" / "tiny"
    (flux / "model_index.json").unlink()
    prediction = await finished_training(app)
    assert prediction.state is PredictionState.FAILED
    await app.until("5.00", "0.00")
    response = await app.client.post("/api/service", json=DRAWN, headers=app.bearer)
    assert response.status_code == 404


async def test_training_is_rejected_before_images_are_fetched(bare: AppFixture) -> None:
    wrong = {"name": "No Such!", "images": [], "base": "chat"}
    response = await bare.client.post("/api/training", json=wrong, headers=bare.bearer)
    assert response.status_code == 400
    assert response.json()["code"] == "invalid_input"
    assert [each["input"] for each in response.json()["errors"]] == ["name", "images", "base"]
    many = {**BODY, "images": ["https://example.com/1.png"] * 101}
    assert (await bare.client.post("/api/training", json=many, headers=bare.bearer)).status_code == 400
    assert (await bare.client.post("/api/training", json=BODY)).status_code == 401


async def test_training_without_weights_is_503_with_remedy(bare: AppFixture) -> None:
    response = await bare.client.post("/api/training", json=BODY, headers=bare.bearer)
    assert response.status_code == 503
    assert response.json()["code"] == "engine_unavailable"
    assert "sixfold engines add image" in response.json()["error"]


@pytest.mark.parametrize("image", ["data:image/png;base64,AAAA", "ftp://example.com/1.png", "upl_nothing"])
async def test_invalid_image_is_reported_before_missing_training(bare: AppFixture, image: str) -> None:
    body = {**BODY, "images": [*BODY["images"], image]}
    response = await bare.client.post("/api/training", json=body, headers=bare.bearer)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_input")


async def test_training_with_a_limited_key_is_403(bare: AppFixture) -> None:
    key = await bare.limited_key(KeyLimits(services=("ra2",)))
    response = await bare.client.post("/api/training", json=BODY, headers=bearer(key))
    assert response.status_code == 403
