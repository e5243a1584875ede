"""Internal models of the server are not available to clients."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app

NAME = "comfyui-prompt"
_ID = re.compile("req_[0-9a-z]+")
_RUN: dict[str, Any] = {"model": NAME, "input": {}}
_CALLS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/api/containers/run", _RUN),
    ("POST", f"/api/containers/{NAME}/quote", {"input": {}}),
    ("POST", f"/api/containers/{NAME}/queue/join", {"input": {}}),
    ("POST", f"/replicate/v1/models/sixfold/{NAME}/predictions", {"input": {}}),
    ("GET", f"/replicate/v1/models/sixfold/{NAME}", None),
    ("POST", f"/api/containers/{NAME}/sessions", {"input": {}}),
    ("GET", f"/models/{NAME}", None),
]


@pytest.fixture
async def bundled_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        yield app


@pytest.mark.parametrize(("method", "path", "body"), _CALLS)
async def test_internal_model_is_not_found(
    bundled_app: AppFixture, method: str, path: str, body: dict[str, Any] | None
) -> None:
    unknown = await bundled_app.client.request(
        method,
        path.replace(NAME, "no-such-model"),
        json=body and {**body, "model": "no-such-model"},
        headers=bundled_app.bearer,
    )
    response = await bundled_app.client.request(method, path, json=body, headers=bundled_app.bearer)
    assert (response.status_code, unknown.status_code) == (404, 404), response.text
    assert _ID.sub("", response.text.replace(NAME, "")) == _ID.sub(
        "", unknown.text.replace("no-such-model", "")
    )


async def test_lists_omit_internal_models(bundled_app: AppFixture) -> None:
    for path in (
        "/v1/models",
        "/replicate/v1/models",
        "/api/containers/templates",
        "/api/services",
        "/models",
    ):
        response = await bundled_app.client.get(path, headers=bundled_app.bearer)
        assert response.status_code == 200, path
        assert NAME not in response.text
