"""Spending by day and model agrees with the ledger; each charge links to its receipt."""

from __future__ import annotations

import re

from sixfold.core.accounts import ledger, ledger_queries
from sixfold.core.accounts.ledger_queries import Spending
from sixfold.core.clock import DAY_US
from sixfold.ui.account.usage_chart import chart
from tests.api.app_fixture import AppFixture
from tests.api.test_pages import signed_in

RUN = "/api/containers/run"


async def test_spending_by_model_subtracts_refunds(any_database_app: AppFixture) -> None:
    app = any_database_app
    for model in ("ra1", "ra1", "anime"):
        body = {"model": model, "input": {"prompt": "a fox"}}
        result = (await app.client.post(RUN, json=body, headers=app.bearer)).json()["id"]
    await app.predictions.refund(await app.predictions.get_any(result), "of no use")
    row = await app.database.read(ledger_queries.spending(app.account.id, 14))
    assert row.models == {"ra1": 80_000, "anime": 0}
    assert (len(row.days), row.total) == (14, 80_000)
    assert [sum(day.values()) for day in row.days.values()] == [0] * 13 + [80_000]
    assert (await app.database.read(ledger_queries.spending(app.operator.id, 14))).total == 0


async def test_account_page_shows_spending_and_links_receipts(app: AppFixture) -> None:
    await signed_in(app)
    assert "No spending in this period" in (await app.client.get("/account")).text
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    result = (await app.client.post(RUN, json=body, headers=app.bearer)).json()["id"]
    page = (await app.client.get("/account/usage?days=30")).text
    assert 'aria-label="0.04 USD in 30 days"' in page
    assert re.search(r'<a href="/catalog/ra1">Painterly image</a>.*?0\.04.*?100 %', page, re.DOTALL)
    page = (await app.client.get("/account/billing")).text
    assert f'<a href="/predictions/{result}">a fox</a>' in page
    assert '<span class="sum">Painterly image · 1 × 0.04/image = 0.04 USD</span>' in page
    assert (
        f'<a class="what" href="/predictions/{result}">a fox</a>' in (await app.client.get("/account")).text
    )
    receipt = (await app.client.get(f"/predictions/{result}")).text
    assert '<p class="sum">1 × 0.04/image = 0.04 USD</p>' in receipt
    assert (await app.client.get("/account/usage?days=31")).text.count('class="hit"') == 14


async def test_ledger_shows_the_titles_of_models(app: AppFixture) -> None:
    entries = {
        ("session", "world-model: minute 1"): "World: minute 1",
        ("charge", "ra1 (list price 0.04 USD)"): "Painterly image (list price 0.04 USD)",
        ("refund", "space:my-own-graph: of no use"): "My own graph: of no use",
        ("credit", "Credit for the ra1 team"): "Credit for the ra1 team",
    }
    for kind, description in entries:
        entry = ledger.LedgerEntry(kind, description)
        await app.database.write(ledger.deposit(app.account.id, 1, entry))
    await signed_in(app)
    page = (await app.client.get("/account/billing")).text
    cells = re.findall(r'<td class="for">(?:<a href="[^"]*">)?([^<]*)<', page)
    assert cells[:4] == [*reversed(entries.values())]


async def test_withdrawn_credit_is_not_counted_as_spending(app: AppFixture) -> None:
    entry = ledger.LedgerEntry("credit", "Credit by the operator")
    await app.database.write(ledger.deposit(app.account.id, -1_000_000, entry))
    assert (await app.database.read(ledger_queries.spending(app.account.id, 14))).models == {}


def test_chart_stacks_the_top_models_and_sums_the_others() -> None:
    models = {f"model-{number}": 100 - number for number in range(8)}
    drawn = chart(Spending({0: models, DAY_US: {"model-0": 50}}, models))
    first, second = drawn.columns
    assert len(drawn.legend) == 6
    assert drawn.legend[-1][1:] == ("others", sum((95, 94, 93)))
    assert [part.y for part in first.segments] == sorted((p.y for p in first.segments), reverse=True)
    assert round(sum(part.height for part in first.segments)) == 110
    assert round(second.segments[0].height, 1) == round(110 * 50 / sum(models.values()), 1)
