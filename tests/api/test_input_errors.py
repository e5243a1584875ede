"""Errors of inputs that say what to send instead, before anything is run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.app_fixture import AppFixture

UPLOAD = "`POST /api/uploads` stores a file and returns its URL"
NO_URL = f"must be a URL, a `data:` URL or an upload (got nope.png): {UPLOAD}"
IMG2IMG = "/api/graph/spaces/photoreal-img2img"


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/api/containers/run", {"model": "upscaler", "input": {"image": "nope.png"}}, f"image {NO_URL}"),
        ("/api/service", {"service": "caption", "image_url": "nope.png"}, f"image_url {NO_URL}"),
        (
            "/api/service",
            {"service": "vision", "prompt": "x", "image_url": "nope.png"},
            f"image_url {NO_URL}",
        ),
        ("/api/remove-background", {"image_url": "nope.png"}, f"Invalid image_url: it {NO_URL}"),
        ("/api/video-a", {"image_url": "nope.png", "prompt": "x"}, "Invalid image URL or prompt"),
        (
            f"{IMG2IMG}/run",
            {"input": {"image": "nope.png", "prompt": "x"}},
            "image: image 'nope.png' not found: upload it first with `POST /api/uploads`, or send a URL or a "
            "`data:` URL",
        ),
        (
            "/api/service",
            {"service": "forecast", "series": [1]},
            "series must have at least 2 values that are not null (got 1)",
        ),
        (
            "/api/smart-resize",
            {"image_url": "data:,x", "target_sizes": ["big"]},
            'Invalid target_sizes: it must contain sizes such as "1200x630" or {"width": 1200, '
            '"height": 630} (got big)',
        ),
    ],
)
async def test_error_says_what_to_send(app: AppFixture, path: str, body: Any, error: str) -> None:
    response = await app.client.post(path, json=body, headers=app.bearer)
    assert (response.status_code, response.json()["error"]) == (400, error)
    listed = await app.client.get("/api/containers/predictions", headers=app.bearer)
    assert listed.json()["predictions"] == []


@pytest.mark.parametrize(("body", "state"), [({}, "is required"), ({"workflow": "x"}, "must be an object")])
async def test_validation_without_a_workflow_shows_an_example(app: AppFixture, body: Any, state: str) -> None:
    response = await app.client.post("/api/graph/validate", json=body, headers=app.bearer)
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"workflow {state}: send a workflow in the API format")


async def test_built_in_workflow_names_how_to_copy_it(app: AppFixture) -> None:
    response = await app.client.patch(IMG2IMG, json={"name": "x"}, headers=app.bearer)
    assert response.status_code == 403
    assert f"`POST {IMG2IMG}/duplicate` makes a copy of it" in response.json()["error"]
