"""Live sessions in a real browser: state, meter, pause, pad, snapshot, recording, history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import av
import pytest

from sixfold.app import catalog as app_catalog
from tests.api import browser, page_checks
from tests.api.app_fixture import running_app
from tests.api.browser import TabOptions
from tests.api.test_pages_browser import FRAMES
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]
METER = re.compile(r"00:\d\d · 0\.0\d+ USD")


@pytest.fixture
async def pausing_app(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server whose sessions pause soon, its address and a browser."""
    async with (
        running_app(tmp_path, app_catalog.models_document(), session_pause_seconds=1.5) as app,
        serve(app.asgi) as url,
        browser.browser() as chromium,
    ):
        yield browser.BrowserApp(app, url, chromium)


async def test_a_session_pauses_and_continues_free_of_charge(pausing_app: browser.BrowserApp) -> None:
    app = pausing_app.app
    async with pausing_app.tab() as tab:
        page = tab.page
        await tab.open("/live/motion-model")
        await page.click("#live .primary")
        await page.wait_for_selector("#pause:not([hidden])")
        assert await page.inner_text("#stage") == "Paused"
        frames = await page.get_attribute("#canvas", "data-frames")
        paused = await page.inner_text("#meter")
        assert METER.fullmatch(paused)
        await page.click("#continue")
        await page.wait_for_selector("#stage:text-is('Live')")
        assert await page.is_hidden("#pause")
        await page.evaluate(FRAMES, 3)
        assert int(frames) < int(await page.get_attribute("#canvas", "data-frames"))
        await page.click("#stop")
        await page.wait_for_selector("text='Start again'")
        assert await page.inner_text("#stage") == "Ended"
        (session,) = (await app.client.get("/api/account/ledger", headers=app.bearer)).json()["entries"][:1]
        title = await page.get_attribute("#meter", "title")
        assert float(title.split()[0]) == -float(session["amount_usd"]), "the meter shows what was charged"
        await tab.open("/predictions?kind=live")
        assert await page.get_attribute(".run .facts data", "title") == title
    assert await app.faults() == ()


async def test_a_recording_becomes_a_run_with_a_video(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/live/world-model")
        assert await page.is_disabled("#record")
        await page.click("#live .primary")
        await page.click("#record")
        await page.wait_for_selector("#recording:has-text('Recording 00:0')")
        # The button still has the focus, and keys move; typed text does not.
        await page.keyboard.down("w")
        assert await page.get_attribute(".pads [data-key=w]", "aria-pressed") == "true"
        await page.keyboard.down("Shift")
        assert await page.evaluate("heldKeys.has('shift')")
        await page.keyboard.up("Shift")
        await page.wait_for_selector("#stage:text-is('Live')")
        await page.focus("#prompt")
        assert await page.get_attribute(".pads [data-key=w]", "aria-pressed") == "false"
        await page.keyboard.up("w")
        await page.keyboard.down("w")
        assert await page.get_attribute(".pads [data-key=w]", "aria-pressed") == "false"
        await page.keyboard.up("w")
        await page.evaluate(FRAMES, 4)
        assert not await page.is_visible("#ignored")
        assert not await page.is_visible("#saved-notice")
        await page.click("#stop")
        await page.wait_for_selector("#saved img")
        assert await page.inner_text("#saved-notice a") == "1 saved ↓"
        path = await page.get_attribute("#saved a", "href")
        prediction = (await app.client.get(f"/api/containers{path}", headers=app.bearer)).json()
        assert (prediction["model"], prediction["status"], prediction["cost"]) == (
            "live-recording",
            "succeeded",
            "0.00",
        )
        video = await app.client.get(prediction["output"]["url"])
        (tmp := app.settings.data_dir / "recording.mp4").write_bytes(video.content)
        with av.open(str(tmp)) as container:
            frames = sum(1 for _ in container.decode(video=0))
            assert (container.streams.video[0].width, container.streams.video[0].height) == (480, 270)
        assert frames >= 2
        # The charge of the session, which follows its end, leads to the session in the history.
        link = page.locator(".ledger a:has-text('World: minute 1')")
        async with asyncio.timeout(60):
            while not await link.count():
                await tab.open("/account/billing")
        await link.first.click()
        await page.wait_for_url("**/predictions?kind=live")
        assert await page.locator("main article, main li").count() > 0
        await tab.open(path)
        assert await page.locator(".receipt li").count() == 6
        assert await page.locator("text='Run again with changes'").count() == 0
        assert await page.inner_text("h1") == "an island with palms at sunset"
    assert await app.faults() == ()


@pytest.mark.nightly
@pytest.mark.parametrize("width", page_checks.EACH_WIDTH)
async def test_the_live_page_fits_and_its_pad_moves(browser_app: browser.BrowserApp, width: int) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await page_checks.opens_well(tab, "/live/world-model")
        for selector in ("#canvas", "#live .primary", ".pads [data-key=w]"):
            box = await page.locator(selector).bounding_box()
            assert box["y"] + box["height"] <= 900, selector
        await page.click("#live .primary")
        await page.evaluate(FRAMES, 2)
        await page.hover(".pads [data-key=w]")
        await page.mouse.down()
        await page.wait_for_selector("#stage:text-is('Live')")
        assert await page.get_attribute(".pads [data-key=w]", "aria-pressed") == "true"
        await page.mouse.up()
        async with page.expect_download() as download:
            await page.click("#snapshot")
        assert (await download.value).suggested_filename.startswith("world-model_")
        link = await page.get_attribute("#saved >> text='Saved file'", "href")
        snapshot = await app.client.get(link)
        assert snapshot.headers["content-type"] == "image/png"
        await page_checks.is_accessible(tab)
        await page.click("#fullscreen")
        await page.wait_for_selector("#fullscreen[aria-pressed=true]")
        await page.click("#fullscreen")
        await page.click("#stop")


@pytest.mark.parametrize("touch", [True, False], ids=["touch", "mouse"])
async def test_state_and_buttons_are_beside_the_image_on_a_phone(
    browser_app: browser.BrowserApp, touch: bool
) -> None:
    for width in (390, 834):
        async with browser_app.tab(TabOptions(width=width, touch=touch)) as tab:
            for model in ("world-model", "motion-model"):
                await tab.open(f"/live/{model}")
                image, frame, tools, state, *buttons = [
                    await tab.page.locator(selector).bounding_box()
                    for selector in ("#canvas", "#frame", ".live-tools", ".live-top", "#snapshot", "#record")
                ]
                assert all(
                    button["y"] + button["height"] <= frame["y"] + frame["height"] for button in buttons
                )
                is_below = [button["y"] >= image["y"] + image["height"] for button in buttons]
                assert is_below == [width == 390] * 2, (model, width)
                assert (state["y"] + state["height"] <= image["y"]) == (width == 390), (model, width)
                assert tools["x"] + tools["width"] <= width
            await page_checks.is_accessible(tab)
