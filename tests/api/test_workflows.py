"""Workflow spaces: the catalog, runs with named inputs, imports and charges."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import asgi, bootstrap
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import keys, rights
from sixfold.core.predictions.events import NodeStateChanged
from tests.api.app_fixture import AppFixture, bearer, client, running_app
from tests.harness import image_files

SPACES = "/api/graph/spaces"
COUNTS = {
    "api-contract": 2,
    "speech-to-text": 5,
    "voice-clone-tts": 3,
    "photoreal-text-to-image": 7,
    "stylized-text-to-image": 7,
    "lora-text-to-image": 8,
    "turbo-text-to-image": 2,
    "text-to-video": 11,
    "image-to-video": 12,
    "photoreal-img2img": 8,
    "image-upscale": 4,
    "edge-style-transfer": 11,
    "video-to-video": 18,
    "sound-effects": 2,
    "edge-style-node": 3,
    "line-control": 3,
    "text-to-3d": 1,
    "image-to-3d": 2,
}
FIELDS = {
    *("slug", "name", "description", "kind", "minVramGb", "nodeCount", "apiInputs", "customNodes", "models"),
    *("downloadPath", "labs", "tutorials", "openSource", "source", "verification", "workflow"),
}


@pytest.fixture
async def flows(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path, app_catalog.models_document()) as result:
        yield result


async def run(app: AppFixture, slug: str, key: str = "", **inputs: Any) -> Any:
    headers = bearer(key or app.key)
    return await app.client.post(f"{SPACES}/{slug}/run", json={"input": inputs}, headers=headers)


def png(size: tuple[int, int] = (96, 64)) -> bytes:
    return image_files.encode(Image.linear_gradient("L").resize(size).convert("RGB"))


async def fetch_image(app: AppFixture, run: Any) -> Image.Image:
    assert run["status"] == "succeeded", run["error"]
    response = await app.client.get(run["output"]["url"])
    return Image.open(io.BytesIO(response.content))


async def test_every_workflow_has_its_fields_and_nodes(flows: AppFixture) -> None:
    body = (await flows.client.get(SPACES)).json()
    assert body["success"] is True
    assert {each["slug"]: each["nodeCount"] for each in body["spaces"]} == COUNTS
    assert [each["slug"] for each in body["spaces"]] == list(COUNTS)
    for each in body["spaces"]:
        assert set(each) == FIELDS
        assert len(each["workflow"]) == each["nodeCount"]
        response = await flows.client.get(each["downloadPath"])
        assert json.loads(response.content) == each["workflow"]
        assert response.content == (await flows.client.get(each["downloadPath"])).content
        assert set(each["verification"]) == {"status", "checkedAt", "runtime", "evidence"}
        assert each["verification"]["status"] == "api-validated"
        for inputs in each["apiInputs"] or ():
            assert inputs["field"] in each["workflow"][inputs["nodeId"]]["inputs"]
    space = (await flows.client.get(f"{SPACES}/api-contract")).json()
    expected = {"name": "text", "type": "string", "nodeId": "1", "field": "value", "required": True}
    assert expected.items() <= space["apiInputs"][0].items()
    drawn = await flows.client.get(f"{SPACES}/video-to-video/graph.svg")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert drawn.text.count("data-node=") == 18
    missing = await flows.client.get(f"{SPACES}/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_run_is_a_prediction_charged_by_its_nodes(flows: AppFixture) -> None:
    body = (await run(flows, "api-contract", text="hello")).json()
    assert (body["status"], body["output"], body["cost"]) == ("succeeded", "hello", "0.00")
    body = (await run(flows, "turbo-text-to-image", prompt="a red boat", width=128, height=128)).json()
    assert (await fetch_image(flows, body)).size == (128, 128)
    assert (body["cost"], body["credits_charged"], body["quality"]) == ("0.04", 4, "preview")
    assert await flows.balance() == ("4.96", "0.00")
    second_body = (await run(flows, "turbo-text-to-image", prompt="a red boat", width=128, height=128)).json()
    assert (second_body["status"], second_body["cost"]) == ("succeeded", "0.00")
    assert second_body["quality"] == "preview"
    assert (await fetch_image(flows, second_body)).tobytes() == (await fetch_image(flows, body)).tobytes()
    assert await flows.faults() == ()


async def test_inputs_reach_their_nodes_and_invalid_ones_are_named(flows: AppFixture) -> None:
    inputs = {"prompt": "a fox", "steps": 3, "width": 128, "height": 64, "cfg": 4.5, "seed": 9}
    body = (await run(flows, "stylized-text-to-image", **inputs)).json()
    assert (await fetch_image(flows, body)).size == (128, 64)
    page = await flows.client.get("/api/containers/predictions?model=graph-image", headers=flows.bearer)
    [child] = page.json()["predictions"]
    assert child["parent_id"] == body["id"]
    request = {name: child["input"][name] for name in ("prompt", "steps", "guidance", "seed")}
    assert request == {"prompt": "a fox", "steps": 3, "guidance": 4.5, "seed": 9}
    response = await run(flows, "stylized-text-to-image", width=128)
    assert [each["input"] for each in response.json()["errors"]] == ["prompt"]
    response = await run(flows, "stylized-text-to-image", prompt="x", width=17_000, steps=0)
    assert {each["input"] for each in response.json()["errors"]} == {"width", "steps"}
    assert response.status_code == 400
    keyless = await flows.client.post(f"{SPACES}/api-contract/run", json={"input": {"text": "x"}})
    assert (keyless.status_code, keyless.json()["code"]) == (401, "invalid_api_key")
    poor = await run(flows, "turbo-text-to-image", flows.poor, prompt="a boat")
    assert (poor.status_code, poor.json()["code"]) == (402, "insufficient_credits")


@pytest.mark.parametrize("image", ["gone.png", "/media/gone.png", "blob_gone", "data:image/png;base64,AAAA"])
async def test_an_invalid_file_is_reported_once_by_its_input(flows: AppFixture, image: str) -> None:
    body = {"input": {"image": image, "prompt": "winter"}}
    response = await flows.client.post(f"{SPACES}/photoreal-img2img/run", json=body, headers=flows.bearer)
    assert response.status_code == 400
    [problem] = response.json()["errors"]
    assert problem["input"] == "image"
    assert problem["message"].startswith("image: ")
    assert problem["message"].count("image:") - image.count("image:") == 1


async def test_file_inputs_are_urls_upload_ids_or_names(flows: AppFixture) -> None:
    inputs = {"prompt": "in winter", "denoise": 0.4}
    uploaded = await flows.client.post(
        "/api/uploads", content=png(), headers={**flows.bearer, "Content-Type": "image/png"}
    )
    named = await flows.client.post(
        "/upload/image", files={"image": ("mine.png", png((64, 96)), "image/png")}, headers=flows.bearer
    )
    assert named.json() == {"name": "mine.png", "subfolder": "", "type": "input"}
    sizes = []
    for image in (uploaded.json()["url"], uploaded.json()["id"], "mine.png", "input/mine.png"):
        body = (await run(flows, "photoreal-img2img", image=image, **inputs)).json()
        sizes.append((await fetch_image(flows, body)).size)
    assert sizes == [(96, 64), (96, 64), (64, 96), (64, 96)]
    body = (await run(flows, "line-control", image="mine.png", prompt="an engraving")).json()
    assert (await fetch_image(flows, body)).size == (64, 96)
    missing = await run(flows, "photoreal-img2img", image="nowhere.png", prompt="x")
    assert (missing.status_code, missing.json()["errors"][0]["input"]) == (400, "image")
    foreign = await run(flows, "photoreal-img2img", flows.other, image="mine.png", prompt="x")
    assert foreign.status_code == 400


async def test_workflow_without_an_engine_responds_503_and_is_free(flows: AppFixture) -> None:
    response = await run(flows, "voice-clone-tts", speech="Hello.", sample_text="My voice.")
    assert (response.status_code, response.json()["code"]) == (503, "engine_unavailable")
    assert "pip install chatterbox-tts" in response.json()["error"]
    spoken = (await run(flows, "voice-clone-tts", speech="Hello.")).json()
    assert spoken["output"]["content_type"] == "audio/mpeg"
    assert (await run(flows, "sound-effects", prompt="rain", model="no-such-model")).status_code == 503
    assert "`sixfold model add FILE.py`" in (await run(flows, "sound-effects", prompt="a cat")).text


async def test_failed_child_fails_the_run_for_free(tmp_path: Path) -> None:
    points = {"failpoints": "engine.run.graph-image=fail"}
    async with running_app(tmp_path, app_catalog.models_document(), **points) as app:
        body = (await run(app, "turbo-text-to-image", prompt="a boat", width=64, height=64)).json()
        assert (body["status"], body["cost"]) == ("failed", "0.00")
        assert "SixfoldTextToImage (node 1)" in body["error"]
        assert await app.balance() == ("5.00", "0.00")
        assert await app.faults() == ()


async def test_canceled_graph_is_free_with_all_its_children(tmp_path: Path) -> None:
    async with running_app(
        tmp_path, app_catalog.models_document(), failpoints="engine.run.upscaler=hang"
    ) as app:
        pipeline = app.predictions
        body = {"workflow": FIVE, "name": "five"}
        assert (await app.client.post(SPACES, json=body, headers=app.bearer)).status_code == 201
        answer = await app.client.post(f"{SPACES}/five/run", json={"wait": 0}, headers=app.bearer)
        parent = await pipeline.get_any(answer.json()["id"])
        async for event in pipeline.events(parent):
            if isinstance(event, NodeStateChanged) and (event.node, event.state) == ("5", "started"):
                break
        await app.client.post(answer.json()["urls"]["cancel"], headers=app.bearer)
        response = await pipeline.wait(parent, 60)
        assert (str(response.state), response.cost) == ("canceled", 0)
        page = await app.client.get("/api/containers/predictions?limit=50", headers=app.bearer)
        for child in page.json()["predictions"]:
            last = await pipeline.wait(await pipeline.get_any(child["id"]), 60)
            assert (last.is_terminal, last.cost) == (True, 0)
        assert await app.balance() == ("5.00", "0.00")
        assert await app.faults() == ()


async def test_uploaded_output_image_becomes_a_workflow(flows: AppFixture) -> None:
    body = (await run(flows, "turbo-text-to-image", prompt="a tower", width=64, height=64)).json()
    result = (await flows.client.get(body["output"]["url"])).content
    response = await flows.client.post(
        SPACES, files={"file": ("My tower.png", result, "image/png")}, headers=flows.bearer
    )
    space = response.json()
    assert (response.status_code, space["slug"], space["nodeCount"]) == (201, "my-tower", 2)
    assert space["verification"]["status"] == "unverified"
    defaults = {each["name"]: each["default"] for each in space["apiInputs"]}
    assert (defaults["prompt"], defaults["width"]) == ("a tower", 64)
    second_body = (await run(flows, "my-tower", prompt="a tower", width=128)).json()
    assert (await fetch_image(flows, second_body)).size == (128, 64)
    own = f"{SPACES}/my-tower"
    assert (await flows.client.get(f"{own}/download", headers=flows.bearer)).content == result
    spaces = (await flows.client.get(SPACES, headers=flows.bearer)).json()["spaces"]
    assert [each["slug"] for each in spaces][-1] == "my-tower"
    assert (await flows.client.get(own, headers=bearer(flows.other))).status_code == 404
    assert (await flows.client.get(own)).status_code == 404
    assert (await flows.client.delete(own, headers=flows.bearer)).status_code == 204
    assert (await flows.client.get(own, headers=flows.bearer)).status_code == 404


async def test_derived_image_states_that_it_omits_the_workflow(flows: AppFixture) -> None:
    source = (
        await flows.client.post(
            "/api/uploads", files={"file": ("a.png", png(), "image/png")}, headers=flows.bearer
        )
    ).json()["url"]
    body = (await run(flows, "image-upscale", image=source)).json()
    result = (await flows.client.get(body["output"]["url"])).content
    await flows.client.post(SPACES, files={"file": ("larger.png", result, "image/png")}, headers=flows.bearer)
    refused_response = await run(flows, "larger")
    assert refused_response.status_code == 400
    assert "this workflow does not contain its image" in refused_response.text
    second_body = (await run(flows, "larger", image=source)).json()
    assert (await fetch_image(flows, second_body)).size == (384, 256)


async def test_workflow_is_accepted_as_json_or_raw_and_validated(flows: AppFixture) -> None:
    graph = (await flows.client.get(f"{SPACES}/api-contract/download")).content
    raw = await flows.client.post(f"{SPACES}?name=echo", content=graph, headers=flows.bearer)
    assert (raw.status_code, raw.json()["slug"]) == (201, "echo")
    body = {"workflow": json.loads(graph), "name": "Echo"}
    twice = await flows.client.post(SPACES, json=body, headers=flows.bearer)
    assert twice.json()["slug"] == "echo-2"
    for content in (b"{}", b"[1]", b"nothing", png()):
        response = await flows.client.post(SPACES, content=content, headers=flows.bearer)
        assert (response.status_code, response.json()["code"]) == (400, "not_a_workflow")
        assert "Raised" not in response.text
    unknown = {"9": {"class_type": "MadeUpNode", "inputs": {}}, **json.loads(graph)}
    space = (await flows.client.post(SPACES, json={"workflow": unknown}, headers=flows.bearer)).json()
    assert space["verification"]["status"] == "unverified"


async def test_slugs_and_input_names_have_no_accents(flows: AppFixture) -> None:
    graph = (await flows.client.get(f"{SPACES}/api-contract/download")).json()
    graph["1"]["_meta"]["title"] = "Grüße, 東京"
    body = {"workflow": graph, "name": "Café Müller"}
    space = (await flows.client.post(SPACES, json=body, headers=flows.bearer)).json()
    assert (space["slug"], space["apiInputs"][0]["name"]) == ("cafe-muller", "grusse")
    response = await flows.client.post(SPACES, json=body | {"name": 5}, headers=flows.bearer)
    assert (response.status_code, response.json()["error"]) == (400, "name must be a string")


async def test_validation_reports_every_error_at_once(flows: AppFixture) -> None:
    graph = (await flows.client.get(f"{SPACES}/stylized-text-to-image/download")).json()
    check = "/api/graph/validate"
    good = (await flows.client.post(check, json={"workflow": graph}, headers=flows.bearer)).json()
    assert (good["valid"], good["errors"], good["missing_classes"]) == (True, [], [])
    assert (good["estimate"]["price_usd"], good["estimate"]["vram_gb"]) == ("0.04", 12.0)
    assert good["missing_models"][0]["file"] == "animagine-xl-4.0.safetensors"
    graph["5"]["inputs"] |= {"steps": 0, "sampler_name": "eulr"}
    del graph["6"]["inputs"]["vae"]
    bad = (await flows.client.post(check, json={"workflow": graph}, headers=flows.bearer)).json()
    assert {each["type"] for each in bad["errors"]} == {
        "value_smaller_than_min",
        "value_not_in_list",
        "required_input_missing",
    }
    graph["6"]["class_type"] = "VAEDecoder"
    bad = (await flows.client.post(check, json={"workflow": graph}, headers=flows.bearer)).json()
    assert (bad["valid"], bad["missing_classes"]) == (False, ["VAEDecoder"])


async def test_validation_reports_nodes_without_a_class(flows: AppFixture) -> None:
    check = "/api/graph/validate"
    graph = (await flows.client.get(f"{SPACES}/stylized-text-to-image/download")).json()
    del graph["6"]["class_type"]
    graph["5"]["inputs"]["steps"], graph["99"] = 0, "no node"
    bad = (await flows.client.post(check, json={"workflow": graph}, headers=flows.bearer)).json()
    assert (bad["valid"], bad["missing_classes"], bad["estimate"]) == (False, [], None)
    first, second = bad["errors"]
    assert first["extra_info"]["missing"] == [{"class_type": "", "node_ids": ["6", "99"], "nearest": ""}]
    assert (second["node_id"], second["type"]) == ("5", "value_smaller_than_min")
    for workflow, status in (({}, 200), ({"1": {}}, 200), ([], 400), ("x", 400), (None, 400)):
        response = await flows.client.post(check, json={"workflow": workflow}, headers=flows.bearer)
        assert response.status_code == status
        assert response.json()["errors"]
    prompt = await flows.client.post("/prompt", json={"prompt": graph}, headers=flows.bearer)
    assert (prompt.json()["error"]["type"], prompt.json()["node_errors"]) == ("invalid_prompt", {})


async def test_two_graphs_are_compared(flows: AppFixture) -> None:
    a = (await flows.client.get(f"{SPACES}/stylized-text-to-image/download")).json()
    b = json.loads(json.dumps(a))
    b["5"]["inputs"]["steps"] = 30
    body = (await flows.client.post("/api/graph/diff", json={"a": a, "b": b}, headers=flows.bearer)).json()
    assert [(each["input"], each["from"], each["to"]) for each in body["changed"]] == [("steps", 24, 30)]


async def test_service_api_runs_workflows(flows: AppFixture) -> None:
    services = (await flows.client.get("/api/services")).json()["services"]
    assert {f"space:{slug}" for slug in COUNTS} <= {each["service"] for each in services}
    body = {"service": "space:turbo-text-to-image", "prompt": "a boat", "width": 64, "height": 64}
    document = (await flows.client.post("/api/service", json=body, headers=flows.bearer)).json()
    assert (document["status"], document["cost"]) == ("succeeded", "0.04")


async def test_event_stream_reports_each_node(flows: AppFixture) -> None:
    async def steps() -> list[tuple[str, str]]:
        body = (await run(flows, "stylized-text-to-image", prompt="a hut", width=64, height=64)).json()
        assert body["status"] == "succeeded", body["error"]
        text = (await flows.client.get(body["urls"]["events"], headers=flows.bearer)).text
        frames = [
            dict(line.split(": ", 1) for line in frame.splitlines()) for frame in text.split("\n\n") if frame
        ]
        nodes = [json.loads(frame["data"]) for frame in frames if frame["event"] == "node"]
        fields, finished = {"node", "class_type", "state", "progress"}, {"seconds", "parts"}
        for each in nodes:
            assert set(each) == fields | (finished if each["state"] == "finished" else set())
            assert len(each.get("parts", ())) == (each["node"] == "6" and each["state"] == "finished")
        assert {each["progress"] for each in nodes if each["state"] in ("finished", "cached")} == {1.0}
        return [(each["node"], each["state"]) for each in nodes]

    first = await steps()
    graph = (await flows.client.get(f"{SPACES}/stylized-text-to-image/download")).json()
    for node_id in graph:
        states = [state for node, state in first if node == node_id and state != "progress"]
        assert states == ["started", "finished"]
    assert {state for _, state in await steps()} == {"cached"}


async def test_graph_has_its_own_time_limit(tmp_path: Path) -> None:
    points = {"failpoints": "engine.run.graph-image=hang", "graph_limit_seconds": 0.5}
    async with running_app(tmp_path, app_catalog.models_document(), **points) as app:
        body = (await run(app, "turbo-text-to-image", prompt="a boat", width=64, height=64)).json()
        assert (body["status"], body["cost"]) == ("failed", "0.00")
        assert "longer than 0.5 seconds" in body["error"]
        page = await app.client.get("/api/containers/predictions?model=graph-image", headers=app.bearer)
        for child in page.json()["predictions"]:  # none if the machine was too busy to submit it
            prediction = await app.predictions.wait(await app.predictions.get_any(child["id"]), 60)
            assert str(prediction.state) == "canceled"
        assert await app.balance() == ("5.00", "0.00")


SHOUT = '''
import sixfold

@sixfold.model(name="shout")
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
'''
SHOUTED = {
    "1": {
        "class_type": "SixfoldTemplate",
        "inputs": {"template": "template:shout", "input": '{"text": "hello"}'},
    },
    "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 3]}},
}


async def test_node_runs_a_custom_model_at_its_price(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "shout.py").write_text(SHOUT, "utf-8")
    async with running_app(tmp_path, app_catalog.models_document(), driver="process") as app:
        await app.server.model_watcher.refresh()
        key = (await app.database.write(keys.create(app.operator.id, granted=rights.ALL))).api_key
        body = {"workflow": SHOUTED, "name": "shouted"}
        check, header = "/api/graph/validate", bearer(key)
        plan = (await app.client.post(check, json=body, headers=header)).json()
        assert [(each["node_id"], each["model"]) for each in plan["estimate"]["orders"]] == [("1", "shout")]
        assert float(plan["estimate"]["price_usd"]) > 0.01
        assert (await app.client.post(SPACES, json=body, headers=header)).status_code == 201
        document = (await run(app, "shouted", key)).json()
        assert (document["status"], "HELLO" in str(document["output"])) == ("succeeded", True)
        assert 0 < float(document["cost"]) < 0.01
        document = (await app.client.post(check, json=body, headers=app.bearer)).json()
        assert "The model shout was not found" in document["estimate"]["unavailable"]
        assert await app.faults() == ()


FIVE = {
    "1": {
        "class_type": "SixfoldTextToImage",
        "inputs": {"prompt": "a mill", "steps": 4, "seed": 1, "width": 64, "height": 64},
    },
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "negative"}},
    "4": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "RealESRGAN_x2plus.safetensors"}},
    "5": {"class_type": "ImageUpscaleWithModel", "inputs": {"upscale_model": ["4", 0], "image": ["2", 0]}},
    "6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "large"}},
}


async def test_failed_fifth_node_is_free_and_the_rerun_is_charged(tmp_path: Path) -> None:
    points = {"failpoints": "engine.run.upscaler=fail"}
    async with running_app(tmp_path, app_catalog.models_document(), **points) as app:
        response = await app.client.post(SPACES, json={"workflow": FIVE, "name": "five"}, headers=app.bearer)
        assert response.status_code == 201
        body = (await run(app, "five")).json()
        assert (body["status"], body["cost"]) == ("failed", "0.00")
        assert body["error"].startswith("ImageUpscaleWithModel (node 5): ")
        assert await app.balance() == ("5.00", "0.00")
        header, settings = app.bearer, dataclasses.replace(app.settings, failpoints="")
    application = bootstrap.build(settings, app_catalog.models_document())
    async with bootstrap.running(application), client(asgi.create_app(application)) as visitor:
        body = (await visitor.post(f"{SPACES}/five/run", json={}, headers=header)).json()
        assert (body["status"], len(body["output"])) == ("succeeded", 2)
        assert ("cached" in body["logs"], "node 1 " in body["logs"]) == (False, True)
        page = await visitor.get("/api/containers/predictions?limit=50", headers=header)
        parts = [each for each in page.json()["predictions"] if each["parent_id"] == body["id"]]
        assert len(parts) == 2
        assert sum(float(each["cost"]) for each in parts) == pytest.approx(float(body["cost"]))
        account = (await visitor.get("/api/account", headers=header)).json()
        assert float(account["balance_usd"]) == pytest.approx(5 - float(body["cost"]))


WAVES = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 32, "height": 16, "batch_size": 3, "color": 4096}},
    "2": {
        "class_type": "SaveAnimatedWEBP",
        "inputs": {
            "images": ["1", 0],
            "filename_prefix": "waves",
            "fps": 6.0,
            "lossless": True,
            "quality": 80,
            "method": "default",
        },
    },
}
EDITED = {
    "nodes": [
        {
            "id": 1,
            "type": "EmptyImage",
            "inputs": [],
            "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [1]}],
            "widgets_values": [48, 24, 1, 255],
        },
        {
            "id": 2,
            "type": "ImageInvert",
            "inputs": [{"name": "image", "type": "IMAGE", "link": 1}],
            "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [2]}],
            "widgets_values": [],
        },
        {
            "id": 3,
            "type": "SaveImage",
            "inputs": [{"name": "images", "type": "IMAGE", "link": 2}],
            "outputs": [],
            "widgets_values": ["edited"],
        },
    ],
    "links": [[1, 1, 0, 2, 0, "IMAGE"], [2, 2, 0, 3, 0, "IMAGE"]],
    "version": 0.4,
}


async def test_animated_webp_and_editor_document_become_workflows(flows: AppFixture) -> None:
    body = {"workflow": WAVES, "name": "waves"}
    assert (await flows.client.post(SPACES, json=body, headers=flows.bearer)).status_code == 201
    document = (await run(flows, "waves")).json()
    assert (document["status"], document["cost"]) == ("succeeded", "0.00")
    result = (await flows.client.get(document["output"]["url"])).content
    waves = Image.open(io.BytesIO(result))
    assert (waves.format, waves.size) == ("WEBP", (32, 16))
    assert json.loads(waves.getexif()[0x0110].removeprefix("prompt:")) == WAVES
    response = await flows.client.post(f"{SPACES}?name=again", content=result, headers=flows.bearer)
    assert (response.status_code, response.json()["workflow"]) == (201, WAVES)
    own = await flows.client.get(f"{SPACES}/again/download", headers=flows.bearer)
    assert (own.content, own.headers["content-type"]) == (result, "image/webp")
    inputs = {each["name"]: each["default"] for each in response.json()["apiInputs"]}
    document = (await run(flows, "again", width=inputs["width"] * 2)).json()
    assert (await fetch_image(flows, document)).size == (64, 16)
    edited = {"workflow": EDITED, "name": "edited"}
    response = await flows.client.post(SPACES, json=edited, headers=flows.bearer)
    assert (response.status_code, response.json()["nodeCount"]) == (201, 3)
    stored = await flows.client.get(f"{SPACES}/edited/download", headers=flows.bearer)
    assert json.loads(stored.content) == EDITED
    document = (await run(flows, "edited", width=20)).json()
    inverted = await fetch_image(flows, document)
    assert (inverted.size, inverted.getpixel((3, 3))) == ((20, 24), (255, 255, 0))
