"""Operators see and download the usage of all accounts and of each account, with the costs of providers."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core import money
from sixfold.core.accounts import accounts, keys, usage_report
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.operation import server_usage
from tests.api import browser
from tests.api.browser import TabOptions
from tests.api.gateway import Gateway, running_gateway
from tests.api.page_checks import violations
from tests.api.test_pages import signed_in
from tests.mcp.loopback import serve


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


async def use(gateway: Gateway) -> Account:
    """Run and refund images of two accounts, and call a chat; return the second account."""
    app = gateway.app
    other = await app.database.write(accounts.create("zoe@example.com", credit=1_000_000))
    key = await app.database.write(keys.create(other.id))
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    runs: list[str] = []
    for headers in (app.bearer, *[{"Authorization": f"Bearer {key.api_key}"}] * 3):
        response = await app.client.post("/api/containers/run", json=body, headers=headers)
        runs.append(response.json()["id"])
    await app.predictions.refund(await app.predictions.get_any(runs[-1]), "of no use")
    await gateway.chat()
    await gateway.settled()
    return other


async def test_usage_of_all_accounts_is_the_sum_of_their_reports(gateway: Gateway) -> None:
    app = gateway.app
    other = await use(gateway)
    page = await app.database.read(server_usage.report(14, ("account", "email", "model")))
    assert {(row["email"], row["model"]): (row["requests"], row["amount_usd"]) for row in page.rows} == {
        (app.account.email, "acme/small"): (1, page.rows[0]["amount_usd"]),
        (app.account.email, "ra1"): (1, "0.04"),
        ("zoe@example.com", "ra1"): (3, "0.08"),
    }
    for account in (app.account, other):
        own = await app.database.read(usage_report.report(account.id, 14, ("day", "model"), with_costs=True))
        rows = [row for row in page.rows if row["account"] == account.id]
        for column in (*usage_report.COUNTS, "amount_usd", "provider_cost_usd"):
            values = [[money.parse_usd(str(row[column])) for row in each] for each in (rows, own.rows)]
            assert sum(values[0]) == sum(values[1]), column


async def test_too_many_groups_are_refused(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(gateway)
    monkeypatch.setattr(usage_report, "MAX_GROUPS", 2)
    await signed_in(gateway.app, gateway.app.operator)
    response = await gateway.app.client.get("/admin/usage.csv")
    assert response.status_code == 400
    assert "more than 2 groups: choose fewer than 14 days" in response.text


async def test_operator_reads_and_downloads_the_usage_of_each_account(gateway: Gateway) -> None:
    app = gateway.app
    other = await use(gateway)
    one = f"/admin/people/{other.id}/usage"
    await signed_in(app, other)
    for path in ("/admin/usage", "/admin/usage.csv", one, f"{one}.csv"):
        assert (await app.client.get(path)).status_code == 404
    await signed_in(app, app.operator)
    page = (await app.client.get("/admin/usage")).text
    assert re.search(rf'href="{one}\?days=14">zoe@example.com</a></td><td[^>]*>(<[^>]+>)?0.08\b', page)
    assert "<h2>Earned and provider cost</h2>" in page
    assert "ra1" in (await app.client.get("/admin/usage?by=model&days=30")).text
    table = list(csv.DictReader(io.StringIO((await app.client.get("/admin/usage.csv?days=90")).text)))
    assert {(row["email"], row["model"]): row["amount_usd"] for row in table}[
        "zoe@example.com", "ra1"
    ] == "0.08"
    page = (await app.client.get(one)).text
    assert "Usage of zoe" in page
    assert app.account.email not in page
    table = list(csv.DictReader(io.StringIO((await app.client.get(f"{one}.csv")).text)))
    assert {(row["kind"], row["model"]): row["requests"] for row in table} == {
        ("run", "ra1"): "3",
        ("refund", "ra1"): "0",
    }
    assert one in (await app.client.get(f"/admin/people/{other.id}")).text
    assert (await app.client.get("/admin/people/acct_nobody/usage")).status_code == 404


async def test_erased_accounts_are_one_line_without_a_link(gateway: Gateway) -> None:
    app = gateway.app
    other = await use(gateway)
    object.__setattr__(app.settings, "deletion_days", 0.0)
    form = {"csrf": await signed_in(app, app.operator), "confirm": other.email}
    assert (await app.client.post(f"/admin/people/{other.id}/close", data=form)).status_code == 303
    page = (await app.client.get("/admin/usage")).text
    assert re.search(r"<td>deleted accounts</td><td[^>]*>(<[^>]+>)?0.08\b", page)
    assert other.id not in page
    assert other.id in (await app.client.get("/admin/usage.csv")).text


@pytest.mark.browser
@browser.needed
async def test_usage_fits_three_widths_and_is_accessible(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway, serve(gateway.app.asgi) as url:
        await use(gateway)
        operator = dataclasses.replace(gateway.app, account=gateway.app.operator)
        async with browser.browser() as chromium:
            async with browser.tab(chromium, operator, url, TabOptions(scripts=False)) as tab:
                for width in (1440, 834, 390):
                    await tab.page.set_viewport_size({"width": width, "height": 900})
                    await tab.open("/admin/usage")
                    await tab.page.get_by_role("link", name="zoe@example.com").click()
                    await tab.page.get_by_role("link", name="By day").click()
                    assert await tab.page.inner_text("tfoot td >> nth=1") == "0.08"
                    assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            async with browser.tab(chromium, operator, url, TabOptions(width=390)) as tab:
                await tab.open("/admin/usage")
                assert await violations(tab.page) == []
