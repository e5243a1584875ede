"""Limits of graphs, the same on every route that reads one."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.engines import Artifact
from sixfold.core.concurrency import memory_limit
from sixfold.core.concurrency.memory_limit import MemoryScope
from sixfold.core.workflows.limits import DocumentMemory
from sixfold.engines import workflow
from sixfold.engines.workflow_nodes import serialization
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_comfyui_clients import node
from tests.unit.core import test_manifest_containers as containers
from tests.unit.workflows.test_image_metadata import chunk, png

NODES = "A graph may have at most 5,000 nodes after its subgraphs are expanded"
VALUES = "A graph may have at most 100,000 values in the inputs of its nodes"


def flat(count: int) -> dict[str, Any]:
    """Return a graph of `count` nodes, one of them an output."""
    graph = {str(at): node("PrimitiveString", value="") for at in range(count - 1)}
    return {**graph, "out": node("PreviewAny", source=["0", 0])}


BODIES = {
    "/api/graph/validate": lambda graph: {"workflow": graph},
    "/api/graph/diff": lambda graph: {"a": flat(2), "b": graph},
    "/api/graph/spaces": lambda graph: {"workflow": graph},
    "/prompt": lambda graph: {"prompt": graph},
}


async def refusal(app: AppFixture, path: str, graph: Any) -> tuple[int, str, str]:
    """Return the status, code and message of an error in the format of a route."""
    response = await app.client.post(path, json=BODIES[path](graph), headers=app.bearer)
    body = response.json()
    if path == "/prompt":
        return response.status_code, body["error"]["type"], body["error"]["message"]
    return response.status_code, body["code"], body["error"]


async def test_graph_over_a_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    listed = {"0": node("PrimitiveString", value={"__value__": [0] * 100_001})}
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        for path in BODIES:
            response = await app.client.post(path, json=BODIES[path](flat(5_000)), headers=app.bearer)
            assert response.status_code in (200, 201), response.text[:300]
            assert await refusal(app, path, flat(5_001)) == (400, "graph_too_large", NODES)
            assert await refusal(app, path, listed) == (400, "graph_too_large", VALUES)


async def test_workflow_over_the_configured_node_limit_is_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), graph_nodes=2) as app:
        path = "/api/graph/spaces/photoreal-text-to-image/run"
        response = await app.client.post(path, json={"input": {"prompt": "a hut"}}, headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (400, "graph_too_large")
        assert response.json()["error"] == NODES.replace("5,000", "2")
        assert await app.balance() == ("5.00", "0.00")


async def test_body_above_one_mebibyte_is_413(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        for path in ("/api/graph/validate", "/api/graph/diff", "/prompt", "/api/prompt"):
            response = await app.client.post(path, content=b" " * (2**20 + 1), headers=app.bearer)
            assert response.status_code == 413, path


async def test_import_accepts_larger_images_but_no_larger_json(tmp_path: Path) -> None:
    path, long = "/api/graph/spaces", b'{"x":"' + b"a" * 2**20 + b'"}'
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        bodies: list[dict[str, Any]] = [
            {"content": long},
            {"files": {"file": ("long.json", long)}},
            {"files": {"file": ("long.png", png(chunk(b"zTXt", b"workflow", long)))}},
        ]
        for sent in bodies:
            response = await app.client.post(path, headers=app.bearer, **sent)
            assert (response.status_code, response.json()["code"]) == (400, "graph_too_large"), response.text
        text = chunk(b"tEXt", b"prompt", json.dumps(flat(2)).encode())
        image = png(text, chunk(b"zTXt", b"Comment", b""), bytes(2**21))
        response = await app.client.post(path, headers=app.bearer, files={"file": ("a.png", image)})
        assert response.status_code == 201, response.text


async def test_non_finite_number_in_a_graph_is_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        graph = {"1": node("PrimitiveFloat", value="nan"), "2": node("PreviewAny", source=["1", 0])}
        refused_response = await app.client.post("/prompt", json={"prompt": graph}, headers=app.bearer)
        assert refused_response.status_code == 400
        [fault] = refused_response.json()["node_errors"]["1"]["errors"]
        assert (fault["type"], fault["details"]) == ("value_not_finite", "value")
        assert fault["message"] == "Value must be a finite number (got nan)"
        for response in ('{"x":NaN}', '{"x":1e999}', '{"x":[-Infinity]}'):
            graph["1"] = node("SixfoldTemplate", template="template:upscaler", input=response)
            refused_response = await app.client.post("/prompt", json={"prompt": graph}, headers=app.bearer)
            assert refused_response.status_code == 400
            assert "valid JSON with finite numbers" in refused_response.json()["error"]["message"]
        assert (await app.client.get("/history", headers=app.bearer)).json() == {}


async def test_large_graphs_share_memory_until_their_responses(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        memory = app.server.workflows.document_memory = DocumentMemory(2**20, wait_seconds=0.01)
        for path in BODIES:
            other = MemoryScope()
            memory_limit.scope.set(other)
            await memory.reserve(2**20)
            status, _, message = await refusal(app, path, flat(3_000))
            assert (status, message.partition(":")[0]) == (429, "Too many large workflows at a time"), path
            other.close()
            assert memory.total == 0
            response = await app.client.post(path, json=BODIES[path](flat(3_000)), headers=app.bearer)
            assert response.status_code in (200, 201), response.text[:300]
            assert memory.total == 0


async def test_a_large_video_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, limit = 24 * 2**20, 2**20
    monkeypatch.setattr(workflow, "LARGE_BYTES", limit)
    monkeypatch.setattr(serialization, "MAX_FILM_BYTES", limit)
    padding = (size + 8).to_bytes(4) + b"free" + bytes(size)
    graph = {
        "1": node("LoadVideo", file="x.mp4"),
        "2": node("SaveVideo", video=["1", 0], filename_prefix="x", format="auto", codec="auto"),
    }
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        upload = await app.client.post(
            "/api/uploads",
            content=containers.video("mp4", "libx264") + padding,
            headers={**app.bearer, "Content-Type": "video/mp4"},
        )
        graph["1"]["inputs"]["file"] = upload.json()["url"]
        imported = await app.client.post("/api/graph/spaces", json={"workflow": graph}, headers=app.bearer)
        path = f"/api/graph/spaces/{imported.json()['slug']}/run"
        tracemalloc.start()
        try:
            response = await app.client.post(path, json={"input": {}}, headers=app.bearer)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert response.json()["status"] == "succeeded", response.text
        stored = await app.client.get(response.json()["output"]["url"])
        assert len(stored.content) > size
    assert peak < size // 2, peak


async def test_outputs_are_read_again_only_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, count = 400_000, 12
    sizes: list[int] = []

    def artifact(content_type: str, data: bytes = b"", info: Any = None, **files: Any) -> Artifact:
        sizes.append(len(data))
        return Artifact(content_type, data, info, **files)

    monkeypatch.setattr(workflow, "MEMORY_BYTES", limit)
    monkeypatch.setattr(workflow, "Artifact", artifact)
    # The graph, which each output contains, has 100 KB.
    graph = {"0": node("EmptyImage", width=64, height=64, batch_size=1, color=0, note="x" * 100_000)}
    for number in range(1, count + 1):
        graph[str(number)] = node("SaveImage", images=["0", 0], filename_prefix=f"x{number}")
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        imported = await app.client.post("/api/graph/spaces", json={"workflow": graph}, headers=app.bearer)
        path = f"/api/graph/spaces/{imported.json()['slug']}/run"
        for is_cached in (False, True):
            sizes.clear()
            response = await app.client.post(path, json={"input": {}}, headers=app.bearer)
            assert response.json()["status"] == "succeeded", response.text[:300]
            outputs = response.json()["output"]
            for output in outputs:
                stored = await app.client.get(output["url"])
                assert stored.content.startswith(b"\x89PNG")
                assert len(stored.content) > 100_000
            assert len(sizes) == len(outputs) == count
            assert sum(sizes) <= limit
            assert (sum(sizes) > 0) is is_cached
