"""The editors that mark a form's image, in a real browser: the mask, the box and the points."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import Tab, TabOptions
from tests.api.page_checks import violations
from tests.harness.cases import nightly_after

pytestmark = [pytest.mark.browser, browser.needed]
DONE = ".prediction[data-status=succeeded]"
RUN = "#run .actions .primary"
CANVAS = ".editor-stage canvas"
WIDTHS = [1440, pytest.param(834, marks=pytest.mark.nightly), 390]
SIZE = (320, 240)
# The centers of the two subjects of the photo, and the ground between them.
LEFT, RIGHT, GROUND = (80, 120), (240, 120), (160, 120)


def photo(folder: Path) -> Path:
    image = Image.new("RGB", SIZE, (200, 210, 220))
    for x, y in (LEFT, RIGHT):
        ImageDraw.Draw(image).ellipse((x - 45, y - 60, x + 45, y + 60), fill=(190, 50, 40))
    path = folder / "photo.png"
    image.save(path)
    return path


async def _at(page: Any, point: tuple[float, float]) -> tuple[float, float]:
    """Return where a pixel of the photo is on the page."""
    box = await page.locator(CANVAS).bounding_box()
    x, y = (point[axis] * box[side] / SIZE[axis] for axis, side in enumerate(("width", "height")))
    return box["x"] + x, box["y"] + y


async def _drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*await _at(page, start))
    await page.mouse.down()
    await page.mouse.move(*await _at(page, end), steps=4)
    await page.mouse.up()


async def _swipe(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    devtools = await page.context.new_cdp_session(page)
    for kind, point in (("touchStart", start), ("touchMove", end), ("touchEnd", None)):
        points = [dict(zip("xy", await _at(page, point), strict=True))] if point else []
        await devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    await devtools.detach()


async def _numbers(page: Any, name: str) -> list[int]:
    text = await page.input_value(f"#in-{name}")
    return [int(part) for part in text.split(",")] if text else []


def _is_near(numbers: list[int], expected: list[int]) -> bool:
    return len(numbers) == len(expected) and all(
        abs(number - each) <= 1 for number, each in zip(numbers, expected, strict=True)
    )


async def _opacities(app: AppFixture, tab: Tab) -> list[int]:
    """Run the form; return the opacity of the subjects and of the ground in the output."""
    await tab.page.click(RUN)
    await tab.page.wait_for_selector(DONE)
    path = await tab.page.get_attribute(".outputs figcaption a", "href")
    output = Image.open(io.BytesIO((await app.client.get(path)).content))
    assert output.size == SIZE
    pixels = np.asarray(output.convert("RGBA"))
    return [int(pixels[y, x, 3]) for x, y in (LEFT, RIGHT, GROUND)]


@pytest.mark.parametrize("width", nightly_after(1, WIDTHS))
async def test_box_selects_the_subject_to_cut_out(
    browser_app: browser.BrowserApp, tmp_path: Path, width: int
) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=width, touch=width < 1000)) as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        assert not await page.is_visible("[data-marks=box]")
        await page.set_input_files("#file-image_url", photo(tmp_path))
        await page.click("[data-marks=box]")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        drag = _swipe if width < 1000 else _drag
        await drag(page, (20, 40), (140, 200))
        assert "120 × 160 pixels" in await page.inner_text("dialog [role=status]")
        await drag(page, (80, 120), (100, 120))
        await drag(page, (160, 120), (150, 120))
        await page.click("text=Undo")
        await page.click("text=Undo")
        await page.click("text=Use this box")
        assert _is_near(await _numbers(page, "box"), [20, 40, 140, 200])
        # The field is read again, and the corner is moved with keys.
        await page.fill("#in-box", "20, 40, 120, 180")
        await page.click("[data-marks=box]")
        await drag(page, (120, 180), (145, 200))
        await page.click("text=Use this box")
        assert _is_near(await _numbers(page, "box"), [20, 40, 145, 200])
        assert await _opacities(app, tab) == [255, 0, 0]


@pytest.mark.parametrize("width", nightly_after(1, reversed(WIDTHS)))
async def test_points_select_the_subject_to_cut_out(
    browser_app: browser.BrowserApp, tmp_path: Path, width: int
) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=width, touch=width < 1000)) as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        await page.set_input_files("#file-image_url", photo(tmp_path))
        await page.wait_for_selector(".file-preview img")
        await tab.open("/catalog/remove-background")
        await page.click(".tray button")
        await page.click("[data-marks=points]")
        tap = page.touchscreen.tap if width < 1000 else page.mouse.click
        await tap(*await _at(page, GROUND))
        await tap(*await _at(page, GROUND))
        await tap(*await _at(page, RIGHT))
        await page.check("#point-beside")
        await tap(*await _at(page, (250, 90)))
        await page.keyboard.press("Control+z")
        await tap(*await _at(page, (80, 110)))
        assert "1 on the subject, 1 beside it" in await page.inner_text("dialog [role=status]")
        await page.click("text=Use these points")
        assert _is_near(await _numbers(page, "points"), [*RIGHT, 1, 80, 110, 0])
        assert await _opacities(app, tab) == [0, 255, 0]


async def test_keys_alone_draw_a_box_and_place_points(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    async with browser_app.tab() as tab:
        page, keys = tab.page, tab.page.keyboard
        await tab.open("/catalog/remove-background")
        await page.set_input_files("#file-image_url", photo(tmp_path))
        # `press` does not wait for a visible element, and the button is hidden until the image is uploaded.
        await page.wait_for_selector("[data-marks=box]")
        await page.press("[data-marks=box]", "Enter")
        await page.wait_for_selector(f"{CANVAS}:focus")
        for key in ("Space", *["ArrowRight"] * 3, "ArrowDown", "Shift+ArrowDown", "Space"):
            await keys.press(key)
        await page.press("text=Use this box", "Enter")
        assert await _numbers(page, "box") == [160, 120, 169, 124]
        await page.press("[data-marks=points]", "Enter")
        await page.wait_for_selector(f"{CANVAS}:focus")
        for key in ("Space", "Space", "ArrowUp", "Space"):
            await keys.press(key)
        await page.press("text=Use these points", "Enter")
        assert await _numbers(page, "points") == [160, 117, 1]
        # Cancel and Escape keep the field; Clear and Use empty it.
        await page.press("[data-marks=points]", "Enter")
        await page.wait_for_selector(f"{CANVAS}:focus")
        await page.press("text=Clear", "Enter")
        await keys.press("Escape")
        # A closed dialog is removed later, and `press` would find its hidden button.
        await page.wait_for_selector("dialog", state="detached")
        assert await _numbers(page, "points") == [160, 117, 1]
        await page.press("[data-marks=points]", "Enter")
        await page.wait_for_selector(f"{CANVAS}:focus")
        await page.press("text=Clear", "Enter")
        await page.press("text=Use these points", "Enter")
        assert await page.input_value("#in-points") == ""


@pytest.mark.nightly
async def test_points_end_at_the_limit_of_their_input(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/catalog/remove-background")
        await page.set_input_files("#file-image_url", photo(tmp_path))
        await page.fill("#in-points", ", ".join("10, 10, 1" for _ in range(31)))
        await page.click("[data-marks=points]")
        await page.mouse.click(*await _at(page, RIGHT))
        await page.mouse.click(*await _at(page, LEFT))
        assert await violations(page) == []
        assert "32 points are the most" in await page.inner_text("dialog [role=status]")
        await page.click("text=Use these points")
        assert len(await _numbers(page, "points")) == 96


@pytest.mark.parametrize("width", nightly_after(1, WIDTHS))
async def test_painted_mask_is_uploaded_and_removes_its_area(
    browser_app: browser.BrowserApp, tmp_path: Path, width: int
) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=width)) as tab:
        page = tab.page
        await tab.open("/catalog/inpaint-cleaner")
        assert not await page.is_visible("[data-marks=mask]")
        await page.set_input_files("#file-image", photo(tmp_path))
        await page.click("[data-marks=mask]")
        canvas = await page.locator(".editor-stage canvas").bounding_box()
        image = await page.locator(".editor-stage img").bounding_box()
        assert [round(canvas[name] - image[name]) for name in ("x", "y", "width", "height")] == [0] * 4
        center = canvas["x"] + canvas["width"] / 2, canvas["y"] + canvas["height"] / 2
        await page.mouse.move(*center)
        await page.mouse.down()
        await page.mouse.move(center[0] + canvas["width"] / 10, center[1])
        await page.mouse.up()
        await page.press(".editor-stage canvas", " ")
        await page.click("text=Undo")
        await page.click("text=Use this mask")
        await page.wait_for_selector(".field:has(#in-mask) .file-preview img")
        file = await app.client.get(await page.input_value("#in-mask"))
        mask = Image.open(io.BytesIO(file.content)).convert("L")
        assert mask.size == (320, 240)
        points = (160, 120), (190, 120), (100, 120), (160, 60)
        assert [mask.getpixel(point) for point in points] == [255, 255, 0, 0]
        await page.click(RUN)
        await page.wait_for_selector(f"{DONE} img")
        assert tab.errors == []
