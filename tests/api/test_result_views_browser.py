"""Results with data in a real browser: the run, two runs side by side, and the shared link look the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api import browser, page_checks
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.test_shares import share

pytestmark = [pytest.mark.browser, browser.needed]
WIDTHS = [1440, 390]
SERIES = [12, 15, 21, 18, 13, 17, 24, 20, 15, 19, 26, 23, 17, 21, 29, 25]


async def run(app: AppFixture, model: str, **inputs: Any) -> str:
    """Run a model; return the id of the prediction."""
    body = {"model": model, "input": inputs}
    answer = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    assert answer["status"] == "succeeded", answer
    return str(answer["id"])


async def shared_path(app: AppFixture, prediction_id: str, **more: Any) -> str:
    """Share a run; return the path of its page."""
    created = await share(app, "run", prediction_id, **more)
    return str(created["url"]).removeprefix(app.settings.base_url)


@pytest.mark.parametrize("width", WIDTHS)
async def test_a_shared_forecast_is_drawn_like_the_run(
    browser_app: tuple[AppFixture, str, Any], width: int
) -> None:
    app, url, chromium = browser_app
    first, second = [
        await run(app, "forecast", series=SERIES, season_length=4, horizon=horizon) for horizon in (4, 8)
    ]
    async with browser.tab(chromium, app, url, TabOptions(width=width)) as tab:
        await tab.open(f"/predictions/{first}")
        drawn = await tab.page.inner_html(".forecast")
        await tab.open(f"/predictions/selection?id={first}&id={second}")
        assert await tab.page.inner_html(".forecast >> nth=1") == drawn
        assert await tab.page.locator(".forecast").count() == 2
        await page_checks.is_accessible(tab)
    path = await shared_path(app, first)
    async with browser.tab(chromium, app, url, TabOptions(width=width, signed_in=False)) as tab:
        await page_checks.opens_well(tab, path)
        assert await tab.page.inner_html(".forecast") == drawn
        assert await tab.page.locator(".forecast .band").count() == 2
        assert "Backtest: mean absolute error" in await tab.page.inner_text(".forecast figcaption")
        assert not await tab.page.is_visible(".outputs pre")
        box = await tab.page.locator(".forecast svg").bounding_box()
        assert box["height"] >= 100
