"""Login methods on both databases: single-use challenges, increasing counters, unique identities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.accounts.authentication import auth_challenges, login_sessions, oidc_identities, passkeys
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.authentication.oidc_identities import Identity
from sixfold.core.accounts.authentication.passkeys import StoredCredential
from sixfold.core.database import Database, now
from tests.harness import databases

ADA = Identity("https://i.example", "ada", "ada@example.com", verified=True)


@pytest.fixture(params=databases.BACKENDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with databases.OPENERS[request.param](tmp_path, None) as opened_database:
        yield opened_database


async def account(database: Database, email: str = "ada@example.com") -> str:
    return (await database.write(accounts.create(email, credit=5_000_000))).id


async def test_concurrent_uses_of_a_challenge_consume_it_once(database: Database) -> None:
    await database.write(auth_challenges.create("kind", "token", {"asked": "old"}))
    await database.write(auth_challenges.create("kind", "token", {"asked": "new"}))
    ends = (database.write(auth_challenges.consume("kind", "token")) for _ in range(10))
    result = await asyncio.gather(*ends, return_exceptions=True)
    assert [each for each in result if isinstance(each, dict)] == [{"asked": "new"}]
    for kind, token in (("other", "token"), ("kind", ""), ("kind", "token2")):
        with pytest.raises(errors.BadRequest):
            await database.write(auth_challenges.consume(kind, token))


async def test_passkey_has_one_account_and_an_increasing_counter(database: Database) -> None:
    ada, ben = await account(database), await account(database, "ben@example.com")
    added = await database.write(passkeys.add(ada, b"credential", b"public", 3, "  My   laptop "))
    with pytest.raises(errors.Conflict):
        await database.write(passkeys.add(ben, b"credential", b"public", 0, ""))
    known = await database.read(passkeys.get(b"credential"))
    assert known is not None
    assert known == StoredCredential(added, ada, b"public", 3)
    await database.write(passkeys.record_use(known, 4))
    for uses in (4, 3, 0):
        with pytest.raises(errors.Unauthenticated):
            await database.write(passkeys.record_use(known, uses))
    with pytest.raises(errors.NotFound):
        await database.write(passkeys.remove(ben, added))
    (row,) = await database.read(passkeys.of_account(ada))
    assert (row["name"], row["used_at"] is not None) == ("My laptop", True)
    await database.write(passkeys.remove(ada, added))
    assert await database.read(passkeys.get(b"credential")) is None


async def test_removing_a_login_method_ends_its_sessions(database: Database) -> None:
    ada, ben = await account(database), await account(database, "ben@example.com")
    moment = await database.read(now())

    async def opened(owner: str, way: str) -> str:
        return await database.write(login_sessions.new_session(owner, moment, LoginDetails(way)))

    async def left() -> set[str]:
        states = {name: await database.read(login_sessions.session(token)) for name, token in tokens.items()}
        return {name for name, state in states.items() if state is not None}

    added = await database.write(passkeys.add(ada, b"credential", b"public", 0, ""))
    await database.write(oidc_identities.link(ada, ADA))
    tokens = {way: await opened(ada, way) for way in ("password", "passkey", "single sign-on")}
    tokens |= {"here": await opened(ada, "passkey"), "ben": await opened(ben, "passkey")}
    await database.write(passkeys.remove(ada, added, tokens["here"]))
    assert await left() == {"password", "single sign-on", "here", "ben"}
    await database.write(oidc_identities.unlink(ada, ADA.issuer, tokens["here"]))
    assert await left() == {"password", "here", "ben"}


async def test_passkey_without_a_counter_can_be_used_repeatedly(database: Database) -> None:
    ada = await account(database)
    await database.write(passkeys.add(ada, b"credential", b"public", 0, ""))
    for _ in range(2):
        known = await database.read(passkeys.get(b"credential"))
        assert known is not None
        await database.write(passkeys.record_use(known, 0))


async def test_identity_belongs_to_one_account_until_unlinked(database: Database) -> None:
    ada, ben = await account(database), await account(database, "ben@example.com")
    assert await database.write(oidc_identities.account_of(ADA, signup=False)) == ada
    with pytest.raises(errors.Conflict):
        await database.write(oidc_identities.link(ben, ADA))
    await database.write(oidc_identities.link(ada, ADA))
    with pytest.raises(errors.NotFound):
        await database.write(oidc_identities.unlink(ben, ADA.issuer))
    assert len(await database.read(oidc_identities.of_account(ada))) == 1
    await database.write(oidc_identities.unlink(ada, ADA.issuer))
    with pytest.raises(errors.NotFound):
        await database.write(oidc_identities.unlink(ada, ADA.issuer))


async def test_sessions_are_listed_and_ended_and_the_log_is_paged(database: Database) -> None:
    ada, moment = await account(database), await database.read(now())
    tokens = [
        await database.write(login_sessions.new_session(ada, moment, LoginDetails("link", "Firefox")))
        for _ in range(3)
    ]
    rows = await database.read(login_sessions.of_account(ada, tokens[0]))
    assert sorted(row["this"] for row in rows) == [0, 0, 1]
    other = next(row["id"] for row in rows if not row["this"])
    await database.write(login_sessions.end_one(ada, other))
    assert await database.write(login_sessions.end_others(ada, tokens[0])) == 1
    assert len(await database.read(login_sessions.of_account(ada, tokens[0]))) == 1
    first = await database.read(audit_log.page(ada, 4, None))
    rest = await database.read(audit_log.page(ada, 4, first.next_cursor))
    actions = [entry["action"] for entry in (*first.entries, *rest.entries)]
    assert sorted(actions) == [
        "account.create",
        "session.end",
        "session.end_all",
        "signin",
        "signin",
        "signin",
    ]
    assert rest.next_cursor is None


async def test_ending_all_sessions_keeps_those_of_other_accounts(database: Database) -> None:
    ada, ben = await account(database), await account(database, "ben@example.com")
    moment = await database.read(now())
    visit = LoginDetails("link", "Firefox")
    own, remaining = [
        await database.write(login_sessions.new_session(account_id, moment, visit))
        for account_id in (ada, ben)
    ]
    link = await database.write(login_sessions.new_link(ben, moment))
    assert await database.write(login_sessions.end_others(ada)) == 1
    assert await database.read(login_sessions.session(own)) is None
    assert await database.read(login_sessions.session(remaining)) is not None
    assert await database.write(login_sessions.take_link(link, moment))


async def test_login_link_and_session_tokens_are_not_interchangeable(database: Database) -> None:
    ada = await account(database)
    moment = await database.read(now())
    link = await database.write(login_sessions.new_link(ada, moment))
    assert await database.read(login_sessions.session(link)) is None
    session = await database.write(login_sessions.take_link(link, moment))
    for used in (link, session):
        with pytest.raises(errors.Unauthenticated):
            await database.write(login_sessions.take_link(used, moment))
    assert await database.read(login_sessions.session(session)) is not None


async def test_due_account_is_erased_once_and_stays_in_the_ledger(database: Database) -> None:
    ada = await account(database)
    known = await database.read(accounts.by_id(ada))
    await database.write(deletion.close(known, 7))
    assert await database.write(deletion.erase(ada)) is False
    await database.write(deletion.close(known, 0))
    assert await database.write(deletion.erase(ada)) is True
    assert await database.write(deletion.erase(ada)) is False
    left = await database.read(accounts.by_id(ada))
    assert (left.email, left.posted) == ("", 5_000_000)
    # The e-mail address is available again.
    assert await account(database) != ada
