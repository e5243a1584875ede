"""The page of a workflow in a real browser: its title, the whole graph, and nodes in view during a run."""

from __future__ import annotations

import json

import pytest

from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.test_workflow_pages import GRAPH
from tests.harness.cases import nightly_after

pytestmark = [pytest.mark.browser, browser.needed]
NAME = "2_pass_txt2img__hiresfix_esrgan_workflow.ui"
IMPORT = """async ([name, graph]) => {
  const headers = { "X-CSRF-Token": document.body.dataset.csrf, "Content-Type": "application/json" };
  const path = `/pages/workflows?name=${encodeURIComponent(name)}`;
  return (await (await fetch(path, { method: "POST", headers, body: graph })).json()).path;
}"""
# The size of the smallest text in pixels, and whether all nodes are in the pane without scrolling.
SEEN = """() => {
  const pane = document.querySelector("[data-pane]");
  const { left, right, top, bottom } = pane.getBoundingClientRect();
  const texts = [...pane.querySelectorAll("text")];
  const pixels = texts.map((each) => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a);
  const isWhole = [...pane.querySelectorAll(".node .card")].every((each) => {
    const box = each.getBoundingClientRect();
    return box.left >= left && box.right <= right && box.top >= top && box.bottom <= bottom;
  });
  return [Math.min(...pixels), isWhole];
}"""
# The smallest text of graphs with up to 8 nodes, and of one with 18 nodes, at each width of the window.
SMALLEST = {1440: (10, 8), 834: (10, 8), 390: (10, 6)}
TAP = """() => new Promise((done) => {
  document.querySelector("#run .actions .primary").click();
  requestAnimationFrame(() => {
    const { top, bottom } = document.querySelector("[data-pane]").getBoundingClientRect();
    done([top >= 0, bottom <= innerHeight]);
  });
})"""


async def test_long_workflow_name_is_split_and_fits_the_window(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        await tab.open("/")
        for name in (NAME, "x" * 180):
            await tab.open(await tab.page.evaluate(IMPORT, [name, json.dumps(GRAPH)]))
            if name == NAME:
                assert await tab.page.inner_text("h1") == "2 pass txt2img, hiresfix esrgan"
            for width in SMALLEST:
                await tab.page.set_viewport_size({"width": width, "height": 844})
                assert await tab.page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_graph_is_whole_and_readable_at_every_width(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        for width, smallest in SMALLEST.items():
            await tab.page.set_viewport_size({"width": width, "height": 844})
            for slug in ("stylized-text-to-image", "photoreal-img2img", "video-to-video"):
                await tab.open(f"/workflows/{slug}")
                await tab.page.wait_for_selector(".node.has-inputs")
                pixels, is_whole = await tab.page.evaluate(SEEN)
                assert is_whole, (slug, width)
                assert pixels >= smallest[slug == "video-to-video"], (slug, width)
            await tab.page.click("text='Fit'")
            assert (await tab.page.evaluate(SEEN))[0] >= 10.9
        # A small graph is not blown up, and is in the middle.
        await tab.open("/workflows/api-contract")
        await tab.page.wait_for_selector(".node.has-inputs")
        pane = await tab.page.locator("[data-pane]").bounding_box()
        boxes = [await node.bounding_box() for node in await tab.page.locator(".node .card").all()]
        left, right = min(box["x"] for box in boxes), max(box["x"] + box["width"] for box in boxes)
        assert abs((left - pane["x"]) - (pane["x"] + pane["width"] - right)) < 4
        assert max(box["width"] for box in boxes) <= 216 * 1.35


@pytest.mark.parametrize("width", nightly_after(1, [390, 1440]))
async def test_graph_larger_than_its_pane_can_be_zoomed(browser_app: browser.BrowserApp, width: int) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/workflows/video-to-video")
        await page.wait_for_selector(".node.has-inputs")
        await page.click("text='Fit'")
        card, pane = page.locator(".node .card").first, page.locator("[data-pane]")

        async def is_scaled(by: float) -> bool:
            """Return whether the cards are `by` times as large as at the last call."""
            nonlocal before
            before, last = (await card.bounding_box())["width"], before
            return abs(before / last / by - 1) < 0.02

        before = (await card.bounding_box())["width"]
        await page.click("[aria-label='Zoom in']")
        assert await is_scaled(1.25)
        await pane.press("-")
        assert await is_scaled(0.8)
        # What is under the pointer stays there.
        label = page.locator(".node.has-inputs .title").first
        await label.scroll_into_view_if_needed()
        box = await label.bounding_box()
        await page.mouse.move(box["x"] + 4, box["y"] + 4)
        await page.keyboard.down("Control")
        await page.mouse.wheel(0, -100)
        await page.keyboard.up("Control")
        assert await is_scaled(1.15)
        moved = await label.bounding_box()
        assert abs(moved["x"] - box["x"]) < 3
        assert abs(moved["y"] - box["y"]) < 3
        await page.mouse.down()
        await page.mouse.up()
        assert (await page.evaluate("document.activeElement.id")).startswith("in-")
        await page.click("text='Fit'")
        await page.wait_for_selector(".graph.compact")
        area = await pane.bounding_box()
        cards = [await each.bounding_box() for each in await page.locator(".node .card").all()]
        for at, side in (("x", "width"), ("y", "height")):
            assert min(each[at] for each in cards) >= area[at]
            assert max(each[at] + each[side] for each in cards) <= area[at] + area[side]
        await page.click("text='Fit'")
        assert (await page.evaluate(SEEN))[0] >= 10.9


async def test_run_scrolls_the_graph_into_view(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=1440)) as tab:
        page = tab.page
        await tab.open("/workflows/stylized-text-to-image")
        await page.fill("#in-prompt", "a windmill")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.locator("#run .actions .primary").scroll_into_view_if_needed()
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert await page.evaluate(TAP) == [True, True]
        await page.wait_for_selector(".prediction[data-status=succeeded] img")
        await page.evaluate("scrollTo(0, 0)")
        for part in ("[data-pane]", ".outputs img", ".receipt-strip", ".next-steps"):
            box = await page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] <= 900, part
