"""Keys that a key or a login session creates have no more rights, and end with it and with its creator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.authentication import key_changes, login_sessions
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members, teams
from sixfold.core.accounts.rights import Rights
from sixfold.core.clock import DAY_US
from sixfold.core.database import Transaction, now
from tests.api.app_fixture import ORIGIN, AppFixture, bearer
from tests.api.test_oauth import AUTHORIZE, OAuthClient
from tests.api.test_organizations import ORGANIZATION, accepted, acting, invite, key_of, member
from tests.api.test_pages import signed_in
from tests.api.test_revocations import PREDICTIONS, REVOKED, key_id, slow, until_ended, until_open

KEYS = f"{ORGANIZATION}/keys"


async def created_with(app: AppFixture, key: str, **fields: Any) -> str:
    """Create a key with another key, and return its secret."""
    response = await app.client.post(KEYS, json=fields, headers=bearer(key))
    assert response.status_code == 201, response.text
    return str(response.json()["api_key"])


async def status(app: AppFixture, key: str) -> int:
    return (await app.client.get(PREDICTIONS, headers=bearer(key))).status_code


async def expiry(app: AppFixture, key: str) -> int | None:
    """Return the time (epoch µs) at which a key expires, from the list of keys."""
    name = await key_id(app, key)
    rows = await app.database.read(keys.of_account(app.account.id))
    return next(row["expires_at"] for row in rows if row["id"] == name)


async def suspend(app: AppFixture, email: str, *, suspended: bool = True) -> None:
    person = await app.database.read(accounts.by_email(email))
    await app.database.write(customers.suspend(app.operator.owner, person.id, suspended=suspended))


async def test_keys_end_with_the_key_that_created_them(any_database_app: AppFixture) -> None:
    app = any_database_app
    parent = await app.limited_key(KeyLimits())
    child = await created_with(app, parent)
    grandchild = await created_with(app, child, rights=["run"])
    team = await app.database.write(teams.create(app.account.id, "Vision"))
    of_team = await created_with(app, child, team_id=team.id)
    descendants = (child, grandchild, of_team)
    assert [await status(app, key) for key in descendants] == [200, 200, 200]
    events = f"{PREDICTIONS}/{await slow(app, bearer(grandchild))}/events"
    stream = asyncio.create_task(app.client.get(events, headers=bearer(grandchild)))
    await until_open(app.server)
    await app.database.write(keys.revoke(await key_id(app, parent)))
    assert [await status(app, key) for key in descendants] == [401, 401, 401]
    assert REVOKED in (await until_ended([stream]))[0]
    assert await status(app, app.key) == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"budget_day": "1"},
        {"expires": "2031-01-01"},
        {"read_only": True},
        {"rights": []},
        {"services": []},
        {"collections": ""},
    ],
)
async def test_no_key_is_created_without_a_requested_limit(
    any_database_app: AppFixture, fields: dict[str, Any]
) -> None:
    app = any_database_app
    before = await app.database.read(keys.of_account(app.account.id))
    response = await app.client.post(KEYS, json=fields, headers=app.bearer)
    assert (response.status_code, response.json()["errors"][0]["input"]) == (400, next(iter(fields)))
    assert await app.database.read(keys.of_account(app.account.id)) == before


async def test_a_key_is_created_with_its_name(any_database_app: AppFixture) -> None:
    app = any_database_app
    name = await key_id(app, await created_with(app, app.key, name=" blog  key ", rights=["run"]))
    rows = {row["id"]: row["name"] for row in await app.database.read(keys.of_account(app.account.id))}
    assert rows[name] == "blog key"


@pytest.mark.parametrize("path", [ORGANIZATION, "/api/operator/accounts/{account_id}"])
async def test_a_budget_with_a_wrong_name_is_refused(app: AppFixture, path: str) -> None:
    headers = bearer(await app.operator_key()) if "operator" in path else app.bearer
    url = path.format(account_id=app.account.id)
    response = await app.client.patch(url, json={"budget_day": "1"}, headers=headers)
    assert response.status_code == 400
    assert "use budget_day_usd, budget_month_usd" in response.text


async def test_keys_expire_with_the_key_that_created_them(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    expires_at = await app.database.read(now()) + DAY_US
    parent = (await write(keys.create(app.account.id, expires_at=expires_at))).api_key
    child = await created_with(app, parent)
    assert await expiry(app, child) == expires_at
    lasting = await app.limited_key(KeyLimits())
    child = await created_with(app, lasting)
    grandchild = await created_with(app, child)
    assert await expiry(app, grandchild) is None
    new = await write(key_changes.roll(app.account.id, await key_id(app, lasting), keep_us=DAY_US))
    expirations = [await expiry(app, key) for key in (lasting, child, grandchild)]
    assert expirations[0] is not None
    assert set(expirations) == {expirations[0]}
    assert [await status(app, key) for key in (new.api_key, grandchild)] == [200, 200]
    last = await created_with(app, new.api_key)
    await write(key_changes.roll(app.account.id, new.id))
    assert await status(app, last) == 401


async def test_keys_count_against_the_rates_of_their_creator(any_database_app: AppFixture) -> None:
    app = any_database_app
    parent = await app.limited_key(KeyLimits(rpm=4))
    children = [await created_with(app, parent) for _ in range(2)]
    for fields in ({"rpm": 1000}, {"rpm": 4, "tpm": 9}):
        response = await app.client.post(KEYS, json=fields, headers=app.bearer)
        assert response.status_code == 201, "a key without rates may set them"
    assert [await status(app, key) for key in (*children, children[0], parent)] == [200, 200, 429, 429]
    limited = await app.limited_key(KeyLimits(rpm=4))
    for fields, name in (({"rpm": 1000}, "rpm must be 4"), ({"tpm": 9}, "tpm must be omitted")):
        response = await app.client.post(KEYS, json=fields, headers=bearer(limited))
        assert (response.status_code, name in response.text) == (400, True), response.text


async def test_a_key_gives_no_role_with_rights_that_it_lacks(app: AppFixture) -> None:
    ben = await member(app, "ben@example.com")
    narrow = await app.limited_key(KeyLimits(), Rights.ACCOUNT_MANAGE | Rights.ACCOUNT_READ)
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"{ORGANIZATION}/invitations", {"role": "admin"}),
        ("POST", f"{ORGANIZATION}/invitations", {"role": "member"}),
        ("PATCH", f"{ORGANIZATION}/members/{ben.id}", {"role": "admin"}),
        ("POST", f"{ORGANIZATION}/transfer", {"member_id": ben.id, "handle": "lab"}),
    ]
    for method, path, body in requests:
        response = await app.client.request(method, path, json=body, headers=bearer(narrow))
        assert (response.status_code, "may not grant the rights run" in response.text) == (403, True), path
    path = f"{ORGANIZATION}/members/{ben.id}"
    allowed = await app.client.patch(path, json={"budget_day_usd": "1"}, headers=bearer(narrow))
    assert (allowed.status_code, allowed.json()["role"]) == (200, "member")


async def test_an_invitation_ends_with_its_key_and_its_sender(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write

    async def invited(key: str) -> str:
        response = await app.client.post(f"{ORGANIZATION}/invitations", json={}, headers=bearer(key))
        return str(response.json()["token"])

    parent = await app.limited_key(KeyLimits())
    token, lasting = await invited(parent), await invite(app)
    await write(keys.revoke(await key_id(app, parent)))
    assert await accepted(app, token, bearer(app.other)) == 404
    open_ones = (await app.client.get(f"{ORGANIZATION}/invitations", headers=app.bearer)).json()
    assert len(open_ones["invitations"]) == 1
    cleo = await member(app, "cleo@example.com", "admin")
    of_cleo = await invited(await key_of(app, cleo))
    await suspend(app, "cleo@example.com")
    assert await accepted(app, of_cleo, bearer(app.other)) == 404
    await suspend(app, "cleo@example.com", suspended=False)
    await suspend(app, "ada@example.com")
    assert await accepted(app, lasting, bearer(app.other)) == 404
    await suspend(app, "ada@example.com", suspended=False)
    assert await accepted(app, of_cleo, bearer(app.other)) == 201


async def test_a_team_key_stops_while_its_creator_is_suspended(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    ben = await member(app, "ben@example.com", "admin")
    team = await write(teams.create(app.account.id, "Vision"))
    browser = await acting(app, "ben@example.com", app.account.id)
    page = (await browser.post("/account/members/keys", team_id=team.id)).text
    of_page = page.partition('id="new-key">')[2].partition("<")[0]
    of_key = await created_with(app, await key_of(app, ben), team_id=team.id)
    other = await created_with(app, app.key, team_id=team.id)
    assert [await status(app, key) for key in (of_page, of_key, other)] == [200, 200, 200]
    events = f"{PREDICTIONS}/{await slow(app)}/events"
    stream = asyncio.create_task(app.client.get(events, headers=bearer(of_page)))
    await until_open(app.server)
    await suspend(app, "ben@example.com")
    assert [await status(app, key) for key in (of_page, of_key, other)] == [403, 403, 200]
    assert REVOKED in (await until_ended([stream]))[0]
    # A suspended user may leave, which does not restore the keys.
    assert (await browser.post("/account/members/leave")).status_code == 303
    assert [await status(app, key) for key in (of_page, of_key, other)] == [403, 401, 200]
    await suspend(app, "ben@example.com", suspended=False)
    assert [await status(app, key) for key in (of_page, of_key)] == [200, 401]


async def test_team_keys_end_with_a_removed_members_key(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    ben = await member(app, "ben@example.com", "admin")
    team = await write(teams.create(app.account.id, "Vision"))
    of_team = await created_with(app, await key_of(app, ben), team_id=team.id)
    assert await status(app, of_team) == 200
    await write(members.remove(app.account.id, ben.id))
    assert await status(app, of_team) == 401


async def test_a_suspended_user_authorizes_no_program(app: AppFixture) -> None:
    program = await OAuthClient.registered(app)
    csrf = await signed_in(app)
    form = {**program.asks(), "csrf": csrf, "decision": "allow"}
    for suspended, code in ((True, 403), (False, 303)):
        await suspend(app, "ada@example.com", suspended=suspended)
        response = await app.client.post(AUTHORIZE, data=form, headers={"Origin": ORIGIN})
        assert (response.status_code, "is suspended" in response.text) == (code, suspended)


async def end_one(app: AppFixture) -> Transaction[Any]:
    (row,) = await app.database.read(login_sessions.of_account(app.account.id, ""))
    return login_sessions.end_one(app.account.id, row["id"])


async def end_others(app: AppFixture) -> Transaction[Any]:
    return login_sessions.end_others(app.account.id)


async def end_by_way(app: AppFixture) -> Transaction[Any]:
    return login_sessions.end_by_way(app.account.id, "link")


@pytest.mark.parametrize("ending", [end_one, end_others, end_by_way])
async def test_programs_end_with_the_session_that_authorized_them(
    any_database_app: AppFixture, ending: Callable[[AppFixture], Any]
) -> None:
    app = any_database_app
    program = await OAuthClient.registered(app)
    tokens, lasting = await program.tokens(), await program.tokens()
    assert await reads(app, tokens) == await reads(app, lasting) == 200
    code = (await program.let_in())["code"]
    await app.database.write(await ending(app))
    assert (await program.change(code)).status_code == 400, "the code of the ended session"
    assert (await reads(app, tokens), await reads(app, lasting)) == (200, 200), "of sessions that signed out"


async def test_tokens_end_with_the_session_that_authorized_them(any_database_app: AppFixture) -> None:
    app = any_database_app
    program = await OAuthClient.registered(app)
    tokens = await program.tokens(scope="models")
    refreshed = (await program.refresh(tokens["refresh_token"])).json()
    assert await reads(app, refreshed) == 200
    await app.database.write(await end_one(app))
    assert await reads(app, refreshed) == 401
    assert (await program.refresh(refreshed["refresh_token"])).status_code == 400


async def reads(app: AppFixture, tokens: dict[str, Any]) -> int:
    """Return the status of a request with an access token."""
    return (await app.client.get("/api/pages", headers=bearer(tokens["access_token"]))).status_code
