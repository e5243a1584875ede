"""Account pages for login, security and data, in a real browser: keyboard use and accessibility."""

from __future__ import annotations

import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.authentication import passkeys
from tests.api import browser
from tests.api.app_fixture import running_app
from tests.api.browser import TabOptions
from tests.api.page_checks import violations
from tests.api.test_passkeys import free_port
from tests.fakes.oidc import CLIENT, SECRET, provider
from tests.harness.cases import nightly_after
from tests.mcp.loopback import serve

pytestmark = [pytest.mark.browser, browser.needed]
PAGES = ("/signin", "/account/security", "/account/data", "/account/members")


@pytest.fixture
async def browser_app(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """A server with an OpenID provider, its address, a browser."""
    port = free_port()
    async with provider() as result:
        trusts: dict[str, Any] = {
            "oidc_issuer": result.issuer,
            "oidc_client_id": CLIENT,
            "oidc_client_secret": SECRET,
        }
        async with (
            running_app(tmp_path, None, port=port, oidc_name="Example", **trusts) as app,
            serve(app.asgi, port),
            browser.browser() as chromium,
        ):
            added = passkeys.add(app.account.id, b"one", b"key", 0, "My laptop")
            await app.database.write(added)
            yield browser.BrowserApp(app, f"http://127.0.0.1:{port}", chromium)


@pytest.mark.parametrize(
    "options", nightly_after(1, [TabOptions(), TabOptions(width=390, scheme="dark")]), ids=["wide", "phone"]
)
async def test_account_pages_are_accessible_and_fit_the_window(
    browser_app: browser.BrowserApp, options: TabOptions
) -> None:
    async with browser_app.tab(options) as tab:
        for path in PAGES:
            await tab.open(path)
            assert await violations(tab.page) == []
            wide = await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, path


async def test_linked_oidc_account_signs_in_and_exports_its_data(
    browser_app: browser.BrowserApp, tmp_path: Path
) -> None:
    url = browser_app.url
    async with browser_app.tab() as tab:
        page = tab.page
        # The provider is another host, which the watcher would report.
        page.remove_listener("request", tab.watch)
        await tab.open("/account/security")
        await page.click("text='Link to this account'")
        await page.wait_for_selector(".done:has-text('linked')")
        await page.click("text='Sign out'")
        await page.click("text='Sign in with Example'")
        await page.wait_for_url(f"{url}/")
        await tab.open("/account/data")
        async with page.expect_download() as coming:
            await page.click("text='Download my data'")
        target = tmp_path / "mine.zip"
        await (await coming.value).save_as(target)
        with zipfile.ZipFile(target) as result:
            assert json.loads(result.read("account.json"))["email"] == "ada@example.com"
        await page.fill("[name=confirm]", "ada@example.com")
        await page.keyboard.press("Enter")
        await page.click("text='Keep the account'")
        await page.wait_for_selector("text='Erase my account'")
