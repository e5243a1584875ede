"""Changes to the configuration and to provider keys apply at once, on every server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.app import bootstrap
from sixfold.app import catalog as app_catalog
from sixfold.app.config_reload import WatchedFile
from sixfold.core.accounts.operation import actions
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import ConfigEntry
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.gateway import PRICE
from tests.api.test_pages import signed_in
from tests.fakes.chat_servers import ModelServer, model_server
from tests.fakes.hosted_providers import KEY, hosted_provider
from tests.harness import backends
from tests.harness.waiting import wait_until

ROOT = "/api/operator"
CHAT = {"messages": [{"role": "user", "content": "say 3 words"}]}


async def wait_for(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until another server has applied a change."""
    await wait_until(condition, 30)


async def put(app: AppFixture, section: str, name: str, value: Any) -> int:
    """Set an entry over HTTP, and return the status."""
    headers = bearer(await app.operator_key())
    body = {"name": name, "value": value}
    url = f"{ROOT}/configuration/{section}"
    return (await app.client.put(url, json=body, headers=headers)).status_code


async def chat(app: AppFixture, model: str) -> int:
    body = {**CHAT, "model": model}
    response = await app.client.post("/v1/chat/completions", json=body, headers=app.bearer)
    return response.status_code


async def log(app: AppFixture) -> list[tuple[str, str, str, str]]:
    """Return action, target, before and after of every audit entry, newest first."""
    page = await app.database.read(actions.page(50, None))
    return [(each.action, each.target, each.before, each.after) for each in page.actions]


@asynccontextmanager
async def running_server(folder: Path, text: str = "") -> AsyncIterator[tuple[AppFixture, ModelServer]]:
    """A server with a configuration file, and a model server that is not configured."""
    (folder / "sixfold.toml").write_text(text)
    environ = {"SIXFOLD_TESTING": "1", "SIXFOLD_DRIVER": "inline", "SIXFOLD_PROBE": "0"}
    environ |= backends.environ(folder)

    def load() -> settings.Settings:
        return settings.load(environ, data_dir=folder)

    async with model_server() as acme, running_app(folder, source=WatchedFile(load, load())) as app:
        yield app, acme


async def test_form_keeps_server_fields_that_it_does_not_contain(either: Path) -> None:
    async with running_server(either) as (app, acme):
        row = {"kind": "openai", "base_url": acme.url, "local": True, "responses": False}
        assert await put(app, "gateway.upstreams", "box", row) == 200
        form = {"csrf": await signed_in(app, app.operator), "original": "box", "name": "box", "do": "save"}
        form |= {"kind": "openai", "base_url": acme.url, "context": "4096"}
        assert (await app.client.post("/admin/models/servers", data=form)).status_code == 303
        (stored,) = await app.database.read(entries.all_entries())
        assert stored.document == {**row, "context": 4096}


async def test_forms_add_a_server_a_price_and_an_alias(either: Path) -> None:
    async with running_server(either) as (app, acme):
        csrf = await signed_in(app, app.operator)
        server = {"csrf": csrf, "name": "box", "kind": "openai", "base_url": acme.url, "api_key": "sk-secret"}
        tested = await app.client.post("/admin/models/servers", data={**server, "do": "test"})
        assert (tested.status_code, "It responds with 2 models" in tested.text) == (200, True)
        assert await log(app) == []
        saved = await app.client.post("/admin/models/servers", data={**server, "do": "save"})
        assert (saved.status_code, saved.headers["location"]) == (303, "/admin/models")
        price = {"csrf": csrf, "name": "box/small", **PRICE}
        assert (await app.client.post("/admin/prices/tokens", data=price)).status_code == 303
        alias = {"csrf": csrf, "name": "fast", "target0": "box/small", "target1": "box/large"}
        assert (await app.client.post("/admin/models/aliases", data=alias)).status_code == 303
        assert await chat(app, "fast") == 200
        assert acme.requests[-1].headers["authorization"] == "Bearer sk-secret"
        stored = await app.database.read(entries.all_entries())
        assert "sk-secret" not in str(stored)
        assert "sk-secret" not in str(await log(app))
        assert [target for _, target, _, _ in await log(app)] == [
            "gateway.aliases.fast",
            "gateway.prices.box/small",
            "gateway.upstreams.box",
        ]
        page = (await app.client.get("/admin/models")).text
        assert "sk-secret" not in page
        removed = await app.client.post("/admin/models/aliases/remove", data={"csrf": csrf, "name": "fast"})
        assert removed.status_code == 303
        assert await chat(app, "fast") == 404
        assert (await log(app))[0] == (
            "configuration.remove",
            "gateway.aliases.fast",
            '["box/small","box/large"]',
            "",
        )


async def test_context_of_a_server_is_that_of_models_without_one(either: Path) -> None:
    async with running_server(either) as (app, acme):
        csrf = await signed_in(app, app.operator)
        server = {"csrf": csrf, "name": "box", "kind": "openai", "base_url": acme.url, "do": "save"}
        assert (await app.client.post("/admin/models/servers", data=server)).status_code == 303
        page = (await app.client.get("/chat")).text
        assert "box/small · context not stated" in page
        stated = await app.client.post("/admin/models/servers", data=server | {"context": "32,768"})
        assert stated.status_code == 303

        async def is_applied() -> bool:
            return "box/small · 32k context" in (await app.client.get("/chat")).text

        await wait_for(is_applied)
        headers = bearer(await app.operator_key())
        view = (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()
        assert view["servers"][0]["context"] == 32768


async def test_preview_hint_links_only_operators_to_the_engines(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as app:
        await signed_in(app, app.operator)
        page = (await app.client.get("/catalog/ra1")).text
        assert "A preview engine serves this model here" in page
        assert '<a href="/admin/engines">Install engines</a>' in page
        public = await app.visitor().get("/catalog/ra1")
        assert (public.status_code, "/admin/engines" in public.text) == (200, False)


async def test_form_of_an_organization_describes_its_handle(app: AppFixture) -> None:
    await signed_in(app, app.account)
    page = (await app.client.get("/account/members")).text
    assert "Handle of the organization" in page
    assert 'aria-describedby="handle-hint"' in page


async def test_weights_of_an_alias_are_set_in_its_form(either: Path) -> None:
    async with running_server(either) as (app, acme):
        assert await put(app, "gateway.upstreams", "box", {"kind": "openai", "base_url": acme.url}) == 200
        csrf = await signed_in(app, app.operator)
        alias = {"csrf": csrf, "name": "half", "target0": "box/small", "target1": "box/large"}
        partial = await app.client.post("/admin/models/aliases", data={**alias, "weight0": "3"})
        assert (partial.status_code, "Enter a weight for each model, or for none" in partial.text) == (
            400,
            True,
        )
        weights = {"weight0": "3", "weight1": "0.5"}
        saved = await app.client.post("/admin/models/aliases", data=alias | weights)
        assert saved.status_code == 303
        headers = bearer(await app.operator_key())
        view = (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()
        assert [(each["target"], each["weight"]) for each in view["aliases"][0]["targets"]] == [
            ("box/small", 3.0),
            ("box/large", 0.5),
        ]
        assert app.server.gateway_runtime.gateway.router.is_weighted("half")
        page = (await app.client.get("/admin/models")).text
        assert re.search(r'name="weight1"[^>]*value="0.5"', page) is not None
        saved = await app.client.post("/admin/models/aliases", data={**alias, "original": "half"})
        assert saved.status_code == 303
        assert not app.server.gateway_runtime.gateway.router.is_weighted("half")


async def test_prices_of_images_and_videos_are_in_credits_too(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    page = (await app.client.get("/admin/prices")).text
    assert "<b>0.58</b> per video, 58 credits" in page
    assert "<b>0.007</b> per image, 1 credit<" in page


@pytest.mark.parametrize("models", [[], ["small"]])
async def test_an_unreachable_server_is_not_shown_as_ready(app: AppFixture, models: list[str]) -> None:
    headers = bearer(await app.operator_key())

    async def show(url: str) -> list[str]:
        row = {"kind": "openai", "base_url": url, "api_key": "sk-box", "models": models}
        body = {"name": "box", "value": row}
        response = await app.client.put(f"{ROOT}/configuration/gateway.upstreams", json=body, headers=headers)
        assert response.status_code == 200
        return [each["state"] for each in response.json()["servers"] if each["name"] == "box"]

    async with model_server() as acme:
        closed = acme.url
    assert await show(closed) == ["absent"]
    async with model_server() as acme:
        assert await show(acme.url) == ["ready"]


async def test_another_server_applies_a_change(any_database_app: AppFixture) -> None:
    app = any_database_app
    other = bootstrap.build(app.settings, small_models())
    watching = asyncio.create_task(other.operator.reloader.run())
    try:
        async with model_server() as acme:
            row = {"kind": "openai", "base_url": acme.url, "api_key": "sk-acme"}
            assert await put(app, "gateway.upstreams", "box", row) == 200
            assert await put(app, "prices", "ra1", {"usd": "0.07"}) == 200

            async def is_known() -> bool:
                names = {server.name for server in other.gateway_runtime.model_servers()}
                return "box" in names and other.catalog.prices["ra1"].unit == 70_000

            await wait_for(is_known)
            rows = other.gateway_runtime.gateway.policy.servers
            assert [(row.name, row.api_key) for row in rows] == [("box", "sk-acme")]
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await other.gateway_runtime.stop()
        await other.clients.aclose()
        await other.database.close()


@pytest.mark.parametrize(
    ("form", "fields", "sentence"),
    [
        (
            "models/servers",
            {"name": "box", "kind": "openai", "base_url": "gpu:8000"},
            "must begin with http://",
        ),
        (
            "models/servers",
            {"name": "box", "kind": "ollama", "context": "many"},
            "must be a number of tokens from 0 to",
        ),
        ("models/servers", {"name": "a b", "kind": "ollama"}, "letters, digits and . : @"),
        ("models/aliases", {"name": "fast", "target0": "nowhere/m"}, "not available on any model server"),
        ("models/aliases", {"name": "fast", "target0": "a/m", "weight0": "-1"}, "must be a number from 0 to"),
        ("models/aliases", {"name": "fast", "target0": "a/m", "weight0": "0"}, "weight must be above 0"),
        ("prices/tokens", {"name": "box/m", "input_per_million_usd": "cheap"}, "must be an amount in USD"),
        ("prices/models", {"name": "ra1", "usd.": "-1"}, "must be USD with at most six decimals"),
    ],
)
async def test_invalid_input_is_reported_and_changes_nothing(
    app: AppFixture, form: str, fields: dict[str, str], sentence: str
) -> None:
    csrf = await signed_in(app, app.operator)
    data = {
        "csrf": csrf,
        "do": "save",
        "original": fields["name"] if form == "prices/models" else "",
        **fields,
    }
    response = await app.client.post(f"/admin/{form}", data=data)
    assert response.status_code == 400
    assert len(re.findall(r'role="alert"', response.text)) == 1
    problem = re.search(r'aria-invalid="true".*?role="alert">([^<]+)<', response.text, re.DOTALL)
    assert problem is not None, "beside a field"
    assert sentence in problem[1]
    assert await log(app) == []
    assert await app.database.read(entries.all_entries()) == ()


async def test_values_of_the_file_have_precedence_and_are_marked(tmp_path: Path) -> None:
    text = '[prices.ra1]\nusd = "0.03"\n'
    async with running_server(tmp_path, text) as (app, _):
        assert await put(app, "prices", "ra1", {"usd": "0.05"}) == 400
        assert await put(app, "prices", "ra2", {"usd": "0.05"}) == 200
        headers = bearer(await app.operator_key())
        view = (await app.client.get(f"{ROOT}/configuration", headers=headers)).json()
        rows = {row["name"]: (row["usd"][""], row["source"]) for row in view["prices"] if "" in row["usd"]}
        assert (rows["ra1"], rows["ra2"]) == (("0.03", "file"), ("0.05", "page"))
        assert rows["anime"][1] == "bundled"
        # A later entry of the file replaces that of the page.
        (tmp_path / "sixfold.toml").write_text(text + '[prices.ra2]\nusd = "0.06"\n')
        app.server.operator.reloader.request()

        async def is_replaced() -> bool:
            return app.server.catalog.prices["ra2"].unit == 60_000

        await wait_for(is_replaced)
        assert (await log(app))[0][2:] == ('{"usd":"0.04"}', '{"usd":"0.05"}')
        # An error in the file does not hold changes on the pages back.
        (tmp_path / "sixfold.toml").write_text("[prices")
        assert await put(app, "prices", "anime", {"usd": "0.01"}) == 200
        prices = app.server.catalog.prices
        assert (prices["anime"].unit, prices["ra2"].unit) == (10_000, 60_000)


async def test_an_entry_that_became_invalid_leaves_the_others(app: AppFixture) -> None:
    await app.database.write(entries.store(ConfigEntry("prices", "gone", '{"usd":"1"}')))
    assert await put(app, "prices", "ra1", {"usd": "0.05"}) == 400
    await app.database.write(entries.store(ConfigEntry("prices", "ra1", '{"usd":"0.05"}')))
    await app.server.operator.reloader.refresh()
    assert app.server.catalog.prices["ra1"].unit == 50_000
    assert "unknown row 'gone'" in app.server.operator.reloader.faults["prices", "gone"]


async def test_a_pasted_key_is_tested_sealed_and_used_at_once(either: Path) -> None:
    async with hosted_provider("azure") as fake:
        endpoint = fake.url.removesuffix("/v1")
        async with running_app(either, azure_openai_endpoint=endpoint, fal_key="fal-0123456789abcdef") as app:
            csrf = await signed_in(app, app.operator)
            url = "/admin/providers/azure"
            fake.mode = "key"
            response = await app.client.post(f"{url}/set", data={"csrf": csrf, "key": "sk-wrong-0123456789"})
            assert (response.status_code, "refused this key" in response.text) == (400, True)
            fake.mode = "well"
            saved = await app.client.post(f"{url}/set", data={"csrf": csrf, "key": f" {KEY} "})
            assert saved.headers["location"] == "/admin/providers#azure"

            async def ready() -> bool:
                servers = app.server.gateway_runtime.gateway.router.servers()
                return "azure" in [server.name for server in servers]

            # A model server reads its key again after a second.
            await wait_for(ready)
            page = (await app.client.get("/admin/providers")).text
            assert KEY not in page
            assert KEY[-4:] in page
            stored = await app.database.read(entries.all_entries())
            files = [path.read_text() for path in (either / "providers").iterdir()]
            assert KEY not in f"{stored}{files}{await log(app)}"
            tested = await app.client.post(f"{url}/check", data={"csrf": csrf})
            assert "Azure OpenAI accepts the key" in tested.text
            removed = await app.client.post(f"{url}/remove", data={"csrf": csrf})
            assert removed.status_code == 303
            assert not list((either / "providers").glob("azure_openai_api_key.json"))
            assert [action for action, *_ in await log(app)] == ["provider.remove", "provider.key"]
            fixed = await app.client.post("/admin/providers/fal/set", data={"csrf": csrf, "key": KEY})
            assert (fixed.status_code, "FAL_KEY is set in the environment" in fixed.text) == (400, True)


async def test_another_server_applies_a_provider_key(any_database_app: AppFixture, tmp_path: Path) -> None:
    app = any_database_app
    away = tmp_path / "other"
    away.mkdir()
    (away / "server.key").write_bytes((app.settings.data_dir / "server.key").read_bytes())
    headers = bearer(await app.operator_key())
    body = {"key": "r8_0123456789abcdef"}
    response = await app.client.put(f"{ROOT}/providers/vertex", json=body, headers=headers)
    assert response.json()["state"] == "unknown", "it needs a project"
    other = bootstrap.build(app.settings.replace(data_dir=away), small_models())
    try:
        await other.operator.provider_keys.adopt(await app.database.read(entries.all_entries()))
        views = {row.name: row for row in await other.operator.provider_keys.view()}
        assert (views["vertex"].source, views["vertex"].hint) == ("page", "…cdef")
        await app.client.delete(f"{ROOT}/providers/vertex", headers=headers)
        await other.operator.provider_keys.adopt(await app.database.read(entries.all_entries()))
        views = {row.name: row for row in await other.operator.provider_keys.view()}
        assert views["vertex"].source == ""
    finally:
        await other.gateway_runtime.stop()
        await other.clients.aclose()
        await other.database.close()
