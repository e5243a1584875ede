"""Files that inputs of a workflow name, on every route that runs one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.app_fixture import AppFixture

NAME = "image-upscale"
ROUTES: dict[str, Any] = {
    "/api/containers/run": {"model": f"space:{NAME}", "input": {"image": "nowhere.png"}},
    f"/api/containers/space:{NAME}/queue/join": {"input": {"image": "nowhere.png"}},
    f"/api/graph/spaces/{NAME}/run": {"input": {"image": "nowhere.png"}},
    "/api/service": {"service": f"space:{NAME}", "image": "nowhere.png"},
}


@pytest.mark.parametrize("path", ROUTES)
async def test_a_missing_file_is_refused_before_queueing(app: AppFixture, path: str) -> None:
    response = await app.client.post(path, json=ROUTES[path], headers=app.bearer)
    document = response.json()
    assert (response.status_code, document["code"]) == (400, "invalid_input")
    assert [each["input"] for each in document["errors"]] == ["image"]
    listed = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()
    assert listed["predictions"] == []
