"""Installed weights serve the next request: priced, held, run in a separate worker, captured."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.predictions.states import PredictionState
from tests.api.app_fixture import AppFixture, running_app

pytestmark = pytest.mark.weights


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("diffusers", reason="the extra `weights` is not installed (make weights)")
    from tests.unit.engines.diffusers import tiny as pipelines  # noqa: PLC0415 - it needs torch

    return pipelines.stable_diffusion(tmp_path_factory.mktemp("tiny") / "sd")


@pytest.fixture
async def app(tmp_path: Path, tiny: Path) -> AsyncIterator[AppFixture]:
    """A server with its own workers, and a tiny pipeline added."""
    folder = tmp_path / "data" / "weights" / "image" / "tiny"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tiny)
    (tiny / "sixfold.json").write_text(json.dumps({"added": "2026-01-01T00:00:00+00:00"}))
    options = {"steps": 2, "threads": 1}
    models = app_catalog.models_document()
    tables = {"engines": {"weights-image": options}}
    async with running_app(
        tmp_path / "data", models, driver="process", tables=tables, inline_seconds=60
    ) as result:
        yield result


async def fetch_image(app: AppFixture, url: str) -> np.ndarray[Any, Any]:
    """The pixels behind a result's address."""
    response = await app.client.get(url)
    with Image.open(io.BytesIO(response.content)) as image:
        return np.asarray(image.convert("RGB"))


def new_request(app: AppFixture, model: str, **inputs: Any) -> PredictionRequest:
    """Return a request of the account with 5 USD."""
    return PredictionRequest(
        app.account.owner, model, {"prompt": "a fox", **inputs}, "test", f"req_{inputs['seed']}"
    )


async def test_request_is_served_by_installed_weights(app: AppFixture) -> None:
    body = {"api_key": app.key, "prompt": "a fox", "size": "1360x768", "seed": 5}
    response = await app.client.post("/api/ra1", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["X-Sixfold-Engine"] == "weights-image"
    assert response.headers["X-Sixfold-Quality"] == "full"
    first = await fetch_image(app, response.json()["image_url"])
    assert first.shape == (768, 1360, 3)
    second_response = await app.client.post("/api/ra1", json=body)
    assert (await fetch_image(app, second_response.json()["image_url"]) == first).all()
    await app.until("4.92", "0.00")
    assert await app.faults() == ()


async def test_concurrent_requests_of_equal_shape_share_a_batch(app: AppFixture) -> None:
    pipeline = app.predictions
    size = {"width": 64, "height": 64}
    predictions = [await pipeline.submit(new_request(app, "ra2", seed=seed, **size)) for seed in range(6)]
    final_predictions = await asyncio.gather(*(pipeline.wait(each, 60) for each in predictions))
    assert {each.state for each in final_predictions} == {PredictionState.SUCCEEDED}
    assert [each for each in final_predictions if "batched with" in each.logs]
    assert await app.faults() == ()


async def test_broken_weights_are_reported_and_free(app: AppFixture, tmp_path: Path) -> None:
    broken = tmp_path / "data" / "weights" / "image" / "broken"
    broken.mkdir()
    (broken / "model.ckpt").write_bytes(b"x")
    record = {"added": "2027-01-01T00:00:00+00:00", "serves": ["ra1"]}
    (broken / "sixfold.json").write_text(json.dumps(record))
    pipeline = app.predictions
    prediction = await pipeline.wait(await pipeline.submit(new_request(app, "ra1", seed=1)), 60)
    assert prediction.state is PredictionState.FAILED
    assert "only safetensors are supported" in str(prediction.error)
    await app.until("5.00", "0.00")
