"""Results in a real browser at three widths: copied, used in models, listed, drawn in a chat and shared."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts
from sixfold.ui.predictions import output_view
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_comfyui_clients import PAINT as GRAPH
from tests.api.test_share_browser import OPTIONS, check
from tests.api.test_shares import share
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]
# The images of a list that have been drawn, and their number.
DRAWN = """() => { const images = [...document.querySelectorAll(".thumb img")];
  return [images.filter((each) => each.complete && each.naturalWidth > 0).length, images.length]; }"""
LOAD_ALL = "document.querySelectorAll('img').forEach((each) => { each.loading = 'eager'; })"
ANSWER = """() => { const box = (name) => document.querySelector(name).getBoundingClientRect();
  const image = document.querySelector(".answer .content img");
  return { top: box(".answer").top, bottom: box(".answer").bottom, composer: box(".composer").top,
           height: image.getBoundingClientRect().height, loaded: image.naturalWidth > 0 }; }"""
GRAPH_BOXES = """() => [...document.querySelectorAll(".shared-graph .node")].filter((node) =>
  node.checkVisibility() && node.getBoundingClientRect().width > 0).length"""


async def run(app: AppFixture, model: str, **inputs: Any) -> dict[str, Any]:
    body = {"model": model, "input": inputs}
    result = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    assert result["status"] == "succeeded", result
    return result


async def upload(app: AppFixture, name: str) -> str:
    content = io.BytesIO()
    Image.effect_noise((96, 64), 90).convert("RGB").save(content, "PNG")
    files = {"file": (name, content.getvalue(), "image/png")}
    return (await app.client.post("/api/uploads", files=files, headers=app.bearer)).json()["url"]


async def test_copy_and_use_in_name_what_they_do(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    sound = await run(app, "tts", prompt="Good morning.")
    chair = await run(app, "text-to-3d", prompt="a red chair")
    caption = await run(app, "caption", image_url=await upload(app, "harbour.png"))
    for options in OPTIONS:
        async with browser_app.tab(options) as tab:
            page = tab.page
            await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            for result, name in ((sound, "audio"), (chair, "3D model")):
                await tab.open(f"/predictions/{result['id']}")
                await page.click(".next-steps >> text='Copy'")
                words = f"Copied the link to the {name}. Anyone with the link can open it."
                await page.wait_for_selector(f"text='{words}'")
                copied = await page.evaluate("navigator.clipboard.readText()")
                assert copied.rpartition("/")[2] == result["output"]["url"].rpartition("/")[2]
            await tab.open(f"/predictions/{caption['id']}")
            assert await page.inner_text("h1") == "harbour.png"
            await page.click(".next-steps >> text='Copy'")
            await page.wait_for_selector("text='Copied the text'")
            assert await page.evaluate("navigator.clipboard.readText()") == caption["output"]["text"]
            await page.click(".pop summary:has-text('Use in')")
            await page.click(".pop a[href^='/catalog/tts-b?']")
            assert await page.input_value("#in-text") == caption["output"]["text"]


async def test_results_and_links_are_copied_without_https(browser_app: browser.BrowserApp) -> None:
    """Browsers have no `navigator.clipboard` at an http address other than this machine's."""
    app = browser_app.app
    image = await run(app, "create_image", prompt="a red fox", width=256, height=256)
    caption = await run(app, "caption", image_url=await upload(app, "harbour.png"))
    async with browser_app.tab(OPTIONS[0]) as tab:
        page = tab.page
        await page.add_init_script(
            "Object.defineProperty(Navigator.prototype, 'clipboard', { value: undefined });"
        )

        async def pasted() -> str:
            await tab.open("/catalog/tts")
            await page.fill("#in-prompt", "")
            await page.focus("#in-prompt")
            await page.keyboard.press("Control+V")
            return await page.input_value("#in-prompt")

        await tab.open(f"/predictions/{image['id']}")
        await page.click(".next-steps >> text='Copy'")
        await page.wait_for_selector("text='Copied the link to the image. Anyone with the link can open it.'")
        assert (await pasted()).rpartition("/")[2] == image["output"]["url"].rpartition("/")[2]
        await tab.open(f"/predictions/{caption['id']}")
        await page.click(".next-steps >> text='Copy'")
        await page.wait_for_selector("text='Copied the text'")
        assert await pasted() == caption["output"]["text"]
        await tab.open(f"/predictions/{image['id']}")
        await page.click(".next-steps >> text='Share'")
        await page.click("dialog >> text='Create link'")
        link = await page.input_value("#share-link")
        await page.click("dialog [data-copy-link]")
        await page.wait_for_selector("dialog [data-copied-link]:has-text('Copied')")
        assert await pasted() == link


async def test_copy_states_that_a_long_text_is_cut(
    browser_app: browser.BrowserApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = browser_app.app
    monkeypatch.setattr(output_view, "_MAX_CHARS", 5)
    caption = await run(app, "caption", image_url=await upload(app, "harbour.png"))
    async with browser_app.tab(OPTIONS[0]) as tab:
        await tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await tab.open(f"/predictions/{caption['id']}")
        await tab.page.click(".next-steps >> text='Copy'")
        await tab.page.wait_for_selector("text='Copied the beginning. The download has all of it.'")
        assert await tab.page.evaluate("navigator.clipboard.readText()") == caption["output"]["text"][:5]


async def test_history_draws_data_and_names_runs_by_their_files(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    photo = await upload(app, "C:\\photos\\harbour.png")
    await run(app, "embeddings", texts=["a lighthouse", "a boat"])
    await run(app, "forecast", series=[10, 12, 9, 14, 13, 16, 15, 18], horizon=3)
    await run(app, "text-to-3d", prompt="a red chair")
    cut = await run(app, "remove-background", image_url=photo)
    await run(app, "upscaler", image=cut["output"]["url"])
    await run(app, "image-to-3d-voxel", image=photo)
    names = ["harbour.png", "harbour.png", "harbour.png", "a red chair", "Forecast", "a lighthouse"]
    for options in OPTIONS:
        async with browser_app.tab(options) as tab:
            await tab.open("/predictions")
            await tab.page.evaluate(LOAD_ALL)
            await tab.page.wait_for_function(f"() => String(({DRAWN})()) === '6,6'")
            assert await tab.page.locator(".run .name").all_inner_texts() == names
            await check(tab, options, "history")


async def test_3d_model_that_cannot_be_drawn_has_a_mark(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    prediction = await run(app, "text-to-3d", prompt="a red chair")

    def refuse(_path: Path, _width: int) -> bytes:
        raise errors.BadRequest("the file has no triangles")

    app.server.media.thumbnails.renderers["model"] = refuse
    async with browser_app.tab(TabOptions(width=390)) as tab:
        await tab.open("/predictions")
        await tab.page.wait_for_selector(".run .thumb .glyph:has-text('3D')")
        tab.ignore("status of 404")
        await tab.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
        await tab.open(f"/predictions/{prediction['id']}")
        assert await tab.page.inner_text(".model3d.undrawn") == "3D"


async def test_the_embeddings_page_states_one_price(browser_app: browser.BrowserApp) -> None:
    for options in OPTIONS:
        async with browser_app.tab(options) as tab:
            page = tab.page
            await tab.open("/catalog/embeddings")
            assert "0.30 USD per hour" in await page.inner_text(".model .facts")
            await page.fill("#in-texts", "a lighthouse\na boat")
            await page.wait_for_selector("#price:has-text('by hashed-embeddings')")
            price = await page.inner_text("#price")
            assert price.startswith(("charged by time", "about 0.00000")), price
            await page.click("#run .actions .primary")
            await page.wait_for_selector(".prediction[data-status=succeeded]")
            await page.click(".receipt-strip summary")
            assert "× 0.30/h" in await page.inner_text(".receipt-strip")
            assert await page.locator(".receipt .name").all_inner_texts() == [
                "at most",
                "held",
                "queued",
                "run",
                "stored",
                "charged",
            ]
            amounts = await page.locator(".receipt .money").all_inner_texts()
            assert amounts[0] == amounts[1] != amounts[5]
            assert f"Held {amounts[0]} USD, charged {amounts[5]} USD" in await page.inner_text(
                ".receipt-strip"
            )


async def test_a_shared_workflow_shows_its_graph_and_is_imported(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    body = {"workflow": GRAPH, "name": "Lighthouse in the mist"}
    workflow = (await app.client.post("/api/graph/spaces", json=body, headers=app.bearer)).json()
    link = re.sub("^https?://[^/]+", "", (await share(app, "workflow", workflow["slug"]))["url"])
    for options in OPTIONS:
        visitor = TabOptions(options.width, options.scheme, signed_in=False)
        async with browser_app.tab(visitor) as tab:
            await tab.open(link)
            assert await tab.page.inner_text("h1") == "Lighthouse in the mist"
            assert await tab.page.evaluate(GRAPH_BOXES) == len(GRAPH)
            assert await tab.page.get_attribute("text='Sign in to import'", "href") == f"/signin?next={link}"
            await check(tab, visitor, "shared workflow")
        async with browser_app.tab(options) as tab:
            await tab.open(link)
            await check(tab, options, "shared workflow, signed in")
            await tab.page.click("text='Import into my workflows'")
            await tab.page.wait_for_url("**/workflows/lighthouse-in-the-mist-*")
            assert await tab.page.inner_text("h1") == "Lighthouse in the mist"


@pytest.fixture
async def drawing(tmp_path: Path) -> AsyncIterator[tuple[Gateway, str, Any]]:
    async with (
        running_gateway(tmp_path, models=app_catalog.models_document()) as gateway,
        serve(gateway.app.asgi) as url,
        browser.browser() as chromium,
    ):
        await gateway.app.database.write(accounts.credit("ada@example.com", 10**10))
        yield gateway, url, chromium


async def test_an_answer_of_a_chat_fills_the_form_of_a_model(drawing: tuple[Gateway, str, Any]) -> None:
    gateway, url, chromium = drawing
    gateway.acme.answer = "The lighthouse stands on the cape."
    for options in OPTIONS:
        async with browser.tab(chromium, gateway.app, url, options) as tab:
            page = tab.page
            await tab.open("/chat")
            await page.fill("#text", "Where is it?")
            await page.keyboard.press("Enter")
            await page.click(".answer .about >> text='Use in'")
            await page.wait_for_selector("h1:has-text('Use this text in')")
            assert gateway.acme.answer in await page.inner_text("blockquote")
            await check(tab, options, "use in")
            await page.click("a[href^='/catalog/tts-b?']")
            assert await page.input_value("#in-text") == gateway.acme.answer


async def test_a_drawn_image_fits_above_the_composer(drawing: tuple[Gateway, str, Any]) -> None:
    gateway, url, chromium = drawing
    for options in OPTIONS:
        async with browser.tab(chromium, gateway.app, url, options) as tab:
            page = tab.page
            await tab.open("/chat")
            await page.fill("#text", "draw a red fox")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".answer .about a[href^='/predictions/']")
            await page.wait_for_function(f"() => ({ANSWER})().loaded")
            box = await page.evaluate(ANSWER)
            assert box["top"] >= 0, (options.width, box)
            assert box["bottom"] <= box["composer"], (options.width, box)
            assert box["height"] >= min(300, options.width - 100), (options.width, box)
            await page.click(".answer .about >> text='Use in'")
            await page.wait_for_function("() => document.querySelector('.use-in img')?.naturalWidth > 0")
            await check(tab, options, "use in")
            await page.click(".use-in a[href^='/catalog/upscaler?']")
            await page.wait_for_selector(".file-preview img")
