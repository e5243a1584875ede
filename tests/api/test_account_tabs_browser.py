"""The account's tabs in a real browser at three widths: layout, contrast, and use without scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core.accounts import keys
from sixfold.core.accounts.keys import KeyLimits
from tests.api import browser
from tests.api.app_fixture import running_app
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_account_pages import TABS, run
from tests.harness.cases import nightly_after
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed, pytest.mark.nightly]
MAX_BYTES = 350_000


@pytest.fixture
async def browser_app(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server with some spending, its address, a browser."""
    async with running_app(tmp_path) as app, serve(app.asgi) as url, browser.browser() as chromium:
        await run(app)
        scope = KeyLimits(services=("ra1",), budget_day=1_500_000)
        limited = keys.create(app.account.id, scope, holder=keys.Holder(name="laptop"))
        await run(app, (await app.database.write(limited)).api_key)
        yield browser.BrowserApp(app, url, chromium)


@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_account_tabs_are_accessible_small_and_fit_the_window(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        for path in TABS:
            await tab.open(path)
            assert await violations(tab.page) == []
            wide = await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, path
            assert await tab.page.is_visible(".balance"), path
            await tab.page.wait_for_load_state("load")
            sizes = "performance.getEntries().reduce((sum, entry) => sum + (entry.encodedBodySize || 0), 0)"
            assert await tab.page.evaluate(sizes) <= MAX_BYTES, path


async def test_key_is_created_rolled_and_renamed_without_scripts(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab(TabOptions(width=390, scripts=False)) as tab:
        page = tab.page
        await tab.open("/account/keys")
        await page.fill("form.inline [name=name]", "phone")
        await page.click("text=New key")
        first = await page.inner_text("#new-key")
        row = page.locator(".key-list li", has_text=first[-4:])
        await row.locator("summary").click()
        await row.get_by_role("button", name="Roll").click()
        second = await page.inner_text("#new-key")
        assert second != first
        row = page.locator(".key-list li", has_text=second[-4:])
        assert "phone" in await row.inner_text()
        await row.locator("summary").click()
        await row.locator("[name=name]").fill("tablet")
        await row.get_by_role("button", name="Rename").click()
        await page.wait_for_selector(".key-list h2:has-text('tablet')")
        headers = {"Authorization": f"Bearer {first}"}
        assert (await app.client.get("/api/account", headers=headers)).status_code == 401


@pytest.mark.parametrize("width", nightly_after(1, [390, 1440]))
async def test_ledger_entry_names_and_links_its_prediction(
    browser_app: browser.BrowserApp, width: int
) -> None:
    async with browser_app.tab(TabOptions(width=width)) as tab:
        await tab.open("/account/billing")
        row = tab.page.locator(".ledger .for").first
        assert (await row.inner_text()).startswith("a fox\nPainterly image")
        await row.locator("a").click()
        assert await tab.page.inner_text("h1") == "a fox"
