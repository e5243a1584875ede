"""The run form of a model in a real browser: files, errors, lost connections, reloads, results."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from sixfold.core.accounts import accounts
from tests.api import browser, page_checks
from tests.api.browser import TabOptions
from tests.harness.cases import nightly_after

pytestmark = [pytest.mark.browser, browser.needed]
DONE = ".prediction[data-status=succeeded]"
RUN = "#run .actions .primary"
# The boxes of elements and the size of the window.
BOXES = """(...selectors) => selectors[0].map((each) => {
  const { top, bottom, left, right } = document.querySelector(each).getBoundingClientRect();
  return [top >= 0, bottom <= innerHeight, left >= 0, right <= innerWidth].every(Boolean);
})"""
# Submits the form and looks in the next frame, before any response can have arrived.
TAP = """(selector) => new Promise((done) => {
  document.querySelector(selector).click();
  requestAnimationFrame(() => {
    const { top, bottom } = document.querySelector("#waiting").getBoundingClientRect();
    done([top >= 0, bottom <= innerHeight, bottom > top]);
  });
})"""


async def _run_image_model(page: Any, model: str = "fast-image-native") -> None:
    await page.fill("#in-prompt", "a red fox in snow")
    if model == "fast-image-native":
        for side in ("width", "height"):
            await page.fill(f"#in-{side}", "256")
    await page.click(RUN)
    await page.wait_for_selector(f"{DONE} img")


def _photo(path: Path, *, subject: bool) -> Path:
    photo = Image.new("RGB", (320, 240), (200, 210, 220))
    if subject:
        ImageDraw.Draw(photo).ellipse((100, 60, 220, 180), fill=(190, 50, 40))
    photo.save(path)
    return path


# The distance between the highest and the lowest middle of the visible parts of a model's header.
SPREAD = """() => {
  const children = ":scope > :not([popover]):not(.problem), .facts, .jump";
  const parts = document.querySelector(".one-line").querySelectorAll(children);
  const boxes = [...parts].map((each) => each.getBoundingClientRect()).filter((box) => box.height);
  const middles = boxes.map((box) => (box.top + box.bottom) / 2);
  return Math.max(...middles) - Math.min(...middles);
}"""


async def test_the_header_of_a_model_has_one_line(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        for width, scheme in zip(page_checks.WIDTHS, ("light", "dark", "light"), strict=True):
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size({"width": width, "height": 844})
            for model in ("ra1", "create_image_klein"):
                await tab.open(f"/catalog/{model}")
                assert await page.evaluate(SPREAD) < 8, (model, width)
                header = await page.locator(".one-line").bounding_box()
                assert header["height"] < (75 if width > 900 else 40), (model, width)
                await page_checks.is_accessible(tab)
        assert not await page.is_visible(".about-model")
        await page.click("text='About'")
        assert await page.is_visible(".about-model")
        await page_checks.is_accessible(tab)
        await page.click(".jump >> text='Engines'")
        assert not await page.is_visible(".about-model")
        assert await page.evaluate("scrollY") > 0


async def test_result_receipt_and_actions_fit_the_window(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=1440)) as tab:
        page = tab.page
        await tab.open("/catalog/ra1")
        head = await page.locator(".head-line h1").bounding_box()
        form = await page.locator("#run").bounding_box()
        assert form["y"] - head["y"] < 80
        assert "lighthouse" in await page.get_attribute("#in-prompt", "placeholder")
        # The start page leads here; the preview engine ignores a word and states it in one line.
        left = (await page.locator(".top nav").bounding_box())["x"]
        await tab.open("/")
        assert (await page.locator(".top nav").bounding_box())["x"] == left
        await page.fill("#prompt", "a red fox in snow, first")
        await page.click("#generate .primary")
        await page.wait_for_url("**/catalog/ra1?run=*")
        await page.wait_for_selector(f"{DONE} img")
        selectors = ["#run", ".warning", ".outputs img", ".receipt-strip", ".next-steps"]
        assert await page.evaluate(BOXES, selectors) == [True] * len(selectors)
        assert not await page.is_visible(".receipt")
        assert await page.inner_text("#balance") == "4.96 USD"
        async with page.expect_download() as coming:
            await page.click(".outputs figcaption a")
        name = (await coming.value).suggested_filename
        assert re.fullmatch(r"a-red-fox-in-snow-first_[0-9a-z]{8}\.png", name)
        await page.click(".receipt-strip summary")
        assert await page.is_visible(".receipt")


async def test_a_tap_on_a_phone_shows_progress_in_the_next_frame(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab(TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open("/catalog/ra1")
        await page.fill("#in-prompt", "a red fox")
        assert await page.evaluate(BOXES, [".actions"]) == [True]
        assert await page.evaluate(TAP, RUN) == [True] * 3
        await page.wait_for_selector(f"{DONE} img")
        assert await page.evaluate(BOXES, [".outputs img", ".actions"]) == [True] * 2
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert await page.evaluate(BOXES, ["#in-prompt"]) == [False]
        await page.click("text='Edit'")
        assert await page.evaluate(BOXES, ["#in-prompt", ".actions"]) == [True] * 2


async def test_a_refused_file_is_named_in_view_on_a_phone(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    url = browser_app.url
    async with browser_app.tab(TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open("/catalog/vectorizer")
        await page.set_input_files("#file-image", _photo(tmp_path / "photo.png", subject=True))
        await page.wait_for_selector(".file-preview img")
        await page.click(RUN)
        await page.wait_for_selector(f"{DONE} img")
        assert await page.locator("text='Use in'").count() == 0
        drawing = url + await page.get_attribute(".outputs figcaption a", "href")
        await tab.open("/catalog/remove-background")
        # A drawing is not offered as an image, and refused if its address is pasted.
        assert await page.locator("[data-drop]:has(#in-image_url) .tray button").count() == 1
        await page.fill("#in-image_url", drawing)
        await page.click(RUN)
        await page.wait_for_selector("[data-problem=image_url]:not([hidden])")
        assert await page.evaluate(BOXES, ["[data-problem=image_url]"]) == [True]
        tab.ignore("status of 400", "status of 422")


async def test_an_opened_file_shows_its_form_and_result(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    url = browser_app.url
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/fast-image-native")
        await _run_image_model(page)
        source = await page.get_attribute(".outputs img", "src")
        (file := tmp_path / "fox.png").write_bytes(await (await page.request.get(url + source)).body())
        await tab.open("/account")
        await page.set_input_files("#open-file", file)
        await page.wait_for_selector("#restored:has-text('signed by this server')")
        assert await page.input_value("#in-prompt") == "a red fox in snow"
        await page.wait_for_selector(f"{DONE} .outputs img[src='{source}']")
        assert not await page.is_visible("#waiting")


async def test_a_forecast_has_axes_values_and_backtest(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    values = [100 + 4 * month % 48 + 2 * month for month in range(48)]
    series = [{"t": f"{2022 + month // 12}-{month % 12 + 1:02d}", "y": y} for month, y in enumerate(values)]
    request = {"model": "forecast", "input": {"series": series, "horizon": 6}}
    result = (await app.client.post("/api/containers/run", json=request, headers=app.bearer)).json()
    tested = len(result["output"]["backtest"]["mean"])
    assert tested == math.prod(result["output"]["backtest"][name] for name in ("windows", "horizon"))
    async with browser_app.tab(TabOptions(width=1440)) as tab:
        page = tab.page
        for width, scheme in zip(page_checks.WIDTHS, ("light", "dark", "light"), strict=True):
            await page.set_viewport_size({"width": width, "height": 844})
            await page.emulate_media(color_scheme=scheme)
            await tab.open(f"/predictions/{result['id']}")
            assert await page.locator(".x-axis text").all_text_contents() == [
                "2022",
                "2023",
                "2024",
                "2025",
                "2026",
            ]
            ticks = await page.locator(".y-axis text").all_text_contents()
            assert ticks == sorted(ticks, key=float)
            assert len(ticks) in range(4, 8)
            boxes = [await each.bounding_box() for each in await page.locator(".forecast text").all()]
            assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
            assert min(box["height"] for box in boxes) >= 11
            legend = await page.locator(".forecast .legend li").all_inner_texts()
            assert legend == ["Series", "Forecast", "80 % interval", "95 % interval", "Backtest", "Its error"]
            assert await page.get_attribute(".forecast .area .tested", "d")
            # The value of a point is read with the keyboard and with the pointer.
            await page.focus(".forecast .area input")
            reading = await page.inner_text(".forecast .reading")
            assert re.fullmatch(r"Dec 2025: series 238, backtest [\d.]+", reading)
            await page.keyboard.press("ArrowRight")
            reading = await page.inner_text(".forecast .reading")
            assert re.fullmatch(
                r"Jan 2026: forecast .+, 80 % interval .+ to .+, 95 % interval .+ to .+", reading
            )
            area = await page.locator(".forecast .area").bounding_box()
            await page.mouse.move(area["x"] + area["width"] * 46 / 53, area["y"] + 20)
            assert re.match(r"Nov 2025: series \d+, backtest \d", await page.inner_text(".forecast .reading"))
            assert await page.locator(".forecast .area .cursor").count() == 1
            await page.click(".forecast summary")
            rows = await page.locator(".forecast tbody tr").all_inner_texts()
            assert len(rows) == 54
            assert sum(row.split("\t")[-1] != "" for row in rows) == tested
            await page_checks.is_accessible(tab)


async def test_a_forecast_is_drawn_with_its_intervals(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    values = [12, 15, 21, 18, 13, 17, 24, 20, 15, 19, 26, 23, 17, 21, 29, 25]
    series = [*values[:4], None, *values]
    request = {"model": "forecast", "input": {"series": series, "season_length": 4, "horizon": 4}}
    result = (await app.client.post("/api/containers/run", json=request, headers=app.bearer)).json()
    async with browser_app.tab(TabOptions(width=390)) as tab:
        page = tab.page
        await tab.open(f"/predictions/{result['id']}")
        # A gap interrupts the series; the forecast begins at its last value.
        paths = {
            name: await page.get_attribute(f".forecast .plot .{name}", "d") for name in ("series", "mean")
        }
        assert [paths["series"].count(letter) for letter in "ML"] == [2, 18]
        assert [paths["mean"].count(letter) for letter in "ML"] == [1, 4]
        assert paths["mean"][1:].split("L")[0] == re.split("[ML]", paths["series"])[-1]
        assert await page.locator(".forecast .band").count() == 2
        text = await page.inner_text(".forecast figcaption")
        assert "21 values of the series and 4 forecast values, between " in text
        assert "with intervals of 80 % and 95 %. Backtest: mean absolute error" in text
        assert "mean" in await page.locator(".outputs pre").text_content()
        await page_checks.is_accessible(tab)


@pytest.mark.parametrize("width", nightly_after(1, [390, 1440]))
async def test_model_page_links_to_its_live_session(browser_app: browser.BrowserApp, width: int) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/catalog/world-model")
        await page.wait_for_selector("#price:has-text('by voxel-world')")
        assert await page.evaluate(BOXES, [".actions", ".live-link"]) == [True] * 2
        assert (await page.locator(".actions").bounding_box())["height"] < 110
        await page.click("text='Start a live session'")
        await page.wait_for_url("**/live/world-model")
        await tab.open("/catalog/chat")
        await page.click("text='Open the chat page'")
        await page.wait_for_url("**/chat")


async def test_replay_compares_outputs_only_when_it_is_done(browser_app: browser.BrowserApp) -> None:
    url = browser_app.url
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/fast-image-native")
        await _run_image_model(page)
        await page.click("text='Details'")
        async with page.expect_response("**/replay") as replayed:
            await page.click("text='Replay'")
        first = await (
            await page.context.request.get(url + (await replayed.value).headers["location"])
        ).text()
        await page.wait_for_selector("text=identical output")
        assert "different output" not in first


@pytest.mark.nightly
async def test_a_lost_connection_is_named_and_recovers(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/ra1")
        await page.route("**/events", lambda route: route.abort())
        await page.fill("#in-prompt", "a red fox")
        await page.click(RUN)
        await page.wait_for_selector("#stage:has-text('Connection lost. Your run continues')")
        await page.unroute("**/events")
        await page.wait_for_selector(f"{DONE} img")
        assert not await page.is_visible("#waiting")
        tab.ignore("ERR_FAILED")


async def test_a_reload_shows_the_run_and_its_inputs_again(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        for path in ("/catalog/fast-image-native", "/workflows/turbo-text-to-image"):
            await tab.open(path)
            await _run_image_model(page)
            result = await page.get_attribute(".outputs img", "src")
            assert "?run=pred_" in page.url
            await page.reload()
            await page.wait_for_selector(f"{DONE} img")
            assert await page.get_attribute(".outputs img", "src") == result
            assert await page.input_value("#in-prompt") == "a red fox in snow"


async def test_invalid_files_are_refused_before_upload(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    (tmp_path / "wrong.jpg").write_text("no image")
    (tmp_path / "big.bin").write_bytes(bytes(range(256)) * 64)
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if "uploads" in request.url else None)
        for name in ("wrong.jpg", "big.bin"):
            await page.set_input_files("#file-image_url", tmp_path / name)
            await page.wait_for_selector(f"[data-problem=image_url]:has-text('{name} is not an image')")
        await page.evaluate("document.getElementById('run').dataset.maxBytes = 1000")
        await page.set_input_files("#file-image_url", tmp_path / "big.bin")
        await page.wait_for_selector("[data-problem=image_url]:has-text('a file may have at most 1 kB')")
        assert sent == []
        refused = await page.evaluate(
            """async () => {
              const headers = { "X-CSRF-Token": document.body.dataset.csrf };
              const body = new Blob(["no image"]);
              const response = await fetch("/pages/uploads?kind=image", { method: "POST", headers, body });
              return [response.status, (await response.json()).error];
            }"""
        )
        assert refused[0] == 400
        assert "is not a supported image file (text/plain)" in refused[1]
        tab.ignore("status of 400")


async def test_an_upload_shows_its_percentage(browser_app: browser.BrowserApp, tmp_path: Path) -> None:
    photo = tmp_path / "noise.png"
    Image.effect_noise((1600, 1200), 90).save(photo)
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        await page.evaluate(
            """() => {
              window.hints = [];
              const hint = document.querySelector(".choose");
              const note = () => window.hints.push(hint.textContent);
              new MutationObserver(note).observe(hint, { childList: true });
            }"""
        )
        await page.set_input_files("#file-image_url", photo)
        await page.wait_for_selector(".file-preview img")
        assert not await page.is_visible("#in-image_url")
        hints = await page.evaluate("window.hints")
        assert hints[0] == "Uploading noise.png … 0 %"
        assert hints[-1] == "Drop a file or browse"
        assert await page.inner_text(".file-name") == "noise.png"


async def test_run_without_credit_shows_balance_price_and_remedy(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    cleo = await app.database.read(accounts.by_email("cleo@example.com"))
    async with browser_app.tab(account=cleo) as tab:
        page = tab.page
        await tab.open("/catalog/ra1")
        await page.fill("#in-prompt", "a red fox")
        await page.click(RUN)
        fault = page.locator("#fault")
        await fault.wait_for(state="visible")
        assert await fault.inner_text() == "You have 0.00 USD, and this run needs 0.04 USD. Get credit"
        assert await page.locator("#result > *").count() == 0
        await fault.get_by_text("Get credit").click()
        assert "Ask the operator for credit" in await page.inner_text("#credit")
        await tab.open("/live/motion-model")
        await page.click("#live .primary")
        stage = page.locator("#stage", has_text="a session needs more to start. Get credit")
        await stage.get_by_text("Get credit").click()
        assert await page.locator("#credit").is_visible()
        tab.ignore("status of 402")


async def test_cut_out_of_low_confidence_shows_a_warning(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        await page.fill("#in-box", "10, 10, 300, 200")
        await page.wait_for_selector("#price:has-text('Image is required.')")
        await page.fill("#in-box", "")
        await page.set_input_files("#file-image_url", _photo(tmp_path / "plain.png", subject=False))
        await page.wait_for_selector(".file-preview img")
        await page.click(RUN)
        await page.wait_for_selector(DONE)
        warning = page.locator(".warning")
        assert (await warning.inner_text()).startswith("No subject stands out from the background")
        assert not await page.is_visible("#log")
        above, below = await warning.bounding_box(), await page.locator(".outputs").bounding_box()
        assert above["y"] < below["y"]
        await page.wait_for_selector(".compare")
        pattern = "element => getComputedStyle(element).backgroundImage"
        assert "conic-gradient" in await page.eval_on_selector(".compare", pattern)
        await page.focus(".compare input")
        await page.keyboard.press("Home")
        at = await page.eval_on_selector(".compare", "element => element.style.getPropertyValue('--at')")
        assert json.dumps(at) == '"0%"'
        # A run without a prompt has the name of its file as its title.
        await page.click("text='Details'")
        assert await page.inner_text("h1") == "plain.png"
        assert await page.inner_text(".lineage b >> nth=0") == "image"
