"""Refunds: after a refund, the result is withdrawn everywhere."""

from __future__ import annotations

import asyncio
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold import errors
from sixfold.core.accounts import ledger
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import one
from sixfold.core.gallery import Gallery
from sixfold.core.media import upload_paths
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.refunds import REFUNDED
from sixfold.core.predictions.states import PredictionState
from tests.api.app_fixture import AppFixture, running_app
from tests.api.fake_engines import DotEngine
from tests.api.test_comfyui_clients import node
from tests.api.test_workflows_money import dot_app, run_and_hold

__all__ = ["dot_app"]

RUN, PREDICTIONS = "/api/containers/run", "/api/containers/predictions"
UPLOAD = "/create_and_upload_image"
SMALL = {"prompt": "a fox", "width": "64", "height": "64"}


async def run(app: AppFixture, **body: Any) -> dict[str, Any]:
    """Run an image model to its end; return the record."""
    request = {"model": "ra1", "input": {"prompt": "a fox", "seed": 7}, **body}
    document = (await app.client.post(RUN, json=request, headers=app.bearer)).json()
    record = (await app.client.get(f"{PREDICTIONS}/{document['id']}", headers=app.bearer)).json()
    assert record["status"] == "succeeded"
    return record


async def refund(app: AppFixture, prediction_id: str) -> None:
    prediction = await app.predictions.get_any(prediction_id)
    refunded = await app.predictions.refund(prediction, "a test")
    assert (refunded.state, refunded.error_kind, refunded.output) == (PredictionState.FAILED, REFUNDED, None)


async def deliver_event(app: AppFixture, prediction_id: str) -> dict[str, Any]:
    return (await app.client.get(f"{PREDICTIONS}/{prediction_id}", headers=app.bearer)).json()


async def test_a_refund_withdraws_the_output_the_file_and_the_cost(any_database_app: AppFixture) -> None:
    app = any_database_app
    result = await run(app)
    url = result["output"]["url"]
    assert (await app.client.get(url)).status_code == 200
    await refund(app, result["id"])
    record = await deliver_event(app, result["id"])
    assert (record["status"], record["output"], record["cost"]) == ("failed", None, "0.00")
    assert record["credits_charged"] == 0
    assert "refunded: a test" in record["error"]
    assert (await app.client.get(url)).status_code == 404
    assert await app.balance() == ("5.00", "0.00")
    await refund(app, result["id"])
    assert await app.balance() == ("5.00", "0.00")
    assert await app.faults() == ()


async def test_refund_withdraws_posts_of_the_result(any_database_app: AppFixture) -> None:
    app = any_database_app
    result, remaining = await run(app), await run(app, input={"prompt": "another", "seed": 8})
    for record in (result, remaining):
        body = {
            "api_key": app.key,
            "text": record["id"],
            "tags": ["fox"],
            "media_url": record["output"]["url"],
        }
        assert (await app.client.post("/api/create-post", json=body)).status_code == 200
    body = {"api_key": app.key, "name": "Luna", "avatar_url": result["output"]["url"]}
    await app.client.post("/api/create-ai", json=body)
    posts = (await app.client.get("/api/posts")).json()["posts"]
    withdrawn = next(post["media_url"] for post in posts if post["text"] == result["id"])
    await refund(app, result["id"])
    posts = (await app.client.get("/api/posts")).json()["posts"]
    assert [post["text"] for post in posts] == [remaining["id"]]
    assert (await app.client.get(posts[0]["media_url"])).status_code == 200
    assert (await app.client.get(withdrawn)).status_code == 404
    tagged = (await app.client.get("/api/posts?tag=fox")).json()["posts"]
    assert [post["text"] for post in tagged] == [remaining["id"]]
    (character,) = (await app.client.get("/api/characters")).json()["characters"]
    assert (character["name"], character["avatar_url"]) == ("Luna", None)


@pytest.mark.parametrize("kind", ["post", "character"])
async def test_run_refunded_meanwhile_is_not_published(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    app = any_database_app
    result = await run(app)
    publish = getattr(Gallery, f"add_{kind}")

    async def refunded_before(gallery: Gallery, *arguments: Any) -> Any:
        # The file was found, and its run is refunded before the transaction of the publication.
        await refund(app, result["id"])
        return await publish(gallery, *arguments)

    monkeypatch.setattr(Gallery, f"add_{kind}", refunded_before)
    url = result["output"]["url"]
    path, fields = {
        "post": ("/api/create-post", {"text": "a fox", "media_url": url}),
        "character": ("/api/create-ai", {"name": "Luna", "avatar_url": url}),
    }[kind]
    response = await app.client.post(path, json={"api_key": app.key, **fields})
    assert (response.status_code, "refunded" in response.json()["error"]) == (409, True), response.text
    assert (await app.client.get("/api/posts")).json()["posts"] == []
    assert (await app.client.get("/api/characters")).json()["characters"] == []


async def test_refund_keeps_identical_outputs_of_other_runs(any_database_app: AppFixture) -> None:
    app = any_database_app
    result, second_result = await run(app), await run(app)
    theirs = await app.client.post(
        RUN,
        json={"model": "ra1", "input": {"prompt": "a fox", "seed": 7}},
        headers={"Authorization": f"Bearer {app.other}"},
    )
    body = {"api_key": app.key, "text": "x", "media_url": second_result["output"]["url"]}
    await app.client.post("/api/create-post", json=body)
    await refund(app, result["id"])
    assert (await app.client.get(second_result["output"]["url"])).status_code == 200
    assert (await app.client.get(theirs.json()["output"]["url"])).status_code == 200
    (post,) = (await app.client.get("/api/posts")).json()["posts"]
    assert (await app.client.get(post["media_url"])).status_code == 200


async def test_idempotent_answer_is_deleted_with_its_result(any_database_app: AppFixture) -> None:
    app = any_database_app
    headers = {**app.bearer, "Idempotency-Key": "one"}
    body = {"model": "ra1", "input": {"prompt": "a fox"}}
    first = (await app.client.post(RUN, json=body, headers=headers)).json()
    await refund(app, first["id"])
    second = await app.client.post(RUN, json=body, headers=headers)
    assert "Idempotent-Replayed" not in second.headers
    assert second.json()["id"] != first["id"]
    assert await app.balance() == ("4.96", "0.00")


async def test_store_failure_after_success_gives_no_free_result(app: AppFixture) -> None:
    source = (await run(app))["output"]["url"]
    body = {"source_image_url": source, "style_prompt": "oil"}
    headers = {**app.bearer, "Idempotency-Key": "one", "Accept": "image/png"}
    blobs: Any = app.server.blobs
    real, blobs.get = blobs.get, _unreadable
    try:
        failed = await app.client.post("/api/style-transfer", json=body, headers=headers)
    finally:
        blobs.get = real
    assert failed.status_code == 503
    posted, _ = await app.balance()
    assert posted == "4.96"
    assert (await app.client.post("/api/style-transfer", json=body, headers=headers)).status_code == 200
    assert Decimal((await app.balance())[0]) < Decimal(posted), "the second attempt is paid for"


async def _unreadable(_name: str) -> bytes:
    raise errors.StoreFailed


async def test_refund_is_reported_by_events_and_a_webhook(app: AppFixture) -> None:
    result = await run(app, webhook="https://example.com/hook")
    ids = {row["id"] for row in await app.database.read(webhooks.of_prediction(result["id"]))}
    events = f"{PREDICTIONS}/{result['id']}/events"
    before = (await app.client.get(events, headers=app.bearer)).text
    last = before.rpartition("id: ")[2].partition("\n")[0]
    resumed = {**app.bearer, "Last-Event-ID": last}
    assert "status" not in (await app.client.get(events, headers=resumed)).text
    await refund(app, result["id"])
    after = (await app.client.get(events, headers=resumed)).text
    assert after.count("event: status") == 1
    assert '"status":"failed"' in after
    assert (await app.client.get(events, headers=resumed)).text == after
    rows = await app.database.read(webhooks.of_prediction(result["id"]))
    states: dict[str, str] = {}
    for row in rows:
        stored = await app.database.read(one("outbox_prediction", id=row["id"]))
        assert stored is not None
        states[row["event"]] = msgspec.json.decode(stored["prediction"])["state"]
    assert states == {"started": "running", "completed": "failed"}
    assert len({row["id"] for row in rows} - ids) == 1, "another message, which no listener drops as known"


# -- paths of the caller's choice ------------------------------------------------------------------


async def put(app: AppFixture, path: str, prompt: str = "a fox") -> int:
    response = await app.client.get(
        UPLOAD, params={**SMALL, "prompt": prompt, "save_path": path}, headers=app.bearer
    )
    return response.status_code


@pytest.mark.parametrize(("first", "second"), [("s1", "s1/p0.png"), ("s1/p0.png", "s1"), ("s1", "s1")])
async def test_save_path_in_use_is_409_without_a_hold(
    any_database_app: AppFixture, first: str, second: str
) -> None:
    app = any_database_app
    task = asyncio.create_task(put(app, first, "LATE"))
    await app.until("5.00", "0.04")
    answers = await asyncio.gather(*(put(app, second) for _ in range(4)))
    assert answers == [409] * 4
    assert await app.balance() == ("5.00", "0.04")
    assert await task == 200
    predictions = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
    assert [each["cost"] for each in predictions] == ["0.04"]
    assert await app.balance() == ("4.96", "0.00")
    assert await put(app, second) == (200 if second == first else 409)


async def test_failed_run_releases_its_save_path(any_database_app: AppFixture) -> None:
    app = any_database_app
    assert await put(app, "s1/p0.png", "FAIL") == 502
    assert await put(app, "s1") == 200
    assert await put(app, "s2", "FAIL") == 502
    assert await put(app, "s2/p0.png") == 200
    assert await put(app, "s2/p1.png") == 200


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(
    ("error", "status"), [(OSError("no space left on device"), 503), (RuntimeError("of the store"), 500)]
)
async def test_unwritable_path_withdraws_result_and_charge(
    any_database_app: AppFixture,
    monkeypatch: pytest.MonkeyPatch,
    writes: bool,
    error: Exception,
    status: int,
) -> None:
    app = any_database_app
    uploads: Any = app.server.uploads
    real, remaining = uploads.put, []

    async def fail(key: str, data: bytes, **more: Any) -> None:
        """Fail before the file is written, or after it, like a bucket whose response is lost."""
        remaining.append(key)
        if writes:
            await real(key, data, **more)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(uploads, "put", fail)
        assert await put(app, "s1") == status
    assert await uploads.stat(remaining[0]) is None
    (record,) = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
    assert (record["status"], record["output"], record["cost"]) == ("failed", None, "0.00")
    assert await app.balance() == ("5.00", "0.00")
    assert await put(app, "s1/p0.png") == 200, "the reservation went with the result"
    assert await app.faults() == ()


async def test_a_stored_file_without_its_mark_is_delivered(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = any_database_app

    def fail(_prediction_id: str) -> Any:
        raise errors.StoreFailed

    with monkeypatch.context() as patch:
        patch.setattr(upload_paths, "mark_stored", fail)
        assert await put(app, "s1") == 200
    assert await app.balance() == ("4.96", "0.00")


# -- groups ----------------------------------------------------------------------------------------


async def images(app: AppFixture, count: int, prompt: str) -> Any:
    body = {"model": "ra2", "prompt": prompt, "n": count, "response_format": "url"}
    return await app.client.post("/v1/images/generations", json=body, headers=app.bearer)


async def test_cancelation_of_one_image_keeps_the_others_of_a_group(tmp_path: Path) -> None:
    async with running_app(tmp_path, workers=2) as app:
        request = asyncio.create_task(images(app, 3, "LATE"))
        await app.until("5.00", "0.12")
        predictions = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
        queued_prediction = next(each for each in predictions if each["status"] == "queued")
        await app.client.post(f"{PREDICTIONS}/{queued_prediction['id']}/cancel", headers=app.bearer)
        response = await request
        assert response.status_code == 200, response.text
        assert len(response.json()["data"]) == 2
        assert await app.balance() == ("4.92", "0.00")
        for image in response.json()["data"]:
            assert (await app.client.get(image["url"])).status_code == 200


async def test_group_without_funds_for_all_is_free_and_has_no_result(app: AppFixture) -> None:
    key = {"Authorization": f"Bearer {app.poor}"}
    body = {"model": "ra2", "prompt": "a fox", "n": 3}
    assert (await app.client.post("/v1/images/generations", json=body, headers=key)).status_code == 402
    predictions = (await app.client.get(PREDICTIONS, headers=key)).json()["predictions"]
    assert all(each["output"] is None for each in predictions)
    assert (await images(app, 2, "FAIL")).status_code == 502
    assert await app.balance() == ("5.00", "0.00")


def hang_behind_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    obey, turns = DotEngine.obey_prompt, itertools.count()
    monkeypatch.setattr(
        DotEngine, "obey_prompt", lambda self, _, context: obey(self, "SLOW" if next(turns) else "", context)
    )


@pytest.mark.parametrize("end", ["time", "shutdown"])
async def test_group_that_ends_early_charges_and_returns_its_results(
    any_database_app: AppFixture, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    app, over = any_database_app, asyncio.Event()
    hang_behind_the_first(monkeypatch)
    pipeline = app.predictions

    async def wait(_events: Any, read_current: Any, _seconds: float, **_more: Any) -> Any:
        await over.wait()
        return await read_current()

    if end == "time":
        monkeypatch.setattr(pipeline.waiters, "wait", wait)
    request = asyncio.create_task(images(app, 3, "a fox"))
    await app.until("4.96", "0.08")
    predictions = (await app.client.get(PREDICTIONS, headers=app.bearer)).json()["predictions"]
    readable = next(each["output"]["url"] for each in predictions if each["status"] == "succeeded")
    over.set()
    if end == "shutdown":
        pipeline.drain()
        pipeline.waiters.stop()
    response = await request
    body = response.json()
    assert response.status_code == 200, response.text
    assert [image["url"] for image in body["data"]] == [readable]
    assert (await app.client.get(readable)).status_code == 200
    assert (body["incomplete"]["requested"], body["incomplete"]["returned"]) == (3, 1)
    assert "2 of 3 images were not generated and are not charged" in body["incomplete"]["message"]
    await app.until("4.96", "0.00")
    assert await app.faults() == ()


async def test_group_of_images_is_accepted_completely_or_refused(any_database_app: AppFixture) -> None:
    app = any_database_app

    async def count_accepted() -> int:
        return len((await app.predictions.page(Tenant(app.account.id), PredictionFilter(), 1000, None))[0])

    for _ in range(12):
        assert (await images(app, 10, "a fox")).status_code == 200
    assert await count_accepted() == 120
    assert (await images(app, 6, "a fox")).status_code == 402
    assert (await count_accepted(), await app.balance()) == (120, ("0.20", "0.00"))
    assert (await images(app, 5, "a fox")).status_code == 200


def painting(prompt: str) -> dict[str, Any]:
    return node("SixfoldTextToImage", prompt=prompt, steps=4, seed=3, width=64, height=64)


async def test_failed_graph_leaves_no_readable_images(dot_app: AppFixture) -> None:
    remaining = {"1": painting("a fox"), "2": node("SaveImage", images=["1", 0], filename_prefix="fox")}
    scaled = node("ImageScaleBy", image=["1", 0], upscale_method="nearest-exact", scale_by=2.0)
    failing = {
        **remaining,
        "3": node("SixfoldEdgeStyle", image=["1", 0], prompt="FAIL", strength=0.5, steps=3, seed=1),
        "4": node("SaveImage", images=["3", 0], filename_prefix="styled"),
    }
    prediction = await run_and_hold(dot_app, failing)
    assert (prediction["status"], prediction["cost"]) == ("failed", "0.00")
    assert await dot_app.balance() == ("5.00", "0.00")
    predictions = (await dot_app.client.get(PREDICTIONS, headers=dot_app.bearer)).json()["predictions"]
    assert {each["status"] for each in predictions} == {"failed"}
    assert all(each["output"] is None for each in predictions)
    view = {"filename": "fox_00001_.png", "type": "output"}
    assert (await dot_app.client.get("/view", params=view, headers=dot_app.bearer)).status_code == 404
    second_prediction = await run_and_hold(
        dot_app, {**remaining, "5": scaled, "6": node("SaveImage", images=["5", 0], filename_prefix="x")}
    )
    assert (second_prediction["status"], second_prediction["cost"]) == ("succeeded", "0.04"), (
        "nothing was found in the cache"
    )
    third = await run_and_hold(
        dot_app, {**remaining, "7": node("SaveImage", images=["1", 0], filename_prefix="y")}
    )
    assert (third["status"], third["cost"]) == ("succeeded", "0.00"), "what was paid for is found there"
    assert await dot_app.faults() == ()


async def test_account_below_zero_cannot_import_or_open_a_session(any_database_app: AppFixture) -> None:
    app = any_database_app
    entry = ledger.LedgerEntry("reversal", "a test")
    await app.database.write(ledger.deposit(app.account.id, -6_000_000, entry, below_zero=True))
    for path, body in (
        ("/api/containers/spaces/import", {"space": "acme/paint"}),
        ("/api/containers/world-model/sessions", {}),
        (RUN, {"model": "ra1", "input": {"prompt": "a fox"}}),
    ):
        response = await app.client.post(path, json=body, headers=app.bearer)
        document = response.json()
        assert (response.status_code, document["error"]) == (402, "Insufficient credits"), path
