"""The operator's changes to accounts, on pages and over HTTP: audit entries and required rights."""

from __future__ import annotations

import asyncio
import html
import json
import re
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, idempotency, keys, ledger_queries, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.operation import actions, customers
from sixfold.core.accounts.rights import Rights
from sixfold.core.configuration import entries
from sixfold.core.database import Transaction, now
from sixfold.core.failpoints import FailpointHit
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_pages import link, signed_in

RUN = "/api/containers/run"
BODY: dict[str, Any] = {"model": "ra1", "input": {"prompt": "a fox"}}
PAGES = ("/admin/people", "/admin/audit")
FORMS = (
    "invite",
    "A/credit",
    "A/suspend",
    "A/resume",
    "A/budgets",
    "A/keys",
    "A/keys/revoke",
    "A/link",
    "A/guardrail",
    "A/content-log",
)


async def log(app: AppFixture) -> list[tuple[str, str, str]]:
    """Return action, before and after of every audit entry, newest first."""
    row = await app.database.read(actions.page(50, None))
    return [(each.action, each.before, each.after) for each in row.actions]


def path(app: AppFixture, form: str) -> str:
    return f"/admin/people/{form.replace('A', app.account.id, 1)}"


async def test_an_invited_person_signs_in_with_credit(any_database_app: AppFixture) -> None:
    app = any_database_app
    csrf = await signed_in(app, app.operator)
    form = {"csrf": csrf, "email": "New@Example.com", "credit": "2.5", "reason": "a trial"}
    page = await app.client.post("/admin/people/invite", data=form)
    assert page.status_code == 200
    assert "</data> USD (a trial).</p>" in page.text
    account = await app.database.read(accounts.by_email("new@example.com"))
    assert account.posted == 0
    link = re.search(r'id="new-link">[^<]*(/signin\?token=[^<]+)<', page.text)
    assert link is not None
    visitor = app.visitor()
    assert (await visitor.get(link[1])).headers["location"] == "/"
    assert "new@example.com" in (await visitor.get("/account")).text
    assert (await app.visitor().get(link[1])).status_code == 401, "once"
    account = await app.database.read(accounts.by_email("new@example.com"))
    assert account.posted == 2_500_000
    entries = await app.database.read(ledger_queries.page(account.id, 9, None))
    assert [each["description"] for each in entries.entries] == ["Credit by the operator: a trial"]
    assert await log(app) == [("account.invite", "", '{"credit_usd":"2.50","reason":"a trial"}')]
    second_response = await app.client.post("/admin/people/invite", data=form)
    assert (second_response.status_code, "already exists" in second_response.text) == (400, True)
    assert "new@example.com" in (await app.client.get("/admin/people?q=NEW")).text
    assert "ada@example.com" not in (await app.client.get("/admin/people?q=NEW")).text


async def test_credit_of_an_invitation_is_added_once(any_database_app: AppFixture) -> None:
    app = any_database_app
    write = app.database.write
    invited = await write(customers.invite(app.operator.owner, "new@example.com", 1_000_000, "a trial"))
    # The first link expires unused, and the operator makes two others.
    links = [await write(customers.sign_in_link(app.operator.owner, invited.account.id)) for _ in range(2)]
    await write(login_sessions.end(invited.token))
    moment = await app.database.read(now())
    await asyncio.gather(*(write(login_sessions.take_link(each.token, moment)) for each in links))
    await write(login_sessions.new_session(invited.account.id, moment, LoginDetails("password")))
    account = await app.database.read(accounts.by_id(invited.account.id))
    assert account.posted == 1_000_000
    assert await app.database.read(ledger_queries.verify()) == ()


async def test_key_of_an_invited_account_books_its_credit_once(any_database_app: AppFixture) -> None:
    app = any_database_app
    write, actor = app.database.write, app.operator.owner
    invited = await write(customers.invite(actor, "new@example.com", 1_000_000, "a trial"))
    key = await write(customers.create_key(actor, invited.account.id, "batch jobs", KeyLimits()))
    run = await app.client.post(RUN, json=BODY, headers=bearer(key.api_key))
    assert run.status_code == 200
    await write(login_sessions.take_link(invited.token, await app.database.read(now())))
    account = await app.database.read(accounts.by_id(invited.account.id))
    assert (account.posted, account.invitation_credit) == (960_000, None)


async def test_rejected_invitation_keeps_the_entered_values(app: AppFixture) -> None:
    csrf = await signed_in(app, app.operator)
    form = {"csrf": csrf, "email": "new@example.com", "credit": "many", "reason": "a trial"}
    page = await app.client.post("/admin/people/invite", data=form)
    assert page.status_code == 400
    assert all(f'value="{form[name]}"' in page.text for name in ("email", "credit", "reason"))
    with pytest.raises(errors.NotFound):
        await app.database.read(accounts.by_email("new@example.com"))


async def test_credit_needs_a_reason_and_is_in_both_ledgers(any_database_app: AppFixture) -> None:
    app = any_database_app
    csrf = await signed_in(app, app.operator)
    url = path(app, "A/credit")
    for amount, reason in (("1", ""), ("one", "gift"), ("0", "gift"), ("-9", "more than there is")):
        response = await app.client.post(url, data={"csrf": csrf, "amount_usd": amount, "reason": reason})
        assert response.status_code == 400, (amount, reason)
        assert f'value="{amount}"' in response.text, "the form keeps what was entered"
    assert await log(app) == []
    await app.client.post(url, data={"csrf": csrf, "amount_usd": "1.25", "reason": "a bug"})
    assert (await app.balance())[0] == "6.25"
    entries = await app.database.read(ledger_queries.page(app.account.id, 1, None))
    assert entries.entries[0]["description"] == "Credit by the operator: a bug"
    assert await log(app) == [
        ("account.credit", '{"balance_usd":"5.00"}', '{"balance_usd":"6.25","reason":"a bug"}')
    ]
    assert await app.database.read(ledger_queries.verify()) == ()


async def test_credit_is_added_once_for_its_key(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may stop, or lose its database, before it stores the response."""
    app, finish, failures = any_database_app, idempotency.finish, 0

    def fail_once(scope: str, *parameters: Any, **more: Any) -> Transaction[None]:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise FailpointHit("the response is not stored")
        if failures == 2:
            # The database failed, so that the key is released.
            return idempotency.forget(scope)
        return finish(scope, *parameters, **more)

    monkeypatch.setattr(idempotency, "finish", fail_once)
    url, body = f"/api/operator/accounts/{app.account.id}/credit", {"amount_usd": "2", "reason": "paid"}
    headers = {**bearer(await app.operator_key()), "Idempotency-Key": "invoice 7"}
    statuses = [(await app.client.post(url, json=body, headers=headers)).status_code for _ in range(4)]
    assert (statuses, (await app.balance())[0]) == ([500, 200, 200, 200], "7.00")
    assert [action for action, _, _ in await log(app)].count("account.credit") == 1
    other = {**headers, "Idempotency-Key": "invoice 8"}
    for _ in range(2):
        assert (await app.client.post(url, json=body, headers=other)).status_code == 200
    assert (await app.balance())[0] == "9.00"
    assert await app.database.read(ledger_queries.verify()) == ()


async def test_key_of_a_credit_refuses_the_opposite_amount(any_database_app: AppFixture) -> None:
    app, path = any_database_app, f"/api/operator/accounts/{any_database_app.account.id}/credit"
    headers = {**bearer(await app.operator_key()), "Idempotency-Key": "invoice 7"}
    scope = idempotency.scope_id(app.operator.id, "POST", path, "invoice 7")
    statuses: list[int] = []
    for amount in ("2", "-2", "2"):
        body = {"amount_usd": amount, "reason": "paid"}
        statuses.append((await app.client.post(path, json=body, headers=headers)).status_code)
        await app.database.write(idempotency.forget(scope))
    assert (statuses, (await app.balance())[0]) == ([200, 409, 200], "7.00")


async def test_a_suspended_account_runs_nothing_until_resumed(any_database_app: AppFixture) -> None:
    app = any_database_app
    person = app.visitor()
    await person.get("/signin", params={"token": await link(app)})
    csrf = await signed_in(app, app.operator)
    await app.client.post(path(app, "A/suspend"), data={"csrf": csrf, "reason": "spam"})
    response = await app.visitor().post(RUN, json=BODY, headers=app.bearer)
    assert (response.status_code, "is suspended" in response.text) == (403, True)
    assert (await app.visitor().get("/api/pages", headers=app.bearer)).status_code == 403
    assert (await app.visitor().get("/api/account", headers=app.bearer)).status_code == 200
    assert "This account is suspended" in (await person.get("/account")).text
    assert (await person.get("/memory")).status_code == 403
    await app.client.post(path(app, "A/resume"), data={"csrf": csrf})
    assert (await app.visitor().post(RUN, json=BODY, headers=app.bearer)).status_code == 200
    assert [action for action, _, _ in await log(app)] == ["account.resume", "account.suspend"]
    assert "suspended no, reason" not in (await app.client.get("/admin/audit")).text, "without a reason"
    operator = f"/admin/people/{app.operator.id}/suspend"
    assert (await app.client.post(operator, data={"csrf": csrf})).status_code == 400


async def test_budgets_and_keys_of_an_account(app: AppFixture) -> None:
    csrf = await signed_in(app, app.operator)
    await app.client.post(path(app, "A/budgets"), data={"csrf": csrf, "budget_day": "0.05"})
    page = await app.client.post(path(app, "A/keys"), data={"csrf": csrf, "name": "from the operator"})
    key = re.search(r'id="new-key">(sf_[^<]+)', page.text)
    assert key is not None
    assert (await app.visitor().post(RUN, json=BODY, headers=bearer(key[1]))).status_code == 200
    assert (await app.visitor().post(RUN, json=BODY, headers=bearer(key[1]))).status_code == 429
    rows = await app.database.read(keys.of_account(app.account.id))
    result = next(row for row in rows if row["name"] == "from the operator")
    await app.client.post(path(app, "A/keys/revoke"), data={"csrf": csrf, "key_id": result["id"]})
    assert (await app.visitor().get("/api/account", headers=bearer(key[1]))).status_code == 401
    assert json.loads((await log(app))[-1][2]) == {"budget_day_usd": "0.05", "budget_month_usd": None}
    text = (await app.client.get(f"/admin/audit?target={app.account.id}")).text
    assert '<strong title="account.budgets">Set budgets</strong>' in text
    assert key[1] not in text


async def test_account_cannot_raise_the_budget_of_the_operator(any_database_app: AppFixture) -> None:
    app = any_database_app
    url, own = f"/api/operator/accounts/{app.account.id}", "/api/organization"
    operator = bearer(await app.operator_key())
    limited = await app.client.patch(url, json={"budget_day_usd": "0.05"}, headers=operator)
    assert limited.json()["budget_day_usd"] == "0.05"
    for amount in (None, "9"):
        changed_response = await app.client.patch(own, json={"budget_day_usd": amount}, headers=app.bearer)
        assert changed_response.status_code == 200
    person = app.visitor()
    await person.get("/signin", params={"token": await link(app)})
    page = await person.get("/account/members")
    assert "also sets a budget: 0.05 USD per day. The lower one" in page.text
    assert (await app.client.get(url, headers=operator)).json()["budget_day_usd"] == "0.05"
    statuses = [(await app.client.post(RUN, json=BODY, headers=app.bearer)).status_code for _ in range(2)]
    assert statuses == [200, 429]
    assert (await app.client.patch(url, json={"budget_day_usd": "1"}, headers=operator)).status_code == 200
    assert (await app.client.post(RUN, json=BODY, headers=app.bearer)).status_code == 200
    # The account's own budget applies where it is the lower one.
    lowered = await app.client.patch(own, json={"budget_day_usd": "0.1"}, headers=app.bearer)
    assert lowered.status_code == 200
    assert (await app.client.post(RUN, json=BODY, headers=app.bearer)).status_code == 429
    response = await app.client.patch(url, json={"budget_day_usd": None}, headers=operator)
    assert response.json()["budget_day_usd"] is None


@pytest.mark.parametrize("page", PAGES)
async def test_pages_are_hidden_from_others(app: AppFixture, page: str) -> None:
    assert (await app.client.get(page)).status_code == 303
    await signed_in(app)
    assert (await app.client.get(page)).status_code == 404


async def test_forms_need_an_operator_a_fresh_sign_in_and_csrf_token(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    csrf = await signed_in(app)
    for form in FORMS:
        assert (await app.client.post(path(app, form), data={"csrf": csrf})).status_code == 404, form
    csrf = await signed_in(app, app.operator)
    for form in FORMS:
        assert (await app.client.post(path(app, form), data={"csrf": "x"})).status_code == 403, form
    monkeypatch.setattr(login_sessions, "FRESH_US", 0)
    for form in FORMS:
        response = await app.client.post(path(app, form), data={"csrf": csrf})
        assert response.headers["location"].startswith("/signin?again=1"), form
    assert await log(app) == []


async def test_the_api_needs_operate_and_account_manage(app: AppFixture) -> None:
    url = f"/api/operator/accounts/{app.account.id}"
    body = {"amount_usd": "1", "reason": "gift"}

    async def key(granted: Rights) -> dict[str, str]:
        row = await app.database.write(keys.create(app.operator.id, granted=granted))
        return bearer(row.api_key)

    metrics = await key(Rights.OPERATE)
    refused = await app.client.post(f"{url}/credit", json=body, headers=metrics)
    assert refused.status_code == 403
    assert "requires the right account.manage, which this key" in refused.json()["error"]
    weak = await key(rights.Rights.MEMORY_READ)
    several = await app.client.get("/api/operator/accounts", headers=weak)
    assert "requires the rights account.read and operate, which this key" in several.json()["error"]
    assert (await app.client.get("/api/operator/accounts", headers=metrics)).status_code == 403
    for headers in (app.bearer, await key(rights.STANDARD)):
        assert (await app.client.post(f"{url}/credit", json=body, headers=headers)).status_code == 403
        assert (await app.client.get("/api/operator/actions", headers=headers)).status_code == 403
    full_key = await key(rights.ALL)
    credited = (await app.client.post(f"{url}/credit", json=body, headers=full_key)).json()
    assert credited["balance_usd"] == "6.00"
    suspended = await app.client.post(f"{url}/suspend", json={"reason": "spam"}, headers=full_key)
    assert suspended.json()["suspended_at"] is not None
    assert (await app.client.post(f"{url}/resume", json={}, headers=full_key)).json()["suspended_at"] is None
    invited = await app.client.post(
        "/api/operator/accounts", json={"email": "zoe@example.com", "credit_usd": "1"}, headers=full_key
    )
    assert (invited.status_code, "/signin?token=link_" in invited.json()["url"]) == (201, True)
    assert (invited.json()["balance_usd"], invited.json()["pending_credit_usd"]) == ("0.00", "1.00")
    await app.visitor().get(invited.json()["url"])
    signed = (await app.client.get("/api/operator/accounts?q=zoe", headers=full_key)).json()["accounts"][0]
    assert (signed["balance_usd"], signed["pending_credit_usd"]) == ("1.00", None)
    response_body = (await app.client.get("/api/operator/accounts?q=zoe", headers=full_key)).json()
    assert [each["email"] for each in response_body["accounts"]] == ["zoe@example.com"]
    result = (await app.client.get("/api/operator/actions", headers=full_key)).json()["actions"]
    # Actions of one millisecond have no order.
    assert [each["id"] for each in result] == sorted((each["id"] for each in result), reverse=True)
    actions = ["account.credit", "account.invite", "account.resume", "account.suspend"]
    assert sorted(each["action"] for each in result) == actions
    assert (await app.client.get("/api/operator/accounts/acct_0", headers=full_key)).status_code == 404


@pytest.mark.parametrize(
    ("action", "body", "failing"),
    [
        ("", {"email": "a@example.com", "credit_usd": -1}, "credit_usd"),
        ("", {"email": "a@example.com", "credit_usd": "1000000.01"}, "credit_usd"),
        ("", {"email": "a@example.com", "credit_usd": 1, "reason": "x" * 201}, "reason"),
        ("/credit", {"amount_usd": "1000000.01", "reason": "x"}, "amount_usd"),
        ("/credit", {"amount_usd": 1, "reason": " "}, "reason"),
        ("/credit", {"amount_usd": 1, "reason": "x" * 201}, "reason"),
        ("/suspend", {"reason": "x" * 201}, "reason"),
        ("/resume", {"reason": 5}, "reason"),
    ],
)
async def test_invalid_fields_of_actions_are_named_with_limits(
    app: AppFixture, action: str, body: dict[str, Any], failing: str
) -> None:
    key = (await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key
    url = f"/api/operator/accounts/{app.account.id}{action}" if action else "/api/operator/accounts"
    response = await app.client.post(url, json=body, headers=bearer(key))
    assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
    assert [problem["input"] for problem in response.json()["errors"]] == [failing]
    assert failing in response.json()["error"]
    if len(str(body.get("reason"))) > 200:
        assert "200 characters" in response.json()["error"]


async def test_log_can_be_filtered_by_every_kind_of_target(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    page = (await app.client.get("/admin/audit")).text
    targets = re.findall(r'href="/admin/audit\?target=([^"]+)"', page)
    kinds = [f"{kind}." for kind in (*entries.SECTIONS, entries.KEYS, "engines", "backups")]
    assert [kind for kind in (*kinds, "acct_", "pred_") if not kind.startswith(tuple(targets))] == []


async def test_request_leads_to_its_account_and_to_a_credit(
    any_database_app: AppFixture,
) -> None:
    app = any_database_app
    run = (await app.client.post(RUN, json=BODY, headers=app.bearer)).json()["id"]
    before = (await app.balance())[0]
    csrf = await signed_in(app, app.operator)
    account = f"/admin/people/{app.account.id}"
    assert f'<a href="{account}">{app.account.email}</a>' in (await app.client.get("/admin/requests")).text
    page = html.unescape((await app.client.get(f"/admin/requests/{run}")).text)
    found = re.search(rf'href="({account}\?[^"#]+)#credit"', page)
    assert found is not None
    form = html.unescape((await app.client.get(found[1])).text)
    fields = dict(re.findall(r'<input name="(amount_usd|reason)"[^>]* value="([^"]+)"', form))
    assert fields == {"amount_usd": "0.04", "reason": f"Price of {run} returned"}
    credit = await app.client.post(f"{account}/credit", data={"csrf": csrf, **fields})
    assert credit.status_code == 303
    assert float((await app.balance())[0]) == pytest.approx(float(before) + 0.04)


@pytest.mark.parametrize(("path", "part"), [("budgets", "budget"), ("keys", "key")])
async def test_refused_budget_keeps_the_entered_values(app: AppFixture, path: str, part: str) -> None:
    csrf = await signed_in(app, app.operator)
    form = {"csrf": csrf, "part": part, "budget_day": "5,50", "budget_month": "40", "name": "ci"}
    page = await app.client.post(f"/admin/people/{app.account.id}/{path}", data=form)
    assert page.status_code == 400
    assert page.text.count('value="5,50"') == page.text.count('value="40"') == 1
