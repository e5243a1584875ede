"""Operators create, see and delete the cost alerts of all accounts."""

from __future__ import annotations

import dataclasses

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.accounts.operation import actions
from sixfold.core.alerts import alerts
from tests.api import browser
from tests.api.app_fixture import AppFixture, bearer
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_pages import signed_in
from tests.mcp.loopback import serve

ROOT = "/api/operator/alerts"
URL = "https://hooks.example/services/T0/secret-token"


def body(app: AppFixture, **changes: object) -> dict[str, object]:
    return {"account_id": app.account.id, "period": "day", "threshold_usd": "25", "url": URL, **changes}


async def noted(app: AppFixture) -> list[tuple[str, str, str, str]]:
    page = await app.database.read(actions.page(9, None, app.account.id))
    return [(each.action, each.target, each.before, each.after) for each in page.actions]


async def test_alert_is_created_listed_and_deleted_with_a_record(any_database_app: AppFixture) -> None:
    app = any_database_app
    headers = bearer(await app.operator_key())
    other = await app.database.write(accounts.create("zoe@example.com"))
    created = await app.client.post(ROOT, json=body(app), headers=headers)
    assert created.status_code == 201, created.text
    second = await app.client.post(ROOT, json=body(app, account_id=other.id, period="month"), headers=headers)
    assert second.status_code == 201, second.text
    page = (await app.client.get(f"{ROOT}?limit=1", headers=headers)).json()
    assert [(each["email"], each["receiver"]) for each in page["alerts"]] == [
        ("zoe@example.com", "https://hooks.example")
    ]
    rest = (await app.client.get(f"{ROOT}?limit=1&cursor={page['next_cursor']}", headers=headers)).json()
    assert [each["id"] for each in rest["alerts"]] == [created.json()["id"]]
    assert rest["next_cursor"] is None
    # The URL may contain a secret of the operator: the account neither sees nor deletes the alert.
    own = await app.client.get("/api/account/alerts", headers=app.bearer)
    assert own.json()["alerts"] == []
    assert not await app.database.read(alerts.of_account(app.account.id))
    refused = await app.client.delete(f"/api/account/alerts/{created.json()['id']}", headers=app.bearer)
    assert refused.status_code == 404
    (stored,) = await app.database.read(alerts.of_account(app.account.id, with_operators=True))
    assert stored["url"] == URL
    deleted = await app.client.delete(f"{ROOT}/{created.json()['id']}", headers=headers)
    assert deleted.status_code == 204
    assert not await app.database.read(alerts.of_account(app.account.id, with_operators=True))
    document = '{"threshold":"25.00 USD per day","receiver":"https://hooks.example"}'
    assert await noted(app) == [
        ("alert.delete", app.account.id, document, ""),
        ("alert.create", app.account.id, "", document),
    ]


@pytest.mark.parametrize(
    ("changes", "status", "sentence"),
    [
        ({"account_id": "acct_nobody"}, 404, "not found"),
        ({"account_id": None}, 400, "account_id must be the id of an account"),
        ({"threshold_usd": "0"}, 400, "must be an amount above 0"),
        ({"url": "ftp://hooks.example"}, 400, "must be an http or https URL"),
        ({"url": "http://127.0.0.1:9/"}, 400, "url: "),
        ({"period": "week"}, 400, "period must be day or month"),
        ({"key": "key_nobody"}, 404, "Key key_nobody not found"),
    ],
)
async def test_invalid_alert_is_refused_in_one_sentence(
    app: AppFixture, changes: dict[str, object], status: int, sentence: str
) -> None:
    headers = bearer(await app.operator_key())
    response = await app.client.post(ROOT, json=body(app, **changes), headers=headers)
    assert (response.status_code, sentence in response.text) == (status, True), response.text
    assert await noted(app) == []


async def test_alerts_of_all_accounts_are_only_for_operators(app: AppFixture) -> None:
    for method, path in (("GET", ROOT), ("POST", ROOT), ("DELETE", f"{ROOT}/alert_x")):
        response = await app.client.request(method, path, headers=app.bearer, json={})
        assert response.status_code == 403
    await signed_in(app, app.account)
    assert (await app.client.get("/admin/alerts")).status_code == 404


async def test_form_names_an_unknown_account_and_key_at_their_fields(app: AppFixture) -> None:
    csrf = await signed_in(app, app.operator)
    form = {"csrf": csrf, "account": "nobody@example.com", "threshold_usd": "5", "period": "day", "url": URL}
    unknown = await app.client.post("/admin/alerts/create", data=form)
    assert unknown.status_code == 400
    assert "No account has the address or name" in unknown.text
    own = {**form, "account": app.account.email, "key": "key_nobody"}
    unknown = await app.client.post("/admin/alerts/create", data=own)
    assert (unknown.status_code, "Key key_nobody not found" in unknown.text) == (400, True)


@pytest.mark.browser
@browser.needed
@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_operator_adds_and_deletes_an_alert_without_scripts(app: AppFixture, width: int) -> None:
    operator = dataclasses.replace(app, account=app.operator)
    async with serve(app.asgi) as url, browser.browser() as chromium:
        async with browser.tab(chromium, operator, url, TabOptions(width=width, scripts=False)) as tab:
            page = tab.page
            await tab.open(f"/admin/people/{app.account.id}")
            await page.click("text='Send an alert instead'")
            assert await page.get_by_label("Account").input_value() == app.account.email
            await page.get_by_label("Amount in USD").fill("none")
            await page.get_by_label("URL of the webhook").fill(URL)
            await page.get_by_role("button", name="Add").click()
            assert "must be an amount above 0" in await page.inner_text("form .problem")
            tab.ignore("status of 400")
            await page.get_by_label("Amount in USD").fill("25")
            await page.get_by_role("button", name="Add").click()
            await page.wait_for_selector(".card-list h3")
            assert "secret-token" not in await page.content()
        async with browser.tab(chromium, operator, url, TabOptions(width=width)) as tab:
            await tab.open("/admin/alerts")
            assert await violations(tab.page) == []
            assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            await tab.page.get_by_role("button", name="Delete the alert of").click()
            await tab.page.wait_for_selector("text='No alerts yet.'")
