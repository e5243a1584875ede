"""Calls of the memory model whose results are lost, repeated or blocked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import idempotency
from sixfold.core.database import Transaction
from sixfold.core.memory.facts import batches, writing
from tests.api.app_fixture import running_app
from tests.api.test_guardrails import guard, hook
from tests.api.test_remember import TALK, WORKS, Remembering, settings
from tests.fakes.fact_model import fact_model


@pytest.mark.parametrize("stored_count", [0, 1])
async def test_facts_that_cannot_be_written_are_free(
    either: Path, monkeypatch: pytest.MonkeyPatch, stored_count: int
) -> None:
    """Only the parts of the text whose facts were written are charged."""
    write, writes = writing.write, 0

    def fail(*parameters: Any) -> Transaction[Any]:
        nonlocal writes
        writes += 1
        if writes > stored_count:
            raise errors.TooLarge("The memory is full")
        return (yield from write(*parameters))

    monkeypatch.setattr(writing, "write", fail)
    async with fact_model() as model, running_app(either, **settings(model)) as app:
        model.extract = [{"facts": [WORKS]}]
        response = await Remembering(app, model).post("remember", text=f"{TALK}\n{'word ' * 3_000}\n" * 2)
        assert len(model.requests) == stored_count + 1
        if stored_count:
            stopped = response.json()["stopped"], response.json()["cost_usd"]
            assert stopped == ("The memory is full", "0.00101")
        else:
            assert response.status_code == 413
        await app.until("4.99899" if stored_count else "5.00", "0.00")
        assert await app.faults() == ()


async def test_answer_that_is_lost_is_free(either: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fact_model() as model, running_app(either, **settings(model)) as app:
        model.extract = [{"facts": [WORKS]}]
        remembering = Remembering(app, model)
        await remembering.remember()
        before = await app.balance()

        def fail(*_: Any) -> Transaction[None]:
            raise errors.StoreFailed
            yield

        monkeypatch.setattr(batches, "finish", fail)
        response = await remembering.post("answer", question="Where did Ann start, at Acme?")
        assert (response.status_code, len(model.requests)) == (503, 2)
        await app.until(*before)
        assert await app.faults() == ()


_REQUESTS = [
    ("remember", {"text": f"{TALK}\n{'word ' * 3_000}\n" * 2, "date": "2026-11-20"}, 3),
    ("answer", {"question": "Where did Ann start, at Acme?"}, 1),
]


@pytest.mark.parametrize(("path", "body", "calls"), _REQUESTS)
async def test_repeated_request_to_the_memory_is_charged_once(
    either: Path, path: str, body: dict[str, Any], calls: int
) -> None:
    async with fact_model() as model, running_app(either, **settings(model)) as app:
        model.extract = [{"facts": [WORKS]}]
        await Remembering(app, model).remember()
        model.requests.clear()
        posted = 4_998_990 - calls * 1010
        scope = idempotency.scope_id(app.account.id, "POST", f"/api/{path}", "once")
        headers = {**app.bearer, "Idempotency-Key": "once"}
        for count in range(1, 4):
            response = await app.client.post(f"/api/{path}", json=body, headers=headers)
            assert response.status_code == 200, response.text
            assert response.json()["cost_usd"] == money.format_usd(calls * 1010)
            assert len(model.requests) == count * calls
            assert await app.balance() == (money.format_usd(posted), "0.00")
            # As if the server had been killed before it stored the response.
            await app.database.write(idempotency.forget(scope))
        assert await app.faults() == ()


@pytest.mark.parametrize("key", ["", "once"])
@pytest.mark.parametrize(("path", "body"), [request[:2] for request in _REQUESTS])
async def test_blocked_replies_of_the_memory_model_are_charged(
    either: Path, path: str, body: dict[str, Any], key: str
) -> None:
    """The caller's hook has received each reply, so that neither an error nor a repetition makes it free."""
    async with (
        fact_model() as model,
        running_app(either, **settings(model, fetch_allow="127.0.0.0/8")) as app,
    ):
        model.extract = [{"facts": [WORKS]}]
        await Remembering(app, model).remember()
        headers = {**app.bearer, **({"Idempotency-Key": key} if key else {})}
        async with hook(lambda _document: {"action": "block"}) as (url, requests):
            await guard(app, hook={"url": url, "stages": ["response"]})
            for count in range(1, 4):
                response = await app.client.post(f"/api/{path}", json=body, headers=headers)
                assert (response.status_code, len(requests)) == (400, count)
                assert await app.balance() == (money.format_usd(4_998_990 - count * 1010), "0.00")
        assert await app.faults() == ()
