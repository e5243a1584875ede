"""Outputs of a graph with a price can be read after payment only."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core import ids
from sixfold.core.accounts import accounts
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, many, one
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import lineage, refunds, requests
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.events import Event, NodeStateChanged, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import FailureRecord
from sixfold.core.predictions.requests import ParentRun, PredictionRequest
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workflows.comfyui import websocket_hub
from sixfold.core.workflows.comfyui.websocket_hub import HubClient
from sixfold.errors import Conflict
from tests.api.app_fixture import AppFixture, running_app, small_models
from tests.api.test_comfyui_clients import SAMPLED, ComfyScript, ServerWithScript, node, running_server
from tests.api.test_reversals import painting
from tests.harness import databases

PREDICTIONS = "/api/containers/predictions"
SAVED = {"filename": "fox_00001_.png", "type": "output"}
SHOWN = {"filename": "ComfyUI_temp_00001_.png", "type": "temp"}
FOX: dict[str, Any] = {
    "1": painting("a fox"),
    "2": node("SaveImage", images=["1", 0], filename_prefix="fox"),
    "3": node("SaveImageWebsocket", images=["1", 0]),
    "4": node("PreviewImage", images=["1", 0]),
}


def saved_and_restyled(prompt: str) -> dict[str, Any]:
    """Return a graph whose image is saved, and changed by a second model."""
    change = node("SixfoldEdgeStyle", image=["1", 0], prompt=prompt, strength=0.5, steps=3, seed=1)
    return {**FOX, "5": change, "6": node("SaveImage", images=["5", 0], filename_prefix="styled")}


@pytest.fixture
async def dot_app(either: Path) -> AsyncIterator[AppFixture]:
    """A server with dot engines and real graphs, on both databases."""
    document = small_models()
    graph = app_catalog.models_document()["engines"]["graph"]
    async with running_app(either, {**document, "engines": {**document["engines"], "graph": graph}}) as app:
        yield app


class StepRecorder:
    """Records the steps of all predictions, to wait for one of them."""

    def __init__(self, app: AppFixture) -> None:
        self.events: list[Event] = []
        self._change_event = asyncio.Event()
        app.predictions.bus.watchers.append(self._on_event)

    def _on_event(self, _id: str, event: Event) -> None:
        self.events.append(event)
        self._change_event.set()

    async def until(self, *finished: str, running: str) -> None:
        """Wait until nodes have finished and another one's prediction runs."""
        async with asyncio.timeout(60):
            while not (set(finished) <= self._finished and running in self._running):
                self._change_event.clear()
                await self._change_event.wait()

    @property
    def _finished(self) -> set[str]:
        return {
            each.node
            for each in self.events
            if isinstance(each, NodeStateChanged) and each.state == "finished"
        }

    @property
    def _running(self) -> set[str]:
        moved = [each.prediction for each in self.events if isinstance(each, StateChanged)]
        return {each.model for each in moved if each.state is PredictionState.RUNNING}


async def prompted(app: AppFixture, graph: Any) -> Prediction:
    body = {"prompt": graph, "client_id": "c", "prompt_id": ids.new("req")}
    response = await app.client.post("/prompt", json=body, headers=app.bearer)
    assert response.status_code == 200, response.text
    predictions = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
    (parent,) = [each for each in predictions if each["parent_id"] is None and each["status"] != "failed"][:1]
    return await app.predictions.get_any(parent["id"])


@contextlib.contextmanager
def listening(app: AppFixture) -> Iterator[HubClient]:
    with app.server.workflows.hub.open(Tenant(app.account.id, keyless=False), "c") as client:
        yield client


async def received_events(client: HubClient) -> list[Any]:
    """Return the messages that a client has received so far."""
    client.send({"type": "here", "data": {}})
    results: list[Any] = []
    while not results or results[-1] != {"type": "here", "data": {}}:
        content = await client.next()
        results.append(content if isinstance(content, bytes) else json.loads(content))
    return results[:-1]


def kinds(messages: list[Any]) -> list[str]:
    return ["image" if isinstance(each, bytes) else each["type"] for each in messages]


async def parts(app: AppFixture, parent: Prediction) -> list[Prediction]:
    """Return the complete children of a graph, as the server reads them."""
    read = app.database.read
    found = await read(many("lineage_parts", parent_id=parent.id, limit=100, most_chars=0))
    rows = [await read(one("prediction_by_id", id=row["id"])) for row in found]
    return [Prediction.from_row_unredacted(row) for row in rows if row is not None]


async def nothing_is_readable(app: AppFixture, parent: Prediction, children: list[Prediction]) -> None:
    """Check that no output of a graph is readable on any route."""
    names = [file.name for part in children for file in (part.output.files if part.output else ())]
    assert names
    for name in names:
        assert (await app.client.get(f"/media/{name}")).status_code == 404
    for query in (SAVED, SHOWN):
        for path in ("/view", "/api/view"):
            assert (await app.client.get(path, params=query, headers=app.bearer)).status_code == 404
    predictions = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
    for record in predictions:
        nested = (await app.client.get(f"{PREDICTIONS}/{record['id']}", headers=app.bearer)).json()
        for each in (record, nested):
            assert each["output"] is None
            assert each["parent_id"] is None or each["input"] == {}
    database = app.database
    assert await app.exported("export_media") == []
    result = await app.exported("export_predictions")
    assert all(row["output"] is None for row in result)
    for part in children:
        response = await app.predictions.get(part.id, Tenant.of(part))
        assert await database.read(lineage.stored_inputs(part)) == {}
        assert await database.read(lineage.reusable_inputs(response, "")) == {}
    kin = await database.read(lineage.get(parent))
    assert kin.parts
    assert all(part.output is None for part in kin.parts)
    assert await app.faults() == ()


async def test_outputs_of_nodes_are_withheld_until_the_charge(dot_app: AppFixture) -> None:
    with listening(dot_app) as client:
        watch = StepRecorder(dot_app)
        parent = await prompted(dot_app, saved_and_restyled("SLOW"))
        await watch.until("2", "3", "4", running="graph-restyle")
        response = kinds(await received_events(client))
        assert {"executing", "progress"} <= set(response)
        assert not {"executed", "image"} & set(response)
        result = await parts(dot_app, parent)
        assert {part.state for part in result} == {PredictionState.SUCCEEDED, PredictionState.RUNNING}
        await nothing_is_readable(dot_app, parent, result)
        assert await dot_app.balance() == ("5.00", "0.08")
        await dot_app.client.post("/interrupt", json={}, headers=dot_app.bearer)
        prediction = await dot_app.predictions.wait(parent, 60)
        assert prediction.state is PredictionState.CANCELED
        assert await dot_app.balance() == ("5.00", "0.00")
        assert not {"executed", "image"} & set(kinds(await received_events(client)))
    assert dot_app.server.workflows.hub.withheld_bytes == 0
    await nothing_is_readable(dot_app, parent, result)
    rows = (await dot_app.client.get("/history", headers=dot_app.bearer)).json()
    assert all(row["outputs"] == {} for row in rows.values())


async def test_paid_results_are_readable_and_ordered(dot_app: AppFixture) -> None:
    with listening(dot_app) as client:
        parent = await prompted(dot_app, saved_and_restyled("ink"))
        prediction = await dot_app.predictions.wait(parent, 60)
        assert (prediction.state, await dot_app.balance()) == (PredictionState.SUCCEEDED, ("4.92", "0.00"))
        messages = await received_events(client)
    response = kinds(messages)
    at = response.index("image")
    assert messages[at - 1]["data"]["node"] == "3", "clients take a frame for the node of the message before"
    assert response.count("executed") == 3
    assert max(at, len(response) - 1 - response[::-1].index("executed")) < response.index("execution_success")
    for query in (SAVED, SHOWN):
        assert (await dot_app.client.get("/view", params=query, headers=dot_app.bearer)).status_code == 200
    predictions = (await dot_app.client.get(PREDICTIONS, headers=dot_app.bearer)).json()["predictions"]
    for record in (each for each in predictions if each["parent_id"]):
        assert {"a fox", "ink"} & set(map(str, record["input"].values()))
        assert (await dot_app.client.get(record["output"]["url"])).status_code == 200
    for part in await parts(dot_app, parent):
        row = await dot_app.database.read(lineage.stored_inputs(part))
        assert row.keys() == part.task.files.keys() & part.inputs.keys()
    assert await dot_app.faults() == ()
    for part in await parts(dot_app, parent):
        with pytest.raises(Conflict):
            await dot_app.predictions.refund(part, "a test")
    await dot_app.predictions.refund(prediction, "a test")
    await nothing_after_refund(dot_app, predictions)
    assert await dot_app.balance() == ("5.00", "0.00")


async def test_a_part_is_not_refunded_without_its_workflow(dot_app: AppFixture) -> None:
    watch = StepRecorder(dot_app)
    parent = await prompted(dot_app, saved_and_restyled("SLOW"))
    await watch.until("2", running="graph-restyle")
    prediction = next(
        part for part in await parts(dot_app, parent) if part.state is PredictionState.SUCCEEDED
    )
    service = dot_app.predictions
    with pytest.raises(Conflict, match=f"part of {parent.id}, which pays for it: refund that run"):
        await service.refund(prediction, "a test")
    assert (await service.get_any(prediction.id)).state is PredictionState.SUCCEEDED
    await service.cancel(parent.id, Tenant.of(parent))
    assert (await service.wait(parent, 60)).state is PredictionState.CANCELED
    assert (await dot_app.balance(), await dot_app.faults()) == (("5.00", "0.00"), ())


async def nothing_after_refund(app: AppFixture, predictions: list[dict[str, Any]]) -> None:
    urls = [each["output"]["url"] for each in predictions if each["parent_id"]]
    assert {(await app.client.get(url)).status_code for url in urls} == {404}
    for query in (SAVED, SHOWN):
        assert (await app.client.get("/view", params=query, headers=app.bearer)).status_code == 404
    assert await app.faults() == ()


async def test_child_result_after_the_parent_ended_is_not_readable(dot_app: AppFixture) -> None:
    watch = StepRecorder(dot_app)
    parent = await prompted(dot_app, saved_and_restyled("SLOW"))
    await watch.until("2", running="graph-restyle")
    (late,) = [part for part in await parts(dot_app, parent) if part.state is PredictionState.RUNNING]
    results = [part for part in await parts(dot_app, parent) if part.state is PredictionState.SUCCEEDED]

    def success() -> Transaction[Prediction]:
        """End with success, as if the run was over before the cancelation."""
        first = results[0].output
        assert first is not None
        file = first.files[0]
        renamed = type(file)("late.png", file.blob, file.content_type, file.size)
        record = predictions.SuccessRecord(type(first)((renamed,)), "full", "1", predictions.Trace())
        return (yield from predictions.succeed(late.id, late.attempt, record))

    def ended() -> Transaction[None]:
        row = (yield Query("prediction_by_id", {"id": parent.id}))[0]
        yield Query(
            "prediction_end",
            {
                **dict.fromkeys(("logs", "error", "error_kind"), ""),
                **dict.fromkeys(("cold_start_us", "run_us"), 0),
                "id": parent.id,
                "from_state": row["state"],
                "to_state": "canceled",
                "attempt": row["attempt"],
            },
        )

    await dot_app.database.write(ended())
    await dot_app.database.write(success())
    assert (await dot_app.predictions.get_any(late.id)).output is None
    assert await dot_app.database.write(refunds.sweep()) == len(results)
    swept = [await dot_app.predictions.get_any(part.id) for part in (late, *results)]
    assert {(part.state, part.error_kind) for part in swept} == {(PredictionState.FAILED, refunds.REFUNDED)}
    assert await dot_app.database.write(refunds.sweep()) == 0


async def test_result_paid_but_unreleased_by_an_old_server_is_released(
    dot_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(row: Row, output: Output) -> Transaction[Prediction]:
        """Settle as an earlier server does, which does not withhold results."""
        if row["parent_id"] is None:
            return Prediction.from_row(row)
        return (yield from real(row, output))

    real = refunds.settle
    monkeypatch.setattr(refunds, "settle", settle)
    parent = await prompted(dot_app, FOX)
    prediction = await dot_app.predictions.wait(parent, 60)
    assert (prediction.state, await dot_app.balance()) == (PredictionState.SUCCEEDED, ("4.96", "0.00"))
    assert (await dot_app.client.get("/view", params=SAVED, headers=dot_app.bearer)).status_code == 404
    assert await dot_app.database.write(refunds.sweep()) == 1
    assert (await dot_app.client.get("/view", params=SAVED, headers=dot_app.bearer)).status_code == 200
    predictions = (await dot_app.client.get(PREDICTIONS, headers=dot_app.bearer)).json()["predictions"]
    assert all(each["output"] is not None for each in predictions)
    assert await dot_app.database.write(refunds.sweep()) == 0
    assert await dot_app.faults() == ()


async def test_interrupted_capture_pays_and_releases_all_or_nothing(
    dot_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def succeed(prediction_id: str, *more: Any) -> Transaction[Prediction]:
        """Succeeds just after an interruption was stored."""
        yield from predictions.cancel(prediction_id, Tenant(dot_app.account.id))
        return (yield from real(prediction_id, *more))

    real = predictions.succeed_with_children
    monkeypatch.setattr(predictions, "succeed_with_children", succeed)
    parent = await prompted(dot_app, FOX)
    prediction = await dot_app.predictions.wait(parent, 60)
    assert (prediction.state, await dot_app.balance()) == (PredictionState.SUCCEEDED, ("4.96", "0.00"))
    assert (await dot_app.client.get("/view", params=SAVED, headers=dot_app.bearer)).status_code == 200
    assert all(part.state is PredictionState.SUCCEEDED for part in await parts(dot_app, parent))
    assert await dot_app.faults() == ()


async def test_cached_results_without_a_known_prediction_are_not_used(dot_app: AppFixture) -> None:
    parent = await prompted(dot_app, FOX)
    await dot_app.predictions.wait(parent, 60)
    database, account = dot_app.database, dot_app.account.id
    for prediction_id, result in ((parent.id, 1), ("", 1), (None, 0), ("pred_unknown", 0)):
        row = {"media": None, "shown": "{}", "expires_at": 2**61, "prediction_id": prediction_id, "size": 0}
        await database.write(many("graph_outcome_put", account_id=account, key="k", **row))
        remaining = await database.read(many("graph_outcomes", account_id=account, keys='["k"]'))
        assert len(remaining) == result, prediction_id


async def test_results_derived_from_a_refunded_run_are_not_cached(dot_app: AppFixture) -> None:
    """A later run computed its results from the cached results of a run, directly or through another run."""
    service, balances = dot_app.predictions, list[str]()

    async def ended(graph: dict[str, Any]) -> Prediction:
        result = await service.wait(await prompted(dot_app, graph), 60)
        assert result.state is PredictionState.SUCCEEDED, result.error
        balances.append((await dot_app.balance())[0])
        return result

    inverted = {
        "1": painting("a fox"),
        "2": node("ImageInvert", image=["1", 0]),
        "3": node("SaveImage", images=["2", 0], filename_prefix="inverted"),
    }
    twice = {**inverted, "4": node("ImageInvert", image=["2", 0])}
    twice["3"] = node("SaveImage", images=["4", 0], filename_prefix="twice")
    paid = await ended(FOX)
    for graph in (inverted, twice):
        await ended(graph)
    assert set(balances) == {"4.96"}
    await service.refund(paid, "a test")
    balances.clear()
    for graph in (twice, inverted):
        await ended(graph)
    # The first run pays for the image again, and the second uses the result that it has paid for.
    assert balances == ["4.96", "4.96"]
    assert await dot_app.faults() == ()


async def test_files_of_a_run_longer_than_a_day_are_not_swept(either: Path) -> None:
    start = 1_800_000_000_000_000
    at = [start]
    async with databases.running_database(None, either, lambda: at[0]) as database:
        account = await database.write(accounts.create("ada@example.com"))
        row = {
            "account_id": account.id,
            "blob": "b",
            "kind": "output",
            "content_type": "image/png",
            "size": 1,
        }
        row |= dict.fromkeys(("prediction_id", "upload_id", "credential_id"))
        for name, expires_at in (("withheld", refunds.NEVER), ("later", -start - 1), ("expired", start + 1)):
            media = {**row, "name": name, "sha256": "", "expires_at": expires_at}
            await database.write(many("media_insert", **media))
        at[0] += 2 * DAY_US
        expired = await database.read(many("media_expired", limit=9))
        assert [each["name"] for each in expired] == ["expired"]


async def nested(dot_app: AppFixture) -> tuple[Prediction, Prediction, Prediction]:
    """Return a running graph, a running child of it, and a child of that child, which has succeeded."""
    pipeline, watch = dot_app.predictions, StepRecorder(dot_app)
    parent = await prompted(dot_app, saved_and_restyled("SLOW"))
    await watch.until("2", running="graph-restyle")
    (slow,) = [part for part in await parts(dot_app, parent) if part.state is PredictionState.RUNNING]
    order = PredictionRequest(
        await dot_app.database.read(requests.principal_of(parent)),
        "ra1",
        {"prompt": "below"},
        "test",
        "req_1",
        parent=ParentRun(slow.id, "a", slow.model),
    )
    return parent, slow, await pipeline.wait(await pipeline.submit(order), 60)


async def test_nested_results_are_withheld_until_the_root_is_paid(dot_app: AppFixture) -> None:
    pipeline = dot_app.predictions
    parent, _, below = await nested(dot_app)
    assert (below.state, below.withheld, below.output, below.inputs) == (
        PredictionState.SUCCEEDED,
        True,
        None,
        {},
    )
    await pipeline.cancel(parent.id, Tenant.of(parent))
    await pipeline.wait(parent, 60)
    assert (await pipeline.get_any(below.id)).state is PredictionState.FAILED
    assert await dot_app.faults() == ()


async def test_results_below_a_failed_part_are_withdrawn_with_it(dot_app: AppFixture) -> None:
    pipeline = dot_app.predictions
    parent, slow, below = await nested(dot_app)
    failure = FailureRecord("no", "engine")
    await dot_app.database.write(predictions.fail(slow.id, slow.attempt, failure))
    assert (await pipeline.get_any(below.id)).state is PredictionState.FAILED
    assert not (await pipeline.get_any(parent.id)).is_terminal
    await pipeline.cancel(parent.id, Tenant.of(parent))
    await pipeline.wait(parent, 60)
    assert await dot_app.faults() == ()


async def test_free_graphs_send_results_during_the_run(dot_app: AppFixture) -> None:
    free = {
        "1": node("EmptyImage", width=32, height=16, batch_size=1, color=4096),
        "2": node("SaveImage", images=["1", 0], filename_prefix="fox"),
        "3": node("SaveImageWebsocket", images=["1", 0]),
    }
    with listening(dot_app) as client:
        parent = await prompted(dot_app, free)
        assert (await dot_app.predictions.wait(parent, 60)).price == 0
        response = kinds(await received_events(client))
    assert response.count("executed") == 1
    assert response.count("image") == 1
    assert (await dot_app.client.get("/view", params=SAVED, headers=dot_app.bearer)).status_code == 200


async def test_more_images_than_can_be_withheld_fail_the_run(
    dot_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_hub, "MAX_WITHHELD_BYTES", 10)
    parent = await prompted(dot_app, FOX)
    prediction = await dot_app.predictions.wait(parent, 60)
    assert prediction.state is PredictionState.FAILED
    assert "images that it does not save" in str(prediction.error)
    assert dot_app.server.workflows.hub.withheld_bytes == 0
    assert await dot_app.balance() == ("5.00", "0.00")


class ScriptWithKey(ComfyScript):
    """A `ComfyScript` that sends the key in its URLs."""

    def _request(self, path: str, data: bytes | None = None) -> urllib.request.Request:
        return super()._request(f"{path}?token={self.token}", data)


@pytest.fixture
async def paid(tmp_path: Path) -> AsyncIterator[ServerWithScript]:
    async with running_server(tmp_path) as result:
        yield ServerWithScript(result.app, ScriptWithKey(result.script.address, result.app.key))


async def test_official_clients_get_the_images_of_a_priced_graph(paid: ServerWithScript) -> None:
    graph = {
        "3": node(
            "KSampler", model=["4", 0], positive=["6", 0], negative=["7", 0], latent_image=["5", 0], **SAMPLED
        ),
        "4": node("CheckpointLoaderSimple", ckpt_name="v1-5-pruned-emaonly.safetensors"),
        "5": node("EmptyLatentImage", width=96, height=64, batch_size=2),
        "6": node("CLIPTextEncode", text="a lighthouse", clip=["4", 1]),
        "7": node("CLIPTextEncode", text="text", clip=["4", 1]),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImageWebsocket", images=["8", 0]),
        "10": node("SaveImage", images=["8", 0], filename_prefix="made"),
    }
    frames = await asyncio.to_thread(paid.script.streamed, graph, "9")
    assert len(frames) == 2
    posted, held = await paid.app.balance()
    assert (posted < "5.00", held) == (True, "0.00")


async def test_streamed_images_without_a_price_belong_to_their_nodes(tmp_path: Path) -> None:
    graph: dict[str, Any] = {}
    for at, width in enumerate((32, 48)):
        graph[f"{at}0"] = node("EmptyImage", width=width, height=16, batch_size=1, color=255)
        graph[f"{at}1"] = node("SaveImageWebsocket", images=[f"{at}0", 0])
    async with running_server(tmp_path) as stage:
        for at, width in enumerate((32, 48)):
            [data] = await asyncio.to_thread(stage.script.streamed, graph, f"{at}1")
            assert Image.open(io.BytesIO(data)).size == (width, 16)
            # Another color prevents the use of cached outputs.
            graph["00"]["inputs"]["color"] += 1
            graph["10"]["inputs"]["color"] += 1
