"""Requests for a new sign-in link: the form, its limits, and the operator's list."""

from __future__ import annotations

import asyncio
import dataclasses
import re

import pytest

from sixfold.core.accounts import audit_log
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.operation import actions, link_requests
from sixfold.core.database import now
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.page_checks import is_accessible
from tests.api.test_pages import link, signed_in

PATH = "/signin/link"


async def _emails(app: AppFixture) -> list[str]:
    return [row["email"] for row in await app.database.read(link_requests.recent())]


async def _ask(app: AppFixture, email: str) -> tuple[int, str, str]:
    response = await app.visitor().post(PATH, data={"email": email})
    return response.status_code, response.headers["location"], response.text


async def test_operator_makes_a_requested_link(any_database_app: AppFixture) -> None:
    app = any_database_app
    assert await _ask(app, " ADA@example.com ") == await _ask(app, "nobody@example.com")
    assert "operator of this server sees" in (await app.visitor().get("/signin?requested=1")).text
    await _ask(app, "ada@example.com")
    assert await _emails(app) == ["ada@example.com"]
    log = (await app.database.read(audit_log.page(app.account.id, 50, None))).entries
    assert [row["action"] for row in log].count("link.request") == 1
    csrf = await signed_in(app, app.operator)
    page = (await app.client.get("/admin/people")).text
    assert "Requests for a sign-in link" in page
    assert "1 person asks for a sign-in link" in (await app.client.get("/admin")).text
    response = await app.client.post(f"/admin/people/{app.account.id}/link", data={"csrf": csrf})
    token = re.search(r'id="new-link">[^<]*(/signin\?token=[^<]+)<', response.text)
    assert token is not None
    assert (await app.visitor().get(token[1])).headers["location"] == "/"
    assert "Requests for a sign-in link" not in (await app.client.get("/admin/people")).text
    assert "for a sign-in link" not in (await app.client.get("/admin")).text


async def test_request_ends_with_a_sign_in_or_when_dismissed(any_database_app: AppFixture) -> None:
    app = any_database_app
    await _ask(app, "ada@example.com")
    await app.visitor().get("/signin", params={"token": await link(app)})
    assert await _emails(app) == []
    await _ask(app, "ada@example.com")
    csrf = await signed_in(app, app.operator)
    await app.client.post(f"/admin/people/{app.account.id}/link/dismiss", data={"csrf": csrf})
    assert await _emails(app) == []
    log = (await app.database.read(actions.page(5, None))).actions
    assert [each.action for each in log] == ["account.link_dismiss"]


async def test_requests_for_links_are_limited_and_need_an_origin(app: AppFixture) -> None:
    foreign = await app.visitor().post(
        PATH, data={"email": "ada@example.com"}, headers={"Origin": "https://evil.example"}
    )
    assert foreign.status_code == 403
    statuses = [(await _ask(app, f"{number}@example.com"))[0] for number in range(10)]
    assert statuses == [303] * 10
    assert (await app.visitor().post(PATH, data={"email": "ada@example.com"})).status_code == 429
    assert await _emails(app) == []


async def test_invalid_invitation_states_the_next_step(app: AppFixture) -> None:
    csrf = await signed_in(app)
    page = await app.client.get("/invitation?token=invite_unknown")
    assert (page.status_code, "An admin of the organization can send" in page.text) == (404, True)
    page = await app.client.post("/invitation", data={"csrf": csrf, "token": "invite_unknown"})
    assert (page.status_code, "Your organizations" in page.text) == (404, True)


@pytest.mark.browser
@browser.needed
async def test_page_of_an_expired_link_asks_for_another_one(browser_app: browser.BrowserApp) -> None:
    app, url, chromium = browser_app
    moment = await app.database.read(now())
    token = await app.database.write(login_sessions.new_link(app.account.id, moment))
    await app.database.write(login_sessions.take_link(token, moment))
    options = TabOptions(width=390, scripts=False, signed_in=False)
    async with browser_app.tab(options) as tab:
        page = tab.page
        await tab.open(f"/signin?token={token}")
        button = page.get_by_role("button", name="Ask for a new link")
        box = await button.bounding_box()
        assert box["y"] + box["height"] <= 900
        await page.fill("#link-email", "ada@example.com")
        await button.click()
        assert "sees your request" in await page.inner_text("[role=status]")
        tab.ignore("status of 401")
    async with asyncio.timeout(60):
        while await _emails(app) != ["ada@example.com"]:  # noqa: ASYNC110 - the request has no event to wait for
            await asyncio.sleep(0)
    operator = dataclasses.replace(app, account=app.operator)
    async with browser.tab(chromium, operator, url, TabOptions(width=390)) as tab:
        await tab.open("/admin/people")
        await is_accessible(tab)
        await tab.page.click("#link-requests button:text-is('Create a new link')")
        assert "/signin?token=" in await tab.page.inner_text("#new-link")
