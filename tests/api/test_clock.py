"""Clock changes of two days in either direction do not affect a running server."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from sixfold.core.accounts import keys
from sixfold.core.clock import DAY_US, steady_clock
from tests.api.app_fixture import AppFixture, bearer
from tests.api.test_pages import signed_in

RUNS = 6
PATH = "/api/containers/predictions"


def set_clock(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Change the wall clock as `date -s` does; the monotonic clock stays."""
    wall, seconds = time.time_ns, days * 86_400
    monkeypatch.setattr(time, "time_ns", lambda: wall() + seconds * 1_000_000_000)
    monkeypatch.setattr(time, "time", lambda: wall() / 1e9 + seconds)


async def queued(app: AppFixture, number: int) -> str:
    """Submit a run that takes a fifth of a second; return the response."""
    body = {"input": {"prompt": f"LATE {number}", "width": 64, "height": 64}}
    headers = {**app.bearer, "Idempotency-Key": f"run-{number}"}
    joined = await app.client.post("/api/containers/ra2/queue/join", json=body, headers=headers)
    return str(joined.json()["prediction_id"])


@pytest.mark.parametrize("days", [2, -2])
async def test_clock_change_of_two_days_has_no_effect(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    app = any_database_app
    await signed_in(app)
    expiring = keys.create(app.account.id, expires_at=steady_clock()() + DAY_US)
    short = (await app.database.write(expiring)).api_key
    before = [await queued(app, number) for number in range(RUNS)]
    set_clock(monkeypatch, days)
    after = [await queued(app, number) for number in range(RUNS, 2 * RUNS)]
    assert [await queued(app, number) for number in range(2 * RUNS)] == before + after
    for result in before + after:
        events = await app.client.get(f"{PATH}/{result}/events", headers=app.bearer)
        assert "succeeded" in events.text
    response = (await app.client.get(PATH, headers=app.bearer)).json()["predictions"]
    assert [each["id"] for each in response] == [*reversed(before + after)], "the newest is the first"
    assert {(each["status"], each["attempt"]) for each in response} == {("succeeded", 1)}
    paid = sum(Decimal(each["cost"]) for each in response)
    assert tuple(map(Decimal, await app.balance())) == (5 - paid, 0)
    assert await app.faults() == ()
    assert (await app.client.get(PATH, headers=bearer(short))).status_code == 200
    assert (await app.client.get("/account")).status_code == 200, "who was signed in still is"
