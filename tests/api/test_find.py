"""Global search: results, access rights and limits."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.gateway.conversations.chats import ChatStore
from tests.api.app_fixture import AppFixture
from tests.api.test_history import run_model
from tests.api.test_memory_pages import put
from tests.api.test_pages import signed_in

NAVIGATION = ("/catalog", "/chat", "/workflows", "/predictions", "/memory", "/gallery", "/docs", "/account")


async def find(app: AppFixture, query: str) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of a search by the title of their group."""
    response = await app.client.get("/pages/find", params={"q": query})
    assert response.status_code == 200, response.text
    return {group["title"]: group["entries"] for group in response.json()["groups"]}


async def chat(app: AppFixture, title: str) -> str:
    """Create a chat of the first account; return its id."""
    store = ChatStore(app.database, app.server.gateway_runtime.conversations)
    return await store.create(Tenant(app.account.id), title, "acme/one")


async def test_search_finds_objects_of_every_kind(app: AppFixture) -> None:
    await put(app, "notes/owl", "# The owl\n\nAn owl with a key.\n")
    run = await run_model(app, "an owl with a key")
    chat_id = await chat(app, "Owl with keys")
    await signed_in(app)
    groups = await find(app, "owl")
    assert [each["href"] for each in groups["Memory"]] == ["/memory/notes/owl"]
    assert [each["href"] for each in groups["Runs"]] == [f"/predictions/{run['id']}"]
    assert [each["href"] for each in groups["Chats"]] == [f"/chat/{chat_id}"]
    groups = await find(app, "keys")
    assert groups["Go to"][0]["href"] == "/account/keys"
    assert "/docs/howto/keys" in [each["href"] for each in groups["Guides"]]
    assert (await find(app, "cutout"))["Models"][0]["href"] == "/catalog/remove-background"
    recent = await find(app, "")
    assert list(recent) == ["Memory", "Runs", "Chats", "Go to"]


async def test_search_leads_to_a_section_of_a_guide(app: AppFixture) -> None:
    await signed_in(app)
    guides = (await find(app, "post link"))["Guides"]
    assert guides == [
        {
            "title": "Remove a post or character, or end a shared link",
            "note": "Operate a server from its pages",
            "href": "/docs/howto/operate#remove-a-post-or-character-or-end-a-shared-link",
        }
    ]


async def test_operator_finds_accounts_by_their_address(any_database_app: AppFixture) -> None:
    app = any_database_app
    eve = await app.database.write(accounts.create("eve@example.com"))
    await signed_in(app)
    assert "People" not in await find(app, "eve@ex")
    await signed_in(app, app.operator)
    (entry,) = (await find(app, "eve@ex"))["People"]
    assert entry == {"title": "eve@example.com", "note": "", "href": f"/admin/people/{eve.id}"}
    assert "People" not in await find(app, "e")


async def test_search_shows_nothing_of_another_account(app: AppFixture) -> None:
    await put(app, "notes/owl", "# The owl\n\nSecret.\n")
    await run_model(app, "secret owl")
    await chat(app, "Secret owl")
    eve = await app.database.write(accounts.create("eve@example.com"))
    await signed_in(app, eve)
    for query in ("owl", "secret", ""):
        groups = await find(app, query)
        assert groups.keys() & {"Memory", "Runs", "Chats"} == set()
        assert "/admin" not in [each["href"] for each in groups.get("Go to", [])]
    await signed_in(app, app.operator)
    assert "/admin/people" in [each["href"] for each in (await find(app, "invite"))["Go to"]]


async def test_search_needs_a_session_and_limits_its_query(app: AppFixture) -> None:
    assert (await app.visitor().get("/pages/find?q=a")).status_code == 401
    assert (await app.visitor().get("/find?q=a")).headers["Location"] == "/signin?next=%2Ffind%3Fq%3Da"
    await signed_in(app)
    assert (await app.client.get("/pages/find?q=a")).headers["cache-control"] == "no-store"
    response = await app.client.get("/pages/find", params={"q": "a" * 101})
    error = response.json()
    assert (error["error"], error["code"]) == ("q must be at most 100 characters (got 101)", "invalid_input")
    assert response.status_code == 400
    for query in ("'\"%_*(", "<script>", "a " * 50, "\u0000", "😀"):
        assert isinstance(await find(app, query), dict)
    page = (await app.client.get("/find", params={"q": "<script>"})).text
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("path", NAVIGATION)
async def test_navigation_marks_the_current_page(app: AppFixture, path: str) -> None:
    await signed_in(app)
    html = {"Accept": "text/html"}
    page = (await app.client.get(path)).text
    assert f'<a href="{path}" aria-current="page">' in page
    below = (await app.client.get(f"{path}/no-such-page", headers=html)).text
    assert f'<a href="{path}" aria-current="true">' in below


async def test_scripts_are_compressed_for_clients_that_accept_it(app: AppFixture) -> None:
    path = "/static/find.js"
    plain = await app.client.get(path, headers={"Accept-Encoding": "identity"})
    small = await app.client.get(path, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert (small.headers["Content-Encoding"], small.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert small.text == plain.text
    assert int(small.headers["Content-Length"]) < len(plain.content) / 2
