"""The pages in a real browser: forms, results, files, keys, history, sessions, accessibility."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.page_checks import violations
from tests.harness.cases import nightly_after

pytestmark = [pytest.mark.browser, browser.needed]

# Resolves when `more` further frames or poses have been drawn.
FRAMES = """(more) => new Promise((done) => {
  const canvas = document.getElementById("canvas");
  const drawn = () => Number(canvas.dataset.frames ?? 0);
  const enough = drawn() + more;
  const look = () => (drawn() >= enough ? done() : requestAnimationFrame(look));
  look();
})"""
# How many lines an element's text takes.
LINES = """(element) => {
  const text = document.createRange();
  text.selectNodeContents(element);
  return new Set([...text.getClientRects()].map((part) => Math.round(part.top))).size;
}"""
PLAIN = ("/account", "/account/security", "/predictions", "/docs")
GUIDE = "/docs/howto/keys"
DONE = ".prediction[data-status=succeeded]"


async def test_form_shows_price_runs_and_shows_image_with_receipt(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog")
        await page.fill("#q", "fast image")
        await page.keyboard.press("Enter")
        await page.click("text='Fast image'")
        await page.click("#run .actions .primary")
        await page.wait_for_selector("[data-problem=prompt]:not([hidden])")
        assert (await page.inner_text("[data-problem=prompt]")).startswith("Prompt is required.")
        example = await page.get_attribute("#in-prompt", "placeholder")
        await page.click("text='Use the example'")
        assert await page.input_value("#in-prompt") == example
        assert not await page.is_visible("[data-problem=prompt]")
        await page.fill("#in-prompt", "a red fox in snow")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.wait_for_selector("#price:has-text('scene-painter')")
        assert '"prompt": "a red fox in snow"' in await page.inner_text("[data-sample=curl]")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_selector(f"{DONE} img")
        size = await page.eval_on_selector(".outputs img", "i => i.decode().then(() => i.naturalWidth)")
        assert size == 256
        assert await page.locator(".receipt .reached").count() == 6
        await page.click("text='Details'")
        await page.click("text='Run again with changes'")
        assert await page.input_value("#in-prompt") == "a red fox in snow"
        await tab.open("/predictions")
        assert await page.inner_text(".run .name") == "a red fox in snow"
        await page.click(".run .open")
        await page.wait_for_selector(".pairs dd:has-text('a red fox in snow')")


async def test_chosen_image_becomes_a_displayed_3d_model(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    photo = tmp_path / "apple.png"
    image = Image.new("RGBA", (96, 96))
    image.paste((200, 40, 30, 255), (24, 24, 72, 72))
    image.save(photo)
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/image-to-3d-voxel")
        await page.set_input_files("#file-image", photo)
        await page.wait_for_selector(".file-preview img")
        await page.select_option("#in-style", "voxel32")
        await page.click("#run .actions .primary")
        await page.wait_for_selector(f"{DONE} [data-glb][data-ready]")
        assert int(await page.get_attribute("[data-glb]", "data-ready")) > 100


async def test_key_is_created_shown_once_used_and_revoked(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/account/keys")
        await page.fill("[name=budget_day]", "0.50")
        await page.click("text=New key")
        key = await page.inner_text("#new-key")
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.click("text='Copy'")
        await page.wait_for_selector("text='Copied'")
        assert await page.evaluate("navigator.clipboard.readText()") == key
        response = await app.client.get("/api/account", headers={"Authorization": f"Bearer {key}"})
        assert response.status_code == 200
        await page.click(f"[aria-label='Revoke the key that ends in {key[-4:]}']")
        await page.wait_for_selector("#new-key", state="detached")
        response = await app.client.get("/api/account", headers={"Authorization": f"Bearer {key}"})
        assert response.status_code == 401


@pytest.mark.parametrize("model", nightly_after(1, ["world-model", "motion-model"]))
async def test_live_session_draws_and_handles_key_presses(
    browser_app: browser.BrowserApp, model: str
) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open(f"/live/{model}")
        await page.click("#live .primary")
        await page.evaluate(FRAMES, 3)
        await page.focus("#canvas")
        await page.keyboard.down("w")
        await page.evaluate(FRAMES, 3)
        await page.keyboard.up("w")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", [TabOptions(), TabOptions(width=390, scheme="dark")], ids=["desktop", "dark phone"]
)
async def test_pages_are_accessible_and_fit_the_window(
    browser_app: browser.BrowserApp, options: TabOptions
) -> None:
    paths = ["/", "/catalog", "/catalog/tts-b", "/catalog/inpaint-cleaner", "/predictions", "/account"]
    paths += [
        "/gallery",
        "/characters",
        "/live/world-model",
        "/workflows",
        "/workflows/video-to-video",
        "/docs",
        "/docs/howto/agents",
        "/docs/reference/engines",
    ]
    async with browser_app.tab(options) as tab:
        for path in paths:
            await tab.open(path)
            width = await tab.page.evaluate("document.documentElement.scrollWidth")
            assert width <= options.width, (path, width)
            assert await violations(tab.page) == [], path


async def test_phone_menu_is_one_line_and_opens_by_keyboard(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    graph = "/api/graph/spaces/turbo-text-to-image/run"
    inputs = {"input": {"prompt": "a mill", "width": 64, "height": 64}}
    assert (await app.client.post(graph, json=inputs, headers=app.bearer)).status_code == 200
    async with browser_app.tab(TabOptions(width=320)) as tab:
        page = tab.page
        for path in (*PLAIN, "/workflows/text-to-video", GUIDE):
            await tab.open(path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path
        await tab.open("/account")
        assert await page.locator("header").evaluate("top => top.getBoundingClientRect().height") < 80
        assert not await page.is_visible("text=Sign out")
        await page.focus(".menu summary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".top nav a:has-text('Catalog')", state="visible")
        for name in ("Catalog", "Chat"):
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.textContent") == name
        part = page.locator(".latest li", has_text="in workflow")
        assert "0.00 USD" in await part.inner_text()
        await part.get_by_text("in workflow").click()
        assert await page.inner_text("h1") == "a mill"


async def test_reference_paths_are_not_broken_on_a_phone(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=390)) as tab:
        await tab.open("/docs")
        for text in ("DELETE", "/api/training"):
            cell = tab.page.locator(".paths").get_by_text(text, exact=True).first
            assert await cell.evaluate(LINES) == 1
