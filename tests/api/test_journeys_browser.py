"""Findings of the eleven journeys of `docs/reference/journeys.md`, checked at three widths."""

from __future__ import annotations

import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, WIDTHS, is_accessible
from tests.api.test_passkeys import device, free_port
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]

DONE = ".prediction[data-status=succeeded]"
SMALL = {"width": 256, "height": 256}
UNSUPPORTED = {
    "1": {"class_type": "PrimitiveString", "inputs": {"value": "Hello"}},
    "2": {"class_type": "FaceDetailerOfNobody", "inputs": {"source": ["1", 0]}},
}
# The edges of the first element of a selector, and the height of the window.
BOX = """(selector) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  return [box.top, box.bottom, box.width / box.height, box.right, innerHeight, innerWidth];
}"""
LOADED = "(selector) => document.querySelector(selector)?.naturalWidth > 0"


async def run_model(app: AppFixture, model: str, **inputs: Any) -> dict[str, Any]:
    body = {"model": model, "input": inputs}
    response = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_an_image_that_failed_while_offline_is_loaded_again(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app = browser_app.app
    await run_model(app, "fast-image-native", prompt="a red fox", **SMALL)
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await page.route("**/media/**", lambda route: route.abort())
        await tab.open("/predictions")
        await page.wait_for_function("() => document.querySelector('.thumb img').complete")
        await page.unroute("**/media/**")
        await page.evaluate("document.dispatchEvent(new Event('connection-back'))")
        await page.wait_for_function(LOADED, arg=".thumb img")
        tab.ignore("net::ERR_FAILED")


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_a_shared_image_is_remixed_and_its_link_is_ended(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app = browser_app.app
    run = await run_model(app, "fast-image-native", prompt="a red fox", **SMALL)
    body = {"kind": "run", "id": run["id"]}
    share = (await app.client.post("/api/shares", json=body, headers=app.bearer)).json()
    options = TabOptions(width=width, signed_in=False)
    async with browser_app.tab(options) as tab:
        await tab.open(f"/s/{share['url'].rpartition('/')[2]}")
        await tab.page.click("text='Make your own'")
        await tab.page.wait_for_function(LOADED, arg=".example img[alt='The shared result']")
        fit = await tab.page.eval_on_selector(".example img", "(each) => getComputedStyle(each).objectFit")
        assert fit == "contain"
        assert await tab.page.input_value("#in-prompt") == "a red fox"
        await is_accessible(tab)
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open("/account/shares")
        end = "button[aria-label='End the link to a red fox']"
        right = (await tab.page.evaluate(BOX, end))[3]
        # The button must not be in the part of the table that is scrolled out of view.
        assert right <= width
        await is_accessible(tab)
        await tab.page.fill("[name=folder]", "people")
        await tab.page.fill("[name=with]", app.operator.email)
        await tab.page.click("text='Share'")
        right = (await tab.page.evaluate(BOX, "button[aria-label^='End the share of people']"))[3]
        assert right <= width
        await tab.page.click(end)
        await tab.page.wait_for_selector(".empty:has-text('Nothing is shared.')")


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_the_result_of_a_workflow_is_in_view_at_its_end(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/workflows/turbo-text-to-image")
        await page.fill("#in-prompt", "a windmill")
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
        await page.click("#run .actions .primary")
        await page.wait_for_selector(f"{DONE} figure img")
        await page.wait_for_function(LOADED, arg=f"{DONE} figure img")
        top, bottom, ratio, _, height, _ = await page.evaluate(BOX, f"{DONE} figure img")
        assert 0 <= top < bottom <= height
        assert ratio == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_the_images_of_a_result_have_no_bars_beside_them(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app = browser_app.app
    run = await run_model(app, "anime", prompt="a red fox", num_images=2, size="square_hd")
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open(f"/predictions/{run['id']}")
        await tab.page.wait_for_function(LOADED, arg=".outputs img")
        assert await tab.page.locator(".outputs img").count() == 2
        assert (await tab.page.evaluate(BOX, ".outputs img"))[2] == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_a_workflow_with_missing_nodes_states_that_it_cannot_run(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open("/workflows")
        content = json.dumps(UNSUPPORTED).encode()
        file = {"name": "portrait.json", "mimeType": "application/json", "buffer": content}
        await tab.page.set_input_files("main input[type=file]", file)
        await tab.page.wait_for_url("**/workflows/portrait*")
        assert await tab.page.inner_text("#price") == "This workflow cannot run here yet."
        assert not await tab.page.is_enabled("#run .actions .primary")
        await is_accessible(tab)


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_the_image_of_a_live_session_does_not_move(browser_app: browser.BrowserApp, width: int) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open("/live/world-model")
        before = (await tab.page.evaluate(BOX, "#canvas"))[0]
        await tab.page.evaluate("""() => {
          document.getElementById("stage").textContent = "Painting the new world …";
          document.getElementById("meter").textContent = "00:12 · 0.0018 USD";
          document.querySelector("#saved-notice a").textContent = "1 saved";
          for (const name of ["meter", "saved-notice"]) document.getElementById(name).hidden = false;
        }""")
        assert (await tab.page.evaluate(BOX, "#canvas"))[0] == pytest.approx(before, abs=1)


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_the_numbers_of_the_catalog_follow_a_search(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open("/catalog")
        await tab.page.locator("#q").press_sequentially("cutout")
        await tab.page.wait_for_function(
            "() => document.querySelector('[data-count=Audio]').innerText === '0'"
        )
        assert await tab.page.inner_text("[data-count=Images]") == "1"
    async with browser_app.tab(TabOptions(width=width, scripts=False)) as tab:
        await tab.open("/catalog?q=cutout")
        assert await tab.page.inner_text("[data-count=Audio]") == "0"
        assert await tab.page.inner_text("[data-count=Images]") == "1"


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_prompts_have_the_direction_of_their_letters(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app = browser_app.app
    run = await run_model(app, "fast-image-native", prompt="ثعلب أحمر في الثلج", **SMALL)
    paths = {
        f"/catalog/fast-image-native?from={run['id']}": "#in-prompt",
        "/predictions": ".run .name",
        f"/predictions/{run['id']}": "h1",
    }
    async with browser_app.tab(TabOptions(width=width, scheme="dark")) as tab:
        for path, selector in paths.items():
            await tab.open(path)
            direction = await tab.page.eval_on_selector(
                selector, "(each) => getComputedStyle(each).unicodeBidi"
            )
            assert direction == "plaintext", path
            await is_accessible(tab)


@pytest.fixture
async def browser_at_localhost(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server known as localhost, where browsers offer passkeys, its address and a browser."""
    port = free_port()
    async with (
        running_app(tmp_path, port=port, public_url=f"http://localhost:{port}") as app,
        serve(app.asgi, port),
        browser.browser() as chromium,
    ):
        yield browser.BrowserApp(app, f"http://localhost:{port}", chromium)


async def test_account_has_passkey_password_key_and_export(
    browser_at_localhost: browser.BrowserApp, tmp_path: Path
) -> None:
    app = browser_at_localhost.app
    password = ""
    async with browser_at_localhost.tab() as tab, device(tab.page):
        page = tab.page
        for width, scheme in zip(WIDTHS, ("light", "dark", "light"), strict=True):
            await page.set_viewport_size({"width": width, "height": 844})
            await page.emulate_media(color_scheme=scheme)
            await tab.open("/account")
            await page.click("main >> text='Security'")
            await page.fill("#add-passkey [name=name]", "My laptop")
            await page.click("#add-passkey button")
            await page.wait_for_selector("#passkeys td:has-text('My laptop')")
            if password:
                await page.fill("#password [name=current]", password)
            password = f"a new password for {width} pixels"
            await page.fill("#password [name=password]", password)
            await page.click("#password .primary")
            await page.wait_for_selector(".done:has-text('password')")
            await is_accessible(tab)
            await page.click("main >> text='Keys'")
            await page.fill("form[action='/account/keys'] [name=name]", "laptop")
            await page.click("text='New key'")
            key = await page.inner_text("#new-key")
            account = await app.client.get("/api/account", headers={"Authorization": f"Bearer {key}"})
            assert account.status_code == 200
            for tab_name in ("Usage", "Billing", "Overview"):
                await page.click(f"main >> text='{tab_name}'")
                await is_accessible(tab)
            await page.click("main a[href='/account/data']")
            async with page.expect_download() as started:
                await page.click("text='Download my data'")
            await (await started.value).save_as(target := tmp_path / f"{width}.zip")
            with zipfile.ZipFile(target) as exported:
                assert json.loads(exported.read("account.json"))["email"] == app.account.email
                assert password not in exported.read("account.json").decode()
            # Both ways sign in again.
            await page.context.clear_cookies()
            await tab.open("/signin?next=/account/security")
            await page.fill("#email", app.account.email)
            await page.fill("#password", password)
            await page.click("form[action='/signin'] button")
            await page.wait_for_url("**/account/security")
            await page.context.clear_cookies()
            await tab.open("/signin?next=/account/security")
            await is_accessible(tab)
            await page.click("#use-passkey button")
            await page.wait_for_url("**/account/security")
            await page.click("button[aria-label='Remove the passkey My laptop']")
            await page.wait_for_selector("#passkeys:not(:has(table))")
