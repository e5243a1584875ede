"""This version opens the data of every older schema: money, files, memory and sessions are intact."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold.core.database import one
from sixfold.core.predictions import repository
from sixfold.core.predictions.states import TERMINAL, PredictionState
from sixfold.store import sql
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.harness import backends, databases, old_data, postgres
from tests.harness.old_data import COOKIE, KEY
from tests.harness.waiting import wait_until

# The others take a second each and differ little.
OFTEN = {1, old_data.MEMORY_SINCE, old_data.SESSIONS_SINCE, 26}
MARKS = {
    "sqlite": (),
    "postgres": (
        pytest.mark.postgres,
        pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
    ),
}
EVERY_SCHEMA = [
    pytest.param(
        dialect, schema, marks=MARKS[dialect] if schema in OFTEN else (*MARKS[dialect], pytest.mark.nightly)
    )
    for dialect in backends.DATABASES
    for schema in old_data.schemas(dialect)
]


@pytest.mark.parametrize(("dialect", "schema"), EVERY_SCHEMA)
async def test_data_of_an_older_schema_is_intact(tmp_path: Path, dialect: str, schema: int) -> None:
    old_data.make(tmp_path, dialect, schema)
    url = backends.database_url(tmp_path)
    assert databases.keeper(url, tmp_path).schema() == schema
    async with running_app(tmp_path, blob_url="", upload_url="") as app:
        assert databases.keeper(url, tmp_path).schema() == sql.latest(dialect)
        await check_account(app)
        await check_file(app)
        if schema >= old_data.MEMORY_SINCE:
            await check_memory(app)
        if schema >= old_data.SESSIONS_SINCE:
            await check_session(app)
        await check_predictions(app)
        assert await app.faults() == ()


async def check_account(app: AppFixture) -> None:
    account = (await app.client.get("/api/account", headers=bearer(KEY))).json()
    assert (account["account_id"], account["email"]) == (old_data.ACCOUNT, "ann@example.com")
    assert account["balance_usd"] in {"4.96", "4.92"}, "the queued prediction may have run already"
    visitor = app.visitor()
    visitor.cookies.set("sixfold_session", COOKIE)
    page = await visitor.get("/account")
    assert (page.status_code, "ann@example.com" in page.text) == (200, True), (
        "the login session is still valid"
    )


async def check_file(app: AppFixture) -> None:
    file = await app.client.get(f"/media/{old_data.FILE}")
    assert (file.status_code, file.content) == (200, old_data.CONTENT)


async def check_memory(app: AppFixture) -> None:
    headers = bearer(KEY)
    page = (await app.client.get(f"/api/pages/{old_data.SLUG}", headers=headers)).json()
    assert (page["id"], page["title"], page["tags"]) == (old_data.PAGE, "Ann", ["clocks"])
    assert page["body"] == old_data.BODY
    await wait_until(lambda: _is_found(app))
    changed_response = await app.client.put(
        f"/api/pages/{old_data.SLUG}", json={"body": "Ann has retired."}, headers=headers
    )
    assert (changed_response.status_code, changed_response.json()["version"]) == (200, 2)


async def _is_found(app: AppFixture) -> bool:
    response = await app.client.post("/api/search", json={"query": "clocks"}, headers=bearer(KEY))
    return [result["slug"] for result in response.json()["results"]] == [old_data.SLUG]


async def check_session(app: AppFixture) -> None:
    """The server that ran it is gone: it is closed, and its open minute is not charged."""
    async with asyncio.timeout(60):
        while (row := await _session(app))["closed_at"] is None:  # noqa: ASYNC110 - a sweep has no event
            await asyncio.sleep(0.02)
    assert (row["state"], row["cost"]) == ("failed", 0)
    response = await app.client.get(f"/api/containers/sessions/{old_data.SESSION}", headers=bearer(KEY))
    assert response.status_code == 200


async def _session(app: AppFixture) -> dict[str, object]:
    row = await app.database.read(one("session_by_id", id=old_data.SESSION))
    assert row is not None
    return dict(row)


async def check_predictions(app: AppFixture) -> None:
    """One that was done has its receipt; one that was queued runs, and is charged once."""
    prediction = await app.database.read(repository.get_any(old_data.DONE))
    assert (prediction.state, prediction.cost) == (PredictionState.SUCCEEDED, old_data.PRICE)
    async with asyncio.timeout(60):
        while (  # noqa: ASYNC110 - the test server's run has no event here
            final_prediction := await app.database.read(repository.get_any(old_data.QUEUED))
        ).state not in TERMINAL:
            await asyncio.sleep(0.02)
    assert (final_prediction.state, final_prediction.cost) == (PredictionState.SUCCEEDED, old_data.PRICE)
    account = (await app.client.get("/api/account", headers=bearer(KEY))).json()
    assert (account["balance_usd"], account["held_usd"]) == ("4.92", "0.00")
