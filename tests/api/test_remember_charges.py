"""Calls of the memory model whose results are lost: facts that cannot be written, and lost answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.database import Transaction
from sixfold.core.memory.facts import batches, writing
from tests.api.app_fixture import running_app
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
