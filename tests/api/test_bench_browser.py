"""The page to run a workflow, in a real browser: graph, form, and the time, cost and image of each node."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.api import browser, page_checks
from tests.api.browser import TabOptions
from tests.api.test_graph_browser import IMPORT, SEEN

pytestmark = [pytest.mark.browser, browser.needed]
PAGE = "/workflows/stylized-text-to-image"
RUN = "#run .actions .primary"
MISSING = {
    "nodes": [
        {"id": 1, "type": "FaceDetailer", "properties": {"cnr_id": "comfyui-impact-pack"}, "inputs": []},
        {
            "id": 2,
            "type": "SaveImage",
            "inputs": [{"name": "images", "type": "IMAGE", "link": 1}],
            "widgets_values": ["out"],
        },
    ],
    "links": [[1, 1, 0, 2, 0, "IMAGE"]],
    "version": 0.4,
}
IN_VIEW = """(selector) => {
  const { top, bottom, left, right } = document.querySelector(selector).getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight && left >= 0 && right <= innerWidth;
}"""


# The nodes with a text that an image of the node covers, or that is outside of its node.
COVERED = """() => [...document.querySelectorAll(".node")].filter((node) => {
  const image = node.querySelector(".made")?.getBoundingClientRect();
  const right = image?.left ?? node.querySelector(".card").getBoundingClientRect().right;
  const texts = [...node.querySelectorAll(".title, .value, .id")];
  return texts.some((each) => each.getBoundingClientRect().right > right);
}).map((node) => node.dataset.node)"""


async def test_nodes_show_their_time_cost_and_image(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=1440)) as tab:
        page = tab.page
        await tab.open(PAGE)
        for part in ("[data-pane]", RUN):
            assert await page.evaluate(IN_VIEW, part), part
        await page.fill("#in-prompt", "a windmill")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.click(RUN)
        await page.wait_for_selector(".node[data-node='6'] .made")
        assert await page.evaluate(IN_VIEW, "[data-pane]")
        decode = await page.text_content(".node[data-node='6'] .took")
        assert decode.endswith(" · 0.04 USD")
        assert await page.text_content(".node[data-node='4'] .took") != ""
        thumbnail = await page.get_attribute(".node[data-node='7'] .made", "href")
        image = await app.client.get(thumbnail)
        assert (image.status_code, image.headers["content-type"]) == (200, "image/webp")
        for width, drawing in ((834, 656), (390, 396), (1440, 1440)):
            await page.emulate_media(color_scheme="dark" if width == 834 else "light")
            await page.set_viewport_size({"width": width, "height": 844})
            await page.wait_for_selector(f".graph[width='{drawing}'] .node[data-node='7'] .made")
            assert await page.evaluate(COVERED) == []
            assert await page.text_content(".node[data-node='6'] .took") == decode
            await page_checks.is_accessible(tab)
        # The next run shows the whole texts until it has ended.
        await page.evaluate("document.dispatchEvent(new Event('followed'))")
        assert await page.text_content(".node[data-node='7'] .title") == "Save"
    assert await app.faults() == ()


@pytest.mark.nightly
async def test_a_workflow_takes_its_files_from_a_drop_zone(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    app = browser_app.app
    Image.effect_noise((64, 48), 90).convert("RGB").save(tmp_path / "photo.png")
    body = {"model": "create_image", "input": {"prompt": "a fox", "width": 256, "height": 256}}
    image = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    for width in page_checks.WIDTHS:
        async with browser_app.tab(TabOptions(width=width)) as tab:
            page = tab.page
            await tab.open("/workflows/image-upscale")
            assert await page.locator(".tray [data-url]").count() >= 1
            await page.set_input_files("#file-image", tmp_path / "photo.png")
            await page.wait_for_selector(".file-preview img")
            assert "/media/" in await page.input_value("#in-image")
            await tab.open("/workflows/speech-to-text")
            assert await page.get_attribute("#file-audio_path", "accept") == "audio/*"
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open(f"/predictions/{image['id']}")
        await page.click(".pop summary:has-text('Use in')")
        await page.click(".pop a[href*='image-upscale?']")
        await page.wait_for_selector(".file-preview img")
        await page.click(RUN)
        await page.wait_for_selector(".outputs img")


async def test_a_rotated_phone_redraws_the_graph(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open(PAGE)
        await page.fill("#in-prompt", "a windmill")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.click(RUN)
        await page.wait_for_selector(".graph[width='396'] .node[data-node='7'] .made")
        status = await page.inner_text("#graph-status")
        for width, drawing in ((844, ".graph.compact[width='656']"), (390, ".graph[width='396']")):
            await page.set_viewport_size({"width": width, "height": 390})
            await page.wait_for_selector(f"{drawing} .node[data-node='7'].finished .made")
            assert await page.locator(".node .made").count() == 2
            assert await page.locator(".node.has-inputs .label").count() == 4
            assert await page.inner_text("#graph-status") == status
            await page.click(".node[data-node='5']")
            assert await page.evaluate("document.activeElement.id") == "in-seed"
    assert await app.faults() == ()


async def test_clicking_a_node_focuses_its_input(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=1440)) as tab:
        page = tab.page
        await tab.open(PAGE)
        await page.click(".node[data-node='5'] .title")
        assert await page.evaluate("document.activeElement.id") == "in-seed"
        assert await page.evaluate(IN_VIEW, "#in-seed")
        await page.click(".node[data-node='6'] .title")
        assert "has no inputs" in await page.inner_text("#graph-status")


async def test_missing_nodes_are_red_and_named_by_package(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open("/workflows")
        await tab.open(await page.evaluate(IMPORT, ["faces.json", json.dumps(MISSING)]))
        assert await page.get_attribute(".node.missing", "data-node") == "1"
        notice = await page.inner_text(".missing-nodes")
        assert "1 node of this workflow does not exist here" in notice
        assert "comfyui-impact-pack" in notice
        assert "continue without" in notice
        assert await page.is_disabled(RUN)
        await page.click("[data-show]")
        assert await page.locator(".node.shown").count() == 1
        await page_checks.is_accessible(tab)


async def test_result_of_a_comfyui_test_is_in_view(browser_app: browser.BrowserApp) -> None:
    app, url, chromium = browser_app
    operator = dataclasses.replace(app, account=app.operator)
    async with browser.tab(chromium, operator, url) as tab:
        page = tab.page
        await tab.open("/")
        path = await page.evaluate(IMPORT, ["faces.json", json.dumps(MISSING)])
        for width in page_checks.WIDTHS:
            await page.set_viewport_size({"width": width, "height": 844})
            await tab.open(path)
            await page.fill("#comfyui-url", "http://127.0.0.1:9")
            await page.click("#connect >> text='Test'")
            await page.wait_for_selector("#comfyui-result.problem")
            assert "start it with --listen" in await page.inner_text("#comfyui-result")
            await page.wait_for_function(IN_VIEW, arg="#comfyui-result")


def _with_missing_node_at_the_end() -> dict[str, Any]:
    """Return a graph of six columns whose second-to-last node does not exist."""
    encoded = [{"class_type": "CLIPTextEncode", "inputs": {"text": text, "clip": ["1", 1]}} for text in "ab"]
    sampler = {"seed": 1, "steps": 20, "cfg": 7, "sampler_name": "euler", "scheduler": "normal", "denoise": 1}
    sampler |= {"model": ["1", 0], "positive": ["2", 0], "negative": ["3", 0], "latent_image": ["4", 0]}
    nodes = [
        {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15.safetensors"}},
        *encoded,
        {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 512, "batch_size": 1}},
        {"class_type": "KSampler", "inputs": sampler},
        {"class_type": "VAEDecode", "inputs": {"samples": ["5", 0], "vae": ["1", 2]}},
        {"class_type": "FaceDetailerPipe", "inputs": {"image": ["6", 0], "strength": 0.5}},
        {"class_type": "SaveImage", "inputs": {"images": ["7", 0], "filename_prefix": "x"}},
    ]
    return {str(number): node for number, node in enumerate(nodes, 1)}


async def test_a_missing_node_is_in_the_first_view(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        graph = json.dumps(_with_missing_node_at_the_end())
        await tab.open("/")
        path = await tab.page.evaluate(IMPORT, ["faces.json", graph])
        for width in page_checks.WIDTHS:
            await tab.page.set_viewport_size({"width": width, "height": 844})
            await tab.open(path)
            await tab.page.wait_for_selector(".node.has-inputs")
            assert (await tab.page.evaluate(SEEN))[1], width


@pytest.mark.parametrize("width", page_checks.EACH_WIDTH)
async def test_workflow_page_fits_and_renames_and_duplicates(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await page_checks.opens_well(tab, PAGE)
        assert await page.evaluate(IN_VIEW, RUN), "the Run bar sticks to the bottom"
        await page.click(".fold-details > summary")
        await page.click(".manage > summary")
        await page_checks.is_accessible(tab)
        await page.click("text='Duplicate'")
        await page.wait_for_url("**/workflows/stylized-text-to-image-copy")
        await page.click(".manage > summary")
        await page.fill(".manage [name=name]", "My style")
        await page.click("text='Rename'")
        await page.wait_for_selector("h1:text-is('My style')")
        await page.click(".manage > summary")
        await page.click("text='Delete …'")
        await page_checks.is_accessible(tab)
        await page.click("text='Delete this workflow'")
        await page.wait_for_url("**/workflows")
        assert await page.locator("text='My style'").count() == 0
