"""Organizations: members with roles, invitations, teams, and the end of a membership."""

from __future__ import annotations

import asyncio
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts, audit_log, keys, rights
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import LoginDetails
from sixfold.core.accounts.keys import Holder
from sixfold.core.accounts.organizations import invitations, members, organizations, teams
from sixfold.core.database import Query, Transaction, now
from sixfold.ui.organization import members_page
from sixfold.web.sessions import COOKIE, CSRF_HEADER, SessionCookie
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.gateway import running_gateway
from tests.api.test_revocations import (
    ON_POSTGRES,
    PREDICTIONS,
    REVOKED,
    second_server,
    slow,
    until_ended,
    until_open,
)
from tests.harness import backends

ORGANIZATION = "/api/organization"
RUN = {"model": "ra2", "input": {"prompt": "a hill", "width": 64, "height": 64}}


@dataclass(frozen=True)
class Browser:
    """A signed-in browser."""

    client: httpx.AsyncClient
    app: AppFixture

    async def csrf(self) -> str:
        token = self.client.cookies[COOKIE]
        session = await self.app.database.read(login_sessions.session(token))
        assert session is not None
        return SessionCookie(session.account, token, session.principal).csrf

    async def post(self, path: str, **fields: str) -> httpx.Response:
        return await self.client.post(path, data={"csrf": await self.csrf(), **fields})


async def browser(app: AppFixture, email: str) -> Browser:
    """A browser in which the person of an account has just signed in."""
    write, read = app.database.write, app.database.read
    account, moment = await read(accounts.by_email(email)), await read(now())
    token = await write(login_sessions.new_session(account.id, moment, LoginDetails("link")))
    visitor = app.visitor()
    visitor.cookies.set(COOKIE, token, domain="127.0.0.1")
    return Browser(visitor, app)


async def member(app: AppFixture, email: str, role: rights.Role = "member") -> members.Member:
    """Make a person a member of the first account."""
    person = await app.database.read(accounts.by_email(email))
    return await app.database.write(members.add(app.account.id, person.id, role, "operator"))


async def key_of(app: AppFixture, each: members.Member, granted: rights.Rights = rights.STANDARD) -> str:
    result = keys.create(each.account_id, granted=granted, holder=Holder(each.id, each.team_id))
    return (await app.database.write(result)).api_key


async def acting(app: AppFixture, email: str, account_id: str) -> Browser:
    result = await browser(app, email)
    assert (await result.post("/account/switch", account_id=account_id)).status_code == 303
    return result


async def invite(app: AppFixture, **fields: Any) -> str:
    """The token of a new invitation of the first account."""
    response = await app.client.post(f"{ORGANIZATION}/invitations", json=fields, headers=app.bearer)
    assert response.status_code == 201, response.text
    assert response.json()["url"].endswith(f"/invitation?token={response.json()['token']}")
    return str(response.json()["token"])


async def test_a_person_joins_runs_and_sees_the_shared_runs(app: AppFixture) -> None:
    token = await invite(app, email="Ben@example.com")
    ben = await browser(app, "ben@example.com")
    away = await app.visitor().get("/invitation", params={"token": token})
    assert away.headers["location"].startswith("/signin?next=%2Finvitation%3Ftoken%3D")
    assert (
        "ada@example.com invites ben@example.com"
        in (await ben.client.get("/invitation", params={"token": token})).text
    )
    joined = await ben.post("/invitation", token=token)
    assert (joined.status_code, joined.headers["location"]) == (303, "/account/members?done=joined")
    page = (await ben.client.get("/account/members")).text
    assert "You act for this account as its member" in page
    body = (await app.client.post("/api/containers/run", json=RUN, headers=app.bearer)).json()
    assert (await ben.client.get(f"/predictions/{body['id']}")).status_code == 200
    new = await ben.post("/account/members/keys")
    key = new.text.partition('id="new-key">')[2].partition("<")[0]
    before = await app.balance()
    assert (await app.client.post("/api/containers/run", json=RUN, headers=bearer(key))).status_code in (
        200,
        201,
    )
    async with asyncio.timeout(20):
        while await app.balance() == before:  # noqa: ASYNC110 - money has no event to wait for
            await asyncio.sleep(0.01)
    members = (await app.client.get(f"{ORGANIZATION}/members", headers=app.bearer)).json()["members"]
    assert [(each["email"], each["role"]) for each in members] == [
        ("ada@example.com", "owner"),
        ("ben@example.com", "member"),
    ]
    assert float(members[1]["budget"]["spent_month_usd"]) > 0
    assert await app.faults() == ()
    # What a member runs in the browser is the organization's, and counted for the member.
    spent = members[1]["budget"]["spent_month_usd"]
    changes = {"budget_month_usd": spent}
    path = f"{ORGANIZATION}/members/{members[1]['id']}"
    assert (await app.client.patch(path, json=changes, headers=app.bearer)).status_code == 200
    form = {"model": "ra2", "input": {"prompt": "a hill", "width": 64, "height": 64}}
    response = await ben.client.post("/pages/run", json=form, headers={CSRF_HEADER: await ben.csrf()})
    assert (response.status_code, response.json()["error"].startswith("This member's budget")) == (429, True)
    await app.client.patch(path, json={"budget_month_usd": None}, headers=app.bearer)
    ran = await ben.client.post("/pages/run", json=form, headers={CSRF_HEADER: await ben.csrf()})
    body = await app.predictions.get_any(ran.json()["id"])
    assert (body.account_id, body.key_id is not None) == (app.account.id, True)


async def accepted(app: AppFixture, token: str, headers: dict[str, str]) -> int:
    """Accept an invitation; return the status of the response."""
    response = await app.client.post(f"{ORGANIZATION}/accept", json={"token": token}, headers=headers)
    return response.status_code


async def test_an_invitation_is_for_one_person_once_and_for_a_time(app: AppFixture) -> None:
    token = await invite(app, email="ben@example.com")
    assert await accepted(app, token, bearer(app.poor)) == 403
    assert await accepted(app, token, bearer(app.other)) == 201
    assert await accepted(app, token, bearer(app.other)) == 404
    second_link = await invite(app)
    assert await accepted(app, second_link, bearer(app.other)) == 409
    assert await accepted(app, second_link, app.bearer) == 409
    write = app.database.write
    await write(expire(app.account.id, "invite_late"))
    late = "invite_late"
    assert await accepted(app, late, bearer(app.poor)) == 404
    assert await write(invitations.sweep()) == 1
    assert await accepted(app, second_link, bearer(app.poor)) == 201
    response = await app.client.get(f"{ORGANIZATION}/invitations", headers=app.bearer)
    assert response.json() == {"invitations": []}
    withdrawn = await app.client.post(f"{ORGANIZATION}/invitations", json={}, headers=app.bearer)
    path = f"{ORGANIZATION}/invitations/{withdrawn.json()['id']}"
    assert (await app.client.delete(path, headers=bearer(app.other))).status_code == 404
    assert (await app.client.delete(path, headers=app.bearer)).status_code == 204
    late = withdrawn.json()["token"]
    assert await accepted(app, late, bearer(app.poor)) == 404


def expire(account_id: str, token: str) -> Transaction[None]:
    """Insert an invitation that has expired."""
    row = {"id": "invite_1", "account_id": account_id, "token_hash": keys.hash_of(token), "email": ""}
    yield Query(
        "invitation_insert",
        {
            **row,
            "role": "member",
            "team_id": None,
            "invited_by": "ada",
            "member_id": None,
            "key_id": None,
            "life": -1,
        },
    )


async def test_members_cannot_exceed_the_rights_of_their_role(app: AppFixture) -> None:
    ben, cleo = await member(app, "ben@example.com"), await member(app, "cleo@example.com", "admin")
    ben_key, cleo_key = await key_of(app, ben), await key_of(app, cleo)
    send = app.client.request
    of_ben, of_cleo = f"{ORGANIZATION}/members/{ben.id}", f"{ORGANIZATION}/members/{cleo.id}"
    for method, path, body in (
        ("PATCH", of_ben, {"role": "admin"}),
        ("PATCH", of_ben, {"budget_day_usd": None}),
        ("DELETE", of_cleo, {}),
        ("POST", f"{ORGANIZATION}/invitations", {"role": "admin"}),
        ("POST", f"{ORGANIZATION}/teams", {"name": "mine"}),
        ("POST", f"{ORGANIZATION}/keys", {}),
        ("POST", f"{ORGANIZATION}/transfer", {"member_id": ben.id, "handle": "mine"}),
        ("GET", "/api/account/ledger", {}),
        ("DELETE", "/api/account", {"confirm": "ada@example.com"}),
    ):
        assert (await send(method, path, json=body, headers=bearer(ben_key))).status_code == 403, path
    for method, path, body in (
        ("POST", f"{ORGANIZATION}/transfer", {"member_id": cleo.id, "handle": "mine"}),
        ("DELETE", "/api/account", {"confirm": "ada@example.com"}),
        ("GET", "/api/account/export", {}),
        ("POST", f"{ORGANIZATION}/accept", {"token": "invite_x"}),
    ):
        response = await send(method, path, json=body, headers=bearer(cleo_key))
        assert response.status_code == 403, (path, response.text)
    assert (await send("PATCH", of_ben, json={"role": "owner"}, headers=bearer(cleo_key))).status_code == 400
    result = await send("POST", f"{ORGANIZATION}/keys", json={}, headers=bearer(cleo_key))
    # A key that an admin makes is an admin's, whatever its rights are named.
    response = await send("GET", "/api/account/export", headers=bearer(result.json()["api_key"]))
    assert response.status_code == 403
    lab = await send("POST", f"{ORGANIZATION}/teams", json={"name": "Lab"}, headers=bearer(cleo_key))
    expected = {"team_id": lab.json()["id"], "rights": ["run", "account.manage"]}
    assert (
        await send("POST", f"{ORGANIZATION}/keys", json=expected, headers=bearer(cleo_key))
    ).status_code == 403
    lowered = await send("PATCH", of_cleo, json={"role": "member"}, headers=app.bearer)
    assert lowered.json()["role"] == "member"
    assert (await send("PATCH", of_ben, json={"role": "admin"}, headers=bearer(cleo_key))).status_code == 403


async def test_pages_refuse_actions_outside_a_role(app: AppFixture) -> None:
    ben = await member(app, "ben@example.com")
    cleo = await member(app, "cleo@example.com", "admin")
    as_ben, as_cleo = (
        await acting(app, "ben@example.com", app.account.id),
        await acting(app, "cleo@example.com", app.account.id),
    )
    of_admins = (f"/account/members/{ben.id}", "/account/keys", "/account/teams", "/account/members/budget")
    of_owners = ("/account/password", "/account/close", "/account/export", "/account/members/transfer")
    for page, paths in ((as_ben, of_admins), (as_cleo, of_owners)):
        for path in paths:
            response = await page.post(path, role="admin", password="long enough", member_id=cleo.id)
            assert response.status_code == 403, (path, response.text)
    assert (await as_cleo.client.get("/account/security")).status_code == 403
    assert (await as_ben.client.get("/account")).headers["location"] == "/account/members"
    # The owner of the account remains its only own sign-in.
    owner = await app.database.read(accounts.by_email("ada@example.com"))
    assert owner.password_hash is None


@pytest.mark.parametrize("end", ["removed", "demoted"])
async def test_objects_of_an_admin_end_with_the_role(any_database_app: AppFixture, end: str) -> None:
    app = any_database_app
    ben = await member(app, "ben@example.com", "admin")
    headers, path = bearer(await key_of(app, ben)), f"{ORGANIZATION}/members/{ben.id}"
    for folder, each in (("work", headers), ("home", app.bearer)):
        sent = {
            f"{ORGANIZATION}/invitations": {"role": "admin"},
            "/api/account/alerts": {"period": "day", "threshold_usd": "1", "url": "https://example.com/"},
            "/api/shared-folders": {"folder": folder, "with": "cleo@example.com"},
        }
        responses = [await app.client.post(to, json=body, headers=each) for to, body in sent.items()]
        assert [response.status_code for response in responses] == [201] * 3, [
            each.text for each in responses
        ]
    hook = {"mask": ["emails"], "hook": {"url": "https://example.com/"}}
    put = await app.client.put("/api/account/guardrails", json=hook, headers=headers)
    assert put.status_code == 200, put.text
    if end == "removed":
        assert (await app.client.delete(path, headers=app.bearer)).status_code == 204
    else:
        changed_response = await app.client.patch(path, json={"role": "member"}, headers=app.bearer)
        assert changed_response.json()["role"] == "member"
    for list_path in (f"{ORGANIZATION}/invitations", "/api/account/alerts", "/api/shared-folders"):
        (rows, *_) = (await app.client.get(list_path, headers=app.bearer)).json().values()
        assert len(rows) == 1, (list_path, rows)
    guardrails = (await app.client.get("/api/account/guardrails", headers=app.bearer)).json()["guardrails"]
    assert [(each["mask"], each["hook"]) for each in guardrails] == [(["emails"], None)]


async def test_end_of_membership_ends_its_keys_streams_and_shares(any_database_app: AppFixture) -> None:
    app = any_database_app
    ben = await member(app, "ben@example.com", "admin")
    key, page = await key_of(app, ben), await acting(app, "ben@example.com", app.account.id)
    job, path = await slow(app), f"{ORGANIZATION}/members/{ben.id}"
    streams = [
        asyncio.create_task(app.client.get(f"{PREDICTIONS}/{job}/events", headers=bearer(key))),
        asyncio.create_task(page.client.get(f"/pages/predictions/{job}/events")),
    ]
    await until_open(app.server, 2)
    result = await app.client.post(
        "/api/containers/run", json={"model": "ra2", "input": {"prompt": "x"}}, headers=app.bearer
    )
    draft = {"kind": "run", "id": result.json()["id"]}
    links = [
        (await app.client.post("/api/shares", json=draft, headers=bearer(each))).json()["url"]
        for each in (key, app.key)
    ]
    assert [(await app.visitor().get(link)).status_code for link in links] == [200, 200]
    assert (await app.client.delete(path, headers=app.bearer)).status_code == 204
    assert [(await app.visitor().get(link)).status_code for link in links] == [404, 200]
    assert all(REVOKED in text for text in await until_ended(streams))
    assert (await app.client.get("/api/account", headers=bearer(key))).status_code == 401
    assert (await page.client.get("/account/members")).headers["location"].startswith("/signin")
    assert (await app.client.delete(path, headers=app.bearer)).status_code == 404


class TestSeveral:
    pytestmark = ON_POSTGRES

    async def test_a_membership_ends_on_the_other_server_too(self, tmp_path: Path) -> None:
        backends.database_url(tmp_path, "postgres")
        async with running_app(tmp_path) as app, second_server(app) as (application, visitor):
            ben = await member(app, "ben@example.com")
            key = await key_of(app, ben)
            events = f"{PREDICTIONS}/{await slow(app)}/events"
            stream = asyncio.create_task(visitor.get(events, headers=bearer(key)))
            await until_open(application)
            await app.database.write(members.remove(app.account.id, ben.id))
            assert REVOKED in (await until_ended([stream]))[0]
            assert (await visitor.get("/api/account", headers=bearer(key))).status_code == 401


async def test_organization_is_transferred_with_its_objects(app: AppFixture) -> None:
    database = app.database
    ben = await member(app, "ben@example.com")
    expected = {"member_id": ben.id, "handle": "acme"}
    response = await app.client.post(f"{ORGANIZATION}/transfer", json=expected, headers=app.bearer)
    assert response.status_code == 409, "without a password the owner would be locked out"
    await database.write(accounts.set_password_hash(app.account.id, "hash"))
    ada = await browser(app, "ada@example.com")
    moved = await app.client.post(f"{ORGANIZATION}/transfer", json=expected, headers=app.bearer)
    assert (moved.status_code, moved.json()["role"]) == (200, "owner")
    account = await database.read(accounts.by_id(app.account.id))
    assert (account.email, account.posted, account.password_hash) == ("acme", 5_000_000, None)
    person = await database.read(accounts.by_email("ada@example.com"))
    assert (person.password_hash, person.posted) == ("hash", 0)
    assert "You act for this organization as its admin" in (await ada.client.get("/account/members")).text
    # Keys of the account go on working with the rights of an admin.
    assert (await app.client.get("/api/account", headers=app.bearer)).json()["email"] == "acme"
    assert (await app.client.get("/api/account/export", headers=app.bearer)).status_code == 403
    with pytest.raises(Exception, match="own the organization acme"):
        await database.write(organizations.leave_all(ben.person_id))
    as_ben = await acting(app, "ben@example.com", account.id)
    closed = await as_ben.post("/account/close", confirm="acme")
    assert closed.status_code == 303
    assert (await ada.client.get("/account/members")).status_code == 303
    assert (await as_ben.post("/account/keep")).status_code == 303
    assert await app.faults() == ()


async def test_objects_of_a_former_owner_end_with_its_membership(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    ben = await member(app, "ben@example.com", "admin")
    await app.client.post("/api/pages", json={"slug": "work/plan", "body": "x"}, headers=app.bearer)
    sent = {
        f"{ORGANIZATION}/invitations": {"role": "admin"},
        "/api/account/alerts": {"period": "day", "threshold_usd": "1", "url": "https://example.com/"},
        "/api/shared-folders": {"folder": "work", "with": "cleo@example.com"},
        "/api/shares": {"kind": "page", "id": "work/plan"},
    }
    for path, body in sent.items():
        response = await app.client.post(path, json=body, headers=app.bearer)
        assert response.status_code == 201, (path, response.text)
    hook = {"hook": {"url": "https://example.com/"}}
    assert (await app.client.put("/api/account/guardrails", json=hook, headers=app.bearer)).status_code == 200
    await write(accounts.set_password_hash(app.account.id, "hash"))
    await write(organizations.transfer(app.account.id, ben.id, "acme"))
    headers = bearer(await key_of(app, ben))
    person = await app.database.read(accounts.by_email("ada@example.com"))
    ada = await app.database.read(members.of_person(app.account.id, person.id))
    assert ada is not None
    removed = await app.client.delete(f"{ORGANIZATION}/members/{ada.id}", headers=headers)
    assert removed.status_code == 204
    for path in sent:
        (rows, *_) = (await app.client.get(path, headers=headers)).json().values()
        assert rows == [], path
    (left,) = (await app.client.get("/api/account/guardrails", headers=headers)).json()["guardrails"]
    assert left["hook"] is None
    assert (await app.client.get("/api/account", headers=app.bearer)).status_code == 401


async def test_list_of_keys_shows_the_name_and_the_limits_of_each(app: AppFixture) -> None:
    limits = {"services": ["ra1"], "rpm": 60, "tpm": 9000, "budget_day_usd": "1.00", "budget_month_usd": None}
    sent: list[dict[str, Any]] = [{"name": "blog", "rights": ["run"], **limits}]
    sent.append({"name": "notes", "rights": ["memory.read"], "collections": ["island"]})
    ids: list[str] = []
    for body in sent:
        response = await app.client.post(f"{ORGANIZATION}/keys", json=body, headers=app.bearer)
        assert response.status_code == 201, response.text
        ids.append(response.json()["id"])
    rows = (await app.client.get(f"{ORGANIZATION}/keys", headers=app.bearer)).json()["keys"]
    listed = {row["id"]: row for row in rows}
    for key_id, body in zip(ids, sent, strict=True):
        assert {name: listed[key_id][name] for name in body} == body


async def test_page_shows_some_members_and_links_to_the_next(
    app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_page, "_PAGE", 1)
    # Ids of the same millisecond are in random order.
    joined = [await member(app, email) for email in ("ben@example.com", "cleo@example.com")]
    joined.sort(key=lambda each: each.id)
    owner = await browser(app, "ada@example.com")
    address, pages = "/account/members", list[str]()
    while address:
        pages.append((await owner.client.get(address)).text)
        link = re.search(r'href="([^"]+)">More members', pages[-1])
        address = html.unescape(link[1]) if link else ""
    # The form of a member is on its page only.
    assert [[f"members/{each.id}/remove" in page for each in joined] for page in pages] == [
        [True, False],
        [False, True],
    ]
    assert (await owner.client.get("/account/members?cursor=" + "x" * 300)).status_code == 400


async def test_usage_is_reported_by_member_and_team(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        app = gateway.app
        ben = await member(app, "ben@example.com")
        lab = await app.client.post(f"{ORGANIZATION}/teams", json={"name": "Lab"}, headers=app.bearer)
        expected = {"team_id": lab.json()["id"]}
        response = await app.client.post(f"{ORGANIZATION}/keys", json=expected, headers=app.bearer)
        of_ben, of_lab = await key_of(app, ben), response.json()["api_key"]
        chat = {"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]}
        for key in (app.key, of_ben, of_ben, of_lab):
            answer = await app.client.post("/v1/chat/completions", json=chat, headers=bearer(key))
            assert answer.status_code == 200, answer.text
        await gateway.settled(4)
        # The past stays with the team, and with the member, that it was counted for.
        path = f"{ORGANIZATION}/members/{ben.id}"
        moved = await app.client.patch(path, json=expected, headers=app.bearer)
        assert moved.json()["team"] == "Lab"

        async def usage(key: str, by: str) -> list[tuple[Any, ...]]:
            query = {"by": by}
            response = await app.client.get("/api/account/usage", params=query, headers=bearer(key))
            return [
                (*(row[name] for name in by.split(",")), row["requests"]) for row in response.json()["usage"]
            ]

        assert await usage(app.key, "member,team") == [
            ("", "", 1),
            ("", "Lab", 1),
            ("ben@example.com", "", 2),
        ]
        assert await usage(of_ben, "member") == [("ben@example.com", 2)]
        assert await usage(of_lab, "team") == [("Lab", 1)]
        assert (await app.client.delete(path, headers=app.bearer)).status_code == 204
        assert (ben.id, 2) in await usage(app.key, "member")
        assert await app.faults() == ()


async def test_closed_organization_cannot_be_selected(any_database_app: AppFixture) -> None:
    app = any_database_app
    await member(app, "ben@example.com", "admin")
    result = await browser(app, "ben@example.com")
    await app.database.write(deletion.close(app.account, 7))
    response = await result.post("/account/switch", account_id=app.account.id)
    assert response.status_code == 404
    page = await result.client.get("/account/members")
    assert "You act for this account as its owner" in page.text


async def test_page_version_names_its_key_and_team(any_database_app: AppFixture) -> None:
    app = any_database_app
    lab = await app.client.post(f"{ORGANIZATION}/teams", json={"name": "Lab"}, headers=app.bearer)
    team = lab.json()["id"]
    result = keys.create(app.account.id, holder=keys.Holder(team_id=team))
    key = await app.database.write(result)
    for number, sender in enumerate((app.key, key.api_key)):
        page = {"body": f"by {number}"}
        answer = await app.client.put("/api/pages/shared", json=page, headers=bearer(sender))
        assert answer.status_code in {200, 201}, answer.text
    response = await app.client.get("/api/versions/shared", headers=app.bearer)
    newest, first = response.json()["versions"]
    assert (newest["created_by"], newest["on_behalf_of"]) == (key.id, team)
    assert first["created_by"].startswith("key_")
    assert (first["created_by"] != key.id, first["on_behalf_of"]) == (True, None)


async def test_changes_of_budgets_and_teams_are_logged(any_database_app: AppFixture) -> None:
    app, write = any_database_app, any_database_app.database.write
    cleo = await member(app, "cleo@example.com")
    team = await write(teams.create(app.account.id, "design"))
    await write(members.change(app.account.id, cleo.id, budget_day=2_000_000, team_id=team.id))
    await write(teams.change(app.account.id, team.id, name="art", budget_month=5_000_000))
    await write(members.change(app.account.id, cleo.id, budget_day=2_000_000))
    # The order of entries of the same millisecond is undefined.
    log = await app.database.read(audit_log.page(app.account.id, 100, None))
    entries = [(entry["action"], entry["detail"]) for entry in log.entries]
    changes = {"member.budgets", "member.team", "team.budgets", "team.rename"}
    assert sorted(entry for entry in entries if entry[0] in changes) == [
        ("member.budgets", "cleo@example.com, 2.00 USD per day"),
        ("member.team", f"cleo@example.com, {team.id}"),
        ("team.budgets", "art, 5.00 USD per month"),
        ("team.rename", "design, art"),
    ]
