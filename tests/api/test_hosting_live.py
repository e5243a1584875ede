"""The two session models, run once without a session: an image of a walk, and a list of poses."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app

RUN = "/api/containers/run"


async def run_template(app: AppFixture, model: str, **inputs: Any) -> dict[str, Any]:
    response = await app.client.post(RUN, json={"model": model, "input": inputs}, headers=app.bearer)
    assert response.status_code == 200, response.text
    assert response.json()["status"] == "succeeded", response.json()["error"]
    return response.json()


async def test_walk_returns_an_image_and_motion_returns_poses(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        response = await run_template(app, "world-model", prompt="islands", keys="w", steps=2)
        assert (response["quality"], response["output_kind"], response["hardware"]) == (
            "preview",
            "image",
            "gpu-24gb-b",
        )
        assert float(response["cost"]) > 0
        image = await app.client.get(response["output"]["url"])
        assert Image.open(io.BytesIO(image.content)).size == (960, 540)
        poses = (await run_template(app, "motion-model", prompt="walk, then wave", steps=3))["output"]
        assert [pose["t"] for pose in poses] == [50, 100, 150]
        assert all(len(pose["joints"]) == 21 for pose in poses)
        assert len((await run_template(app, "motion-model"))["output"]) == 40
        assert await app.faults() == ()


@pytest.mark.parametrize("model", ["world-model", "motion-model"])
async def test_live_templates_state_that_they_have_sessions(app: AppFixture, model: str) -> None:
    template = (await app.client.get(f"/api/containers/templates/{model}")).json()
    assert template["schema"]["session"] is True
    assert template["idleSeconds"] == 120
    prompt, *_, steps = template["schema"]["inputs"]
    assert (prompt["name"], prompt["required"]) == ("prompt", False)
    assert (steps["min"], steps["max"], steps["default"]) in {(1, 64, 1), (1, 400, 40)}


@pytest.mark.parametrize(
    ("keys", "status"), [("wa", 200), ("w, a", 200), ("W/A", 200), ("w+a", 200), ("wx", 400)]
)
async def test_pressed_keys_may_be_separated(tmp_path: Path, keys: str, status: int) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        path, body = "/api/containers/world-model/quote", {"input": {"keys": keys}}
        response = await app.client.post(path, json=body, headers=app.bearer)
        assert response.status_code == status, response.text


async def test_session_on_other_hardware_has_its_price(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        path = "/api/containers/world-model/sessions"
        unknown = await app.client.post(path, json={"hardware": "gpu-1tb"}, headers=app.bearer)
        assert (unknown.status_code, unknown.json()["code"]) == (400, "invalid_input")
        assert "gpu-48gb-a" in unknown.json()["error"]
        for wrong in ("gpu-16gb-a", 7):
            response = await app.client.post(path, json={"hardware": wrong}, headers=app.bearer)
            assert response.json()["errors"][0]["input"] == "hardware"
        assert await app.balance() == ("5.00", "0.00")
        opened_response = await app.client.post(path, json={"hardware": "gpu-48gb-a"}, headers=app.bearer)
        assert (opened_response.status_code, opened_response.json()["hardware"]) == (201, "gpu-48gb-a")
        item = f"/api/containers/sessions/{opened_response.json()['session_id']}"
        body = (await app.client.get(item, headers=app.bearer)).json()
        assert (body["hardware"], body["price_hour_usd"]) == ("gpu-48gb-a", "0.64")
        assert (await app.client.delete(item, headers=app.bearer)).json()["status"] == "closed"
        assert await app.faults() == ()
