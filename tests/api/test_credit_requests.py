"""Requests for credit on a server without card payments: the button, the operator's list, and their end."""

from __future__ import annotations

import dataclasses

import pytest

from sixfold.core.accounts import accounts, audit_log
from sixfold.core.accounts.operation import actions, credit_requests
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.page_checks import is_accessible
from tests.api.test_pages import signed_in

PATH, BILLING = "/account/credit-request", "/account/billing"


async def _emails(app: AppFixture) -> list[str]:
    return [row["email"] for row in await app.database.read(credit_requests.recent())]


async def _ask(app: AppFixture) -> None:
    csrf = await signed_in(app)
    response = await app.client.post(PATH, data={"csrf": csrf})
    assert (response.status_code, response.headers["location"]) == (303, f"{BILLING}#credit")


async def test_request_ends_when_credit_is_added(any_database_app: AppFixture) -> None:
    app = any_database_app
    await _ask(app)
    await _ask(app)
    page = (await app.client.get(BILLING)).text
    assert "You asked the operator of this server for credit on" in page
    assert "Ask the operator for credit" not in page
    assert await _emails(app) == ["ada@example.com"]
    log = (await app.database.read(audit_log.page(app.account.id, 50, None))).entries
    assert [row["action"] for row in log].count("credit.request") == 1
    csrf = await signed_in(app, app.operator)
    assert "1 account asks for credit" in (await app.client.get("/admin")).text
    assert "Requests for credit" in (await app.client.get("/admin/people")).text
    form = {"csrf": csrf, "amount_usd": "5", "reason": "asked"}
    await app.client.post(f"/admin/people/{app.account.id}/credit", data=form)
    assert await _emails(app) == []
    assert "asks for credit" not in (await app.client.get("/admin")).text


async def test_request_ends_when_the_command_line_adds_credit(any_database_app: AppFixture) -> None:
    app = any_database_app
    await _ask(app)
    await app.database.write(accounts.credit("ada@example.com", -1))
    assert await _emails(app) == ["ada@example.com"]
    await app.database.write(accounts.credit("ada@example.com", 1))
    assert await _emails(app) == []


async def test_operator_dismisses_a_request(any_database_app: AppFixture) -> None:
    app = any_database_app
    await _ask(app)
    csrf = await signed_in(app, app.operator)
    await app.client.post(f"/admin/people/{app.account.id}/credit/dismiss", data={"csrf": csrf})
    assert await _emails(app) == []
    log = (await app.database.read(actions.page(5, None))).actions
    assert [each.action for each in log] == ["account.credit_dismiss"]


@pytest.mark.browser
@browser.needed
async def test_button_asks_the_operator_for_credit(browser_app: browser.BrowserApp) -> None:
    app, url, chromium = browser_app
    async with browser_app.tab(TabOptions(width=390, scripts=False)) as tab:
        await tab.open(f"{BILLING}#credit")
        await tab.page.get_by_role("button", name="Ask the operator for credit").click()
        assert "You asked the operator" in await tab.page.inner_text("#credit")
    operator = dataclasses.replace(app, account=app.operator)
    for width in (1440, 834, 390):
        async with browser.tab(chromium, operator, url, TabOptions(width)) as tab:
            await tab.open("/admin")
            await tab.page.click("text=1 account asks for credit")
            await is_accessible(tab)
            assert await tab.page.evaluate("document.documentElement.scrollWidth") <= width
            await tab.page.click("#credit-requests >> text=Add credit")
            await tab.page.wait_for_selector("#credit [name=amount_usd]")
