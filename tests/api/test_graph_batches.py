"""Large graphs through ComfyUI's `/prompt` use a bounded number of transactions."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.workflows import slices
from sixfold.core.workflows.execution import cache_keys
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_comfyui_clients import node

PAIRS = 400


def texts(pairs: int = PAIRS) -> dict[str, Any]:
    graph: dict[str, Any] = {}
    for at in range(pairs):
        graph[f"{at}"] = node("PrimitiveString", value=f"text {at}")
        graph[f"out{at}"] = node("PreviewAny", source=[f"{at}", 0])
    return graph


def pixels() -> dict[str, Any]:
    """Return a graph of image nodes of which only the last is shown."""
    graph = {"0": node("EmptyImage", width=8, height=8, batch_size=1, color=0)}
    for at in range(1, PAIRS):
        graph[f"{at}"] = node("EmptyImage", width=8, height=8, batch_size=1, color=at)
        graph[f"both{at}"] = node(
            "ImageBlend",
            image1=[f"both{at - 1}" if at > 1 else "0", 0],
            image2=[f"{at}", 0],
            blend_factor=0.5,
            blend_mode="normal",
        )
    return {**graph, "out": node("PreviewImage", images=[f"both{PAIRS - 1}", 0])}


async def run_and_count(
    app: AppFixture, graph: dict[str, Any], prompt_id: str
) -> tuple[list[str], list[int]]:
    """Run a graph; return the message types, and the transactions written before each."""
    database, hub = app.database, app.server.workflows.hub
    written = 0
    write = database.write

    async def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal written
        written += 1
        return await write(*args, **kwargs)

    kinds: list[str] = []
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch, hub.open(Tenant(app.account.id), "me") as client:
        patch.setattr(database, "write", count)
        body = {"prompt": graph, "client_id": "me", "prompt_id": prompt_id}
        sent = await app.client.post("/prompt", json=body, headers=app.bearer)
        assert sent.status_code == 200, sent.text[:300]
        async with asyncio.timeout(120):
            while "execution_success" not in kinds:
                message = json.loads(await client.next())
                kinds.append(message["type"])
                counts.append(written)
                assert kinds[-1] != "execution_error", message
    return kinds, counts


@pytest.mark.parametrize("make", [texts, pixels])
async def test_outcomes_of_a_large_graph_are_stored_in_batches(either: Path, make: Any) -> None:
    async with running_app(either, app_catalog.models_document()) as app:
        kinds, counts = await run_and_count(app, make(), "first")
        last = len(kinds) - 1 - kinds[::-1].index("executed")
        assert counts[-1] < 100
        assert counts[-1] - counts[last] < 10
        workflows = app.server.workflows
        nodes = workflows.check(make()).nodes
        result = slices.complete(cache_keys.key_steps(nodes))
        # A new object reads what a restarted server would.
        stored = await workflows.names.output_cache(Tenant(app.account.id)).find(list(result.values()))
        remaining = [
            each for each in nodes if nodes[each].spec.output_node or nodes[each].spec.where != "inline"
        ]
        assert set(stored) == {result[each] for each in remaining}
        packer = workflows.packer(either)
        for node_id in remaining:
            if not nodes[node_id].spec.output_node:
                [image] = packer.unpack(stored[result[node_id]].packed or b"")
                assert image.shape == (1, 8, 8, 3)


async def test_clients_receive_all_messages_of_a_large_graph(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        with app.server.workflows.hub.open(Tenant(app.account.id), "me") as slow:
            body = {"prompt": texts(1_000), "client_id": "me", "prompt_id": "first"}
            assert (await app.client.post("/prompt", json=body, headers=app.bearer)).status_code == 200
            async with asyncio.timeout(120):
                while not (await app.client.get("/history/first", headers=app.bearer)).json():
                    assert not slow.behind.is_set()
            kinds: list[str] = []
            async with asyncio.timeout(120):
                while "execution_success" not in kinds:
                    kinds.append(json.loads(await slow.next())["type"])
    assert kinds.count("executed") == 1_000


async def test_free_graphs_of_an_account_run_in_sequence_at_limit_one(tmp_path: Path) -> None:
    names = [f"p{at}" for at in range(4)]
    async with running_app(tmp_path, app_catalog.models_document(), graph_free_runs=1) as app:
        with app.server.workflows.hub.open(Tenant(app.account.id), "me") as client:
            for at, name in enumerate(names):
                graph = {"0": node("EmptyImage", width=8, height=8, batch_size=1, color=at)}
                graph |= {str(n): node("ImageInvert", image=[str(n - 1), 0]) for n in range(1, 8)}
                graph["out"] = node("PreviewImage", images=["7", 0])
                body = {"prompt": graph, "client_id": "me", "prompt_id": name}
                assert (await app.client.post("/prompt", json=body, headers=app.bearer)).status_code == 200
            run_and_count: list[str] = []
            ended_ids: set[str] = set()
            async with asyncio.timeout(120):
                while len(ended_ids) < len(names):
                    message = json.loads(await client.next())
                    data = message["data"]
                    if message["type"] == "executing" and data["node"] is not None:
                        run_and_count.append(data["prompt_id"])
                    if message["type"] == "execution_success":
                        ended_ids.add(data["prompt_id"])
        groups = [name for name, _ in itertools.groupby(run_and_count)]
        assert sorted(groups) == names
