"""Replicate's own client, unmodified, with its base URL changed."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from replicate.client import Client
from replicate.exceptions import ModelError, ReplicateError

from tests.api.app_fixture import ORIGIN, AppFixture, running_app
from tests.api.test_hosting_hire import models
from tests.api.test_hosting_webhooks import INSIDE, listening, until
from tests.fakes.fault_server import Faults

BASE = "/replicate/v1"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with templates of tiny engines."""
    async with running_app(tmp_path, models(), **INSIDE) as found:
        yield found


def client(app: AppFixture, key: str | None = None) -> Client:
    """The official client, on the server in this process."""
    transport = httpx.ASGITransport(app.asgi, raise_app_exceptions=False)
    return Client(key or app.key, base_url=f"{ORIGIN}/replicate", transport=transport)


async def test_run_gives_a_file(app: AppFixture) -> None:
    output = await client(app).async_run("sixfold/anime-image", {"prompt": "a fox"})
    assert isinstance(output, str)  # of a server behind https the client makes a file of it
    picture = Image.open(io.BytesIO((await app.client.get(output)).content))
    assert picture.size == (32, 32)
    (listed,) = (await client(app).predictions.async_list()).results
    assert (listed.model, listed.status) == ("sixfold/anime-image", "succeeded")


async def test_a_version_runs_as_its_model_does(app: AppFixture) -> None:
    official = client(app)
    model = await official.models.async_get("sixfold/anime-image")
    assert model.latest_version is not None
    schema = model.latest_version.openapi_schema["components"]["schemas"]["Input"]
    assert schema["required"] == ["prompt"]
    assert schema["properties"]["prompt"]["x-order"] == 0
    version = await model.versions.async_get(model.latest_version.id)
    assert [each.id for each in (await model.versions.async_list()).results] == [version.id]
    made = await official.predictions.async_create(version=version, input={"prompt": "a fox"}, wait=True)
    assert (made.status, made.version) == ("succeeded", version.id)
    assert made.metrics is not None
    assert made.metrics["predict_time"] >= 0
    named = await official.async_run(f"sixfold/anime-image:{version.id}", {"prompt": "a fox"})
    assert isinstance(named, str)


async def test_a_prediction_is_made_followed_and_canceled(app: AppFixture) -> None:
    official = client(app)
    made = await official.models.predictions.async_create(
        ("sixfold", "anime-image"), {"prompt": "SLOW"}, wait=False
    )
    assert made.status in {"starting", "processing"}
    await made.async_cancel()
    official.poll_interval = 0.01
    await made.async_wait()
    assert (made.status, made.output) == ("canceled", None)
    assert await app.balance() == ("5.00", "0.00")


async def test_a_failure_is_the_clients_own(app: AppFixture) -> None:
    with pytest.raises(ModelError) as caught:
        await client(app).async_run("sixfold/anime-image", {"prompt": "FAIL"})
    assert caught.value.prediction.error == "The paint has run out"


async def test_a_file_goes_in(app: AppFixture) -> None:
    file = io.BytesIO(b"twelve bytes")
    told: Any = await client(app).async_run("sixfold/media-encode", {"media": file})
    assert told["files"] == {"media": 12}


async def test_all_models_the_account_and_the_hardware_are_listed(app: AppFixture) -> None:
    official = client(app)
    listed = {model.name: model for model in (await official.models.async_list()).results}
    assert {"ra2", "anime-image", "text-llm"} <= listed.keys()
    assert {model.owner for model in listed.values()} == {"sixfold"}
    assert (await official.accounts.async_current()).name == "ada@example.com"
    assert next(kind.sku for kind in await official.hardware.async_list()) == "gpu-80gb-a"


REFUSED = [
    ("models/sixfold/anime-image/predictions", {"input": {}}, 422),
    ("models/sixfold/nothing/predictions", {"input": {}}, 404),
    ("models/other/anime-image/predictions", {"input": {"prompt": "x"}}, 404),
    ("models/sixfold/text-llm/predictions", {"input": {"prompt": "x"}}, 503),
    ("predictions", {"version": "0" * 64, "input": {}}, 422),
    ("predictions", {"input": {}}, 422),
    ("predictions", {"version": "sixfold/anime-image", "input": []}, 422),
    ("predictions", {"version": "sixfold/anime-image", "input": {}, "webhook": "x"}, 422),
    ("nothing", {}, 404),
]


@pytest.mark.parametrize(("path", "body", "status"), REFUSED)
async def test_errors_have_replicates_shape(app: AppFixture, path: str, body: Any, status: int) -> None:
    answer = await app.client.post(f"{BASE}/{path}", json=body, headers=app.bearer)
    told = answer.json()
    assert (answer.status_code, told["status"]) == (status, status)
    assert told["detail"]
    assert told["title"]
    assert set(told) - {"invalid_fields"} == {"detail", "status", "title"}


async def test_a_wrong_key_is_the_clients_own_error(app: AppFixture) -> None:
    with pytest.raises(ReplicateError) as caught:
        await client(app, "sf_wrong").async_run("sixfold/anime-image", {"prompt": "x"})
    assert caught.value.status == 401


async def test_prefer_says_how_long_to_wait(app: AppFixture) -> None:
    body = {"input": {"prompt": "SLOW"}}
    path = f"{BASE}/models/sixfold/anime-image/predictions"
    at_once = await app.client.post(path, json=body, headers=app.bearer)
    assert (at_once.status_code, at_once.json()["status"]) == (201, "starting")
    waited = await app.client.post(path, json=body, headers={**app.bearer, "Prefer": "wait=1"})
    assert (waited.status_code, waited.json()["output"]) == (201, None)
    for answer in (at_once, waited):
        await app.client.post(answer.json()["urls"]["cancel"], headers=app.bearer)
    await app.until("5.00", "0.00")


async def test_webhook_gets_the_prediction_for_subscribed_events(app: AppFixture) -> None:
    faults = Faults()
    async with listening(faults) as url:
        made = await client(app).models.predictions.async_create(
            ("sixfold", "anime-image"),
            {"prompt": "a fox"},
            wait=True,
            webhook=url,
            webhook_events_filter=["completed"],
        )
        await until(app, made.id, lambda rows: len(rows) == 1 and bool(rows[0]["ended_at"]))
    (seen,) = faults.steps("told")
    told = json.loads(seen.document)
    assert (told["id"], told["status"], told["output"]) == (made.id, "succeeded", made.output)
