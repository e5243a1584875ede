"""The newcomer's tour of the guide in a real Chromium, from the start page to a balanced ledger."""

from __future__ import annotations

import asyncio
import io
from decimal import Decimal
from pathlib import Path

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.api.browser import Tab
from tests.api.test_pages_browser import DONE, FRAMES
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.nightly, pytest.mark.browser, browser.needed]

PAGE = "projects/zeppelin"
TEXT = "# Zeppelin\n\nThe airship leaves in June.\n\nAnn steers it.\n"


async def keep(tab: Tab, pictures: Path, name: str) -> None:
    shot = Image.open(io.BytesIO(await tab.page.screenshot())).convert("RGB")
    shot.thumbnail((900, 900), Image.Resampling.LANCZOS)
    shot.save(pictures / f"tour-{name}.webp", quality=78)


async def generate_image(tab: Tab, pictures: Path) -> None:
    page = tab.page
    await tab.open("/")
    await page.fill("#prompt", "A hot-air balloon over mountains at dawn")
    await page.select_option("#model", "anime")
    await page.click("#generate .primary")
    await page.wait_for_url("**/catalog/anime?run=*")
    await page.wait_for_selector(f"{DONE} img")
    await page.eval_on_selector(f"{DONE} img", "image => image.decode()")
    await page.evaluate("Promise.all(document.getAnimations().map((one) => one.finished)).then(() => 0)")
    await page.click(".receipt-strip summary")
    assert await page.is_visible(".receipt")
    await keep(tab, pictures, "picture")


async def looks_around(tab: Tab, pictures: Path) -> None:
    page = tab.page
    await tab.open("/")
    await page.click("text=All models in the catalog")
    await page.wait_for_url("**/catalog")
    assert await page.locator(".card").count() > 40
    await page.evaluate(
        "Promise.all([...document.images].filter(i => i.y < 900).map(i => i.decode().catch(() => 0)))"
    )
    await keep(tab, pictures, "catalog")


async def walks(tab: Tab, pictures: Path) -> None:
    """A world that answers to keys."""
    page = tab.page
    await tab.open("/live/world-model")
    await page.click("#live .primary")
    await page.evaluate(FRAMES, 3)
    before = await page.eval_on_selector("#canvas", "canvas => canvas.toDataURL()")
    await page.focus("#canvas")
    await page.keyboard.down("w")
    await page.evaluate(FRAMES, 12)
    await page.keyboard.up("w")
    assert await page.eval_on_selector("#canvas", "canvas => canvas.toDataURL()") != before
    await keep(tab, pictures, "world")


async def writes_with_an_agent(tab: Tab, app: AppFixture, pictures: Path) -> None:
    """Both change one line; both lines are laid before the person, who decides."""
    page = tab.page
    await tab.open(f"/memory/{PAGE}/~edit")
    await page.fill("#body", TEXT.replace("June", "July"))
    theirs = {"body": TEXT.replace("in June", "on 12 June").replace("Ann steers", "Ann and Ben steer")}
    await app.client.put(f"/api/pages/{PAGE}", json=theirs, headers=app.bearer)
    await page.click("[value=save]")
    await page.wait_for_selector(".conflict")
    await keep(tab, pictures, "merge")
    await page.fill("#body", theirs["body"].replace("12 June", "12 July"))
    await page.click("[value=save]")
    await page.wait_for_url(f"**/memory/{PAGE}")
    text = await page.inner_text(".prose")
    assert ("on 12 July" in text, "Ann and Ben steer" in text) == (True, True)


async def runs_a_workflow(tab: Tab, pictures: Path) -> None:
    page = tab.page
    await tab.open("/workflows/stylized-text-to-image")
    await page.fill("#in-prompt", "a windmill in a meadow")
    for side in ("width", "height"):
        await page.fill(f"#in-{side}", "384")
    await page.click("#run .actions .primary")
    await page.wait_for_selector(DONE)
    await page.wait_for_selector(".node.finished[data-node='7'] .progress")
    await page.click("text='Fit'")
    await page.evaluate("scrollTo(0, 0)")
    await keep(tab, pictures, "workflow")


async def adds_up(tab: Tab, app: AppFixture, pictures: Path) -> None:
    """The account: nothing on hold, and the ledger's lines are the balance."""
    async with asyncio.timeout(60):
        while (await app.balance())[1] != "0.00":  # noqa: ASYNC110  # money has no event to wait for
            await asyncio.sleep(0.02)
    page = tab.page
    await tab.open("/account/billing")
    lines = await page.locator("section:has(h2:text-is('Ledger')) tbody tr").all()
    amounts = [Decimal(await line.locator("td.right data").get_attribute("value")) for line in lines]
    kinds = [await line.locator("td").nth(1).inner_text() for line in lines]
    balance = await page.locator(".figures dd data").first.get_attribute("value")
    assert len(lines) >= 4, kinds
    assert sum(amounts) == Decimal(balance), (amounts, kinds)
    assert await app.faults() == ()
    await keep(tab, pictures, "ledger")
    await tab.open("/account/usage")
    await page.wait_for_selector("text=space:stylized-text-to-image")
    await keep(tab, pictures, "account")


async def test_tour_uses_all_six_apis_and_their_charges_balance(tmp_path: Path, pictures: Path) -> None:
    async with (
        running_app(tmp_path, app_catalog.models_document()) as app,
        serve(app.asgi) as url,
        browser.browser() as chromium,
    ):
        await app.client.put(f"/api/pages/{PAGE}", json={"body": TEXT}, headers=app.bearer)
        async with browser.tab(chromium, app, url) as tab:
            await generate_image(tab, pictures)
            await looks_around(tab, pictures)
            await walks(tab, pictures)
            await writes_with_an_agent(tab, app, pictures)
            await runs_a_workflow(tab, pictures)
            await adds_up(tab, app, pictures)
