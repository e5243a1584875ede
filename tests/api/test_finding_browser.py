"""The catalog's filter and global search in a real browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_memory_pages import put

pytestmark = [pytest.mark.browser, browser.needed]

VISIBLE = ".card:visible h3"
OPTION = ".palette [role=option]"
SELECTED = f"{OPTION}[aria-selected=true]"
MAX_PAGE_BYTES = 350_000


async def test_catalog_filters_while_typing(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=390)) as tab:
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


@pytest.mark.nightly
async def test_catalog_can_be_searched_without_javascript(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(scripts=False)) as tab:
        await tab.open("/catalog")
        await tab.page.fill("#q", "transcribe")
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_url("**/catalog?q=transcribe")
        assert await tab.page.locator(VISIBLE).all_inner_texts() == ["Transcription", "Speech to text"]


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_catalog_is_accessible_small_and_fits_the_window(
    browser_app: browser.BrowserApp, width: int
) -> None:
    url = browser_app.url
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        sizes: list[int] = []
        page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
        await page.goto(f"{url}/catalog?q=voice", wait_until="load")
        assert sum(sizes) <= MAX_PAGE_BYTES
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await violations(page) == []


async def test_search_opens_with_ctrl_k_and_is_used_by_keyboard(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    await put(app, "companies/acme", "# Acme\n\nMakes quiet airships.\n")
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/account")
        await page.focus("main a")
        await page.keyboard.press("Control+k")
        await page.wait_for_selector(SELECTED)
        await page.keyboard.type("airships")
        await page.wait_for_selector(f"{SELECTED}:has-text('Acme')")
        active = await page.get_attribute("[role=combobox]", "aria-activedescendant")
        assert await page.locator(SELECTED).get_attribute("id") == active
        await page.fill("[role=combobox]", "speech")
        await page.wait_for_selector(f"{OPTION}:has-text('Transcription')")
        names = await page.locator(OPTION).all_inner_texts()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowUp")
        assert await page.locator(SELECTED).inner_text() == names[1]
        await page.keyboard.press("Escape")
        assert not await page.is_visible(".palette")
        assert await page.evaluate("document.activeElement.matches('main a')")
        released = asyncio.Event()

        async def hold(route: Any) -> None:
            await released.wait()
            await route.continue_()

        await page.route("**/pages/find?q=speech", hold)
        await page.keyboard.press("Control+k")
        await page.fill("[role=combobox]", "api keys")
        # Enter waits for the results of what was typed before it, not for those of the earlier text.
        await page.keyboard.press("Enter")
        released.set()
        await page.wait_for_url("**/account/keys")


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_search_dialog_opens_by_button_and_is_accessible(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/predictions")
        box = await page.locator("#find").bounding_box()
        assert min(box["width"], box["height"]) >= 34
        await page.click("#find")
        await page.wait_for_selector(SELECTED)
        palette = await page.locator(".palette").bounding_box()
        assert palette["x"] >= 0
        assert palette["x"] + palette["width"] <= width
        assert await violations(page) == []
        await tab.open("/find?q=voice")
        assert await violations(page) == []


@pytest.mark.nightly
async def test_search_is_a_page_without_javascript(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=390, scripts=False)) as tab:
        await tab.open("/account")
        await tab.page.click("#find")
        await tab.page.fill("#q", "password")
        await tab.page.keyboard.press("Enter")
        await tab.page.click("text='Sign-in and security'")
        await tab.page.wait_for_url("**/account/security")
