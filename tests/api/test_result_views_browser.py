"""Results with data in a real browser: the run, two runs side by side, and the shared link look the same."""

from __future__ import annotations

import io
import json
import re
import wave
from typing import Any

import pytest
from PIL import Image

from sixfold.ui.predictions import output_view
from tests.api import browser, page_checks
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.media_samples import upload
from tests.api.test_page_details_browser import SHIFT
from tests.api.test_shares import share

pytestmark = [pytest.mark.browser, browser.needed]
SERIES = [12, 15, 21, 18, 13, 17, 24, 20, 15, 19, 26, 23, 17, 21, 29, 25]


async def run(app: AppFixture, model: str, **inputs: Any) -> str:
    """Run a model; return the id of the prediction."""
    body = {"model": model, "input": inputs}
    answer = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    assert answer["status"] == "succeeded", answer
    return str(answer["id"])


async def shared_path(app: AppFixture, prediction_id: str, **more: Any) -> str:
    """Share a run; return the path of its page."""
    created = await share(app, "run", prediction_id, **more)
    return str(created["url"]).removeprefix(app.settings.base_url)


@pytest.mark.parametrize("width", page_checks.EACH_WIDTH)
async def test_a_shared_forecast_is_drawn_like_the_run(browser_app: browser.BrowserApp, width: int) -> None:
    app = browser_app.app
    first, second = [
        await run(app, "forecast", series=SERIES, season_length=4, horizon=horizon) for horizon in (4, 8)
    ]
    path = await shared_path(app, first)
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open(f"/predictions/{first}")
        await tab.page.wait_for_selector(".forecast .area input")
        drawn = await tab.page.inner_html(".forecast")
        await tab.open(f"/predictions/selection?id={first}&id={second}")
        await tab.page.wait_for_selector(".forecast .area input >> nth=1")
        assert await tab.page.inner_html(".forecast >> nth=1") == drawn
        assert await tab.page.locator(".forecast").count() == 2
        await page_checks.is_accessible(tab)
    async with browser_app.tab(TabOptions(width=width, signed_in=False)) as tab:
        await page_checks.opens_well(tab, path)
        assert await tab.page.inner_html(".forecast") == drawn
        assert await tab.page.locator(".forecast .band").count() == 2
        assert "Backtest: mean absolute error" in await tab.page.inner_text(".forecast figcaption")
        assert not await tab.page.is_visible(".outputs pre")
        box = await tab.page.locator(".forecast .plot").bounding_box()
        assert box["height"] >= 150


@pytest.mark.parametrize("width", page_checks.EACH_WIDTH)
async def test_vectors_are_drawn_as_strips_with_similarities(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app = browser_app.app
    texts = ["a lighthouse on the coast", "a lighthouse by the sea", "the annual report " * 9]
    first = await run(app, "embeddings", texts=texts)
    path = await shared_path(app, first)
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await page_checks.opens_well(tab, f"/predictions/{first}")
        label = await page.get_attribute(".strip svg >> nth=0", "aria-label")
        assert re.fullmatch(r"a lighthouse on the coast: vector of \d+ dimensions, norm 1", label)
        strips = page.locator(".strip")
        assert await strips.count() == 3
        assert await strips.nth(0).locator("path[opacity]").count() >= 2
        values = json.loads(await strips.nth(0).get_attribute("data-strip"))
        assert not await page.is_visible(".outputs pre")
        box = await strips.nth(0).bounding_box()
        await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
        shown = page.locator(".vectors [data-value] >> nth=0")
        ((dimension, value),) = re.findall(r"^dimension (\d+): (.+)$", await shown.inner_text())
        assert abs(int(dimension) - len(values) / 2) <= 2
        assert float(value) == values[int(dimension) - 1]
        await page.mouse.move(box["x"] + 5, box["y"] - 40)
        assert await shown.inner_text() == ""
        slider = strips.nth(0).locator("input")
        await slider.press("ArrowRight")
        assert await shown.inner_text() == f"dimension 2: {values[1]:g}"
        assert await slider.get_attribute("aria-valuetext") == await shown.inner_text()
        rows = [
            await each.all_inner_texts() for each in [page.locator(".similarity tbody tr:nth-child(1) td")]
        ]
        assert rows[0][0] == "1.00"
        assert await page.locator(".similarity .nearest").all_inner_texts() == [
            rows[0][1],
            rows[0][1],
        ] + (await page.locator(".similarity tr:nth-child(3) .nearest").all_inner_texts())
        await page_checks.is_accessible(tab)
    async with browser_app.tab(TabOptions(width=width, scripts=False, signed_in=False)) as tab:
        await tab.open(path)
        assert await tab.page.locator(".strip svg").count() == 3
        assert await tab.page.locator(".similarity td").count() == 10


@pytest.mark.parametrize("width", page_checks.EACH_WIDTH)
async def test_a_text_with_further_values_is_shown_as_text(
    browser_app: browser.BrowserApp, width: int
) -> None:
    app = browser_app.app
    photo = io.BytesIO()
    Image.effect_noise((96, 64), 90).convert("RGB").save(photo, "PNG")
    file = {"file": ("harbour.png", photo.getvalue(), "image/png")}
    image = (await app.client.post("/api/uploads", files=file, headers=app.bearer)).json()["url"]
    body = {"model": "caption", "input": {"image_url": image}}
    records = [
        (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json() for _ in range(2)
    ]
    (first, second), text = [record["id"] for record in records], records[0]["output"]["text"]
    path = await shared_path(app, first)
    for shown, signed_in in (
        (f"/predictions/{first}", True),
        (f"/catalog/caption?run={first}", True),
        (f"/predictions/selection?id={first}&id={second}", True),
        (path, False),
    ):
        options = TabOptions(width=width, signed_in=signed_in)
        async with browser_app.tab(options) as tab:
            await tab.open(shown)
            assert await tab.page.inner_text(".text-result >> nth=0") == text, shown
            assert not await tab.page.is_visible(".outputs pre"), shown
            await tab.page.click("summary:has-text('Values') >> nth=0")
            assert '"palette"' in await tab.page.inner_text(".outputs pre >> nth=0")
            await page_checks.is_accessible(tab)
    async with browser_app.tab(TabOptions(width=390, touch=True)) as tab:
        await tab.open("/predictions")
        padding = "(each) => parseFloat(getComputedStyle(each).paddingTop)"
        box = await tab.page.locator(".pick-run >> nth=0").evaluate(
            "(each) => each.offsetTop + each.offsetHeight"
        )
        # On a touch screen the box is always shown, and does not cover the text.
        if await tab.page.evaluate("matchMedia('(hover: none)').matches"):
            assert await tab.page.locator(".excerpt >> nth=0").evaluate(padding) >= box
        await tab.open(f"/shares/new?kind=run&id={first}")
        assert await tab.page.inner_text(".what") == "Caption"
        await tab.open("/account/shares")
        assert "caption" not in await tab.page.inner_text("main li >> nth=0")


# Whether each segment is marked as the current one.
CURRENT = """() => [...document.querySelectorAll(".transcript button")].map((each) => each.ariaCurrent)"""


async def transcribed(app: AppFixture) -> str:
    """Transcribe a sentence that is spoken twice with a pause; return the id of the prediction."""
    pytest.importorskip("pocketsphinx", reason="needs the extra `speech`")
    body = {"model": "tts", "input": {"text": "Open the door to the garden.", "format": "wav"}}
    answer = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    spoken = (await app.client.get(answer["output"]["url"])).content
    recording = io.BytesIO()
    with wave.open(io.BytesIO(spoken)) as source, wave.open(recording, "wb") as target:
        target.setparams(source.getparams())
        sentence = source.readframes(source.getnframes())
        target.writeframes(sentence + bytes(3 * source.getframerate() * source.getsampwidth()) + sentence)
    return await run(app, "stt", audio_url=await upload(app, recording.getvalue()))


@pytest.mark.parametrize("width", page_checks.EACH_WIDTH)
async def test_segments_of_a_transcript_seek_the_recording(
    browser_app: browser.BrowserApp, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    app = browser_app.app
    result = await transcribed(app)
    monkeypatch.setattr(output_view, "_SURE", 1.1)
    whole, without = [
        await shared_path(app, result, include_inputs=has_inputs) for has_inputs in (True, False)
    ]
    count = 0
    pages = ((f"/predictions/{result}", True), (whole, False))
    for path, signed_in in pages:
        options = TabOptions(width=width, signed_in=signed_in)
        async with browser_app.tab(options) as tab:
            page = tab.page
            await tab.open(path)
            assert await page.evaluate(SHIFT) < page_checks.MAX_SHIFT
            buttons = page.locator(".transcript button")
            count = await buttons.count()
            assert count >= 2
            assert await page.evaluate(CURRENT) == [None] * count
            if signed_in:
                warning = await page.inner_text(".warning")
                assert re.fullmatch(
                    r"Some words are uncertain \(confidence \d.\d\d\): compare them with the recording",
                    warning,
                )
            await page.evaluate("document.querySelector('.transcript audio').muted = true")
            await buttons.nth(1).click()
            await page.wait_for_selector(".transcript li:nth-child(2) [aria-current=true]")
            start = float(await buttons.nth(1).get_attribute("data-start"))
            end = float(await buttons.nth(1).get_attribute("data-end"))
            player = page.locator(".transcript audio")
            time = await player.evaluate("player => { player.pause(); return player.currentTime; }")
            assert start <= time + 0.01 < end + 1
            await player.evaluate("(player, time) => { player.currentTime = time; }", start - 0.5)
            await page.wait_for_selector(".transcript li:nth-child(2) button:not([aria-current])")
            await page_checks.is_accessible(tab)
    async with browser_app.tab(TabOptions(width=width, signed_in=False)) as tab:
        await tab.open(without)
        assert await tab.page.locator(".transcript li").count() == count
        assert await tab.page.locator(".transcript :is(button, audio)").count() == 0
    # A run that is charged by the minute holds the price of the longest recording.
    async with browser_app.tab() as tab:
        await tab.open(f"/catalog/stt?run={result}")
        await tab.page.wait_for_selector("#price:has-text('at most 0.18 USD')")
