"""Spaces: imported from Gradio 4, 5 and 6, run as templates, rejected with one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.app import catalog as app_catalog
from sixfold.core import ids, money
from sixfold.core.accounts import keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.accounts.rights import Rights
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.sessions import repository as sessions
from sixfold.core.workflows.ports import ChildRequest
from sixfold.core.workflows.service import GraphService
from sixfold.errors import BadRequest, Forbidden
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.test_comfyui_clients import node
from tests.api.test_reversals import painting
from tests.fakes import fault_server
from tests.fakes.gradio import GradioServer, gradio
from tests.harness import image_files

IMPORT = "/api/containers/spaces/import"
RUN = "/api/containers/run"
VERSIONS = ("4", "5", "6")


@asynccontextmanager
async def app_with_space(
    folder: Path, version: str, **settings: Any
) -> AsyncIterator[tuple[AppFixture, GradioServer]]:
    async with gradio(version) as space, running_app(folder, space_endpoint=space.url, **settings) as app:
        yield app, space


async def post(app: AppFixture, path: str, body: Any) -> httpx.Response:
    return await app.client.post(path, json=body, headers=app.bearer)


async def test_space_receives_no_unpaid_results_of_a_graph(tmp_path: Path) -> None:
    """A space could return them to its owner, and let the graph fail, which is then free."""
    document = small_models()
    document["engines"]["graph"] = app_catalog.models_document()["engines"]["graph"]
    async with app_with_space(tmp_path, "5", models=document) as (app, _):
        operator = bearer((await app.database.write(keys.create(app.operator.id))).api_key)
        for headers in (app.bearer, operator):
            imported = {"space": "Acme/paint_Box", "hardware": "gpu-16gb-a"}
            response = await app.client.post(IMPORT, json=imported, headers=headers)
            assert response.status_code == 201, response.text
        fields = {"template": "template:acme-paint-box", "input": '{"prompt": "a fox"}'}
        empty = node("EmptyImage", width=8, height=8, batch_size=1, color=0)
        paid = painting("a fox")
        # An operator can use every model without paying.
        for origin, headers, status in (
            (paid, app.bearer, 400),
            (empty, app.bearer, 200),
            (paid, operator, 200),
        ):
            resized = node("ImageInvert", image=["1", 0])
            graph = {"1": origin, "2": resized, "3": node("SixfoldTemplate", **fields, image=["2", 0])}
            graph["4"] = node("SaveImage", images=["3", 0], filename_prefix="fox")
            body = {"prompt": graph, "client_id": "c", "prompt_id": ids.new("req")}
            answer = await app.client.post("/prompt", json=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert ("charged only if the graph succeeds" in answer.text) is (status == 400)


async def test_space_that_leaves_the_memory_is_still_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of other accounts can remove a model from memory while the price of a graph is computed."""
    document = small_models()
    document["engines"]["graph"] = app_catalog.models_document()["engines"]["graph"]
    async with app_with_space(tmp_path, "5", models=document) as (app, _):
        imported = {"space": "Acme/paint_Box", "hardware": "gpu-16gb-a"}
        assert (await post(app, IMPORT, imported)).status_code == 201
        fields = {"template": "template:acme-paint-box", "input": '{"prompt": "a fox"}'}
        graph = {"1": painting("a fox"), "2": node("SixfoldTemplate", **fields, image=["1", 0])}
        graph["3"] = node("SaveImage", images=["2", 0], filename_prefix="fox")
        workflows, custom_models = app.server.workflows, app.predictions.custom_models
        priced: list[str] = []

        def price_of(request: ChildRequest, account_id: str, *, charged: bool) -> PriceRow:
            price = GraphService.price_of(workflows, request, account_id, charged=charged)
            priced.append(request.model)
            return price

        monkeypatch.setattr(workflows, "price_of", price_of)

        def estimate() -> None:
            for _ in workflows._estimate_steps(workflows.check(graph), app.account.id):
                if "acme-paint-box" in priced:
                    custom_models._built.clear()

        with pytest.raises(BadRequest, match="charged only if the graph succeeds"):
            estimate()


@pytest.mark.parametrize("version", VERSIONS)
async def test_imported_space_is_a_template_with_typed_inputs(tmp_path: Path, version: str) -> None:
    async with app_with_space(tmp_path, version) as (app, _):
        response = await post(app, IMPORT, {"space": "Acme/paint_Box", "hardware": "gpu-16gb-a"})
        body = response.json()
        assert response.status_code == 201, body
        assert (body["name"], body["hardware"], body["priceHourText"]) == (
            "acme-paint-box",
            "gpu-16gb-a",
            "$0.30",
        )
        schema = body["schema"]
        assert (schema["runtime"], schema["apiName"], schema["spaceId"], schema["outputKind"]) == (
            "webui-runtime",
            "generate_image",
            "Acme/paint_Box",
            "image",
        )
        inputs = {each["name"]: each for each in schema["inputs"]}
        kinds = {name: (each["type"], each["required"]) for name, each in inputs.items()}
        assert kinds == {
            "prompt": ("string", True),
            "negative_prompt": ("string", False),
            "width": ("integer", False),
            "steps": ("integer", False),
            "style": ("string", False),
            "flip": ("boolean", False),
            "image": ("image", False),
        }
        assert (inputs["width"]["min"], inputs["width"]["max"], inputs["width"]["default"]) == (64, 256, 64)
        assert inputs["style"]["choices"] == ["plain", "bold"]
        response_body = (await app.client.get("/api/containers/templates", headers=app.bearer)).json()
        assert "acme-paint-box" in [each["name"] for each in response_body["templates"]]
        other_accounts = (await app.client.get("/api/containers/templates")).json()
        assert "acme-paint-box" not in [each["name"] for each in other_accounts["templates"]]


@pytest.mark.parametrize("version", VERSIONS)
async def test_space_receives_and_returns_files(tmp_path: Path, version: str) -> None:
    async with app_with_space(tmp_path, version) as (app, space):
        await post(app, IMPORT, {"space": f"https://example.com/spaces/acme/paint{version}"})
        sent = fault_server.image(32, 24)
        uri = image_files.data_uri(sent)
        inputs = {"prompt": "a fox", "width": 100, "image": uri, "style": "bold"}
        body = (await post(app, RUN, {"model": f"acme-paint{version}", "input": inputs})).json()
        assert body["status"] == "succeeded", body
        assert (body["output"]["width"], body["output"]["height"]) == (96, 64)
        assert body["output"]["content_type"] == "image/png"
        assert body["outputs"] == {"seed": 7}
        assert body["logs"].splitlines()[:2] == ["queue position 1 at the space", "painting"]
        assert 0 < float(body["cost"]) < 0.01
        (order,) = space.joined
        data = order["data"]
        assert data[:6] == ["a fox", "", 96, 4, "bold", False]
        assert data[6]["path"] == "/tmp/gradio/9876/input.png"
        assert data[7] is None
        assert [upload[:4] for upload in space.uploaded] == [sent[:4]]


@pytest.mark.parametrize("version", VERSIONS)
async def test_failure_of_a_space_fails_the_run_free_of_charge(tmp_path: Path, version: str) -> None:
    async with app_with_space(tmp_path, version) as (app, space):
        await post(app, IMPORT, {"space": "acme/paint"})
        body = (await post(app, RUN, {"model": "acme-paint", "input": {"prompt": "fail"}})).json()
        assert (body["status"], body["error"], body["cost"]) == (
            "failed",
            "The space failed: no paint",
            "0.00",
        )
        wrong = await post(app, RUN, {"model": "acme-paint", "input": {"style": "odd", "width": 9999}})
        assert [each["input"] for each in wrong.json()["errors"]] == ["prompt", "width", "style"]
        space.full = True
        body = (await post(app, RUN, {"model": "acme-paint", "input": {"prompt": "x"}})).json()
        assert "queue is full" in body["error"]
        assert await app.balance() == ("5.00", "0.00")


async def test_time_in_the_queue_of_a_space_is_not_charged(either: Path) -> None:
    held_seconds = 2
    async with app_with_space(either, "6") as (app, space):
        await post(app, IMPORT, {"space": "acme/paint", "hardware": "gpu-16gb-a"})
        space.queue = asyncio.Event()
        run = asyncio.create_task(
            post(app, RUN, {"model": "acme-paint", "input": {"prompt": "a fox"}, "wait": 60})
        )
        async with asyncio.timeout(60):
            await space.began.wait()
        asyncio.get_running_loop().call_later(held_seconds, space.queue.set)
        body = (await run).json()
        assert body["status"] == "succeeded"
        prediction = await app.predictions.get_any(body["id"])
        assert prediction.started_at is not None
        assert prediction.completed_at is not None
        total_us = prediction.completed_at - prediction.started_at
        assert body["metrics"]["predict_ms"] * 1000 <= total_us - held_seconds * 1_000_000
        cost = sessions.usage_micros(300_000, round(body["metrics"]["predict_ms"] * 1000))
        assert body["cost"] == money.format_usd(cost)
        assert await app.faults() == ()


async def test_a_canceled_run_leaves_the_queue_of_the_space(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "6") as (app, space):
        await post(app, IMPORT, {"space": "acme/paint"})
        space.hang = True
        queued = await post(app, RUN, {"model": "acme-paint", "input": {"prompt": "x"}, "wait": 0})
        async with asyncio.timeout(60):
            await space.began.wait()
            await app.client.delete(queued.json()["urls"]["get"], headers=app.bearer)
            await space.disconnect_event.wait()


async def test_hf_token_is_sent_to_the_configured_endpoint(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "5", hf_token="hf_secret") as (app, space):
        await post(app, IMPORT, {"space": "acme/paint"})
        assert space.tokens == {"Bearer hf_secret"}


async def test_hf_token_is_not_sent_to_a_host_that_a_customer_names(tmp_path: Path) -> None:
    async with gradio("5") as space:
        endpoint = f"http://{{owner}}:{urlsplit(space.url).port}"
        settings: dict[str, Any] = {"space_endpoint": endpoint, "hf_token": "hf_secret"}
        body = {"space": "127.0.0.1/paint", "run": "remote"}
        async with running_app(tmp_path / "public", **settings) as app:
            refused = await post(app, IMPORT, body)
            assert (refused.status_code, space.tokens) == (400, set())
        async with running_app(tmp_path / "local", fetch_allow="127.0.0.0/8", **settings) as app:
            assert (await post(app, IMPORT, body)).status_code == 201
            assert space.tokens == {""}
            headers = bearer(await app.operator_key())
            imported = await app.client.post(IMPORT, json=body, headers=headers)
            assert (imported.status_code, space.tokens) == (201, {"", "Bearer hf_secret"})


REFUSED = [
    ({}, 400, "space is required"),
    ({"space": "paint"}, 400, "space must be owner/name"),
    ({"space": "../paint"}, 400, "space must be owner/name"),
    ({"space": "acme/pa..int"}, 400, "space must be owner/name"),
    ({"space": 5}, 400, "space must be a string"),
    ({"space": "acme/paint", "run": "moon"}, 400, "run must be one of"),
    ({"space": "acme/paint", "hardware": "gpu-9"}, 400, "gpu-9"),
]


@pytest.mark.parametrize(("body", "status", "sentence"), REFUSED)
async def test_invalid_space_imports_are_rejected(
    tmp_path: Path, body: dict[str, Any], status: int, sentence: str
) -> None:
    async with running_app(tmp_path, space_endpoint="http://127.0.0.1:9") as app:
        response = await post(app, IMPORT, body)
        assert response.status_code == status
        assert sentence in response.json()["error"]


async def test_space_without_a_protocol_is_imported_by_its_version(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "5") as (app, space):
        del space.config["protocol"]
        assert (await post(app, IMPORT, {"space": "acme/paint"})).status_code == 201
        space.config["version"] = "3.50.2"
        assert (await post(app, IMPORT, {"space": "acme/paint"})).status_code == 400


async def test_unsupported_gradio_versions_are_rejected(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "4") as (app, space):
        space.config = {**space.config, "protocol": "ws", "version": "3.50.2"}
        response = await post(app, IMPORT, {"space": "acme/paint"})
        assert (response.status_code, response.json()["error"]) == (
            400,
            "The space runs Gradio 3.50.2; only versions 4, 5 and 6 can be imported",
        )
        space.config = {"title": "no application"}
        response = await post(app, IMPORT, {"space": "acme/paint"})
        assert response.status_code == 400
    async with running_app(tmp_path / "more", space_endpoint="http://127.0.0.1:9") as app:
        response = await post(app, IMPORT, {"space": "acme/paint"})
        assert response.status_code == 502
        assert "could not be reached" in response.json()["error"]
        assert (await app.client.post(IMPORT, json={"space": "acme/paint"})).status_code == 401


async def test_name_that_makes_an_invalid_port_is_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path, space_endpoint="http://127.0.0.1:{name}") as app:
        for name in ("paint", "99999"):
            response = await post(app, IMPORT, {"space": f"acme/{name}"})
            assert (response.status_code, response.json()["error"]) == (
                400,
                f"SIXFOLD_SPACE_ENDPOINT has no valid port for space acme/{name}: it must be from 1 to 65535",
            )


async def test_hosts_named_by_the_hub_are_subject_to_fetch_rules(tmp_path: Path) -> None:
    hosts = {"near": "https://127.0.0.1:1", "plain": "http://example.com"}

    async def about(_request: Request) -> Response:
        return JSONResponse({"private": False})

    async def host(request: Request) -> Response:
        return JSONResponse({"host": hosts[request.path_params["name"]]})

    routes = [Route("/api/spaces/acme/{name}", about), Route("/api/spaces/acme/{name}/host", host)]
    async with (
        fault_server.serve(routes) as port,
        running_app(tmp_path, hub_url=f"http://127.0.0.1:{port}") as app,
    ):
        near = await post(app, IMPORT, {"space": "acme/near"})
        assert (near.status_code, near.json()["code"]) == (400, "fetch_refused")
        plain = await post(app, IMPORT, {"space": "acme/plain"})
        assert plain.status_code == 502
        unknown = await post(app, IMPORT, {"space": "nobody/paint"})
        assert (unknown.status_code, unknown.json()["error"]) == (
            400,
            "Space nobody/paint was not found on the Hub, or is private",
        )


MINE: dict[str, Any] = {
    "title": "Mine",
    "description": "My own pictures",
    "output_kind": "image",
    "price": "custom",
    "engines": ["scene-painter"],
    "inputs": {"prompt": {"type": "string", "required": True}},
}


async def test_import_replaces_only_models_visible_to_its_key(tmp_path: Path) -> None:
    async with app_with_space(tmp_path, "5") as (app, _):
        for _ in range(2):
            assert (await post(app, IMPORT, {"space": "acme/paint-box"})).status_code == 201
        narrow = bearer(await app.limited_key(KeyLimits(), Rights.RUN))
        # Both names become acme-paint-box.
        for space in ("acme/paint-box", "acme-paint/box"):
            response = await app.client.post(IMPORT, json={"space": space}, headers=narrow)
            assert response.status_code == 403
            assert "requires the right account.read" in response.json()["error"]
        assert (await app.client.post(IMPORT, json={"space": "acme/new"}, headers=narrow)).status_code == 201
        document = {"models": {"acme-box": MINE}}
        await app.predictions.custom_models.put(app.account.id, "model", "acme-box", document)
        assert (await post(app, IMPORT, {"space": "acme/box"})).status_code == 409


async def test_training_replaces_only_models_trained_by_its_key(app: AppFixture) -> None:
    narrow, other = [
        await app.database.read(keys.authenticate(await app.limited_key(KeyLimits(), Rights.RUN)))
        for _ in range(2)
    ]
    run = PredictionRequest(narrow, "ra1", {"prompt": "x"}, "media", "req_training")
    trained = await app.predictions.submit(run)
    document = {"training": trained.id, "models": {"custom:mine": MINE}}
    await app.predictions.custom_models.put(app.account.id, "custom", "custom:mine", document)
    admit = app.predictions.admit["training"]
    for principal, name in ((narrow, "mine"), (other, "new"), (app.account.owner, "mine")):
        await admit(principal, {"name": name})
    with pytest.raises(Forbidden, match=r"account\.read"):
        await admit(other, {"name": "mine"})
