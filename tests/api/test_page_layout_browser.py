"""The order of the header by keyboard, rows of fields and cards on a tablet, and results without files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.test_memory_pages import put
from tests.harness.cases import nightly_after

pytestmark = [pytest.mark.browser, browser.needed]
# The left edges of the header's links in the order of the Tab key.
HEADER = """[...document.querySelectorAll(".top :is(a, button)")]
  .map((each) => Math.round(each.getBoundingClientRect().x))"""
# The position and width of the parts of a grid, as multiples of the grid's width.
GRID = """(parts, name) => {
  const grid = document.querySelector(name).getBoundingClientRect();
  return parts.map((part) => {
    const box = part.getBoundingClientRect();
    return [Math.round(box.top), Math.round((100 * box.right - 100 * grid.left) / grid.width)];
  });
}"""


async def test_header_is_in_the_order_of_the_tab_key(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(1440)) as tab:
        await tab.open("/predictions")
        places = await tab.page.evaluate(HEADER)
        assert places == sorted(places)
        assert await tab.page.locator(".top a, .top button").last.get_attribute("class") == "balance"


@pytest.mark.parametrize("width", nightly_after(1, [390, 834]))
async def test_rows_of_editor_and_operator_pages_are_full(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app, url, chromium = browser_app
    await put(app, "notes/one", "# One\n\nText.\n")
    async with browser_app.tab(TabOptions(width)) as tab:
        await tab.open("/memory/notes/one/~edit")
        await _has_full_rows(tab, ".fields")
    async with browser.tab(
        chromium, dataclasses.replace(app, account=app.operator), url, TabOptions(width)
    ) as tab:
        await tab.open("/admin")
        await _has_full_rows(tab, ".tiles")
        await _has_full_rows(tab, ".sparks")


async def _has_full_rows(tab: browser.Tab, grid: str) -> None:
    ends: dict[int, int] = {}
    for top, right in await tab.page.locator(f"{grid} > *").evaluate_all(GRID, grid):
        ends[top] = max(ends.get(top, 0), right)
    assert set(ends.values()) == {100}, (grid, ends)


async def test_edit_address_of_a_missing_page_offers_to_create_it(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        await tab.open("/memory/projects/next/~edit")
        await tab.page.click("text=Create it")
        assert await tab.page.input_value("#slug") == "projects/next"


async def test_data_is_downloaded_under_a_readable_name(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    request = {"model": "forecast", "input": {"series": [1, 2, 3, 4, 5, 6, 7, 8], "horizon": 3}}
    run = (await app.client.post("/api/containers/run", json=request, headers=app.bearer)).json()
    async with browser_app.tab(TabOptions(390)) as tab:
        await tab.open(f"/predictions/{run['id']}")
        async with tab.page.expect_download() as started:
            await tab.page.click(".next-steps >> text=Download")
        download = await started.value
        assert download.suggested_filename == f"forecast_{run['id'][-8:]}.json"
        assert len(_read_json(await download.path())["mean"]) == 3


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8")))


async def test_style_is_the_title_of_its_run(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    request = {"model": "fast-image-native", "input": {"prompt": "a fox", "width": 256, "height": 256}}
    image = (await app.client.post("/api/containers/run", json=request, headers=app.bearer)).json()
    inputs = {"source_image_url": image["output"]["url"], "style_prompt": "watercolor"}
    request = {"model": "style-transfer", "input": inputs}
    run = (await app.client.post("/api/containers/run", json=request, headers=app.bearer)).json()
    async with browser_app.tab() as tab:
        await tab.open(f"/predictions/{run['id']}")
        assert await tab.page.inner_text("h1") == "watercolor"
