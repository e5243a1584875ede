"""Stored responses: retention, size limits and conversation depth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.concurrency.single_thread import LOOP_BYTES
from sixfold.core.database import Database, Transaction
from sixfold.core.gateway.conversations import responses as stored_responses
from sixfold.core.gateway.conversations.responses import ResponseNotFound, ResponseStore, StoredResponse
from sixfold.core.gateway.policy import parse
from tests.harness import databases

BEGAN = 1_764_500_000_000_000
BACKENDS = pytest.mark.parametrize("backend", databases.BACKENDS)
MOST = 1 << 20


@dataclass
class ResponseFixture:
    """Response store with a clock that the test sets, and an account."""

    database: Database
    account_id: str
    moment: int = BEGAN

    def response_store(self, **rules: int) -> ResponseStore:
        return ResponseStore(self.database, parse(rules))

    async def put(
        self, response_store: ResponseStore, name: str, previous: str | None = None, text: str = ""
    ) -> None:
        await response_store.record(
            Tenant(self.account_id), StoredResponse(name, previous, "", f'["{text}"]', '{"output":[]}')
        )

    async def names(self, name: str) -> list[str]:
        result = await self.response_store().get_chain(Tenant(self.account_id), name, MOST)
        return [] if result is None else [turn.id for turn in result.turns]

    async def fault(self, name: str, most: int = MOST) -> errors.SixfoldError | None:
        """Return why a conversation cannot begin with its first response."""
        result = await self.response_store().get_chain(Tenant(self.account_id), name, most)
        assert result is not None
        return result.fault


@asynccontextmanager
async def place(backend: str, folder: Path) -> AsyncIterator[ResponseFixture]:
    result: ResponseFixture | None = None
    async with databases.running_database(
        backend, folder, lambda: result.moment if result else BEGAN
    ) as database:
        result = ResponseFixture(database, (await database.write(accounts.create("a@example.com"))).id)
        yield result


@BACKENDS
async def test_conversation_is_stored_as_long_as_its_last_response(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:
        response_store = here.response_store(responses_days=30)
        await here.put(response_store, "first")
        await here.put(response_store, "alone")
        here.moment += 20 * DAY_US
        await here.put(response_store, "second", "first")
        here.moment += 11 * DAY_US
        await response_store.sweep()
        assert await here.names("second") == ["first", "second"]
        assert await here.names("alone") == []
        here.moment += 20 * DAY_US
        await response_store.sweep()
        await response_store.sweep()
        assert [await here.names(name) for name in ("first", "second")] == [[], []]


@BACKENDS
async def test_responses_without_a_retention_limit_are_kept(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:
        response_store = here.response_store(responses_days=0)
        await here.put(response_store, "first")
        here.moment += 4000 * DAY_US
        await response_store.sweep()
        assert await here.names("first") == ["first"]


@BACKENDS
async def test_account_over_the_limit_loses_only_its_oldest(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:
        other = (await here.database.write(accounts.create("b@example.com"))).id
        response_store = here.response_store(responses_bytes=3000)
        await response_store.record(Tenant(other), StoredResponse("old", None, "", "[]", "{}"))
        for name in ("one", "two", "three", "four"):
            here.moment += 1
            await here.put(response_store, name, text="é" * 600)
        await response_store.sweep()
        assert [await here.names(name) for name in ("three", "four")] == [["three"], ["four"]]
        for name in ("one", "two"):
            with pytest.raises(ResponseNotFound):
                await response_store.get(Tenant(here.account_id), name)
        assert await response_store.get(Tenant(other), "old") == "{}"
        here.moment += 1
        await here.put(response_store, "five", text="é" * 900)
        await response_store.sweep()
        assert (await here.names("four"), await here.names("five")) == ([], ["five"])


@BACKENDS
async def test_conversation_goes_back_at_most_1000_responses(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:

        def turns() -> Transaction[None]:
            for number in range(1001):
                before = f"turn-{number - 1}" if number else None
                yield from stored_responses.keep(
                    Tenant(here.account_id), StoredResponse(f"turn-{number}", before, "", "[]", "{}")
                )

        await here.database.write(turns())
        names = await here.names("turn-999")
        assert (names[0], names[-1], len(names)) == ("turn-0", "turn-999", 1000)
        assert await here.fault("turn-999") is None
        assert isinstance(await here.fault("turn-1000"), errors.TooLong)


@BACKENDS
async def test_conversation_above_the_byte_limit_is_refused(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:
        response_store = here.response_store()
        await here.put(response_store, "one", text="x" * 500)
        await here.put(response_store, "two", "one", text="x" * 500)
        assert await here.fault("two", 1100) is None
        assert isinstance(await here.fault("two", 1000), errors.TooLong)


@BACKENDS
async def test_missing_previous_response_is_named_in_the_error(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:
        response_store = here.response_store()
        for name, previous in (("one", None), ("two", "one"), ("three", "two")):
            await here.put(response_store, name, previous)
        await response_store.delete(Tenant(here.account_id), "one")
        assert await here.names("three") == ["two", "three"]
        assert "one" in str(await here.fault("three"))
        with pytest.raises(ResponseNotFound):
            await response_store.delete(Tenant(here.account_id), "one")


@BACKENDS
async def test_equal_ids_of_two_accounts_are_two_responses(tmp_path: Path, backend: str) -> None:
    async with place(backend, tmp_path) as here:
        other = (await here.database.write(accounts.create("b@example.com"))).id
        response_store = here.response_store()
        await here.put(response_store, "same", text="mine")
        with pytest.raises(ResponseNotFound):
            await response_store.get_chain(Tenant(other), "same", MOST)
        await response_store.record(Tenant(other), StoredResponse("same", None, "s/m", '["theirs"]', "{}"))
        results = [
            await response_store.get_chain(Tenant(account_id), "same", MOST)
            for account_id in (here.account_id, other)
        ]
        messages = [
            (turn.input, turn.server) for result in results if result is not None for turn in result.turns
        ]
        assert messages == [('["mine"]', ""), ('["theirs"]', "s/m")]


async def test_store_defaults_to_the_operators_setting(tmp_path: Path) -> None:
    async with place("sqlite", tmp_path) as here:
        assert [here.response_store().should_store(request) for request in (None, True, False)] == [
            True,
            True,
            False,
        ]
        asked_only = here.response_store(store_responses=False)
        assert [asked_only.should_store(request) for request in (None, True, False)] == [False, True, False]
        assert not here.response_store(responses_bytes=0).should_store(True)


async def test_large_conversations_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place("sqlite", tmp_path) as here:
        response_store, in_threads = here.response_store(), list[bool]()
        read = here.database.read

        def record(transaction: Any, **options: Any) -> Any:
            in_threads.append(options.get("in_thread", False))
            return read(transaction, **options)

        monkeypatch.setattr(here.database, "read", record)
        for name, text in (("small", "x"), ("large", "x" * LOOP_BYTES)):
            await here.put(response_store, name, text=text)
            in_threads.clear()
            await here.names(name)
            assert await response_store.get_many(Tenant(here.account_id), [name], MOST)
            # The size is read before.
            assert in_threads == [False, name == "large"] * 2
