"""The result page compares the image of an edit with its input, whatever the input is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_pages import signed_in

EDITS: list[tuple[str, str, dict[str, Any]]] = [
    ("style-transfer", "source_image_url", {"style_prompt": "watercolor"}),
    ("remove-background", "image_url", {}),
]


@pytest.mark.parametrize(("model", "name", "inputs"), EDITS)
async def test_an_edited_image_is_compared_with_its_input(
    tmp_path: Path, model: str, name: str, inputs: dict[str, Any]
) -> None:
    async with running_app(tmp_path) as app:
        await signed_in(app)
        image = await result_of(app, {"model": "ra2", "input": {"prompt": "x", "width": 64, "height": 64}})
        assert 'data-before="' not in await page_of(app, image)
        edit = {"model": model, "input": {name: image["output"]["url"], **inputs}}
        assert 'data-before="' in await page_of(app, await result_of(app, edit))


async def result_of(app: AppFixture, run: dict[str, Any]) -> Any:
    """Return the ended prediction of a run."""
    response = await app.client.post("/api/containers/run", json=run, headers=app.bearer)
    assert response.status_code == 200, response.text
    return response.json()


async def page_of(app: AppFixture, prediction: Any) -> str:
    return (await app.client.get(f"/predictions/{prediction['id']}")).text
