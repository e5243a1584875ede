"""Shares that only one account or team may open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts, keys, rights
from sixfold.core.accounts.keys import Holder
from sixfold.core.accounts.operation import customers
from sixfold.core.accounts.organizations import members, teams
from sixfold.core.database import Query, Transaction
from tests.api.app_fixture import AppFixture, bearer
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_comfyui_clients import PAINT as GRAPH
from tests.api.test_organizations import acting, browser
from tests.api.test_shares import PATH, anonymous_visitor, files_of, run, share


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


async def test_share_with_an_account_is_hidden_from_others(app: AppFixture) -> None:
    created = await share(app, "run", (await run(app))["id"], **{"with": "ben@example.com"})
    path = created["url"].removeprefix("http://127.0.0.1:8600")
    assert (created["with"], created["team_id"], created["public"]) == ("ben@example.com", None, False)
    away = await anonymous_visitor(app).get(path)
    assert (away.status_code, away.headers["location"]) == (303, f"/signin?next={path.replace('/', '%2F')}")
    ben, cleo, ada = [(await browser(app, f"{name}@example.com")).client for name in ("ben", "cleo", "ada")]
    assert ((await cleo.get(path)).status_code, (await ada.get(path)).status_code) == (404, 200)
    page = await ben.get(path)
    assert (page.status_code, "a quiet harbour" in page.text) == (200, True)
    file = files_of(page.text)[0]
    responses = [(await each.get(file)).status_code for each in (ben, cleo, anonymous_visitor(app))]
    assert responses == [200, 404, 401]
    received = (await app.client.get(f"{PATH}/received", headers=bearer(app.other))).json()["shares"]
    assert [(each["owner"], each["title"]) for each in received] == [("ada@example.com", "a quiet harbour")]
    # The list has the address by the id, which only the grantee may open.
    by_id = received[0]["url"].removeprefix("http://127.0.0.1:8600")
    responses = [(await each.get(by_id)).status_code for each in (ben, cleo, anonymous_visitor(app))]
    assert responses == [200, 404, 404]
    assert (await app.client.get(f"{PATH}/received", headers=bearer(app.poor))).json()["shares"] == []
    person = await app.database.read(accounts.by_email("ben@example.com"))
    for suspended, status in ((True, 403), (False, 200)):
        suspending = customers.suspend(app.operator.owner, person.id, suspended=suspended)
        await app.database.write(suspending)
        assert [(await ben.get(each)).status_code for each in (path, by_id)] == [status] * 2
    await app.client.delete(f"{PATH}/{created['id']}", headers=app.bearer)
    assert [(await ben.get(each)).status_code for each in (path, by_id, file)] == [404, 404, 404]


async def test_shares_do_not_reveal_which_addresses_have_an_account(any_database_app: AppFixture) -> None:
    app, run_id = any_database_app, (await run(any_database_app))["id"]
    bodies: list[dict[str, Any]] = []
    for name in ("ben@example.com", "dora@example.com"):
        created = await share(app, "run", run_id, **{"with": name})
        assert created.pop("with") == name
        bodies.append(
            {key: value for key, value in created.items() if key not in ("id", "url", "created_at")}
        )
        folder = await app.client.post(
            "/api/shared-folders", json={"folder": "work", "with": name}, headers=app.bearer
        )
        assert folder.status_code == 201
    assert bodies[0] == bodies[1]
    dora = await app.database.write(accounts.create("dora@example.com"))
    headers = bearer((await app.database.write(keys.create(dora.id))).api_key)
    received = (await app.client.get(f"{PATH}/received", headers=headers)).json()["shares"]
    folders = (await app.client.get("/api/shared-folders", headers=headers)).json()["received"]
    assert (len(received), len(folders)) == (1, 1), "the share waits for the account"


async def test_the_form_shares_with_an_account_or_a_team(app: AppFixture) -> None:
    read, write = app.database.read, app.database.write
    ben = await read(accounts.by_email("ben@example.com"))
    team = await write(teams.create(ben.id, "Flyers"))
    await write(members.add(ben.id, app.account.id, "member", "operator"))
    person = await browser(app, "ada@example.com")
    form = {"kind": "run", "id": (await run(app))["id"], "life": ""}
    offered = (await person.client.get("/shares/new", params={"kind": "run", "id": form["id"]})).text
    assert f'<option value="{team.id}">Team Flyers of ben@example.com</option>' in offered
    for name, status in (("", 400), ("nobody", 404), ("ada@example.com", 409)):
        wrong = await person.post("/shares", **form, who="account", **{"with": name})
        assert (wrong.status_code, 'role="alert"' in wrong.text) == (status, True)
        assert f'name="with" value="{name}"' in wrong.text
    assert (
        "Only cleo@example.com"
        in (await person.post("/shares", **form, who="account", **{"with": "Cleo@example.com"})).text
    )
    assert "Only Flyers of ben@example.com" in (await person.post("/shares", **form, who=team.id)).text
    mine = (await app.client.get(PATH, headers=app.bearer)).json()["shares"]
    assert [(each["with"], each["team_id"]) for each in mine] == [(None, team.id), ("cleo@example.com", None)]
    cleo = await browser(app, "cleo@example.com")
    html = (await cleo.client.get("/account/shares")).text
    assert f'<a href="/s/{mine[1]["id"]}">a quiet harbour</a>' in html


@pytest.mark.parametrize("kind", ["workflow", "chat"])
async def test_team_opens_shares_of_its_members(gateway: Gateway, kind: str) -> None:
    app = gateway.app
    write = app.database.write
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    cleo = await app.database.read(accounts.by_email("cleo@example.com"))
    team = await write(teams.create(ben.id, "Flyers"))
    ada = await write(members.add(ben.id, app.account.id, "member", "operator"))
    flyer = await write(members.add(ben.id, cleo.id, "member", "operator", team.id))
    if kind == "workflow":
        space = {"workflow": GRAPH, "name": "Zeppelin"}
        body = (await app.client.post("/api/graph/spaces", json=space, headers=app.bearer)).json()
        object_id = body["slug"]
    else:
        text = {"items": [{"role": "user", "content": "zeppelin"}]}
        body = (await app.client.post("/v1/conversations", json=text, headers=app.bearer)).json()
        object_id = body["id"]
        await write(_titled_post(app.account.id, object_id))
    await share(app, kind, object_id, team_id=team.id)
    key = (await write(keys.create(ben.id, holder=Holder(flyer.id, team.id)))).api_key
    received = (await app.client.get(f"{PATH}/received", headers=bearer(key))).json()["shares"]
    assert [(each["kind"], each["owner"]) for each in received] == [(kind, "ada@example.com")]
    path = received[0]["url"].removeprefix("http://127.0.0.1:8600")
    assert (await (await browser(app, "cleo@example.com")).client.get(path)).status_code == 404
    visitor = (await acting(app, "cleo@example.com", ben.id)).client
    assert (await visitor.get(path)).status_code == 200
    # The share ends with the membership of the person who shared it.
    await write(members.remove(ben.id, ada.id))
    assert (await visitor.get(path)).status_code == 404


def _titled_post(account_id: str, conversation_id: str) -> Transaction[None]:
    yield Query("chat_rename", {"account_id": account_id, "root": conversation_id, "title": "Zeppelin"})


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"with": "ben@example.com", "public": True}, 400),
        ({"with": "ben@example.com", "team_id": "team_1"}, 400),
        ({"with": "nobody"}, 404),
        ({"with": "ada@example.com"}, 409),
        ({"team_id": "team_none"}, 404),
    ],
)
async def test_invalid_grantee_is_refused(app: AppFixture, fields: dict[str, Any], status: int) -> None:
    body = {"kind": "run", "id": (await run(app))["id"], **fields}
    assert (await app.client.post(PATH, json=body, headers=app.bearer)).status_code == status


async def test_links_of_a_team_key_stop_with_its_creator(any_database_app: AppFixture) -> None:
    """The key of a team is refused while the user who created it is suspended; so are its links."""
    app, write = any_database_app, any_database_app.database.write
    ben = await app.database.read(accounts.by_email("ben@example.com"))
    admin = await write(members.add(app.account.id, ben.id, "admin", "operator"))
    team = await write(teams.create(app.account.id, "Vision"))
    holder = Holder(team_id=team.id, creator_member_id=admin.id)
    key = await write(keys.create(app.account.id, granted=rights.OF_ROLE["member"], holder=holder))
    body = {"kind": "run", "id": (await run(app))["id"]}
    created = await app.client.post(PATH, json=body, headers=bearer(key.api_key))
    body["with"] = "cleo@example.com"
    assert (await app.client.post(PATH, json=body, headers=bearer(key.api_key))).status_code == 201
    cleo = await app.database.read(accounts.by_email("cleo@example.com"))
    headers = bearer((await write(keys.create(cleo.id))).api_key)
    path = created.json()["url"].removeprefix("http://127.0.0.1:8600")
    for suspended, statuses in ((False, (200, 1)), (True, (404, 0)), (False, (200, 1))):
        await write(customers.suspend(app.operator.owner, ben.id, suspended=suspended))
        link = await anonymous_visitor(app).get(path)
        received = await app.client.get(f"{PATH}/received", headers=headers)
        assert (link.status_code, len(received.json()["shares"])) == statuses
