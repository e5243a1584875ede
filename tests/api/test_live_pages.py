"""Live pages in a browser: node progress, dropped files, sortable cards, and the operator's view."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest

from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.page_checks import violations
from tests.api.test_workflow_pages import GRAPH

pytestmark = [pytest.mark.browser, browser.needed]

RUN = "/api/containers/run"
DONE = ".prediction[data-status=succeeded]"
# Lets a file fall on the page, as a hand would: the name, its bytes in base64, its type.
DROP = """([name, data, type]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type }));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    const facts = { dataTransfer: carried, bubbles: true, cancelable: true };
    document.querySelector("h1").dispatchEvent(new DragEvent(kind, facts));
  }
}"""
FITS = "document.documentElement.scrollWidth"


async def run_output(app: AppFixture, model: str, inputs: dict[str, Any]) -> tuple[str, bytes]:
    response = await app.client.post(RUN, json={"model": model, "input": inputs}, headers=app.bearer)
    body = response.json()
    return body["id"], (await app.client.get(body["output"]["url"])).content


async def test_workflow_page_highlights_running_nodes_and_inputs(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/workflows/stylized-text-to-image")
        assert await page.locator(".node.has-inputs").count() == 4
        await page.focus("#in-prompt")
        assert await page.get_attribute(".node.highlighted", "data-node") == "2"
        await page.fill("#in-prompt", "a windmill")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.click("#run .actions .primary")
        await page.wait_for_selector("#graph-status:has-text('nodes')")
        await page.wait_for_selector(DONE)
        await page.wait_for_selector(".node.finished[data-node='7'] .progress")
        assert await page.locator(".node.finished").count() >= 2
        await page.focus("[data-pane]")
        # The key changes the zoom from the whole graph to a legible size.
        await page.keyboard.press("0")
        first = await page.locator(".pane .value").first.bounding_box()
        assert first is not None
        # The text of the nodes is legible.
        assert first["height"] >= 10
        # At a legible size the drawing is taller than its pane, which is scrolled to the rest.
        await page.keyboard.press("End")
        await page.wait_for_function("() => document.querySelector('[data-pane]').scrollTop > 0")


async def test_file_dropped_on_a_page_opens_its_form_or_workflow(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    inputs = {"prompt": "a red fox in snow", "width": 256, "height": 256, "seed": 5}
    made_id, image = await run_output(app, "fast-image-native", inputs)
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/docs")
        await page.evaluate(DROP, ["fox.webp", base64.b64encode(image).decode(), "image/webp"])
        await page.wait_for_url("**/catalog/fast-image-native*")
        await page.wait_for_selector("#restored:has-text('signed by this server')")
        assert await page.input_value("#in-prompt") == "a red fox in snow"
        assert await page.input_value("#in-seed") == "5"
        await page.click("#restored a")
        await page.click("text='Replay'")
        await page.wait_for_selector(DONE)
        await page.wait_for_selector("text=identical output")
        assert made_id not in page.url
        graph = base64.b64encode(json.dumps(GRAPH).encode()).decode()
        await page.evaluate(DROP, ["my graph.json", graph, "application/json"])
        await page.wait_for_url("**/workflows/my-graph")
        assert await page.locator("[data-node]").count() == 2
        await page.evaluate(DROP, ["words.txt", base64.b64encode(b"words").decode(), "text/plain"])
        await page.wait_for_selector("#dropped:has-text('does not contain a manifest')")
        # The server rejects the text file.
        tab.ignore("status of 400")


async def test_cards_show_outputs_and_play_videos_and_audio(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog")
        cards = await page.locator(".card").count()
        sample_count = await page.locator(".card .sample").count()
        # The models of model servers have no samples.
        assert (cards > 40, sample_count >= cards - 6) == (
            True,
            True,
        )
        video = page.locator(".card:has([data-preview])").first
        await video.hover()
        await page.wait_for_selector("[data-preview].on")
        await page.wait_for_function("document.querySelector('[data-preview].on').currentTime > 0")
        button = page.locator("[data-audio]").first
        await button.click()
        assert await button.get_attribute("aria-pressed") == "true"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [TabOptions(scheme="dark"), TabOptions(width=390)],
    ids=["dark desktop", "light phone"],
)
async def test_operator_sees_all_pages_and_they_are_accessible(
    browser_app: browser.BrowserApp, options: TabOptions
) -> None:
    app, url, chromium = browser_app
    made_id, _ = await run_output(app, "ra1", {"prompt": "a fox", "size": "1152x768"})
    operator = dataclasses.replace(app, account=app.operator)
    async with browser.tab(chromium, operator, url, options) as tab:
        page = tab.page
        paths = ["/", "/catalog/anime?from=example", "/workflows/stylized-text-to-image", "/account"]
        for path in (*paths, "/admin", "/admin/engines", f"/admin/requests/{made_id}", "/admin/requests"):
            await tab.open(path)
            assert await page.evaluate(FITS) <= options.width, path
            assert await violations(page) == [], path
        await page.fill("#q", "ada@example.com")
        await page.keyboard.press("Enter")
        await page.click(".requests .what")
        assert await page.locator(".receipt .reached").count() == 6
    async with browser_app.tab(options) as tab:
        await tab.open(f"/predictions/{made_id}")
        assert await violations(tab.page) == []
