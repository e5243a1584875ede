"""Sessions of closed accounts: until the erasure, their users can only export and keep them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts
from sixfold.core.accounts.organizations import invitations, organizations
from sixfold.core.accounts.organizations.invitations import Inviter
from sixfold.web.sessions import CSRF_HEADER
from tests.api.app_fixture import AppFixture
from tests.api.test_account_data import read_zip
from tests.api.test_organizations import acting
from tests.api.test_pages import signed_in
from tests.api.test_revocations import REVOKED, slow, until_ended, until_open

FORM, CLOSED = "/pages/forms/ra1", "This account is closed"


@pytest.mark.parametrize("by_operator", [False, True])
async def test_user_of_a_closed_account_runs_and_creates_nothing(
    any_database_app: AppFixture, by_operator: bool
) -> None:
    app, write = any_database_app, any_database_app.database.write
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    harbour = await write(organizations.create(ben.id, "harbour"))
    invitation = await write(invitations.create(harbour.id, Inviter(ben.email), "member"))
    await write(deletion.close(app.account, 7, by_operator=by_operator))
    csrf = await signed_in(app)

    async def post(path: str, **form: Any) -> int:
        return (await app.client.post(path, data={"csrf": csrf, **form})).status_code

    refused = {
        FORM: {"prompt": "a fox"},
        "/account/keys": {},
        "/account/organizations": {"name": "quay"},
        "/account/members/invite": {"role": "member"},
        "/invitation": {"token": invitation.token},
    }
    assert {path: await post(path, **form) for path, form in refused.items()} == dict.fromkeys(refused, 403)
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    run = await app.client.post("/pages/run", json=body, headers={CSRF_HEADER: csrf})
    assert (run.status_code, CLOSED in run.text) == (403, True)
    assert await app.balance() == ("5.00", "0.00")
    page = await app.client.get("/predictions", headers={"Accept": "text/html"})
    assert (page.status_code, "will be erased on" in page.text, CLOSED in page.text) == (403, True, True)
    payments = {"/account/checkout": {"amount_usd": "5"}, "/account/plan": {"plan": "monthly"}}
    assert [await post(path, **form) for path, form in payments.items()] == [409, 409]
    exported = await app.client.post("/account/export", data={"csrf": csrf})
    assert "ledger.jsonl" in read_zip(exported).namelist()
    assert await post("/account/keep") == (400 if by_operator else 303)
    assert await post(FORM, prompt="a fox") == (403 if by_operator else 303)


async def test_owner_of_a_closed_organization_runs_nothing_there(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    harbour = await write(organizations.create(ben.id, "harbour"))
    await write(deletion.close(harbour, 7))
    browser = await acting(app, "ben@example.com", harbour.id)
    assert (await browser.post(FORM, prompt="a fox")).status_code == 403
    assert (await browser.post("/account/switch", account_id=ben.id)).status_code == 303
    assert (await browser.post(FORM, prompt="a fox")).status_code == 303


async def test_a_browser_that_closes_its_account_ends_its_streams(any_database_app: AppFixture) -> None:
    app = any_database_app
    form = {"csrf": await signed_in(app), "confirm": app.account.email}
    events = f"/pages/predictions/{await slow(app)}/events"
    stream = asyncio.create_task(app.client.get(events))
    await until_open(app.server)
    assert (await app.client.post("/account/close", data=form)).status_code == 303
    assert REVOKED in (await until_ended([stream]))[0]
