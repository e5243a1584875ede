"""On the operator's pages, accounts and posts of others are deleted, and their share links are ended."""

from __future__ import annotations

import dataclasses

import pytest

from sixfold.core.accounts import accounts, audit_log
from sixfold.core.accounts.operation import actions, customers
from tests.api import browser
from tests.api.app_fixture import AppFixture, bearer
from tests.api.browser import TabOptions
from tests.api.page_checks import violations
from tests.api.test_gallery import post
from tests.api.test_pages import signed_in
from tests.api.test_shares import share
from tests.mcp.loopback import serve


async def actions_on(app: AppFixture, account_id: str) -> list[str]:
    return [each.action for each in (await app.database.read(actions.page(9, None, account_id))).actions]


async def events_of(app: AppFixture, account_id: str) -> list[str]:
    page = await app.database.read(audit_log.page(account_id, 9, None))
    return [str(entry["action"]) for entry in page.entries]


async def test_account_is_closed_and_kept_with_a_record(any_database_app: AppFixture) -> None:
    app = any_database_app
    path = f"/admin/people/{app.account.id}"
    csrf = {"csrf": await signed_in(app, app.operator)}
    refused = await app.client.post(f"{path}/close", data={**csrf, "confirm": "zoe@example.com"})
    assert refused.status_code == 400
    assert f"Enter {app.account.email} to delete this account" in refused.text
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 200
    closed = await app.client.post(f"{path}/close", data={**csrf, "confirm": app.account.email.upper()})
    assert closed.status_code == 303, closed.text
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 401
    assert "will be erased on" in (await app.client.get(path)).text
    again = await app.client.post(f"{path}/close", data={**csrf, "confirm": app.account.email})
    assert "The account is already closed" in again.text
    assert (await app.client.post(f"{path}/keep", data=csrf)).status_code == 303
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 200
    assert "The account is not closed" in (await app.client.post(f"{path}/keep", data=csrf)).text
    assert await actions_on(app, app.account.id) == ["account.keep", "account.close"]


async def test_user_cannot_cancel_or_delay_the_deletion_by_an_operator(any_database_app: AppFixture) -> None:
    app, email = any_database_app, any_database_app.account.email
    path, headers = f"/api/operator/accounts/{app.account.id}", bearer(await app.operator_key())
    closed = await app.client.request("DELETE", path, json={"confirm": email}, headers=headers)
    erased_at = closed.json()["erased_at"]
    csrf = {"csrf": await signed_in(app)}
    page = (await app.client.get("/account/data")).text
    assert "only an operator can keep it" in page
    assert "Keep the account" not in page
    assert "Cancel the deletion" not in page
    object.__setattr__(app.settings, "deletion_days", 30.0)
    for form, fields in (("keep", csrf), ("close", {**csrf, "confirm": email})):
        refused = await app.client.post(f"/account/{form}", data=fields)
        assert refused.status_code == 400, form
        assert "only an operator can cancel its deletion" in refused.text, form
    assert (await app.client.get(path, headers=headers)).json()["closing_at"] == erased_at
    assert (await app.client.post(f"{path}/keep", headers=headers)).status_code == 200
    # A later deletion by the user is independent of that.
    await app.client.post("/account/close", data={"csrf": await signed_in(app), "confirm": email})
    csrf = {"csrf": await signed_in(app)}
    assert (await app.client.post("/account/keep", data=csrf)).status_code == 303
    assert (await app.client.get(path, headers=headers)).json()["closing_at"] is None


async def test_operator_deletes_an_account_that_its_user_closed(any_database_app: AppFixture) -> None:
    app, email = any_database_app, any_database_app.account.email
    path, headers = f"/api/operator/accounts/{app.account.id}", bearer(await app.operator_key())
    await app.client.post("/account/close", data={"csrf": await signed_in(app), "confirm": email})
    closing_at = (await app.client.get(path, headers=headers)).json()["closing_at"]
    await signed_in(app, app.operator)
    assert "Delete the account" in (await app.client.get(f"/admin/people/{app.account.id}")).text
    object.__setattr__(app.settings, "deletion_days", 30.0)
    for status in (202, 409):
        closed = await app.client.request("DELETE", path, json={"confirm": email}, headers=headers)
        assert closed.status_code == status, closed.text
    assert "Delete the account" not in (await app.client.get(f"/admin/people/{app.account.id}")).text
    csrf = {"csrf": await signed_in(app)}
    assert (await app.client.post("/account/keep", data=csrf)).status_code == 400
    assert (await app.client.get(path, headers=headers)).json()["closing_at"] == closing_at


async def test_operator_keeps_an_account_that_its_user_closed(any_database_app: AppFixture) -> None:
    app, headers = any_database_app, bearer(await any_database_app.operator_key())
    form = {"csrf": await signed_in(app), "confirm": app.account.email}
    await app.client.post("/account/close", data=form)
    csrf = await signed_in(app, app.operator)
    assert "was closed by its user" in (await app.client.get(f"/admin/people/{app.account.id}")).text
    kept = await app.client.post(f"/admin/people/{app.account.id}/keep", data={"csrf": csrf})
    assert kept.status_code == 303
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 200
    path = f"/api/operator/accounts/{app.account.id}"
    assert (await app.client.get(path, headers=headers)).json()["closing_at"] is None


async def test_account_is_erased_at_once_without_a_waiting_period(app: AppFixture) -> None:
    object.__setattr__(app.settings, "deletion_days", 0.0)
    other = await app.database.write(accounts.create("zoe@example.com"))
    form = {"csrf": await signed_in(app, app.operator), "confirm": other.email}
    response = await app.client.post(f"/admin/people/{other.id}/close", data=form)
    assert response.headers["location"] == "/admin/people"
    assert not (await app.database.read(customers.page("zoe", 9, None))).accounts


async def test_operator_account_cannot_be_deleted(app: AppFixture) -> None:
    form = {"csrf": await signed_in(app, app.operator), "confirm": app.operator.email}
    path = f"/admin/people/{app.operator.id}"
    assert (await app.client.post(f"{path}/close", data=form)).status_code == 403
    assert "Delete the account" not in (await app.client.get(path)).text


async def test_operator_removes_a_post_of_another_account(any_database_app: AppFixture) -> None:
    app = any_database_app
    created = (await post(app)).json()
    page = f"/gallery/posts/{created['id']}"
    csrf = await signed_in(app)
    assert f"{page}/remove" not in (await app.client.get(page)).text
    assert (await app.client.post(f"{page}/remove", data={"csrf": csrf})).status_code == 404
    assert f"{page}/remove" not in (await app.client.get(page)).text
    csrf = await signed_in(app, app.operator)
    assert f"{page}/remove" in (await app.client.get(page)).text
    assert (await app.client.post(f"{page}/remove", data={"csrf": csrf})).status_code == 303
    assert (await app.client.get(page)).status_code == 404
    assert await actions_on(app, app.account.id) == ["post.remove"]
    assert "post.remove" in await events_of(app, app.account.id)


async def test_operator_ends_a_shared_link_of_another_account(any_database_app: AppFixture) -> None:
    app = any_database_app
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    run = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    link = (await share(app, "run", run["id"]))["url"].partition("/s/")[2]
    csrf = await signed_in(app)
    assert (await app.client.post(f"/s/{link}/withdraw", data={"csrf": csrf})).status_code == 404
    csrf = await signed_in(app, app.operator)
    assert f"/admin/people/{app.account.id}" in (await app.client.get(f"/s/{link}")).text
    assert (await app.client.post(f"/s/{link}/withdraw", data={"csrf": csrf})).status_code == 303
    assert (await app.client.get(f"/s/{link}")).status_code == 404
    assert await actions_on(app, app.account.id) == ["share.withdraw"]


@pytest.mark.browser
@browser.needed
async def test_page_of_a_person_deletes_the_account_at_each_width(app: AppFixture) -> None:
    operator = dataclasses.replace(app, account=app.operator)
    async with serve(app.asgi) as url, browser.browser() as chromium:
        async with browser.tab(chromium, operator, url, TabOptions(scripts=False)) as tab:
            for width in (1440, 834, 390):
                await tab.page.set_viewport_size({"width": width, "height": 900})
                await tab.open(f"/admin/people/{app.account.id}")
                await tab.page.get_by_label(f"Confirm with {app.account.email}").fill(app.account.email)
                await tab.page.get_by_role("button", name="Delete the account").click()
                assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
                await tab.page.get_by_role("button", name="Keep the account").click()
        async with browser.tab(chromium, operator, url, TabOptions(width=390)) as tab:
            await tab.open(f"/admin/people/{app.account.id}")
            assert await violations(tab.page) == []


# -- over HTTP -----------------------------------------------------------------------------------------


async def test_account_is_closed_and_kept_over_http(any_database_app: AppFixture) -> None:
    app, email = any_database_app, any_database_app.account.email
    path, headers = f"/api/operator/accounts/{app.account.id}", bearer(await app.operator_key())

    async def close(body: dict[str, str], credential: dict[str, str] = headers) -> int:
        response = await app.client.request("DELETE", path, json=body, headers=credential)
        return response.status_code

    assert await close({"confirm": email}, bearer(app.other)) == 403
    assert [await close({"confirm": "zoe@example.com"}), await close({})] == [400, 400]
    assert (await app.client.post(f"{path}/keep", headers=headers)).status_code == 409
    assert await close({"confirm": email}) == 202
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 401
    assert (await app.client.get(path, headers=headers)).json()["closing_at"] is not None
    assert await close({"confirm": email}) == 409
    kept = await app.client.post(f"{path}/keep", headers=headers)
    assert (kept.status_code, kept.json()["closing_at"]) == (200, None)
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 200
    assert await actions_on(app, app.account.id) == ["account.keep", "account.close"]
    operator = f"/api/operator/accounts/{app.operator.id}"
    refused = await app.client.request(
        "DELETE", operator, json={"confirm": app.operator.email}, headers=headers
    )
    assert refused.status_code == 403


async def test_work_of_a_suspended_account_is_removed_over_http(any_database_app: AppFixture) -> None:
    app, headers = any_database_app, bearer(await any_database_app.operator_key())
    created = (await post(app)).json()["id"]
    hero = {"api_key": app.key, "name": "Sailor", "description": "Salt", "greeting": "Ahoy"}
    character = (await app.client.post("/api/create-ai", json=hero)).json()["id"]
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    run = (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).json()
    link = (await share(app, "run", run["id"], **{"with": "ben@example.com"}))["url"]
    await app.database.write(customers.suspend(app.operator.owner, app.account.id, suspended=True))
    removals = [
        ("DELETE", f"/api/operator/posts/{created}", None),
        ("DELETE", f"/api/operator/characters/{character}", None),
        ("POST", "/api/operator/shares/end", {"url": link}),
    ]
    statuses: list[list[int]] = []
    for method, path, fields in removals:
        sent = [bearer(app.other), headers, headers]
        answers = [await app.client.request(method, path, json=fields, headers=each) for each in sent]
        statuses.append([answer.status_code for answer in answers])
    assert statuses == [[403, 204, 404]] * 3
    for url in ("https://elsewhere.example/gallery", "https://[/s/token", ""):
        refused = await app.client.post("/api/operator/shares/end", json={"url": url}, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input"), url
    await app.database.write(customers.suspend(app.operator.owner, app.account.id, suspended=False))
    assert (await app.client.get("/api/posts")).json()["posts"] == []
    assert (await app.client.get("/api/characters")).json()["characters"] == []
    assert (await app.client.get("/api/shares", headers=app.bearer)).json()["shares"] == []
    removed = ["share.withdraw", "character.remove", "post.remove"]
    assert (await actions_on(app, app.account.id))[1:4] == removed
    assert set(removed) < set(await events_of(app, app.account.id))


async def test_characters_are_removed_by_their_owner_or_the_operator(any_database_app: AppFixture) -> None:
    app = any_database_app
    hero = {"api_key": app.key, "description": "Salt", "greeting": "Ahoy"}
    first, second = [
        (await app.client.post("/api/create-ai", json={**hero, "name": name})).json()["id"]
        for name in ("Sailor", "Diver")
    ]
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    csrf = {"csrf": await signed_in(app, ben)}
    assert "/delete" not in (await app.client.get("/characters")).text
    for ending in ("delete", "remove"):
        assert (await app.client.post(f"/characters/{first}/{ending}", data=csrf)).status_code == 404
    csrf = {"csrf": await signed_in(app)}
    assert f"/characters/{first}/delete" in (await app.client.get("/characters")).text
    assert (await app.client.post(f"/characters/{first}/delete", data=csrf)).status_code == 303
    csrf = {"csrf": await signed_in(app, app.operator)}
    page = (await app.client.get("/characters")).text
    assert (first in page, f"/characters/{second}/remove" in page) == (False, True)
    assert (await app.client.post(f"/characters/{second}/remove", data=csrf)).status_code == 303
    assert "No characters yet" in (await app.client.get("/characters")).text
    assert await actions_on(app, app.account.id) == ["character.remove"]


async def test_usage_of_the_server_and_of_an_account_over_http(any_database_app: AppFixture) -> None:
    app, headers = any_database_app, bearer(await any_database_app.operator_key())
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    assert (await app.client.post("/api/containers/run", json=body, headers=app.bearer)).status_code == 200
    one, server = f"/api/operator/accounts/{app.account.id}/usage", "/api/operator/usage"
    for path in (one, server):
        assert (await app.client.get(path, headers=bearer(app.other))).status_code == 403
        assert (await app.client.get(f"{path}?by=secret", headers=headers)).status_code == 400
        csv = await app.client.get(f"{path}?format=csv", headers=headers)
        assert csv.headers["content-type"].startswith("text/csv")
        assert len(csv.text.splitlines()) == 2
    (row,) = (await app.client.get(f"{one}?by=model", headers=headers)).json()["usage"]
    assert (row["model"], row["requests"], row["amount_usd"]) == ("ra1", 1, "0.04")
    (row,) = (await app.client.get(f"{server}?by=email,model", headers=headers)).json()["usage"]
    assert (row["email"], row["model"], row["amount_usd"]) == (app.account.email, "ra1", "0.04")
    gone = await app.client.get("/api/operator/accounts/acct_0/usage", headers=headers)
    assert gone.status_code == 404
