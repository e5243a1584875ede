"""Synchronous requests whose run is canceled while they wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.app_fixture import AppFixture
from tests.harness.waiting import wait_until

SLOW = {"prompt": "SLOW", "width": 64, "height": 64}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/ra1", {"prompt": "SLOW"}),
        ("POST", "/api/service", {"service": "ra1", "prompt": "SLOW"}),
        ("POST", "/v1/images/generations", {"prompt": "SLOW"}),
        ("GET", "/create_image", SLOW),
    ],
)
async def test_canceled_run_is_409_and_free_in_every_api(
    app: AppFixture, method: str, path: str, body: dict[str, Any]
) -> None:
    sent: dict[str, Any] = {"params": body} if method == "GET" else {"json": body}
    request = asyncio.create_task(app.client.request(method, path, headers=app.bearer, **sent))
    for prediction_id in await wait_until(lambda: _running(app)):
        url = f"/api/containers/predictions/{prediction_id}/cancel"
        assert (await app.client.post(url, headers=app.bearer)).status_code == 200
    response = await request
    assert response.status_code == 409, response.text
    assert "The request was canceled" in response.text
    assert await app.balance() == ("5.00", "0.00")


async def _running(app: AppFixture) -> list[str]:
    page = (await app.client.get("/api/containers/predictions", headers=app.bearer)).json()
    return [row["id"] for row in page["predictions"]]
