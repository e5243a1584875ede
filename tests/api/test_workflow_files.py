"""Files that inputs of a workflow name, and the kind of files that an imported workflow creates."""

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
    body = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()
    assert body["predictions"] == []


async def test_a_missing_file_is_named_beside_other_invalid_inputs(app: AppFixture) -> None:
    body = {"input": {"image": "nowhere.png", "denoise": "x"}}
    response = await app.client.post("/api/graph/spaces/photoreal-img2img/run", json=body, headers=app.bearer)
    errors = response.json()["errors"]
    assert (response.status_code, [each["input"] for each in errors]) == (400, ["prompt", "denoise", "image"])


def _saved(class_type: str, name: str, source: Any) -> dict[str, Any]:
    """Return a graph of a node that creates something, and a node that saves it."""
    saving = {"class_type": class_type, "inputs": {name: ["1", 0], "filename_prefix": "x"}}
    return {"1": source, "2": saving}


PIXELS = {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}}
SOUND = {"class_type": "EmptyAudio", "inputs": {"duration": 1.0, "sample_rate": 44100, "channels": 2}}
TEXT = {"class_type": "PrimitiveString", "inputs": {"value": "x"}}


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (_saved("SaveImage", "images", PIXELS), "image"),
        (_saved("SaveAnimatedWEBP", "images", PIXELS), "video"),
        (_saved("SaveAudio", "audio", SOUND), "sfx"),
        (_saved("PreviewAny", "source", TEXT), "api"),
    ],
)
async def test_imported_workflow_has_a_kind_of_the_table(app: AppFixture, graph: Any, kind: str) -> None:
    response = await app.client.post("/api/graph/spaces", json={"workflow": graph}, headers=app.bearer)
    assert (response.status_code, response.json()["kind"]) == (201, kind)
