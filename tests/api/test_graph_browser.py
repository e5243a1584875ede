"""The page of a workflow in a real browser: its title, the whole graph, and nodes in view during a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import Look
from tests.api.test_workflow_pages import GRAPH

pytestmark = [pytest.mark.browser, browser.needed]
NAME = "2_pass_txt2img__hiresfix_esrgan_workflow.ui"
IMPORT = """async ([name, graph]) => {
  const headers = { "X-CSRF-Token": document.body.dataset.csrf, "Content-Type": "application/json" };
  const path = `/pages/workflows?name=${encodeURIComponent(name)}`;
  return (await (await fetch(path, { method: "POST", headers, body: graph })).json()).path;
}"""
# Whether all nodes are inside of the visible part of the pane.
WHOLE = """() => {
  const pane = document.querySelector("[data-pane]").getBoundingClientRect();
  return [...document.querySelectorAll(".node")].every((node) => {
    const { left, right, top, bottom } = node.getBoundingClientRect();
    const [across, down] = [left >= pane.left - 1 && right <= pane.right + 1, bottom <= pane.bottom + 1];
    return across && down && top >= pane.top - 12;
  });
}"""
TAP = """() => new Promise((done) => {
  document.querySelector("#run .actions .primary").click();
  requestAnimationFrame(() => {
    const { top, bottom } = document.querySelector("[data-pane]").getBoundingClientRect();
    done([top >= 0, bottom <= innerHeight]);
  });
})"""


@pytest.mark.parametrize("width", [1440, 834, 390])
async def test_a_long_name_becomes_words_and_fits(
    browser_app: tuple[AppFixture, str, Any], width: int
) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(width=width)) as tab:
        path = await tab.page.evaluate(IMPORT, [NAME, json.dumps(GRAPH)])
        await tab.open(path)
        assert await tab.page.inner_text("h1") == "2 pass txt2img, hiresfix esrgan"
        assert await tab.page.evaluate("document.documentElement.scrollWidth") <= width
        path = await tab.page.evaluate(IMPORT, ["x" * 180, json.dumps(GRAPH)])
        await tab.open(path)
        assert await tab.page.evaluate("document.documentElement.scrollWidth") <= width


async def test_the_whole_graph_is_seen_and_can_be_read(browser_app: tuple[AppFixture, str, Any]) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(width=1440)) as tab:
        for slug in ("stylized-text-to-image", "video-to-video", "photoreal-img2img"):
            await tab.open(f"/workflows/{slug}")
            assert await tab.page.evaluate(WHOLE), slug
            title = await tab.page.locator(".node .title").first.bounding_box()
            assert title["height"] >= 9, slug
    async with browser.tab(chromium, app, url, Look(width=390)) as tab:
        await tab.open("/workflows/stylized-text-to-image")
        await tab.page.wait_for_selector(".pane.stacked")
        pane = await tab.page.locator(".pane").bounding_box()
        for node in await tab.page.locator(".node .card").all():
            box = await node.bounding_box()
            assert pane["x"] <= box["x"] < box["x"] + box["width"] <= pane["x"] + pane["width"]
        assert (await tab.page.locator(".node .title").first.bounding_box())["height"] >= 12


async def test_a_run_brings_the_graph_into_view(browser_app: tuple[AppFixture, str, Any]) -> None:
    app, url, chromium = browser_app
    async with browser.tab(chromium, app, url, Look(width=1440)) as tab:
        page = tab.page
        await tab.open("/workflows/stylized-text-to-image")
        await page.fill("#in-prompt", "a windmill")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.locator("#run .actions .primary").scroll_into_view_if_needed()
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert await page.evaluate(TAP) == [True, True]
        await page.wait_for_selector(".prediction[data-status=succeeded] img")
