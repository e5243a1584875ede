"""Realtime and live sessions end with their account, member, key or budget, and charge what they served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import websockets

from sixfold import errors
from sixfold.core import money
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, keys, ledger_queries
from sixfold.core.accounts.keys import Holder, KeyLimits, NewKey
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members
from sixfold.core.database import Transaction
from sixfold.core.sessions import repository
from tests.api.app_fixture import AppFixture, bearer
from tests.api.realtime import TEXT, running_realtime, say
from tests.e2e.session_server import running_session_server

PATIENCE_SECONDS = 30
Ending = Callable[[AppFixture, NewKey], Transaction[Any]]


def member_key(account_id: str) -> Transaction[NewKey]:
    """Create a key of a member of an account."""
    person = yield from accounts.by_email("ben@example.com")
    member = yield from members.add(account_id, person.id, "member", "operator")
    return (yield from keys.create(account_id, holder=Holder(member_id=member.id)))


def remove_member(app: AppFixture, _key: NewKey) -> Transaction[None]:
    person = yield from accounts.by_email("ben@example.com")
    member = yield from members.of_person(app.account.id, person.id)
    assert member is not None
    yield from members.remove(app.account.id, member.id)


def suspend_member(app: AppFixture, _key: NewKey) -> Transaction[Any]:
    person = yield from accounts.by_email("ben@example.com")
    return (yield from customers.suspend(app.operator.owner, person.id, suspended=True))


ENDS: Mapping[str, Ending] = {
    "revoked": lambda _app, key: keys.revoke(key.id),
    "suspended": lambda app, _: customers.suspend(app.operator.owner, app.account.id, suspended=True),
    "closed": lambda app, _: deletion.close(app.account, 1),
    "member removed": remove_member,
    "member suspended": suspend_member,
}


async def closed(connection: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            while True:
                await connection.recv()
        except websockets.ConnectionClosed:
            return


@pytest.mark.parametrize("ending", ENDS)
async def test_realtime_session_ends_and_charges_what_it_served(either: Path, ending: str) -> None:
    async with running_realtime(either) as server:
        app = server.gateway.app
        key = await app.database.write(member_key(app.account.id))
        async with server.connect(TEXT, key=key.api_key) as connection:
            (done,) = (await say(connection, "say 3 words"))[-1:]
            assert done.response.status == "completed"
            paid = (await app.database.read(accounts.by_id(app.account.id))).posted
            await app.database.write(ENDS[ending](app, key))
            await closed(connection)
        after = await app.database.read(accounts.by_id(app.account.id))
        assert (after.posted, after.held) == (paid, 0)
        assert await app.faults() == ()


@pytest.mark.parametrize("ending", ENDS)
async def test_live_session_ends_and_charges_its_time(either: Path, ending: str) -> None:
    async with running_session_server(either) as server:
        app = server.app
        key = await app.database.write(member_key(app.account.id))
        path = "/api/containers/motion-model/sessions"
        created = await app.client.post(path, json={}, headers=bearer(key.api_key))
        assert created.status_code == 201, created.text
        async with server.inside(created.json()) as guest:
            await guest.say("hello")
            await guest.several("pose", 3)
            await app.database.write(ENDS[ending](app, key))
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await guest.closed() == 4401
        account = await app.database.read(accounts.by_id(app.account.id))
        assert account.held == 0
        assert 0 < 5_000_000 - account.posted < 10_000, money.format_usd(account.posted)
        assert await app.database.read(ledger_queries.verify()) == ()


async def test_live_session_is_charged_while_its_database_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finished interval until its end is charged, and the time after the end is free."""
    monkeypatch.setattr(repository, "SLICE_US", 200_000)
    async with running_session_server(tmp_path) as server:
        app, service = server.app, server.app.server.live_sessions
        path = "/api/containers/motion-model/sessions"
        created = await app.client.post(path, json={}, headers=app.bearer)
        async with server.inside(created.json()) as guest:
            await guest.say("hello")
            await guest.several("pose", 3)
            with monkeypatch.context() as patch:
                patch.setattr(service, "_database", failing := FailingDatabase())
                seqs = [message["seq"] for message in await guest.several("pose", 60)]
                await guest.say("close")
                failing.failures = asyncio.Semaphore(0)
                for _ in range(4):
                    await failing.failures.acquire()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await guest.closed()
        session_id = created.json()["session_id"]
        session = await app.database.read(repository.by_id(session_id))
        assert session is not None
        rate = repository.usage_micros(session.rate, 1_000_000)
        # Each failure after the end is followed by a pause of one second.
        assert (seqs[-1] - seqs[0]) / 20 * rate < session.cost < (seqs[-1] / 20 + 2) * rate
        assert await app.database.read(ledger_queries.verify()) == ()


class FailingDatabase:
    """A database that cannot be reached."""

    failures = asyncio.Semaphore(0)

    async def write(self, *_: Any, **__: Any) -> Any:
        self.failures.release()
        raise errors.StoreFailed

    read = write


async def test_realtime_responses_never_exceed_a_budget(either: Path) -> None:
    async with running_realtime(either) as server:
        app, budget = server.gateway.app, 20_000
        key = await app.database.write(keys.create(app.account.id, KeyLimits(budget_day=budget)))
        secret, session = key.api_key, {**TEXT, "max_output_tokens": 12}
        async with (
            server.connect(session, key=secret) as first,
            server.connect(session, key=secret) as second,
        ):
            done: list[Any] = []
            while all(each.status == "completed" for each in done):
                pair = await asyncio.gather(*(say(each, "say 9 words") for each in (first, second)))
                done += [events[-1].response for events in pair]
                assert len(done) < 200
            refused = [each for each in done if each.status != "completed"]
            assert {each.status_details.error.code for each in refused} == {"budget_exceeded"}
            assert len(refused) < len(done)
        account = await app.database.read(accounts.by_id(app.account.id))
        assert account.held == 0
        assert 0 < 5_000_000 - account.posted <= budget
        assert await app.faults() == ()
