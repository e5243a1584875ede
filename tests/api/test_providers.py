"""A provider behind the whole pipeline: answers, charges, costs and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.clock import DAY_US
from sixfold.core.predictions import queries
from sixfold.core.predictions.queries import EngineCost
from sixfold.store.secrets import MASTER, Secrets
from tests.api.app_fixture import AppFixture, running_app
from tests.fakes import fal, fault_server, openai, replicate
from tests.harness.waiting import wait_until
from tests.unit.engines.providers import parts

LIMITS = {"pause_seconds": 0.01, "waiting_seconds": 1.0, "poll_seconds": 0.01, "longest_poll_seconds": 0.02}


def catalog_with(**addresses: str) -> Mapping[str, Any]:
    """Return the bundled catalog, whose providers are the fakes at these URLs."""
    document = app_catalog.models_document()
    engines: dict[str, Any] = {}
    for name, row in document["engines"].items():
        url = addresses.get(name.partition("-")[0])
        options = {**row.get("options", {}), **({"base_url": url, "limits": LIMITS} if url else {})}
        engines[name] = {**row, "options": options}
    return {**document, "engines": engines}


@asynccontextmanager
async def running_server(
    folder: Path, models: Mapping[str, Any], **changes: Any
) -> AsyncGenerator[AppFixture]:
    """Run a server that may fetch results from loopback, where the fakes store them."""
    async with running_app(folder, models, probe=False, fetch_allow="127.0.0.1", **changes) as app:
        yield app


@pytest.fixture
async def queue() -> AsyncGenerator[fal.Fal]:
    async with fal.running() as fake:
        yield fake


@pytest.fixture
async def app(queue: fal.Fal, tmp_path: Path) -> AsyncGenerator[AppFixture]:
    async with running_server(tmp_path, catalog_with(fal=queue.url), fal_key=fal.KEY) as result:
        yield result


def body_with(app: AppFixture, **more: Any) -> dict[str, Any]:
    return {"api_key": app.key, "prompt": "a fox", **more}


async def read_spent(app: AppFixture) -> dict[str, EngineCost]:
    rows = await app.database.read(queries.by_engine(DAY_US))
    return {row.engine: row for row in rows}


async def test_fal_image_has_list_price_and_records_the_fal_cost(app: AppFixture, queue: fal.Fal) -> None:
    response = await app.client.post("/api/ra1", json=body_with(app, size="1024x1024"))
    assert (response.status_code, response.json()["cost"]) == (200, "0.04")
    assert response.headers["X-Sixfold-Engine"] == "fal-image"
    assert response.headers["X-Sixfold-Quality"] == "full"
    image = await app.client.get(response.json()["image_url"])
    assert image.content.startswith(b"\x89PNG")
    assert await app.balance() == ("4.96", "0.00")
    assert (await read_spent(app))["fal-image"] == EngineCost("fal-image", 1, 40_000, 25_000, 1)
    assert await app.faults() == ()


async def test_eight_images_are_two_calls_and_eight_charges(app: AppFixture, queue: fal.Fal) -> None:
    response = await app.client.post("/api/anime", json=body_with(app, num_images=8))
    assert response.status_code == 200
    assert len(set(response.json()["images"])) == 8
    assert response.headers["X-Sixfold-Engine"] == "fal-image-fast"
    assert [request.path for request in queue.faults.steps("submit")] == ["/fal-ai/flux/schnell"] * 2
    assert await app.balance() == ("4.944", "0.00")


@pytest.mark.parametrize(
    "fault",
    [
        fault_server.answer(401, {"detail": "no"}),
        fault_server.answer(402, {"detail": "no credit"}),
        fault_server.answer(422, {"detail": [{"loc": ["body", "prompt"], "msg": "no", "type": "x"}]}),
        fault_server.answer(429, {"detail": "slow"}, {"Retry-After": "600"}),
        fault_server.answer(500, {"detail": "boom"}),
        fault_server.raw(b'{"request_id": "1", "sta'),
    ],
)
async def test_a_failure_at_the_provider_charges_nothing(
    app: AppFixture, queue: fal.Fal, fault: fault_server.Fault
) -> None:
    queue.faults.add("submit", fault)
    response = await app.client.post("/api/ra1", json=body_with(app))
    assert response.status_code >= 400
    assert fal.KEY not in response.text
    assert await app.balance() == ("5.00", "0.00")
    assert await app.faults() == ()
    assert await read_spent(app) == {}


async def test_a_canceled_job_is_canceled_at_the_provider_and_refunded(
    app: AppFixture, queue: fal.Fal
) -> None:
    queue.ends = False
    response = await app.client.post("/api/ra1", json=body_with(app, response_mode="polling"))
    assert response.status_code == 202
    await queue.faults.event("status").wait()
    assert (await app.client.delete(response.json()["status_url"])).status_code == 200
    await queue.faults.event("cancel").wait()
    await app.until("5.00", "0.00")
    assert [job.canceled for job in queue.jobs.values()] == [True]


async def test_free_embedded_engine_is_used_before_a_provider(app: AppFixture, queue: fal.Fal) -> None:
    response = await app.client.get("/create_image", params={"prompt": "a fox", "width": 64, "height": 64})
    assert response.status_code == 200
    assert response.headers["X-Sixfold-Engine"] == "scene-painter"
    assert queue.faults.requests == []


async def test_key_stored_at_runtime_enables_its_provider(tmp_path: Path) -> None:
    async with running_server(tmp_path, catalog_with()) as app:
        before = await app.client.post("/api/ra1", json=body_with(app))
        assert before.headers["X-Sixfold-Engine"] == "scene-painter"
        Secrets(tmp_path, (tmp_path / MASTER).read_bytes()).put("openai_api_key", openai.KEY)
        await app.server.availability.refresh()
        assert app.server.availability("openai-image").ready
        assert not app.server.availability("fal-image").ready


async def test_own_server_needs_no_key_and_stored_key_applies_at_once(queue: fal.Fal, tmp_path: Path) -> None:
    async with running_server(tmp_path, catalog_with(fal=queue.url)) as app:
        keyless = await app.client.post("/api/ra1", json=body_with(app))
        Secrets(tmp_path, (tmp_path / MASTER).read_bytes()).put("fal_key", fal.KEY)
        keyed = await app.client.post("/api/ra1", json=body_with(app))
    # This server requires a key.
    assert (keyless.status_code, keyed.status_code) == (502, 200)
    sent = [request.headers.get("authorization") for request in queue.faults.steps("submit")]
    assert sent == [None, f"Key {fal.KEY}"]


async def test_openai_and_replicate_serve_where_only_their_keys_are(tmp_path: Path) -> None:
    async with openai.running() as images, replicate.running() as predictions:
        models = catalog_with(openai=images.url)
        async with running_server(tmp_path / "o", models, openai_api_key=openai.KEY) as app:
            response = await app.client.post("/api/ra1", json=body_with(app, size="1152x768"))
            assert response.headers["X-Sixfold-Engine"] == "openai-image"
            assert (await read_spent(app))["openai-image"].spent > 50_000
        models = catalog_with(replicate=predictions.url)
        async with running_server(tmp_path / "r", models, replicate_api_token=replicate.KEY) as app:
            response = await app.client.post("/api/anime", json=body_with(app, num_images=2))
            assert response.headers["X-Sixfold-Engine"] == "replicate-image-fast"
            assert (await read_spent(app))["replicate-image-fast"].spent == 2 * 3_000


async def test_twelve_provider_runs_wait_at_once_and_all_succeed(app: AppFixture, queue: fal.Fal) -> None:
    async def one() -> int:
        return (await app.client.post("/api/ra1", json=body_with(app, size="1152x768"))).status_code

    queue.ends = False
    runs = [asyncio.create_task(one()) for _ in range(12)]
    # The server has four workers, and the provider has all twelve runs before one of them ends.
    await wait_until(lambda: len(queue.jobs) == 12)
    assert app.settings.workers == 4
    assert not any(run.done() for run in runs)
    queue.ends = True
    assert await asyncio.gather(*runs) == [200] * 12
    assert await app.balance() == ("4.52", "0.00")


async def test_a_background_is_removed_by_fal_where_a_key_is_set(app: AppFixture, queue: fal.Fal) -> None:
    picture = (await app.client.post("/api/ra1", json=body_with(app))).json()["image_url"]
    body = {"api_key": app.key, "image_url": picture}
    response = await app.client.post("/api/remove-background", json=body)
    assert (response.status_code, response.headers["X-Sixfold-Engine"]) == (200, "fal-remove-background")
    image = response.json()["image"]
    assert (image["content_type"], image["confidence"]) == ("image/png", None)
    assert (await app.client.get(image["url"])).content.startswith(b"\x89PNG")
    assert queue.faults.steps("submit")[-1].path == "/fal-ai/bria/background/remove"
    assert await app.balance() == ("4.94", "0.00")


async def test_speech_and_transcription_work_with_fal_or_replicate(tmp_path: Path) -> None:
    async with fal.running() as queue, replicate.running() as predictions:
        grounds = {
            "fal": (
                catalog_with(fal=queue.url),
                {"fal_key": fal.KEY},
                {"fal-speech": 780, "fal-listening": 0},
            ),
            "replicate": (
                catalog_with(replicate=predictions.url),
                {"replicate_api_token": replicate.KEY},
                {"replicate-speech": 780, "replicate-listening": 282},
            ),
        }
        for name, (models, keys, costs_there) in grounds.items():
            async with running_server(tmp_path / name, models, **keys) as app:
                body = {"model": "tts", "input": "Good morning.", "response_format": "wav"}
                spoken = await app.client.post("/v1/audio/speech", json=body, headers=app.bearer)
                assert (spoken.status_code, spoken.headers["X-Sixfold-Engine"]) == (200, f"{name}-speech")
                assert spoken.content.startswith(b"RIFF")
                sent = {"file": ("said.wav", fault_server.tone(6.0), "audio/wav")}
                response = await app.client.post(
                    "/v1/audio/transcriptions", data={"model": "stt"}, files=sent, headers=app.bearer
                )
                assert response.json()["text"] == "good morning dear friends"
                assert await app.balance() == ("4.9974", "0.00")
                assert {engine: row.spent for engine, row in (await read_spent(app)).items()} == costs_there


async def test_speech_transcripts_and_captions_by_an_openai_server(tmp_path: Path) -> None:
    async with (
        openai.running() as server,
        running_server(tmp_path, catalog_with(openai=server.url), openai_api_key=openai.KEY) as app,
    ):
        body = {"model": "tts-1", "input": "Good morning.", "voice": "ava", "response_format": "wav"}
        server.faults.add("speak", fault_server.answer(400, {"error": {"message": "no", "param": "voice"}}))
        refused_response = await app.client.post("/v1/audio/speech", json=body, headers=app.bearer)
        assert refused_response.status_code >= 400
        assert await app.balance() == ("5.00", "0.00")
        spoken = await app.client.post("/v1/audio/speech", json=body, headers=app.bearer)
        assert (spoken.status_code, spoken.headers["X-Sixfold-Engine"]) == (200, "openai-speech")
        assert spoken.content.startswith(b"RIFF")
        sent = {"file": ("said.wav", fault_server.tone(6.0), "audio/wav")}
        response = await app.client.post(
            "/v1/audio/transcriptions", data={"model": "whisper-1"}, files=sent, headers=app.bearer
        )
        assert response.json()["text"] == "good morning dear friends"
        image = parts.data_uri(fault_server.image(64, 64))
        asked_of = {"service": "caption", "image_url": image}
        response_body = (await app.client.post("/api/service", json=asked_of, headers=app.bearer)).json()
        assert response_body["output"]["text"] == "A red square on white."
        assert (response_body["engine"], response_body["quality"]) == ("openai-caption", "full")
        assert await app.balance() == ("4.9954", "0.00")  # 0.002, a tenth of 0.006, and 0.002
        costs_there = {name: row.spent for name, row in (await read_spent(app)).items()}
        assert costs_there == {"openai-speech": 195, "openai-listening": 600, "openai-caption": 711}
        assert await app.faults() == ()
