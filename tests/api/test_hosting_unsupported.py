"""Paths and methods of Replicate's API that this server does not have name the alternative."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.app_fixture import AppFixture, running_app

BASE = "/replicate/v1"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path) as result:
        yield result


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("DELETE", "models/sixfold/ra1", 405, "DELETE /api/containers/templates"),
        ("DELETE", "models/sixfold/ra1/versions/x", 405, "DELETE /api/containers/templates"),
        ("PATCH", "models/sixfold/ra1", 405, "cannot be changed"),
        ("PATCH", "deployments/ada/own", 405, "does not support deployments"),
        ("DELETE", "deployments/ada/own", 405, "does not support deployments"),
        ("POST", "deployments/ada/own/predictions", 501, "does not support deployments"),
        ("GET", "models/sixfold/ra1/readme", 501, "do not have a readme"),
        ("GET", "models/sixfold/ra1/examples", 501, "do not have a readme"),
        ("GET", "files/blob_1/download", 501, "urls.get"),
        ("GET", "nothing", 404, "Not found"),
        ("PATCH", "account", 405, "Method not allowed"),
    ],
)
async def test_unsupported_request_names_the_alternative(
    app: AppFixture, method: str, path: str, status: int, words: str
) -> None:
    response = await app.client.request(method, f"{BASE}/{path}", headers=app.bearer)
    assert response.status_code == status
    assert words in response.json()["detail"]
