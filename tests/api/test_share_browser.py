"""Sharing in a real browser: the dialog at every width, and the form without a script."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.page_checks import violations
from tests.api.test_history_browser import MAX_BYTES, WEIGHT, painted
from tests.api.test_memory_pages import put
from tests.api.test_shares import share

pytestmark = [pytest.mark.browser, pytest.mark.nightly, browser.needed]
OPTIONS = (TabOptions(width=1440), TabOptions(width=834, scheme="dark"), TabOptions(width=390))


async def check(tab: Any, options: TabOptions, name: str) -> None:
    """Check the width, the size and the accessibility of the page."""
    page = tab.page
    await page.wait_for_load_state("load")
    assert await page.evaluate("document.documentElement.scrollWidth") <= options.width, name
    assert await page.evaluate(WEIGHT) < MAX_BYTES, name
    assert await violations(page) == [], name


async def test_a_result_is_shared_and_ended_in_a_dialog(browser_app: browser.BrowserApp) -> None:
    app, url, _ = browser_app
    (result,) = await painted(app, "a red fox", size=512)
    for options in OPTIONS:
        async with browser_app.tab(options) as tab:
            page = tab.page
            await tab.open(f"/predictions/{result['id']}")
            await page.click(".next-steps >> text=Share")
            await page.wait_for_selector("dialog[open] >> text=Create link")
            await check(tab, options, "dialog")
            await page.click("dialog >> text=Create link")
            await page.wait_for_selector("#share-link")
            await check(tab, options, "link")
            link = re.sub("^https?://[^/]+", "", await page.input_value("#share-link"))
            await page.click("dialog >> role=button[name=/^End the link/]")
            await page.wait_for_selector("dialog >> text=Create link")
            assert await page.locator(".share-list").count() == 0
            response = await page.request.get(url + link)
            assert response.status == 404
            await page.click("dialog >> text=Close")
            assert await page.locator("dialog[open]").count() == 0


async def test_the_form_works_without_a_script(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    (result,) = await painted(app, "a red fox")
    async with browser_app.tab(TabOptions(scripts=False)) as tab:
        page = tab.page
        await tab.open(f"/predictions/{result['id']}")
        await page.click(".next-steps >> text=Share")
        await page.click("text=Create link")
        assert "/s/" in await page.input_value("#share-link")
        await page.click("role=button[name=/^End the link/]")
        await page.wait_for_selector("text=Create link")
        assert await page.locator(".share-list").count() == 0


async def test_shared_pages_and_the_list_of_shares_fit(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    (run,) = await painted(app, "a red fox under birch trees in the snow", size=512)
    await put(
        app, "notes/long-names", "# Long names\n\n" + "| a | b |\n|---|---|\n| " + "word" * 40 + " | 2 |\n"
    )
    links = [
        (await share(app, kind, object_id))["url"]
        for kind, object_id in (("run", run["id"]), ("page", "notes/long-names"))
    ]
    post = {"text": "A fox " * 20, "media_url": run["output"]["url"], "tags": ["fox"]}
    response = await app.client.post("/api/create-post", json={"api_key": app.key, **post})
    assert response.status_code == 200, response.text
    paths = [*(re.sub("^https?://[^/]+", "", link) for link in links), "/account/shares", "/gallery"]
    for options in OPTIONS:
        async with browser_app.tab(options) as tab:
            for path in paths:
                await tab.open(path)
                await check(tab, options, path)
