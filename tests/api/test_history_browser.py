"""The history and the actions below a result in a real browser: keyboard, no scripts, phone width."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.ui.predictions import history
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_page_details_browser import SHIFT

pytestmark = [pytest.mark.browser, browser.needed]
DONE = ".prediction[data-status=succeeded]"
MAX_BYTES = 350_000
WEIGHT = """() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .reduce((total, entry) => total + entry.transferSize, 0)"""


async def painted(app: AppFixture, *prompts: str, size: int = 256) -> list[dict[str, Any]]:
    """Run the fast image model for each prompt."""
    runs: list[dict[str, Any]] = []
    for prompt in prompts:
        body = {"model": "fast-image-native", "input": {"prompt": prompt, "width": size, "height": size}}
        response = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
        runs.append(response.json())
    return runs


@pytest.mark.nightly
async def test_history_is_accessible_small_and_fits_the_window(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    runs = await painted(app, *(f"a red fox, number {number}" for number in range(4)), size=512)
    body = {"input": {"prompt": "a mill", "width": 256, "height": 256}}
    graph = "/api/graph/spaces/turbo-text-to-image/run"
    assert (await app.client.post(graph, json=body, headers=app.bearer)).status_code == 200
    pair = f"/predictions/selection?id={runs[0]['id']}&id={runs[1]['id']}"
    sizes = (TabOptions(width=1440), TabOptions(width=834, scheme="dark"), TabOptions(width=390))
    for options in sizes:
        async with browser_app.tab(options) as tab:
            for path in ("/predictions", "/predictions?view=list&q=fox", pair):
                await tab.open(path)
                await tab.page.wait_for_load_state("load")
                assert await tab.page.evaluate("document.documentElement.scrollWidth") <= options.width, path
                assert await tab.page.evaluate(WEIGHT) < MAX_BYTES, path
                assert await tab.page.evaluate(SHIFT) < 0.05, path
                assert await violations(tab.page) == [], path


@pytest.mark.nightly
async def test_history_by_keyboard_and_while_scrolling(
    browser_app: browser.BrowserApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = browser_app.app
    monkeypatch.setattr(history, "PAGE", 3)
    await painted(app, *(f"a red fox, number {number}" for number in range(5)))
    async with browser_app.tab(TabOptions(width=1440)) as tab:
        page = tab.page
        await tab.open("/predictions")
        assert await page.inner_text(".run .name >> nth=0") == "a red fox, number 4"
        # The next page is loaded when the end of the list is near.
        await page.wait_for_selector(".run:has-text('number 0')")
        assert await page.locator(".day").count() == 1
        assert await page.locator(".older").count() == 0
        for key in ("j", "x", "j", "j", "k", "x"):
            await page.keyboard.press(key)
        assert await page.locator(".pick-run:checked").count() == 2
        await page.click("text='Compare or delete the selection'")
        await page.wait_for_selector("text='Two runs side by side'")
        assert await page.locator(".side-by-side img").count() == 2
        differing = await page.locator(".differs th").all_inner_texts()
        assert [text.partition(" ")[0] for text in differing] == ["prompt", "seed"]
        await page.click("text='Delete 2 runs'")
        await page.wait_for_selector(".restored:has-text('2 runs deleted.')")
        assert await page.inner_text(".run .name >> nth=0") == "a red fox, number 2"
        await page.keyboard.press("/")
        await page.keyboard.type("number 1")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**q=number+1**")
        assert await page.locator(".run .name").all_inner_texts() == ["a red fox, number 1"]
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("h1:has-text('number 1')")


async def test_result_links_to_the_next_model(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=390)) as tab:
        page = tab.page
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await tab.open("/catalog/fast-image-native")
        await page.fill("#in-prompt", "a red fox in snow")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.click("#run .actions .primary")
        await page.wait_for_selector(f"{DONE} img")
        first = await page.get_attribute(".outputs img", "src")
        await page.click("text='Copy'")
        await page.wait_for_selector("text='Copied the image'")
        types = await page.evaluate("navigator.clipboard.read().then((items) => items[0].types)")
        assert types == ["image/png"]
        await page.click("text='Vary'")
        await page.wait_for_selector(f"{DONE} img:not([src='{first}'])")
        assert "/catalog/" in page.url
        assert await page.input_value("#in-seed") != ""
        await page.click(".pop summary:has-text('Use in')")
        assert await page.is_visible(".pop a >> text='Background removal, choice of weights'")
        await page.keyboard.press("Escape")
        assert not await page.is_visible(".pop a >> text='Background removal, choice of weights'")
        await page.click(".pop summary:has-text('Use in')")
        await page.click(".pop a >> text='Background removal, choice of weights'")
        await page.wait_for_selector(".file-preview img[src*='w=320']")
        assert await page.inner_text(".file-name") == "a red fox in snow"
        assert not await page.is_visible("#in-image")
        await page.click(".remove")
        # Two recent files, for the image and for the mask.
        assert await page.locator(".tray button").count() == 4
        await page.click(".tray button >> nth=1")
        assert await page.inner_text(".file-name") == "a red fox in snow"
        assert (await page.input_value("#in-image")).endswith(first)
        await page.click("#run .actions .primary")
        await page.wait_for_selector(f"{DONE} .outputs img")


@pytest.mark.nightly
async def test_history_works_without_scripts(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    await painted(app, "a red fox", "a white hen")
    async with browser_app.tab(TabOptions(width=834, scripts=False)) as tab:
        page = tab.page
        await tab.open("/predictions")
        await page.fill("#q", "FOX")
        await page.click("text='Search'")
        await page.click(".run .open")
        await page.click("text='Vary'")
        assert await page.inner_text("h1") == "a red fox"
        second_prediction = await app.predictions.get_any(page.url.rpartition("/")[2])
        await app.predictions.wait(second_prediction, 60)
        await page.reload()
        await page.click("text='Delete' >> nth=0")
        await page.click("text='Delete this run'")
        assert await page.inner_text(".restored") == "1 run deleted. The charges stay in the ledger."
        await page.check(".pick-run >> nth=0")
        await page.click("text='Compare or delete the selection'")
        await page.click("text='Delete this run'")
        await page.wait_for_selector(".restored")
        assert await page.locator(".run .name").all_inner_texts() == ["a red fox"]


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_audio_in_the_history_is_shown_as_its_waveform(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app, url, _ = browser_app
    body = {"model": "sound-effects", "input": {"prompt": "rain", "duration": 1}}
    response = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
    assert response.status_code == 200, response.text
    async with browser_app.tab(TabOptions(width=width, scheme="dark")) as tab:
        await tab.open("/predictions")
        image = tab.page.locator(".thumb img")
        await tab.page.wait_for_function("() => document.querySelector('.thumb img').naturalWidth === 320")
        response = await tab.page.request.get(url + await image.get_attribute("src"))
        assert response.headers["content-type"] == "image/webp"
        assert len(await response.body()) <= 40_000
