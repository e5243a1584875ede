"""The largest graphs block the event loop for a short time only, on every route that parses one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from tests import loop_time
from tests.api.app_fixture import running_app
from tests.api.test_comfyui_clients import node
from tests.api.test_graph_limits import BODIES, flat

MAX_SECONDS = 0.06
SAMPLER = {"steps": 12, "cfg": 5.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
Document = dict[str, Any]


def samplers() -> Document:
    """Return images by 1,600 samplers, each of them a separate request."""
    graph = {
        "c": node("CheckpointLoaderSimple", ckpt_name="base.safetensors"),
        "t": node("CLIPTextEncode", text="a", clip=["c", 1]),
        "l": node("EmptyLatentImage", width=64, height=64, batch_size=1),
    }
    links = {"model": ["c", 0], "positive": ["t", 0], "negative": ["t", 0], "latent_image": ["l", 0]}
    for at in range(1_600):
        graph[f"s{at}"] = node("KSampler", seed=at, **links, **SAMPLER)
        graph[f"d{at}"] = node("VAEDecode", samples=[f"s{at}", 0], vae=["c", 2])
        graph[f"p{at}"] = node("PreviewImage", images=[f"d{at}", 0])
    return graph


def chain() -> Document:
    """Return one chain of 5,000 nodes."""
    graph = {"0": node("PrimitiveString", value="")}
    graph |= {str(at): node("PrimitiveString", value=[str(at - 1), 0]) for at in range(1, 4_999)}
    return {**graph, "out": node("PreviewAny", source=["4998", 0])}


def invalid_nodes() -> Document:
    """Return nodes with an error in each input."""
    graph = {
        f"{at}": node("ImageScale", upscale_method="no", width="x", height=-5, crop=7) for at in range(2_499)
    }
    return graph | {f"o{at}": node("PreviewImage", images=[str(at), 0]) for at in range(2_499)}


def reroutes() -> Document:
    latent = {"type": "LATENT"}
    nodes: list[Document] = [
        {
            "id": 0,
            "type": "EmptyLatentImage",
            "inputs": [],
            "outputs": [latent],
            "widgets_values": [64, 64, 1],
        }
    ]
    for at in range(1, 4_999):
        slot = {"name": "", "type": "*", "link": at}
        nodes.append({"id": at, "type": "Reroute", "inputs": [slot], "outputs": [latent]})
    return {"nodes": nodes, "links": [[at, at - 1, 0, at, 0, "LATENT"] for at in range(1, 4_999)]}


def parallel_samplers() -> Document:
    kinds = {
        "model": "MODEL",
        "positive": "CONDITIONING",
        "negative": "CONDITIONING",
        "latent_image": "LATENT",
    }
    inputs = [{"name": name, "type": kind, "link": None} for name, kind in kinds.items()]
    values = [1, "fixed", 12, 5.0, "euler", "normal", 1.0]
    sampler = {
        "type": "KSampler",
        "inputs": inputs,
        "outputs": [{"type": "LATENT"}],
        "widgets_values": values,
    }
    return {"nodes": [{**sampler, "id": at} for at in range(2_400)], "links": []}


def long_links() -> Document:
    """Return a chain whose nodes all link to one other, across all columns."""
    graph: Document = {"0": node("Strange")}
    for at in range(1, 2_000):
        graph[str(at)] = node("Strange", a=[str(at - 1), 0])
    return {**graph, "out": node("PreviewAny", **{f"x{at}": [str(at), 0] for at in range(2_000)})}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("make", [samplers, chain, invalid_nodes, reroutes, parallel_samplers, long_links])
async def test_large_graph_blocks_the_loop_for_a_short_time(
    tmp_path: Path, path: str, make: Callable[[], Document]
) -> None:
    body = json.dumps(BODIES[path](make())).encode()
    headers = {"Content-Type": "application/json"}
    async with running_app(tmp_path, app_catalog.models_document(), workers=0) as app:
        await app.client.post(path, json=BODIES[path](flat(2)), headers=app.bearer)
        # Reading the registry here keeps it out of the measurement.
        assert len(app.server.workflows.registry) > 100
        async with loop_time.watched() as loop:
            response = await app.client.post(path, content=body, headers=app.bearer | headers)
        assert response.status_code in (200, 201, 400, 402, 503), response.text[:300]
        assert loop.longest < MAX_SECONDS
        if path == "/api/graph/spaces" and response.status_code == 201:
            own = f"{path}/{response.json()['slug']}"
            async with loop_time.watched() as loop:
                image = await app.client.get(f"{own}/graph.svg", headers=app.bearer)
                run = await app.client.post(f"{own}/run", json={"input": {}}, headers=app.bearer)
            assert image.status_code == 200
            assert run.status_code in (200, 202, 400, 402, 422, 503), run.text[:300]
            assert loop.longest < MAX_SECONDS
