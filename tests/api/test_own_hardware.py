"""Free use of own hardware: this server's engines cost nothing, and providers keep their price."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts, keys, ledger_queries, rights
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.settings import InvalidSetting, Settings
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.gateway import PRICE, running_gateway
from tests.api.test_comfyui_clients import PAINT
from tests.api.test_pages import signed_in
from tests.api.test_providers import catalog_with, running_server
from tests.api.test_workflows_remote import PAINT_AND_TINT, ComfySetup
from tests.fakes import fal
from tests.fakes.chat_servers import model_server
from tests.fakes.comfyui import comfyui

FREE: Mapping[str, Any] = {"prices": {"own_hardware": "free"}}
IMAGE_INPUTS = {"prompt": "a fox", "size": "1024x1024"}
RUN = "/api/containers/run"
# The number of times that a graph with one node is priced: when it is submitted and when it runs.
LAST = 2


def graph_models() -> Mapping[str, Any]:
    """Return the small catalog with `DotEngine`, except for the real workflow engines."""
    document = small_models()
    graph = app_catalog.models_document()["engines"]["graph"]
    return {**document, "engines": {**document["engines"], "graph": graph}}


async def balance(app: AppFixture, email: str) -> tuple[int, int]:
    account = await app.database.read(accounts.by_email(email))
    return account.posted, account.held


async def test_account_without_credit_runs_free_and_sees_list_price(either: Path) -> None:
    async with running_app(either, tables=FREE) as app:
        response = await app.client.post("/api/ra1", json={"api_key": app.poor, **IMAGE_INPUTS})
        assert response.status_code == 200, response.text
        body = response.json()
        assert (body["cost"], body["credits_charged"], body["list_price"]) == ("0.00", 0, "0.04")
        page = await app.client.get("/api/containers/predictions", headers=bearer(app.poor))
        record = page.json()["predictions"][0]
        assert (record["cost"], record["credits_charged"], record["list_price"]) == ("0.00", 0, "0.04")
        assert [step["usd"] for step in record["receipt"]] == ["0.00", "0.00", None, None, None, "0.00"]
        assert await balance(app, "cleo@example.com") == (0, 0)
        assert await app.database.read(ledger_queries.verify()) == ()


async def test_default_charges_the_list_price_without_an_extra_field(app: AppFixture) -> None:
    body = (await app.client.post("/api/ra1", json={"api_key": app.key, **IMAGE_INPUTS})).json()
    assert (body["cost"], body["credits_charged"]) == ("0.04", 4)
    assert "list_price" not in body


async def test_provider_is_charged_when_own_hardware_is_free(tmp_path: Path) -> None:
    async with (
        fal.running() as queue,
        running_server(tmp_path, catalog_with(fal=queue.url), fal_key=fal.KEY, tables=FREE) as app,
    ):
        response = await app.client.post("/api/ra1", json={"api_key": app.key, **IMAGE_INPUTS})
        assert response.headers["X-Sixfold-Engine"] == "fal-image"
        assert response.json()["cost"] == "0.04"
        assert "list_price" not in response.json()
        assert await app.balance() == ("4.96", "0.00")
        refused_response = await app.client.post("/api/ra1", json={"api_key": app.poor, **IMAGE_INPUTS})
        assert refused_response.status_code == 402
        assert await app.faults() == ()


async def test_quote_list_and_pages_show_both_prices(tmp_path: Path) -> None:
    async with running_app(tmp_path, tables=FREE) as app:
        quote = await app.client.post(
            "/api/containers/ra1/quote", json={"input": IMAGE_INPUTS}, headers=app.bearer
        )
        assert (quote.json()["price_usd"], quote.json()["list_price"]) == ("0.00", "0.04")
        assert quote.json()["hold_usd"] == "0.00"
        rows = (await app.client.get("/api/services")).json()["services"]
        row = next(each for each in rows if each["service"] == "ra1")
        assert (row["price"], row["list_price"]) == ("free on this server", "0.04 USD per image")
        page = await app.client.get("/catalog/ra1", headers={"Accept": "text/html"})
        assert "free on this server (list price: 0.04 USD per image)" in page.text
        service = await app.client.post(
            "/api/service", json={"service": "ra1", **IMAGE_INPUTS}, headers=app.bearer
        )
        assert (service.json()["cost"], service.json()["list_price"]) == ("0.00", "0.04")
        await signed_in(app)
        response = await app.client.get("/predictions", headers={"Accept": "text/html"})
        assert "list price 0.04 USD" in response.text


async def test_time_on_own_hardware_is_free_and_shows_list_price(either: Path) -> None:
    async with running_app(either, tables=FREE) as app:
        body = {"model": "world-model", "input": {"prompt": "islands"}}
        document = (await app.client.post(RUN, json=body, headers=bearer(app.poor))).json()
        assert document["status"] == "succeeded", document
        assert document["cost"] == "0.00"
        hour = app.server.templates["world-model"].hour_micros
        ran = await app.predictions.get_any(document["id"])
        assert ran.list_price == -(-hour * ran.durations.run // 3_600_000_000) > 0


async def test_a_failed_run_shows_no_list_price(tmp_path: Path) -> None:
    async with running_app(tmp_path, tables=FREE) as app:
        body = {"model": "ra1", "input": {**IMAGE_INPUTS, "prompt": "FAIL"}}
        document = (await app.client.post(RUN, json=body, headers=app.bearer)).json()
        assert (document["status"], document["cost"]) == ("failed", "0.00")
        assert "list_price" not in document


async def test_free_run_is_allowed_with_an_exhausted_budget(either: Path) -> None:
    async with running_app(either, tables=FREE) as app:
        key = await app.limited_key(KeyLimits(budget_day=0))
        response = await app.client.post("/api/ra1", json={"api_key": key, **IMAGE_INPUTS})
        assert (response.status_code, response.json()["cost"]) == (200, "0.00")


async def test_a_session_on_own_hardware_is_free(either: Path) -> None:
    async with running_app(either, app_catalog.models_document(), tables=FREE) as app:
        response = await app.client.post(
            "/api/containers/world-model/sessions", json={"input": {}}, headers=bearer(app.poor)
        )
        assert response.status_code == 201, response.text
        path = f"/api/containers/sessions/{response.json()['session_id']}"
        body = (await app.client.get(path, headers=bearer(app.poor))).json()
        hour = app.server.templates["world-model"].hour_micros / 1_000_000
        assert (body["price_hour_usd"], float(body["list_price_hour_usd"])) == ("0.00", hour)
        response_body = (await app.client.delete(path, headers=bearer(app.poor))).json()
        assert response_body["cost"] == "0.00"
        assert await app.database.read(ledger_queries.verify()) == ()


# -- graphs ------------------------------------------------------------------------------------------


async def ran_graph(app: AppFixture, key: str) -> Any:
    body = {"workflow": PAINT, "name": "paint"}
    space = (await app.client.post("/api/graph/spaces", json=body, headers=bearer(key))).json()
    response = await app.client.post(
        f"/api/graph/spaces/{space['slug']}/run", json={"wait": 60}, headers=bearer(key)
    )
    return response.json()


async def test_local_graph_is_free_and_shows_summed_list_price(either: Path) -> None:
    async with running_app(either, graph_models(), tables=FREE) as app:
        checked = await app.client.post(
            "/api/graph/validate", json={"workflow": PAINT}, headers=bearer(app.poor)
        )
        estimate = checked.json()["estimate"]
        assert (estimate["price_usd"], estimate["list_price"]) == ("0.00", "0.04")
        response = await ran_graph(app, app.poor)
        assert (response["status"], response["cost"], response["list_price"]) == ("succeeded", "0.00", "0.04")
        assert await app.database.read(ledger_queries.verify()) == ()


async def test_running_graph_keeps_its_quoted_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_app(tmp_path, graph_models(), tables=FREE) as app:
        workflows, asked_for = app.server.workflows, list[str]()
        price_of = workflows.price_of

        def reprice(service: Any, account_id: str, *, charged: bool) -> Any:
            asked_for.append(service.model)
            # The graph is checked and held, and its node is submitted now.
            if len(asked_for) == LAST:
                app.server.catalog.reprice(app_catalog.price_table(Settings()))
            return price_of(service, account_id, charged=charged)

        monkeypatch.setattr(workflows, "price_of", reprice)
        response = await ran_graph(app, app.poor)
        assert (response["status"], response["cost"], response["list_price"]) == (
            "succeeded",
            "0.00",
            "0.04",
        ), response
        assert len(asked_for) == LAST
        assert app.predictions.quote("ra1", IMAGE_INPUTS).price.micros == 40_000


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_graph_quoted_free_does_not_use_a_new_provider(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(tmp_path, graph_models(), tables=FREE) as app:
        workflows, standings, asked_for = app.server.workflows, app.server.availability, list[str]()
        price_of = workflows.price_of

        def with_a_provider(service: Any, account_id: str, *, charged: bool) -> Any:
            asked_for.append(service.model)
            price = price_of(service, account_id, charged=charged)
            if len(asked_for) < LAST:
                return price
            ready = {
                engine.name: EngineStatus(engine.kind == "provider")
                for engine in app.server.catalog.engines().values()
            }
            standings._known = ready
            return price if moment == "after" else price_of(service, account_id, charged=charged)

        monkeypatch.setattr(workflows, "price_of", with_a_provider)
        response = await ran_graph(app, app.poor)
        assert response["status"] == "failed", response
        assert "0.00 USD" in response["error"]
        assert "held" in response["error"]
        assert await balance(app, "cleo@example.com") == (0, 0)
        assert await app.faults() == ()


async def test_a_whole_graph_on_the_comfyui_is_free(tmp_path: Path) -> None:
    async with (
        comfyui() as comfy,
        running_app(tmp_path, app_catalog.models_document(), comfyui_url=comfy.url, tables=FREE) as app,
    ):
        comfy_setup = ComfySetup(app, comfy)
        check = {"workflow": PAINT_AND_TINT}
        checked = await app.client.post("/api/graph/validate", json=check, headers=app.bearer)
        estimate = checked.json()["estimate"]
        assert (estimate["price_usd"], estimate["list_price"]) == ("0.00", "0.04")
        await comfy_setup.imported(PAINT_AND_TINT, "paint")
        body = (await comfy_setup.run("paint", text="a lake")).json()
        assert (body["status"], body["cost"], body["list_price"]) == ("succeeded", "0.00", "0.04"), body
        second_body = (await comfy_setup.run("paint", text="a lake")).json()
        assert (second_body["cost"], second_body["list_price"]) == ("0.00", "0.00"), (
            "what it had kept costs nothing"
        )
        assert await app.balance() == ("5.00", "0.00")


# -- model servers -----------------------------------------------------------------------------------


async def test_own_model_server_is_free_and_paid_fallback_is_held(tmp_path: Path) -> None:
    async with model_server() as mine:
        more = {
            "upstreams": {
                "mine": {"kind": "openai", "base_url": mine.url, "local": True},
                "paid": {"kind": "openai", "base_url": mine.url, "api_key": "sk-acme"},
            },
            "aliases": {"both": ["mine/small", "paid/small"]},
            "prices": {"mine/small": PRICE, "paid/small": PRICE},
        }
        tables = {"gateway": {"retries": 0, **more}, **FREE}
        async with running_gateway(tmp_path, settings={"tables": tables}) as gateway:
            free = await gateway.chat(model="mine/small")
            assert free.status_code == 200, free.text
            assert free.headers["x-sixfold-cost"] == "0.00"
            assert float(free.headers["x-sixfold-list-price"]) > 0
            served_free = await gateway.chat(model="both")
            assert served_free.headers["x-sixfold-cost"] == "0.00"
            paid = await gateway.chat(model="paid/small")
            assert float(paid.headers["x-sixfold-cost"]) > 0
            assert "x-sixfold-list-price" not in paid.headers
            response = await gateway.app.client.post(
                "/v1/chat/completions",
                json={"model": "both", "messages": [{"role": "user", "content": "say 3 words"}]},
                headers=bearer(gateway.app.poor),
            )
            assert response.status_code == 402, "the fallback is paid, so its price is held first"


# -- the setting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"own_hardware": "yes"}, '[prices] own_hardware must be "list" or "free" (got \'yes\')'),
        ({"ra11": {"usd": "1"}}, "[prices] has an unknown row 'ra11'"),
        ({"ra1": "0.05"}, "[prices.ra1] must be a table"),
        ({"ra1": {"price": "1"}}, "[prices.ra1] has an unknown field 'price'"),
        ({"ra1": {"usd": "free"}}, "[prices.ra1] usd must be USD"),
        ({"ra1": {"usd": "-1"}}, "[prices.ra1] usd must be USD"),
        ({"photoreal": {"usd": {"8K": "1"}}}, "[prices.photoreal] usd has an unknown variant '8K'"),
    ],
)
def test_invalid_price_is_refused_with_row_and_field(table: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting) as excinfo:
        app_catalog.price_table(Settings(tables={"prices": table}))
    assert message in str(excinfo.value)


def test_a_variants_price_leaves_the_other_variants() -> None:
    rate = app_catalog.price_table(Settings(tables={"prices": {"photoreal": {"usd": {"4K": "1"}}}}))[
        "photoreal"
    ]
    assert (rate.variants["1K"], rate.variants["4K"]) == (70_000, 1_000_000)


def test_a_fee_per_request_is_refused_where_use_is_charged() -> None:
    settings = Settings(tables={"prices": {"stt": {"request_usd": "1"}}})
    with pytest.raises(InvalidSetting, match="request_usd must be 0"):
        app_catalog.catalog(settings, app_catalog.price_table(settings))


def test_environment_variable_overrides_the_file() -> None:
    settings = Settings(prices_own_hardware="list", tables=FREE)
    assert not app_catalog.price_table(settings).own_hardware_free


# -- the operator's own account ----------------------------------------------------------------------


async def test_operator_with_negative_balance_is_never_refused(either: Path) -> None:
    async with running_gateway(either, models=graph_models()) as gateway:
        app = gateway.app
        database = app.database
        key = (await database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key
        await database.write(accounts.credit("local@localhost", -1_000_000))
        response = await app.client.post("/api/ra1", json={"api_key": key, **IMAGE_INPUTS})
        assert (response.status_code, response.json()["cost"]) == (200, "0.04")
        reply = await app.client.post(
            "/v1/chat/completions",
            json={"model": "acme/small", "messages": [{"role": "user", "content": "say 3 words"}]},
            headers=bearer(key),
        )
        assert reply.status_code == 200, reply.text
        assert (await ran_graph(app, key))["status"] == "succeeded"
        session = await app.client.post(
            "/api/containers/world-model/sessions", json={"input": {}}, headers=bearer(key)
        )
        assert session.status_code == 201, session.text
        posted, _ = await balance(app, "local@localhost")
        assert posted < -1_000_000
        assert await database.read(ledger_queries.verify()) == ()


async def test_operator_memory_has_no_plan_limit(tmp_path: Path) -> None:
    async with running_app(tmp_path, memory_plans="enforced") as app:
        key = (await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key
        for number in range(101):
            response = await app.client.put(f"/api/pages/n{number}", json={"body": "x"}, headers=bearer(key))
            assert response.status_code in {200, 201}, response.text


async def test_operator_page_shows_no_limits_on_own_hardware(app: AppFixture) -> None:
    await signed_in(app, app.operator)
    page = (await app.client.get("/account")).text
    assert "its requests are never refused for lack of credit" in page
    assert "<dt>Balance</dt>" not in page
    await signed_in(app)
    other = (await app.client.get("/account")).text
    assert "<dt>Balance</dt>" in other
    assert "never refused" not in other
