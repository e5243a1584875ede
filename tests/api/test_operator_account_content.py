"""Operators set the guardrail and the content log of one account on its page."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.operation import actions
from sixfold.core.database import Query, Transaction, encode_json, many
from sixfold.core.gateway.content_log import operation
from sixfold.core.gateway.content_log import storage as contents
from sixfold.core.gateway.guardrails import storage
from sixfold.core.gateway.guardrails.models import Guardrail, HookSettings
from tests.api import browser
from tests.api.app_fixture import AppFixture
from tests.api.browser import TabOptions
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_pages import signed_in
from tests.mcp.loopback import serve

URL = "https://guard.example/hooks/secret-path"


async def post(app: AppFixture, path: str, **form: str) -> int:
    csrf = await signed_in(app, app.operator)
    response = await app.client.post(f"/admin/people/{app.account.id}/{path}", data={"csrf": csrf, **form})
    return response.status_code


async def log(app: AppFixture) -> list[tuple[str, str, str]]:
    page = await app.database.read(actions.page(9, None, app.account.id))
    return [(each.action, each.before, each.after) for each in page.actions]


async def stored(app: AppFixture, key_id: str = "") -> Guardrail | None:
    return (await app.database.read(operation.content_of(app.account.id, key_id))).guardrail


async def test_account_guardrail_is_set_and_removed_with_a_record(
    any_database_app: AppFixture,
) -> None:
    app = any_database_app
    form = {"mask_emails": "1", "hook": URL, "stage_request": "1", "timeout_seconds": "2"}
    assert await post(app, "guardrail", **form) == 303
    hook = HookSettings(URL, ("request",), 2.0)
    assert await stored(app) == Guardrail(("emails",), hook=hook)
    # An empty field keeps the endpoint, of which the page shows the origin.
    assert await post(app, "guardrail", mask_cards="1", stage_request="1") == 303
    assert await stored(app) == Guardrail(("cards",), hook=HookSettings(URL))
    page = (await app.client.get(f"/admin/people/{app.account.id}")).text
    assert "https://guard.example" in page
    assert "secret-path" not in page
    assert await post(app, "guardrail", mask_cards="1", no_hook="1") == 303
    assert await stored(app) == Guardrail(("cards",))
    assert await post(app, "guardrail/remove") == 303
    assert await stored(app) is None
    entries = await log(app)
    assert [action for action, *_ in entries] == ["guardrail.remove", *["guardrail.set"] * 3]
    assert json.loads(entries[-1][2]) == {
        "mask": "emails",
        "mask_responses": False,
        "hook": "https://guard.example",
        "stages": "request",
    }
    audit = await app.database.read(many("audit_page", account_id=app.account.id, limit=9, before="~"))
    assert "guardrail.remove" in {row["action"] for row in audit}


async def test_guardrail_of_a_key_is_set_and_removed_with_a_record(any_database_app: AppFixture) -> None:
    app = any_database_app
    key = await app.database.write(keys.create(app.account.id))
    foreign = await app.database.write(keys.create(app.operator.id))
    form = {"mask_emails": "1", "hook": URL, "stage_request": "1", "guardrail_key": key.id}
    assert await post(app, "guardrail", **form) == 303
    assert await post(app, "guardrail", **form, exempts="1", no_hook="1") == 303
    assert await stored(app, key.id) == Guardrail(("emails",))
    assert await post(app, "guardrail", **{**form, "hook": "ftp://guard.example"}) == 400
    assert await post(app, "guardrail", **{**form, "guardrail_key": foreign.id}) == 404
    page = await app.client.get(f"/admin/people/{app.account.id}", params={"key": key.id})
    assert f"Change the guardrail of the key {key.id}" in page.text
    assert 'name="mask_emails" value="1" checked' in page.text
    page = await app.client.get(f"/admin/people/{app.account.id}", params={"key": foreign.id})
    assert page.status_code == 404
    page = await app.client.get(f"/admin/people/{app.account.id}")
    assert f"?key={key.id}#content" in page.text
    assert "Set the guardrail of the account" in page.text
    assert await stored(app) is None
    assert await post(app, "guardrail/remove", guardrail_key=key.id) == 303
    assert await stored(app, key.id) is None
    entries = await log(app)
    assert [action for action, *_ in entries] == ["guardrail.remove", "guardrail.set", "guardrail.set"]
    assert json.loads(entries[0][1])["key"] == key.id


async def test_page_lists_the_first_keys_with_their_own_guardrail(app: AppFixture) -> None:
    row = {"account_id": app.account.id, "document": encode_json(Guardrail(("emails",))), "member_id": None}
    names = [f"key_{number:03}" for number in range(operation.MAX_KEYS + 1)]

    def store() -> Transaction[None]:
        for name in names:
            yield Query("guardrail_set", {**row, "key_id": name})

    await app.database.write(store())
    await signed_in(app, app.operator)
    page = (await app.client.get(f"/admin/people/{app.account.id}")).text
    assert "The first 100 keys with their own" in page
    assert [name for name in names if f"?key={name}#content" in page] == names[:-1]


async def test_kept_endpoint_still_ends_with_the_role_of_its_member(app: AppFixture) -> None:
    guardrail = Guardrail(hook=HookSettings(URL))
    await app.database.write(storage.set_guardrail(app.account.id, "", guardrail, "mem_ada"))
    assert await post(app, "guardrail", mask_cards="1", stage_request="1") == 303
    (row,) = await app.database.read(storage.guardrails_of(app.account.id))
    assert row["member_id"] == "mem_ada"
    assert await post(app, "guardrail", hook="https://own.example/", stage_request="1") == 303
    (row,) = await app.database.read(storage.guardrails_of(app.account.id))
    assert row["member_id"] is None


async def test_guardrail_without_an_effect_needs_the_exemption(app: AppFixture) -> None:
    assert await post(app, "guardrail") == 400
    assert await stored(app) is None
    assert await post(app, "guardrail", exempts="1") == 303
    assert await stored(app) == Guardrail()
    assert "is exempt from the guardrail" in (await app.client.get(f"/admin/people/{app.account.id}")).text


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("guardrail", {"hook": "ftp://guard.example"}),
        ("guardrail", {"hook": "http://127.0.0.1:9/"}),
        ("guardrail", {"hook": URL, "timeout_seconds": "900"}),
        ("guardrail", {"mask_responses": "1"}),
        ("content-log", {"days": "many"}),
        ("content-log", {"days": "366"}),
        ("content-log", {"days": "0000000000007"}),
    ],
)
async def test_invalid_content_settings_of_an_account_change_nothing(
    app: AppFixture, path: str, form: dict[str, str]
) -> None:
    assert await post(app, path, **form) == 400
    assert await log(app) == []


async def test_content_log_of_an_account_is_switched_with_a_record(any_database_app: AppFixture) -> None:
    app = any_database_app
    assert await post(app, "content-log", days="14") == 303
    assert await app.database.read(contents.days_of(app.account.id)) == 14
    assert await post(app, "content-log", days="0") == 303
    assert await app.database.read(contents.days_of(app.account.id)) == 0
    assert await log(app) == [
        ("content.log", '{"days":14}', '{"days":0}'),
        ("content.log", '{"days":0}', '{"days":14}'),
    ]


# The pieces of the heading that a line break divides; a piece has no @, dot or hyphen inside.
DIVIDED = """() => {
  const heading = document.querySelector("h1"), range = document.createRange();
  const walker = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT), divided = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (const { 0: piece, index } of node.data.matchAll(/[\\w]+/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + piece.length);
      const tops = [...range.getClientRects()].map((each) => Math.round(each.top));
      if (new Set(tops).size > 1) divided.push(piece);
    }
  }
  return divided;
}"""


@pytest.mark.browser
@browser.needed
async def test_heading_breaks_an_address_only_between_its_parts(app: AppFixture) -> None:
    account = await app.database.write(
        accounts.create("augusta.lovelace@department-of-mathematics.university.example.com")
    )
    operator = dataclasses.replace(app, account=app.operator)
    async with serve(app.asgi) as url, browser.browser() as chromium:
        for width in (390, 320):
            async with browser.tab(chromium, operator, url, TabOptions(width=width)) as tab:
                await tab.open(f"/admin/people/{account.id}")
                assert await tab.page.inner_text("h1") == account.email
                assert await tab.page.evaluate(DIVIDED) == []
                assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.browser
@browser.needed
@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_page_of_a_person_sets_both_without_scripts(app: AppFixture, width: int) -> None:
    operator = dataclasses.replace(app, account=app.operator)
    path = f"/admin/people/{app.account.id}"
    async with serve(app.asgi) as url, browser.browser() as chromium:
        async with browser.tab(chromium, operator, url, TabOptions(width=width, scripts=False)) as tab:
            page = tab.page
            await tab.open(path)
            await page.click("text='Set the guardrail of the account'")
            await page.get_by_role("button", name="Save the guardrail").click()
            assert "Choose what to mask" in await page.inner_text("#content .problem")
            tab.ignore("status of 400")
            await page.get_by_label("E-mail addresses").check()
            await page.get_by_role("button", name="Save the guardrail").click()
            await page.wait_for_selector("text=The account has its own guardrail.")
            await page.get_by_label("Days in the content log").fill("14")
            await page.get_by_role("button", name="Save the log").click()
            await page.wait_for_selector("text=Calls are logged.")
        async with browser.tab(chromium, operator, url, TabOptions(width=width)) as tab:
            await tab.open(path)
            await tab.page.click("text='Change the guardrail of the account'")
            assert await violations(tab.page) == []
            assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
