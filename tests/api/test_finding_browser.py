"""Finding things in a real browser: the catalog's filter while typing and without JavaScript."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import Look
from tests.api.test_memory_browser import RULES

axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="axe is not installed")
pytestmark = [pytest.mark.browser, browser.needed]

VISIBLE = ".card:visible h3"
MAX_PAGE_BYTES = 350_000


async def test_the_catalog_filters_while_typing_like_the_server(
    browser_app: tuple[AppFixture, str, Any],
) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(width=390)) as tab:
        page = tab.page
        await tab.open("/catalog")
        await page.fill("#q", "remove bg")
        titles = await page.locator(VISIBLE).all_inner_texts()
        assert titles == ["Background removal", "Background removal from videos"]
        assert page.url.endswith("/catalog?q=remove+bg")
        await page.reload()
        assert await page.locator(VISIBLE).all_inner_texts() == titles
        await page.fill("#q", "xyzzy")
        await page.wait_for_selector("#nothing:visible")
        await page.fill("#q", "")
        await page.wait_for_selector(f"{VISIBLE} >> text='Image from a prompt'")
        assert await page.locator(VISIBLE).count() > 40


async def test_the_catalog_searches_without_javascript(browser_app: tuple[AppFixture, str, Any]) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(scripts=False)) as tab:
        await tab.open("/catalog")
        await tab.page.fill("#q", "transcribe")
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_url("**/catalog?q=transcribe")
        assert await tab.page.locator(VISIBLE).all_inner_texts() == ["Transcription", "Speech to text"]


@pytest.mark.parametrize("width", [1440, 834, 390])
async def test_the_catalog_fits_is_light_and_accessible(
    browser_app: tuple[AppFixture, str, Any], width: int
) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(width=width)) as tab:
        page = tab.page
        sizes: list[int] = []
        page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
        await page.goto(f"{url}/catalog?q=voice", wait_until="load")
        assert sum(sizes) <= MAX_PAGE_BYTES
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        result = await axe.Axe().run(page, options=RULES)
        assert [rule["id"] for rule in result.response["violations"]] == []
