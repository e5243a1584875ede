"""The Replicate engine against a loopback API that follows Replicate's documentation."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.core.gpu import run_clock
from sixfold.core.gpu.run_clock import RunClock
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers.replicate import ReplicateEngine
from tests.fakes import fault_server
from tests.fakes import replicate as fakes
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record


def engine(
    replicate: fakes.Replicate, outside: ServerServices, route: str = "image", **options: Any
) -> ReplicateEngine:
    limits = {**LIMITS, **options.pop("limits", {})}
    return ReplicateEngine(outside, route=route, base_url=replicate.url, limits=limits, **options)


async def fails(engine: ReplicateEngine, task: Task, record: Record) -> str:
    with pytest.raises(EngineError) as excinfo:
        await engine.run(task, record)
    return str(excinfo.value)


@pytest.mark.parametrize("quick", [True, False])
async def test_image_has_exactly_the_requested_size(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, quick: bool
) -> None:
    replicate.quick = quick
    result = await engine(replicate, outside).run(parts.drawing(width=800, height=333), record)
    image = parts.decoded_image(result.artifacts[0])
    assert (image.format, image.size) == ("PNG", (800, 333))
    (request,) = replicate.faults.steps("create")
    assert request.path == "/v1/models/black-forest-labs/flux-dev/predictions"
    assert request.document["input"]["aspect_ratio"] == "21:9"
    assert request.headers["prefer"].startswith("wait=")
    assert request.headers["cancel-after"] == "10s"
    assert request.headers["x-sixfold-hop"] == "1"
    assert result.upstream_cost_micros == 25_000
    assert len(replicate.faults.steps("look")) == (0 if quick else 2)


@pytest.mark.parametrize("quick", [True, False])
async def test_time_in_the_queue_of_the_provider_is_no_run_time(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, quick: bool
) -> None:
    replicate.quick = quick
    async with asyncio.timeout(60) as limit:
        clock = RunClock(limit)
        run_clock.current.set(clock)
        await engine(replicate, outside).run(parts.drawing(width=800, height=333), record)
    assert (clock.waited > 0) == (not quick)


async def test_upscale_by_version_is_billed_per_second(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    task = parts.task("upscale", {"image": parts.source(tmp_path)}, scale=3, face_enhance=True)
    result = await engine(replicate, outside, "upscale").run(task, record)
    assert parts.decoded_image(result.artifacts[0]).size == (900, 600)
    (request,) = replicate.faults.steps("create")
    assert (request.path, request.document["version"]) == ("/v1/predictions", fakes.ESRGAN)
    assert (request.document["input"]["scale"], request.document["input"]["face_enhance"]) == (3.0, True)
    assert result.upstream_cost_micros == 282  # 1.25 s of 225 micro-dollars, rounded up


async def test_small_source_is_inline_and_large_one_a_temporary_file(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    small = parts.task("style-transfer", {"source_image_url": parts.source(tmp_path)}, style_prompt="noir")
    await engine(replicate, outside, "style").run(small, record)
    assert replicate.faults.steps("create")[0].document["input"]["input_image"].startswith("data:image/jpeg")
    noisy = tmp_path / "noisy.png"
    noisy.write_bytes(parts.noise(1200, 900))
    large = parts.task("style-transfer", {"source_image_url": noisy}, style_prompt="noir", format="webp")
    result = await engine(replicate, outside, "style").run(large, record)
    assert parts.decoded_image(result.artifacts[0]).size == (1200, 900)
    sent = replicate.faults.steps("create")[1].document["input"]["input_image"]
    assert sent.startswith(f"{replicate.url}/files/")
    assert len(replicate.faults.steps("store")) == 1
    assert replicate.stored == {}


async def test_large_image_and_mask_are_temporary_files(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    files = parts.masked(tmp_path, parts.noise(800, 640))
    task = parts.task("image-fill", files, prompt="a boat", num_images=1)
    result = await engine(replicate, outside, "fill").run(task, record)
    assert parts.decoded_image(result.artifacts[0]).size == (800, 640)
    inputs = replicate.faults.steps("create")[0].document["input"]
    assert inputs["image"].startswith(f"{replicate.url}/files/")
    assert inputs["mask"].startswith("data:image/png")
    assert replicate.stored == {}


async def test_images_above_the_call_limit_use_several_calls(
    replicate: fakes.Replicate, outside: ServerServices, record: Record
) -> None:
    result = await engine(replicate, outside, "image-fast").run(parts.drawing(num_images=5), record)
    assert len(result.artifacts) == 5
    requests = [observed_request.document["input"] for observed_request in replicate.faults.steps("create")]
    assert [request["num_outputs"] for request in requests] == [4, 1]
    assert result.upstream_cost_micros == 5 * 3_000


INVALID = {
    "title": "Input validation failed",
    "detail": "- input.seed: Invalid type.",
    "status": 422,
    "invalid_fields": [{"type": "invalid_type", "field": "input.seed", "description": "Invalid type"}],
}


@pytest.mark.parametrize(
    ("status", "document", "sentence"),
    [
        (401, {"title": "Unauthenticated", "detail": "no"}, "The Replicate key was refused"),
        (402, {"title": "Insufficient credit"}, "The operator's account at Replicate has no credit left."),
        (404, {"detail": "not found"}, "Replicate does not have this model"),
        (422, INVALID, "Replicate refused the input seed: Invalid type."),
        (500, {"detail": "boom"}, "Replicate failed with status 500: try again later."),
    ],
)
async def test_a_refusal_is_one_sentence(
    replicate: fakes.Replicate,
    outside: ServerServices,
    record: Record,
    status: int,
    document: Any,
    sentence: str,
) -> None:
    replicate.faults.add("create", fault_server.answer(status, document))
    assert sentence in await fails(engine(replicate, outside), parts.drawing(), record)
    assert len(replicate.faults.steps("create")) == 1


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        ("NSFW content detected. Try running it again.", UnusableInput, "content policy"),
        ("The input or output was flagged as sensitive. (E005)", UnusableInput, "content policy"),
        ("CUDA out of memory", EngineError, "Replicate failed (CUDA out of memory)"),
        ("x" * 900, EngineError, "Replicate failed"),
    ],
)
async def test_failed_prediction_reports_its_reason(
    replicate: fakes.Replicate,
    outside: ServerServices,
    record: Record,
    error: str,
    kind: type[EngineError],
    sentence: str,
) -> None:
    replicate.error = error
    with pytest.raises(kind, match=r".{10,300}") as excinfo:
        await engine(replicate, outside).run(parts.drawing(), record)
    assert sentence in str(excinfo.value)
    assert len(str(excinfo.value)) < 300


async def test_rate_limit_and_failed_poll_are_retried(
    replicate: fakes.Replicate, outside: ServerServices, record: Record
) -> None:
    throttled = {"detail": "Request was throttled. Your rate limit resets in ~30s."}
    replicate.faults.add("create", fault_server.answer(429, throttled, {"Retry-After": "0.02"}))
    replicate.faults.add(
        "look", fault_server.answer(502, {}), fault_server.cut_short({"id": "x", "status": "starting"})
    )
    result = await engine(replicate, outside).run(parts.drawing(), record)
    assert len(result.artifacts) == 1
    assert len(replicate.jobs) == 1


async def test_creation_with_a_truncated_response_is_not_repeated(
    replicate: fakes.Replicate, outside: ServerServices, record: Record
) -> None:
    cut = fault_server.cut_short({"id": "abc", "status": "starting", "urls": {}})
    replicate.faults.add("create", cut)
    assert "cannot be parsed" in await fails(engine(replicate, outside), parts.drawing(), record)
    assert len(replicate.faults.steps("create")) == 1


@pytest.mark.parametrize("predict_time", [10**400, -(10**400)])
async def test_time_with_hundreds_of_digits_is_ignored(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, predict_time: int
) -> None:
    metrics = {"predict_time": predict_time}
    document = {"id": "abc", "status": "succeeded", "output": [], "metrics": metrics}
    replicate.faults.add("create", fault_server.answer(201, document))
    assert "did not return an image" in await fails(engine(replicate, outside), parts.drawing(), record)


async def test_a_run_longer_than_its_limit_is_canceled_at_replicate(
    replicate: fakes.Replicate, outside: ServerServices, record: Record
) -> None:
    replicate.ends = False
    result = engine(replicate, outside, limits={"whole_seconds": 2.0})
    assert "did not finish within 2 seconds" in await fails(result, parts.drawing(), record)
    assert [job.status for job in replicate.jobs.values()] == ["canceled"]


async def test_run_canceled_while_waiting_is_canceled_at_replicate(
    replicate: fakes.Replicate, outside: ServerServices, record: Record
) -> None:
    held_event = asyncio.Event()

    async def late(_request: Request) -> None:
        await held_event.wait()

    replicate.faults.add("create", late)
    run = asyncio.create_task(engine(replicate, outside).run(parts.drawing(), record))
    await replicate.faults.event("create").wait()
    run.cancel()
    held_event.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [job.status for job in replicate.jobs.values()] == ["canceled"]


async def test_canceled_run_deletes_its_temporary_source(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    replicate.ends = False
    path = tmp_path / "noisy.png"
    path.write_bytes(parts.noise(1200, 900))
    task = parts.task("style-transfer", {"source_image_url": path}, style_prompt="noir")
    run = asyncio.create_task(engine(replicate, outside, "style").run(task, record))
    await record.start_event.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [job.status for job in replicate.jobs.values()] == ["canceled"]
    assert replicate.stored == {}


async def test_a_result_at_a_private_address_is_not_fetched(
    replicate: fakes.Replicate, outside: ServerServices, record: Record
) -> None:
    replicate.address = "http://192.168.1.1/a.png"
    assert "could not be fetched" in await fails(engine(replicate, outside), parts.drawing(), record)


async def test_unreadable_source_is_a_client_error_and_is_not_sent(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    path = tmp_path / "cut.png"
    path.write_bytes(fault_server.image(300, 200)[:400])
    task = parts.task("style-transfer", {"source_image_url": path}, style_prompt="noir")
    with pytest.raises(UnusableInput):
        await engine(replicate, outside, "style").run(task, record)
    assert replicate.faults.requests == []


async def test_logs_and_errors_do_not_contain_the_key(
    replicate: fakes.Replicate, outside: ServerServices, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    replicate.error = f"Authorization: Bearer {fakes.KEY} failed"
    text = await fails(engine(replicate, outside), parts.drawing(), record)
    assert fakes.KEY not in "\n".join((text, caplog.text, *record.lines))
