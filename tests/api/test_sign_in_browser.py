"""Signing in, the header of every page and the limits of keys, in a real browser."""

from __future__ import annotations

import pytest

from sixfold.core.account_data import deletion
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.database import now
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.harness.cases import nightly_after

pytestmark = [pytest.mark.browser, browser.needed]
CURRENT = ".top nav [aria-current]"


async def _link(app: AppFixture, account_id: str) -> str:
    moment = await app.database.read(now())
    return await app.database.write(login_sessions.new_link(account_id, moment))


async def test_a_sign_in_link_opens_the_form_with_its_price(browser_app: browser.BrowserApp) -> None:
    app, url = browser_app.app, browser_app.url
    async with browser_app.tab(TabOptions(signed_in=False)) as tab:
        await tab.open(f"/signin?token={await _link(app, app.account.id)}")
        assert tab.page.url == f"{url}/"
        assert await tab.page.input_value("#prompt") != ""
        assert await tab.page.inner_text("#note") == "You are charged only if it succeeds. You have 5.00 USD."
        assert "0.04 USD" in await tab.page.inner_text("#model option:first-child")


async def test_expired_link_shows_the_sign_in_form(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab:
        await tab.open("/account")
        await tab.page.click("text='Sign out'")
        token = await _link(app, app.account.id)
        await app.database.write(login_sessions.take_link(token, 0))
        await tab.open(f"/signin?token={token}")
        assert "has expired or was already used" in await tab.page.inner_text(".problem")
        assert await tab.page.is_visible("#password")
        tab.ignore("status of 401")


async def test_used_link_goes_home_if_the_browser_is_signed_in(browser_app: browser.BrowserApp) -> None:
    app, url = browser_app.app, browser_app.url
    async with browser_app.tab(TabOptions(signed_in=False)) as tab:
        link = f"/signin?token={await _link(app, app.account.id)}"
        for _ in range(2):
            await tab.open(link)
            assert tab.page.url == f"{url}/"
            assert await tab.page.is_visible("#prompt")


async def test_a_form_that_requires_a_new_sign_in_keeps_its_text(
    browser_app: browser.BrowserApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = browser_app.app
    name, right = "form[action='/account/keys'] [name=name]", "[name='right.account.manage']"
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/account/keys")
        await page.fill(name, "laptop")
        await page.uncheck(right)
        monkeypatch.setattr(login_sessions, "FRESH_US", 0)
        await page.click("text='New key'")
        await page.wait_for_url("**/signin?again=1&next=%2Faccount%2Fkeys")
        await tab.open("/")
        assert "Ask the operator" in await page.inner_text(".restored")
        monkeypatch.undo()
        await tab.open(f"/signin?token={await _link(app, app.account.id)}")
        assert "within 10 minutes" in await page.inner_text(".restored")
        await tab.open("/account/keys")
        assert await page.input_value(name) == "laptop"
        assert not await page.is_checked(right)
        await page.click("text='New key'")
        await page.wait_for_selector(".secret")
        await tab.open("/account/keys")
        assert await page.input_value(name) == ""


async def test_invited_user_has_a_page_with_its_own_url(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab(account=app.operator) as tab:
        page = tab.page
        await tab.open("/admin/people")
        await page.fill("[name=email]", "mia@example.com")
        await page.click("main button:text-is('Invite')")
        await page.wait_for_selector("#new-link")
        await page.wait_for_function("() => !location.pathname.endsWith('/invite')")
        await page.reload()
        assert await page.inner_text("h1") == "mia@example.com"
        assert not await page.is_visible("#new-link")


async def test_every_page_names_the_day_of_erasure(browser_app: browser.BrowserApp) -> None:
    app = browser_app.app
    async with browser_app.tab() as tab:
        await app.database.write(deletion.close(app.account, 7, ""))
        token = await _link(app, app.account.id)
        await tab.open(f"/signin?token={token}")
        for path in ("/", "/catalog", "/account/data", "/account/keys"):
            await tab.open(path)
            assert "will be erased on" in await tab.page.inner_text(".closing"), path
        await tab.page.click(".closing a")
        await tab.page.click("main button:has-text('Keep the account')")
        await tab.page.wait_for_selector(".closing", state="detached")


@pytest.mark.parametrize("scripts", nightly_after(1, [True, False]), ids=["scripts", "no scripts"])
async def test_header_marks_its_page_and_stays_on_errors(
    browser_app: browser.BrowserApp, scripts: bool
) -> None:
    app = browser_app.app
    expected = {
        "/catalog": ("Catalog", "page"),
        "/catalog/ra1": ("Catalog", "true"),
        "/live/world-model": ("Catalog", "true"),
        "/workflows/text-to-video": ("Workflows", "true"),
        "/account/data": ("Account", "true"),
        "/memory": ("Memory", "page"),
    }
    async with browser_app.tab(TabOptions(scripts=scripts)) as tab:
        await tab.open(f"/signin?token={await _link(app, app.operator.id)}")
        for path, mark in expected.items():
            await tab.open(path)
            result = tab.page.locator(CURRENT)
            assert (await result.inner_text(), await result.get_attribute("aria-current")) == mark, path
        for path in ("/nowhere", "/catalog/nothing", "/predictions/pred_0"):
            await tab.open(path)
            assert await tab.page.is_visible("text='Sign out'"), path
            assert await tab.page.is_visible(".top >> text='Operator'"), path


async def test_unknown_model_of_a_key_is_refused_at_its_field(browser_app: browser.BrowserApp) -> None:
    async with browser_app.tab() as tab:
        page = tab.page
        await tab.open("/account/keys")
        await page.fill("[name=services]", "ra1, nope")
        await page.fill("[name=budget_day]", "1.50")
        await page.click("text='New key'")
        assert "Model or service nope not found" in await page.inner_text("#problem-services")
        assert await page.input_value("[name=services]") == "ra1, nope"
        assert await page.input_value("[name=budget_day]") == "1.50"
        assert await page.locator("#new-key").count() == 0
        await page.fill("[name=services]", "ra1, openai/gpt-5, chat")
        await page.click("text='New key'")
        key = await page.inner_text("#new-key")
        row = page.locator(".key-list li", has_text=key[-4:]).first
        assert "only ra1, openai/gpt-5, chat; 1.50 USD per day" in await row.inner_text()
        tab.ignore("status of 422")
