"""Operators set tool servers and the web search, which every server applies at once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold.app import bootstrap
from sixfold.core.accounts.keys import Principal
from sixfold.core.configuration import entries
from tests.api import browser
from tests.api.app_fixture import AppFixture, bearer, small_models
from tests.api.browser import TabOptions
from tests.api.gateway import running_gateway
from tests.api.page_checks import EACH_WIDTH, violations
from tests.api.test_chat_pages import ChatUser
from tests.api.test_chat_tools import weather
from tests.api.test_operator_configuration import ROOT, log, put, running_server, wait_for
from tests.api.test_pages import signed_in
from tests.fakes.searxng import searxng_server
from tests.mcp.agent import Agent
from tests.mcp.loopback import serve


@asynccontextmanager
async def another_server(app: AppFixture) -> AsyncIterator[bootstrap.Application]:
    """A second server of the same database, which watches the entries."""
    other = bootstrap.build(app.settings, small_models())
    watching = asyncio.create_task(other.operator.reloader.run())
    try:
        yield other
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await other.gateway_runtime.stop()
        await other.clients.aclose()
        await other.database.close()


def person_of(app: AppFixture) -> Principal:
    return Principal(app.operator.id, "operator", app.operator.email)


async def tools_of(agent: Agent) -> list[str]:
    return [each["name"] for each in (await agent.result("tools/list"))["tools"]]


async def test_tool_server_of_the_form_is_used_in_the_next_chat(tmp_path: Path) -> None:
    async with weather() as (url, cities), running_gateway(tmp_path) as gateway:
        app = gateway.app
        csrf = await signed_in(app, app.operator)
        form = {"csrf": csrf, "name": "weather", "url": url, "api_key": "sk-weather", "accounts": "all"}
        tested = await app.client.post("/admin/tools/servers", data={**form, "do": "test"})
        assert "It offers 2 tools: forecast, secret" in tested.text
        assert await log(app) == []
        saved = await app.client.post(
            "/admin/tools/servers", data={**form, "do": "save", "tools": "forecast"}
        )
        assert (saved.status_code, saved.headers["location"]) == (303, "/admin/tools")
        person = await ChatUser.of(gateway)
        await person.ask_path("@weather Will it snow?")
        assert cities == ["Oslo"]
        tools = gateway.acme.requests[-1].document["tools"]
        assert [each["function"]["name"] for each in tools] == ["weather_forecast"]
        stored = await app.database.read(entries.all_entries())
        csrf = await signed_in(app, app.operator)
        page = (await app.client.get("/admin/tools")).text
        assert "with a key" in page
        assert "sk-weather" not in f"{stored}{await log(app)}{page}"
        # Without a key in the form, the stored key is kept, unless the address changes.
        changes = {**form, "csrf": csrf, "api_key": "", "original": "weather"}
        assert (await app.client.post("/admin/tools/servers", data=changes)).status_code == 303
        headers = bearer(await app.operator_key())
        view = (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()
        assert [(each["name"], each["has_key"]) for each in view["tool_servers"]] == [("weather", True)]
        moved = {**changes, "url": "http://127.0.0.1:9/mcp"}
        assert (await app.client.post("/admin/tools/servers", data=moved)).status_code == 303
        view = (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()
        assert view["tool_servers"][0]["has_key"] is False
        removed = await app.client.post("/admin/tools/servers/remove", data={"csrf": csrf, "name": "weather"})
        assert removed.status_code == 303
        assert app.server.tool_servers.names(person_of(app)) == ()


async def test_web_search_of_the_form_is_offered_without_a_restart(either: Path) -> None:
    async with searxng_server() as searxng, running_server(either) as (app, _):
        csrf = await signed_in(app, app.operator)
        form = {"csrf": csrf, "searxng": searxng.url}
        agent = Agent(app)
        assert "web_search" not in await tools_of(agent)
        tested = await app.client.post("/admin/tools/search", data={**form, "do": "test"})
        assert "A test search returned results" in tested.text
        assert not app.server.web_search.available
        assert (await app.client.post("/admin/tools/search", data=form)).status_code == 303
        assert app.server.web_search.available
        assert "web_search" in await tools_of(agent)
        removal = await app.client.post("/admin/tools/search/remove", data={"csrf": csrf, "name": "searxng"})
        assert removal.status_code == 303
        assert not app.server.web_search.available
        targets = [(action, target) for action, target, *_ in await log(app)]
        assert targets == [
            ("configuration.remove", "search.searxng"),
            ("configuration.set", "search.searxng"),
        ]


async def test_form_keeps_the_timeout_and_the_path_of_a_server(app: AppFixture) -> None:
    row = {"url": "http://127.0.0.1:9/mcp/", "api_key": "sk-tools", "timeout_seconds": 2.5}
    assert await put(app, "mcp", "files", row) == 200
    csrf = await signed_in(app, app.operator)
    page = (await app.client.get("/admin/tools")).text
    assert all(f'value="{row[name]}"' in page for name in ("url", "timeout_seconds"))
    form = {"csrf": csrf, "original": "files", "name": "files", "url": row["url"], "timeout_seconds": "2.5"}
    saved = await app.client.post("/admin/tools/servers", data={**form, "do": "save"})
    assert saved.status_code == 303
    headers = bearer(await app.operator_key())
    (server,) = (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()["tool_servers"]
    assert (server["url"], server["timeout_seconds"], server["has_key"]) == (row["url"], 2.5, True)
    refused = await app.client.post("/admin/tools/servers", data={**form, "timeout_seconds": "nan"})
    assert (refused.status_code, "The timeout must be 1 to 120 seconds" in refused.text) == (400, True)


async def test_another_server_uses_the_tools_and_the_search(any_database_app: AppFixture) -> None:
    app = any_database_app
    async with another_server(app) as other:
        row = {"url": "http://127.0.0.1:9/mcp", "api_key": "sk-tools", "accounts": "all"}
        assert await put(app, "mcp", "files", row) == 200
        assert await put(app, "search", "searxng", "http://127.0.0.1:9") == 200

        async def is_known() -> bool:
            return other.tool_servers.names(person_of(app)) == ("files",) and other.web_search.available

        await wait_for(is_known)


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("mcp", "memory", {"url": "http://127.0.0.1:9/mcp"}),
        ("mcp", "files", {"url": "ftp://127.0.0.1/mcp"}),
        ("mcp", "files", {"url": "http://me:secret@127.0.0.1/mcp"}),
        ("mcp", "files", {"url": "http://127.0.0.1/mcp", "accounts": "some"}),
        ("mcp", "files", "http://127.0.0.1/mcp"),
        ("search", "searxng", "searx"),
        ("search", "searxng", "http://[::1"),
        ("mcp", "files", {"url": "http://[::1"}),
        ("search", "engine", "http://127.0.0.1:8888"),
        ("search", "timeout_seconds", 0),
    ],
)
async def test_invalid_tools_are_refused_in_one_sentence(
    app: AppFixture, section: str, name: str, value: object
) -> None:
    headers = bearer(await app.operator_key())
    url = f"{ROOT}/configuration/{section}"
    response = await app.client.put(url, json={"name": name, "value": value}, headers=headers)
    assert response.status_code == 400, response.text
    assert "secret" not in response.text
    assert await app.database.read(entries.all_entries()) == ()


async def test_tools_of_the_file_are_shown_and_cannot_be_changed(tmp_path: Path) -> None:
    text = '[mcp.files]\nurl = "http://127.0.0.1:9/mcp"\n[search]\nsearxng = "http://127.0.0.1:9"\n'
    async with running_server(tmp_path, text) as (app, _):
        await signed_in(app, app.operator)
        page = (await app.client.get("/admin/tools")).text
        assert page.count("from sixfold.toml") == 2
        assert "Remove the" not in page
        assert await put(app, "mcp", "files", {"url": "http://127.0.0.1:8/mcp"}) == 400
        assert await put(app, "search", "searxng", "http://127.0.0.1:8") == 400
        # A change of the file applies as well.
        (tmp_path / "sixfold.toml").write_text(text.replace("files", "notes"))
        app.server.operator.reloader.request()

        async def is_reloaded() -> bool:
            return app.server.tool_servers.names(person_of(app)) == ("notes",)

        await wait_for(is_reloaded)


@pytest.mark.browser
@browser.needed
@pytest.mark.parametrize("width", EACH_WIDTH)
async def test_tools_page_sets_both_without_scripts_at_each_width(tmp_path: Path, width: int) -> None:
    async with (
        weather() as (url, _),
        searxng_server() as searxng,
        running_server(tmp_path) as (app, _acme),
        serve(app.asgi) as address,
        browser.browser() as chromium,
    ):
        operator = dataclasses.replace(app, account=app.operator)
        async with browser.tab(chromium, operator, address, TabOptions(width=width, scripts=False)) as tab:
            page = tab.page
            await tab.open("/admin/tools")
            form = page.locator("form[action='/admin/tools/servers']").last
            await form.get_by_label("Name").fill("weather")
            await form.get_by_label("Address").fill(url)
            await form.get_by_label("Who may use it").select_option("all")
            await form.get_by_role("button", name="Test").click()
            assert "It offers 2 tools" in await page.inner_text(".done")
            await form.get_by_role("button", name="Save").click()
            await page.wait_for_selector(".card-list h3:has-text('weather')")
            form = page.locator("form[action='/admin/tools/search']").last
            await form.get_by_label("Address of SearXNG").fill(searxng.url)
            await form.get_by_role("button", name="Save").click()
            await page.wait_for_selector("#search .card-list h3")
        async with browser.tab(chromium, operator, address, TabOptions(width=width)) as tab:
            await tab.open("/admin/tools")
            assert await violations(tab.page) == []
            assert await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
