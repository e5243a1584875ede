"""Charges of graphs whose requests depend on the run: held at the maximum, charged as measured."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import keys
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.test_comfyui_clients import PAINT, node
from tests.fakes import fault_server
from tests.harness import image_files
from tests.harness.charge_recomputation import micros, recomputed

SPACES = "/api/graph/spaces"
MANY = {"width": 32, "height": 16, "batch_size": 3, "color": 4096}


@pytest.fixture
async def dot_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with dot engines and real graphs."""
    document = small_models()
    graph = app_catalog.models_document()["engines"]["graph"]
    catalog_document = {**document, "engines": {**document["engines"], "graph": graph}}
    async with running_app(tmp_path, catalog_document) as app:
        yield app


def late_text_graph(text: str) -> dict[str, Any]:
    """Return nodes of which the last outputs a text that is unknown before the run."""
    return {
        "1": node("PrimitiveString", value=text),
        "2": node("SixfoldSaveText", text=["1", 0], filename_prefix="said"),
    }


def template_graph(model: str, **fields: Any) -> dict[str, Any]:
    """Return a graph that runs a template with inputs known during the run only."""
    linked = node("SixfoldTemplate", template=f"template:{model}", input=["2", 0])
    return {**late_text_graph(json.dumps(fields)), "3": linked}


async def estimate_of(app: AppFixture, graph: Any) -> Any:
    response = await app.client.post("/api/graph/validate", json={"workflow": graph}, headers=app.bearer)
    return response.json()


async def run_and_hold(app: AppFixture, graph: Any, headers: Any = None) -> Any:
    """Run a graph as an own space; return the run and the amount held for it."""
    body, headers = {"workflow": graph, "name": "one"}, headers or app.bearer
    response = await app.client.post(SPACES, json=body, headers=headers)
    assert response.status_code == 201, response.text
    space = f"{SPACES}/{response.json()['slug']}/run"
    document = (await app.client.post(space, json={}, headers=headers)).json()
    assert "id" in document, document
    parent = await app.predictions.get_any(document["id"])
    return {**document, "held": parent.price}


@pytest.mark.parametrize(
    ("model", "inputs", "most", "cost"),
    [
        ("video-text", {"prompt": "a lake", "duration": 2}, "0.96", "0.096"),
        ("video-text", {"prompt": "a lake", "duration": 20}, "0.96", "0.96"),
        ("video-c", {"prompt": "a lake"}, "1.44", "0.36"),
        ("anime", {"prompt": "a lake", "num_images": 3}, "0.056", "0.021"),
        ("photoreal", {"prompt": "a lake", "resolution": "4K"}, "0.15", "0.15"),
        ("photoreal", {"prompt": "a lake"}, "0.15", "0.07"),
        ("ra1", {"prompt": "a lake"}, "0.04", "0.04"),
    ],
)
async def test_inputs_known_only_at_run_time_are_held_at_maximum(
    dot_app: AppFixture, model: str, inputs: dict[str, Any], most: str, cost: str
) -> None:
    graph = template_graph(model, **inputs)
    response = await estimate_of(dot_app, graph)
    assert (response["valid"], response["estimate"]["price_usd"]) == (True, most)
    prediction = await run_and_hold(dot_app, graph)
    assert (prediction["status"], prediction["cost"]) == ("succeeded", cost)
    charge = prediction["receipt"][-1]["charge"]
    assert (recomputed(charge), charge["lines"][0]["unit"]) == (micros(cost), model)
    assert prediction["held"] == round(float(most) * 1_000_000)
    assert await dot_app.balance() == (f"{5 - float(cost):.3f}".removesuffix("0"), "0.00")
    assert await dot_app.faults() == ()


async def test_size_count_and_seed_inputs_may_come_from_the_run(dot_app: AppFixture) -> None:
    sizes = {"1": node("LoadImage", image="example.png"), "2": node("GetImageSize", image=["1", 0])}
    painted = node(
        "SixfoldTextToImage", prompt="a lake", steps=["2", 2], seed=["2", 0], width=["2", 0], height=["2", 1]
    )
    styled = node("SixfoldEdgeStyle", image=["3", 0], prompt="ink", strength=0.5, steps=3, seed=["2", 2])
    graph = {
        **sizes,
        "3": painted,
        "4": styled,
        "5": node("SaveImage", images=["4", 0], filename_prefix="ink"),
    }
    assert (await estimate_of(dot_app, graph))["estimate"]["price_usd"] == "0.08"
    prediction = await run_and_hold(dot_app, graph)
    assert (prediction["status"], prediction["cost"]) == ("succeeded", "0.08"), prediction["error"]


async def test_list_of_unknown_length_is_held_at_maximum_length(dot_app: AppFixture) -> None:
    graph = {
        "1": node("EmptyImage", **MANY),
        "2": node("RebatchImages", images=["1", 0], batch_size=1),
        "3": node("SixfoldEdgeStyle", image=["2", 0], prompt="ink", strength=0.5, steps=3, seed=1),
        "4": node("SaveImage", images=["3", 0], filename_prefix="ink"),
    }
    [row] = (await estimate_of(dot_app, graph))["estimate"]["orders"]
    assert row == {
        "node_id": "3",
        "node_ids": ["3"],
        "model": "graph-restyle",
        "count": 64,
        "price_usd": "2.56",
    }
    prediction = await run_and_hold(dot_app, graph)
    assert (prediction["status"], prediction["cost"], len(prediction["output"])) == ("succeeded", "0.12", 3)


async def test_latents_in_a_list_are_charged_as_images(dot_app: AppFixture) -> None:
    graph = {
        **PAINT,
        "5": node("EmptyLatentImage", width=96, height=64, batch_size=2),
        "r": node("RebatchLatents", latents=["3", 0], batch_size=1),
        "8": node("VAEDecode", samples=["r", 0], vae=["4", 2]),
    }
    assert (await estimate_of(dot_app, graph))["estimate"]["price_usd"] == "0.08"
    prediction = await run_and_hold(dot_app, graph)
    assert (prediction["status"], prediction["cost"], len(prediction["output"])) == (
        "succeeded",
        "0.08",
        2,
    ), prediction["error"]


async def test_child_predictions_never_exceed_the_hold(dot_app: AppFixture) -> None:
    """The run sets a switch to the more expensive branch, which costs more than was held."""
    graph = {
        **late_text_graph("yes"),
        "s": node("StringContains", string=["2", 0], substring="no", case_sensitive=True),
        "5": node("EmptyLatentImage", width=96, height=64, batch_size=1),
        "6b": node("EmptyLatentImage", width=96, height=64, batch_size=5),
        "4": PAINT["4"],
        "6": PAINT["6"],
        "7": PAINT["7"],
        "3": node("KSampler", **{**PAINT["3"]["inputs"], "latent_image": ["w", 0]}),
        "w": node("ComfySwitchNode", switch=["s", 0], on_false=["6b", 0], on_true=["5", 0]),
        "8": PAINT["8"],
        "9": PAINT["9"],
    }
    assert (await estimate_of(dot_app, graph))["estimate"]["price_usd"] == "0.04"
    prediction = await run_and_hold(dot_app, graph)
    assert (prediction["status"], prediction["cost"]) == ("failed", "0.00")
    assert (
        prediction["error"] == "VAEDecode (node 8): it would cost more than the 0.04 USD held for this graph"
    )
    assert await dot_app.balance() == ("5.00", "0.00")
    assert await dot_app.faults() == ()


async def test_model_of_a_node_must_be_known_before_the_run(dot_app: AppFixture) -> None:
    graph = {**late_text_graph("template:ra1"), "3": node("SixfoldTemplate", template=["2", 0], input="{}")}
    response = await estimate_of(dot_app, graph)
    sentence = "SixfoldTemplate (node 3): The model must be known before the run: it cannot be the output of"
    sentence += " another node."
    assert response["estimate"]["unavailable"] == sentence
    refused_response = await dot_app.client.post("/prompt", json={"prompt": graph}, headers=dot_app.bearer)
    assert (refused_response.status_code, refused_response.json()["error"]["message"]) == (400, sentence)
    broken = {"3": node("SixfoldTemplate", template="template:ra1", input="{")}
    refused_response = await dot_app.client.post("/prompt", json={"prompt": broken}, headers=dot_app.bearer)
    assert (refused_response.status_code, "valid JSON" in refused_response.text) == (400, True)


async def test_a_graph_that_runs_a_graph_is_refused(dot_app: AppFixture) -> None:
    graph = {"1": node("SixfoldTemplate", template="template:space:round", input="{}")}
    body = {"workflow": graph, "name": "round"}
    assert (await dot_app.client.post(SPACES, json=body, headers=dot_app.bearer)).status_code == 201
    response = await dot_app.client.post(f"{SPACES}/round/run", json={}, headers=dot_app.bearer)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request"), response.text


async def test_estimate_groups_nodes_with_equal_predictions(dot_app: AppFixture) -> None:
    graph = {
        f"{at}": node("SixfoldTextToImage", prompt="x", steps=1, seed=at, width=64, height=64)
        for at in range(64)
    }
    graph |= {f"s{at}": node("PreviewImage", images=[f"{at}", 0]) for at in range(64)}
    response = (await estimate_of(dot_app, graph))["estimate"]
    [row] = response["orders"]
    assert (row["node_id"], row["count"], len(row["node_ids"])) == ("0", 64, 64)
    assert row["price_usd"] == response["price_usd"] == "2.56"


async def test_type_and_range_errors_are_reported_together(dot_app: AppFixture) -> None:
    inputs = {"prompt": "x", "width": "wide", "steps": 0, "cfg": 1000, "seed": 1.5, "height": 64}
    space = f"{SPACES}/stylized-text-to-image/run"
    response = await dot_app.client.post(space, json={"input": inputs}, headers=dot_app.bearer)
    named = [each["input"] for each in response.json()["errors"]]
    assert (response.status_code, sorted(named)) == (400, ["cfg", "seed", "steps", "width"])
    body = {"service": "space:stylized-text-to-image", "steps": 0, "cfg": "much"}
    response = await dot_app.client.post("/api/service", json=body, headers=dot_app.bearer)
    assert {each["input"] for each in response.json()["errors"]} == {"prompt", "cfg", "steps"}


async def test_url_with_results_of_other_nodes_is_not_fetched(either: Path) -> None:
    """Its server would receive the results, also if the graph then fails and is free."""
    document, fetched = small_models(), list[str]()
    document["engines"]["graph"] = app_catalog.models_document()["engines"]["graph"]

    async def picture(request: Request) -> Response:
        fetched.append(request.url.query)
        return Response(image_files.encode(Image.new("RGB", (8, 8))), media_type="image/png")

    async with (
        fault_server.serve([Route("/a.png", picture)]) as port,
        running_app(either, document, fetch_allow="127.0.0.0/8") as app,
    ):
        url = f"http://127.0.0.1:{port}/a.png"
        whole = json.dumps({"image": f"{url}?known"})
        joined = node("StringConcatenate", string_a=f'{{"image": "{url}?', string_b='secret"}', delimiter="")
        # Some programs escape characters of URLs in JSON.
        escaped = f'{{"image": "{url}?known"}}'.replace("/", "\\/").replace("?", "\\u003f")
        for text, status in ((whole, "succeeded"), (escaped, "succeeded"), (["1", 0], "failed")):
            template = node("SixfoldTemplate", template="template:upscaler", input=text)
            saved = node("SaveImage", images=["2", 0], filename_prefix="big")
            run = await run_and_hold(app, {"1": joined, "2": template, "3": saved})
            assert (run["status"], {*fetched}) == (status, {"known"}), run["error"]
            assert ("use a URL that is in the graph" in (run["error"] or "")) is (status == "failed")
        # An operator can use every model without paying.
        operator = bearer((await app.database.write(keys.create(app.operator.id))).api_key)
        template = node("SixfoldTemplate", template="template:upscaler", input=["1", 0])
        run = await run_and_hold(app, {"1": joined, "2": template, "3": saved}, operator)
        assert (run["status"], {*fetched}) == ("succeeded", {"known", "secret"}), run["error"]
        assert await app.faults() == ()


async def test_input_that_a_part_of_a_run_cannot_use_is_invalid(tmp_path: Path) -> None:
    body = {"service": "space:voice-clone-tts", "speech": ". . ."}
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        response = await app.client.post("/api/service", json=body, headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
        assert "letters or digits" in response.json()["errors"][0]["message"]
        assert await app.balance() == ("5.00", "0.00")
