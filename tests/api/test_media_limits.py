"""Errors of the Media API name the allowed values, for every parameter with choices or limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sixfold.api.media.endpoints import ENDPOINTS
from sixfold.app import catalog as app_catalog
from sixfold.core.catalog import models as catalog
from sixfold.core.catalog.inputs import Descriptor
from sixfold.settings import Settings
from tests.api.app_fixture import AppFixture, running_app
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
CATALOG = catalog.build(
    app_catalog.models_document(), app_catalog.price_table(Settings(data_dir=Path("/nonexistent"))), {}
)
LIMITED = [
    (endpoint.paths[0], each)
    for endpoint in ENDPOINTS
    for each in CATALOG[endpoint.model].inputs
    if (each.choices or (each.min is not None and each.max is not None))
    and each.name not in endpoint.sentences
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server with a small fast engine for every model."""
    async with running_app(tmp_path_factory.mktemp("limits"), probe=False, **FILES) as result:
        yield result


def wrong(each: Descriptor) -> list[Any]:
    """Yield values outside the choices or the limits, and one of another type."""
    if each.type == "sizes":
        return [["15x15"], [{"width": 1, "height": 5000}]]
    if each.choices:
        return ["nonsense", 5.5]
    assert each.max is not None
    return [each.max + 1, "many"]


async def test_media_api_has_parameters_with_choices_and_limits() -> None:
    names = {each.name for _, each in LIMITED}
    assert names >= {"size", "aspect_ratio", "resolution", "num_images", "duration", "target_sizes", "format"}


@pytest.mark.parametrize(("path", "each"), LIMITED, ids=lambda found: getattr(found, "name", found))
async def test_refusal_begins_with_the_parameter_and_names_its_values(
    app: AppFixture, path: str, each: Descriptor
) -> None:
    image = "data:image/png;base64,AAAA"
    project = {"tracks": [{"type": "text", "clips": [{"text": "x", "duration": 1}]}]}
    media = {"image_url": image, "video_url": image, "target_sizes": ["64x64"], "project": project}
    for value in wrong(each):
        body = {"api_key": app.key, "prompt": "x", **media, each.name: value}
        answer = await app.client.post(path, json=body)
        assert answer.status_code == 400
        assert set(answer.json()) == {"error", "status"}
        response = answer.json()["error"]
        assert response.startswith(f"Invalid {each.name}: it must "), response
        if each.choices:
            assert all(choice in response for choice in each.choices), response
        else:
            assert f"from {each.min:.10g} to {each.max:.10g}" in response, response
    assert await app.balance() == ("5.00", "0.00")
