"""Waiting and failures in a real browser: each failure is shown within 10 s, with its remedy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.core.accounts import accounts
from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import Tab, TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_pages import link
from tests.api.test_pages_browser import FRAMES
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]

SOON_MS = 10_000
FORM = "/catalog/ra2"
BAR = ".connection"
# Collects the titles of notifications instead of showing them.
NOTIFICATIONS = """
  window.notified = [];
  window.Notification = class extends EventTarget {
    static permission = "default";
    static async requestPermission() { return (this.permission = "granted"); }
    constructor(title) { super(); window.notified.push(title); }
  };
"""


def expect_failures(tab: Tab) -> None:
    """Discard the browser's own messages about failed requests."""
    failures = ("ERR_INTERNET_DISCONNECTED", "ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "status of 4")
    tab.ignore(*failures)


async def wait_for_text(page: Any, selector: str, text: str) -> None:
    await page.wait_for_selector(f'{selector}:has-text("{text}")', timeout=SOON_MS)


@pytest.fixture
async def dot_app(tmp_path: Path) -> Any:
    """A server with fast engines, and a browser."""
    async with running_app(tmp_path) as app, browser.browser() as chromium:
        yield app, chromium


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_lost_connection_is_named_and_the_run_sent_again(
    dot_app: tuple[AppFixture, Any], width: int
) -> None:
    app, chromium = dot_app
    async with serve(app.asgi) as url, browser.tab(chromium, app, url, TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open(FORM)
        await page.fill("#in-prompt", "a red fox")
        await page.context.set_offline(True)
        await wait_for_text(page, BAR, "Connection lost")
        await page.click("#run .actions .primary")
        await wait_for_text(page, "#fault", "Can't reach the server")
        assert await page.locator("#fault .step").all_inner_texts() == ["Try again", "History"]
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await violations(page) == []
        await page.context.set_offline(False)
        await wait_for_text(page, BAR, "Connected again")
        await page.click("#fault >> text='Try again'")
        await page.wait_for_selector(".prediction[data-status=succeeded] img")
        expect_failures(tab)


async def test_a_restart_of_the_server_is_named_and_survived(dot_app: tuple[AppFixture, Any]) -> None:
    app, chromium = dot_app
    async with serve(app.asgi) as url:
        manager = browser.tab(chromium, app, url)
        tab = await manager.__aenter__()
        await tab.open("/account")
        await tab.page.keyboard.press("Control+k")
        await tab.page.wait_for_selector(".palette [aria-selected=true]")
    page = tab.page
    await page.keyboard.type("keys")
    await wait_for_text(page, ".palette [role=status]", "Can't reach the server")
    await page.keyboard.press("Escape")
    await wait_for_text(page, BAR, "Connection lost")
    async with serve(app.asgi, int(url.rpartition(":")[2])):
        await wait_for_text(page, BAR, "Connected again")
        await page.keyboard.press("Control+k")
        await wait_for_text(page, ".palette [aria-selected=true]", "keys")
        expect_failures(tab)
        await manager.__aexit__(None, None, None)


async def test_ended_login_session_redirects_to_sign_in_and_back(dot_app: tuple[AppFixture, Any]) -> None:
    app, chromium = dot_app
    async with serve(app.asgi) as url, browser.tab(chromium, app, url) as tab:
        page = tab.page
        await tab.open(FORM)
        await page.fill("#in-prompt", "a very long thought")
        await page.context.clear_cookies()
        await page.click("#run .actions .primary")
        await wait_for_text(page, "#fault", "Your session has ended")
        await page.click("#fault >> text='Sign in again'")
        await page.wait_for_url("**/signin?next=%2Fcatalog%2Fra2")
        await tab.open(f"/signin?token={await link(app)}")
        await tab.open(FORM)
        assert await page.input_value("#in-prompt") == "a very long thought"
        expect_failures(tab)


async def test_expired_link_shows_the_sign_in_form(dot_app: tuple[AppFixture, Any]) -> None:
    app, chromium = dot_app
    async with serve(app.asgi) as url, browser.tab(chromium, app, url) as tab:
        await tab.page.context.clear_cookies()
        await tab.open("/signin?token=expired")
        await wait_for_text(tab.page, ".problem", "expired")
        assert await tab.page.is_visible("form button:text-is('Sign in')")
        expect_failures(tab)


async def test_run_without_credit_offers_to_add_credit(dot_app: tuple[AppFixture, Any]) -> None:
    app, chromium = dot_app
    eve = await app.database.write(accounts.create("eve@example.com"))
    async with serve(app.asgi) as url, browser.tab(chromium, app, url, TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open(f"/signin?token={await link(app, eve)}")
        for width in (1440, 834, 390):
            await page.set_viewport_size({"width": width, "height": 844})
            await tab.open("/")
            assert "You have 0.00 USD. To generate an image, you need credit." in await page.inner_text(
                "#note"
            )
            step, note = [await page.locator(part).bounding_box() for part in ("#note .step", "#note")]
            assert note["y"] <= step["y"]
            assert step["y"] + step["height"] <= min(844, note["y"] + note["height"])
        await page.click("#generate .primary")
        await wait_for_text(page, "#note .step", "Get credit")
        await tab.open(FORM)
        await page.fill("#in-prompt", "a fox")
        await page.click("#run .actions .primary")
        await wait_for_text(page, "#fault", "You have 0.00 USD")
        await page.click("#fault >> text='Get credit'")
        await page.wait_for_url("**/account/billing#credit")
        expect_failures(tab)


async def test_a_live_session_is_resumed_after_a_lost_connection(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/live/motion-model")
        await page.click("#live .primary")
        await page.evaluate(FRAMES, 3)
        await page.context.set_offline(True)
        await wait_for_text(page, "#stage", "Connection lost")
        await page.context.set_offline(False)
        await wait_for_text(page, BAR, "Connected again")
        await page.evaluate(FRAMES, 3)
        assert await page.is_visible("#stop")
        expect_failures(tab)


async def test_invalid_file_offers_to_choose_another(dot_app: tuple[AppFixture, Any], tmp_path: Path) -> None:
    app, chromium = dot_app
    wrong, plain = tmp_path / "wrong.jpg", tmp_path / "plain.png"
    wrong.write_text("This is text.")
    Image.new("RGB", (64, 64)).save(plain)
    async with serve(app.asgi) as url, browser.tab(chromium, app, url, TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open("/catalog/upscaler")
        await page.set_input_files("#file-image", wrong)
        await wait_for_text(page, "[data-problem=image]", "wrong.jpg is not an image")
        async with page.expect_file_chooser() as chooser:
            await page.click("[data-problem=image] >> text='Choose another file'")
        await (await chooser.value).set_files(plain)
        await page.wait_for_selector(".file-preview img")
        assert not await page.is_visible("[data-problem=image]")
        await page.set_input_files("#open-file", plain)
        await page.wait_for_selector("#dropped .step >> text='Choose another file'", timeout=SOON_MS)
        await page.click("#dropped >> text='Close'")
        assert not await page.is_visible("#dropped")
        expect_failures(tab)


async def test_the_end_of_a_long_run_is_notified(dot_app: tuple[AppFixture, Any]) -> None:
    app, chromium = dot_app
    async with serve(app.asgi) as url, browser.tab(chromium, app, url) as tab:
        page = tab.page
        await page.add_init_script(NOTIFICATIONS)
        await page.clock.install()
        await tab.open(FORM)
        await page.fill("#in-prompt", "SLOW fox")
        await page.click("#run .actions .primary")
        await page.wait_for_selector("#stage:text-is('Running')")
        assert not await page.is_visible("#notify")
        await page.clock.fast_forward("00:09")
        await page.click("#notify")
        await page.wait_for_selector("#notify[aria-pressed=true]")
        await page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
        await page.click("#cancel")
        await page.wait_for_selector(".prediction[data-status=canceled]")
        assert (await page.evaluate("window.notified"))[0].endswith("canceled")


@pytest.mark.nightly
async def test_a_silent_server_is_noticed(tmp_path: Path) -> None:
    silent, hidden = asyncio.Event(), asyncio.Event()

    async with running_app(tmp_path) as app, browser.browser() as chromium:

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            if silent.is_set() and scope["type"] == "http":
                await hidden.wait()
            await app.asgi(scope, receive, send)

        async with serve(answer) as url, browser.tab(chromium, app, url) as tab:
            page = tab.page
            await tab.open("/account")
            silent.set()
            await page.keyboard.press("Control+k")
            await wait_for_text(page, BAR, "Connection lost")
            silent.clear()
            hidden.set()
            await wait_for_text(page, BAR, "Connected again")
            expect_failures(tab)
