"""The account in five tabs: usage, keys and billing, and the balance on every page."""

from __future__ import annotations

import re

import pytest

from sixfold.core.accounts import keys, ledger, ledger_queries
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.gateway import request_log
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from sixfold.ui.account import usage
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_pages import signed_in

RUN = "/api/containers/run"
TABS = ("/account", "/account/usage", "/account/keys", "/account/billing", "/account/security")


async def run(app: AppFixture, key: str = "", model: str = "ra1") -> None:
    body = {"model": model, "input": {"prompt": "a fox"}}
    response = await app.client.post(RUN, json=body, headers=bearer(key or app.key))
    assert response.status_code == 200, response.text


async def rows(app: AppFixture) -> dict[str, dict[str, object]]:
    """Return the keys of the first account by id."""
    result = await app.database.read(keys.of_account(app.account.id))
    return {row["id"]: dict(row) for row in result}


async def test_tabs_mark_their_page_and_old_urls_redirect(app: AppFixture) -> None:
    assert (await app.client.get("/account/usage")).headers["location"] == "/signin?next=%2Faccount%2Fusage"
    await signed_in(app)
    for path in TABS:
        page = (await app.client.get(path)).text
        assert f'href="{path}" aria-current="page"' in page, path
        assert '<a class="balance" href="/account/billing">' in page
    overview = (await app.client.get("/account")).text
    for anchor in ("credit", "spending", "keys", "programs"):
        assert f'id="{anchor}"' in overview
    older = await app.client.get("/account?cursor=1~x")
    assert older.headers["location"] == "/account/billing?cursor=1~x"
    assert (await app.client.get("/account?days=30")).headers["location"] == "/account/usage?days=30"


async def test_usage_is_grouped_and_downloads_as_csv(app: AppFixture) -> None:
    await signed_in(app)
    await run(app)
    key = await app.database.write(keys.create(app.account.id, holder=keys.Holder(name="laptop")))
    await run(app, key.api_key, "anime")
    result = {
        by: (await app.client.get(f"/account/usage?by={by}")).text for by in ("model", "key", "day", "kind")
    }
    assert (
        '<a href="/catalog/anime">Anime images, up to eight</a> <code class="note">anime</code>'
        in result["model"]
    )
    assert f"laptop (…{key.api_key[-4:]})" in result["key"]
    assert re.search(r"<tbody><tr><td>\d{4}-\d\d-\d\d</td>", result["day"])
    assert "<td>run</td>" in result["kind"]
    assert re.search(r'class="value"[^>]*>\d{4}-\d\d-\d\d: 0\.\d+ USD</text>', result["model"])
    file = await app.client.get("/account/usage.csv?days=30")
    assert file.headers["content-type"].startswith("text/csv")
    assert file.text.splitlines()[0] == "day,kind,model,key,requests,input_tokens,output_tokens,amount_usd"
    assert key.id in file.text
    assert (await app.client.get("/account/usage?by=tenant")).status_code == 400


async def test_usage_page_shows_a_limited_number_of_lines(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MAX_LINES", 1)
    await signed_in(app)
    for model in ("ra1", "anime"):
        await run(app, app.key, model)
    page = (await app.client.get("/account/usage")).text
    assert (page.count('<code class="note">'), "1 more row in the CSV" in page) == (1, True)


async def test_a_rolled_key_keeps_name_limits_and_spending(any_database_app: AppFixture) -> None:
    app = any_database_app
    csrf = await signed_in(app)
    form = {"csrf": csrf, "name": "  my   laptop ", "budget_day": "1", "expires": "2031-01-31"}
    page = (await app.client.post("/account/keys", data=form)).text
    result = re.search(r'id="new-key">(sf_[^<]+)', page)
    assert result is not None
    old = next(row for row in (await rows(app)).values() if row["name"] == "my laptop")
    await run(app, result[1])
    page = (await app.client.post(f"/account/keys/{old['id']}/roll", data={"csrf": csrf})).text
    assert "0.04</data> of 1.00 USD" in page
    secret = re.search(r'id="new-key">(sf_[^<]+)', page)
    assert secret is not None
    new = next(
        row for row in (await rows(app)).values() if row["name"] == "my laptop" and row["id"] != old["id"]
    )
    assert (new["scope"], new["rights"], new["expires_at"]) == (
        old["scope"],
        old["rights"],
        old["expires_at"],
    )
    assert (await app.client.get("/api/account", headers=bearer(result[1]))).status_code == 401
    assert (await app.client.get("/api/account", headers=bearer(secret[1]))).status_code == 200
    page = (await app.client.post(f"/account/keys/{new['id']}/roll", data={"csrf": csrf, "keep": "day"})).text
    assert (await app.client.get("/api/account", headers=bearer(secret[1]))).status_code == 200, "for a day"
    newest = re.search(r'id="new-key">(sf_[^<]+)', page)
    assert newest is not None
    await run(app, secret[1])
    await run(app, newest[1])
    page = (await app.client.get("/account/keys")).text
    assert page.count("0.12</data> of 1.00 USD") == 2, "both keys count against the same budget"
    second_response = await app.client.post(f"/account/keys/{old['id']}/roll", data={"csrf": csrf})
    assert second_response.status_code == 404
    assert await app.database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("action", ["roll", "name", "revoke"])
async def test_a_key_of_another_account_is_unknown(app: AppFixture, action: str) -> None:
    csrf = await signed_in(app)
    other = await app.database.write(keys.create(app.operator.id))
    response = await app.client.post(f"/account/keys/{other.id}/{action}", data={"csrf": csrf, "name": "x"})
    assert response.status_code == 404
    assert (await app.client.post(f"/account/keys/{other.id}/{action}", data={})).status_code == 403


async def test_key_of_a_member_is_rolled_by_the_member_only(app: AppFixture) -> None:
    holder = keys.Holder("member_1")
    key = await app.database.write(keys.create(app.account.id, KeyLimits(), holder=holder))
    csrf = await signed_in(app)
    response = await app.client.post(f"/account/keys/{key.id}/roll", data={"csrf": csrf})
    assert response.status_code == 404


async def test_last_use_is_stored_with_the_key(any_database_app: AppFixture) -> None:
    app = any_database_app
    assert all(row["used_at"] is None for row in (await rows(app)).values())
    await app.client.get("/api/account", headers=app.bearer)
    await app.server.key_use.store()
    assert [row["used_at"] for row in (await rows(app)).values() if row["used_at"]] != []
    await signed_in(app)
    assert "Last used" in (await app.client.get("/account/keys")).text


async def test_a_name_that_is_too_long_and_a_past_day_are_refused(app: AppFixture) -> None:
    csrf = await signed_in(app)
    response = await app.client.post("/account/keys", data={"csrf": csrf, "name": "x" * 61})
    assert response.status_code == 400
    for day in ("2020-01-01", "soon"):
        response = await app.client.post("/account/keys", data={"csrf": csrf, "expires": day})
        assert response.status_code == 422
        assert "must be a date in the future" in response.text


async def test_an_unknown_model_of_a_key_is_refused_with_similar_names(app: AppFixture) -> None:
    csrf = await signed_in(app)
    response = await app.client.post(
        "/account/keys", data={"csrf": csrf, "services": "ra1, chatt, box/small"}
    )
    assert response.status_code == 422
    assert "Model or service chatt (did you mean chat?) not found" in response.text


async def test_amounts_are_rounded_with_the_exact_one_in_the_title(app: AppFixture) -> None:
    entry = ledger.LedgerEntry("credit", "Correction")
    await app.database.write(ledger.deposit(app.account.id, -1_234_567, entry))
    await signed_in(app)
    page = (await app.client.get("/account/billing")).text
    assert '<data value="3.765433" title="3.765433 USD">3.77</data>' in page
    assert "Ask the operator for credit" in page


async def test_charge_of_a_chat_shows_its_request_id_and_its_duration(app: AppFixture) -> None:
    call = CallRecord("req_chat", app.account.id, None, "chat", "m", "s/m", streamed=False, held=10)
    call.total_us = 2_000_000
    outcome = CallOutcome("succeeded", TokenUsage(3, 4), 7, counted_by="server")
    await app.database.write(request_log.write_batch([], [], "boot_a", [(call, None, outcome)]))
    await signed_in(app)
    assert "req_chat" in (await app.client.get("/account/billing")).text
    await signed_in(app, app.operator)
    page = (await app.client.get("/admin/requests", params={"q": "req_chat"})).text
    assert '<span class="took">2.0 s</span>' in page
