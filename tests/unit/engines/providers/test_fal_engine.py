"""The fal engine against a loopback queue that follows fal's documentation."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path
from typing import Any

import pytest
from PIL import ImageChops
from starlette.requests import Request
from starlette.responses import Response

from sixfold.core.catalog.engines import Canceled, EngineError, Task, UnusableInput
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers.fal import FalEngine
from sixfold.net import data_uris
from tests.fakes import fal as fakes
from tests.fakes import fault_server
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record


def engine(fal: fakes.Fal, outside: ServerServices, route: str = "image", **options: Any) -> FalEngine:
    limits = {**LIMITS, **options.pop("limits", {})}
    return FalEngine(outside, route=route, base_url=fal.url, limits=limits, **options)


async def fails(engine: FalEngine, task: Task, record: Record) -> str:
    with pytest.raises(EngineError) as excinfo:
        await engine.run(task, record)
    return str(excinfo.value)


async def test_image_has_the_requested_size_and_format(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    task = parts.drawing(width=333, height=777, format="webp")
    result = await engine(fal, outside).run(task, record)
    (artifact,) = result.artifacts
    image = parts.decoded_image(artifact)
    assert (image.format, image.size) == ("WEBP", (333, 777))
    assert artifact.info == {"width": 333, "height": 777}
    assert result.quality == "full"
    request = fal.faults.steps("submit")[0].document
    assert request["image_size"]["width"] % 16 == request["image_size"]["height"] % 16 == 0
    assert request["seed"] == 7
    assert record.fractions[-1] == 1.0
    assert "drawing" in record.lines


async def test_images_above_the_call_limit_use_calls_with_own_seeds(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    result = await engine(fal, outside).run(parts.drawing(num_images=6), record)
    assert len(result.artifacts) == 6
    requests = [observed_request.document for observed_request in fal.faults.steps("submit")]
    assert [request["num_images"] for request in requests] == [4, 2]
    assert requests[0]["seed"] == 7
    assert requests[1]["seed"] != 7
    assert result.data["seeds"] == [request["seed"] for request in requests]


async def test_style_of_the_model_is_added_to_the_prompt(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    await engine(fal, outside, "image-fast").run(
        parts.task("anime", prompt="a fox", width=512, height=512, seed=1), record
    )
    (request,) = fal.faults.steps("submit")
    assert request.document["prompt"].startswith("a fox\n")
    assert "cel shading" in request.document["prompt"]


async def test_an_input_that_the_model_lacks_is_named_in_the_log(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    await engine(fal, outside).run(parts.drawing(negative_prompt="people"), record)
    assert any("negative_prompt" in line and "left out" in line for line in record.lines)


async def test_repainted_image_keeps_size_and_loses_metadata(
    fal: fakes.Fal, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    with parts.Image.new("RGB", (400, 300), "red") as image:
        exif = image.getexif()
        # The maker of the camera, and a rotation by 90 degrees.
        exif[0x010F], exif[0x0112] = "a camera of mine", 6
        image.save(path, exif=exif)
    task = parts.task("style-transfer", {"source_image_url": path}, style_prompt="ukiyo-e", format="jpeg")
    result = await engine(fal, outside, "style").run(task, record)
    assert parts.decoded_image(result.artifacts[0]).size == (300, 400)
    sent = fal.faults.steps("submit")[0].document["image_url"]
    assert sent.startswith("data:image/jpeg;base64,")
    assert b"camera" not in data_uris.parse_data_uri(sent, 1 << 24).body


async def test_fill_sends_the_area_around_the_mask_and_keeps_the_rest(
    fal: fakes.Fal, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    content = fault_server.image(800, 640)
    task = parts.task("image-fill", parts.masked(tmp_path, content), prompt="a boat", feather=0, grow=0)
    result = await engine(fal, outside, "fill").run(task, record)
    inputs = fal.faults.steps("submit")[0].document
    image, mask = [
        parts.Image.open(io.BytesIO(data_uris.parse_data_uri(inputs[name], 1 << 24).body)).convert("RGB")
        for name in ("image_url", "mask_url")
    ]
    assert image.size == mask.size == (512, 512)
    assert dict(mask.getcolors() or ()) == {512 * 512 - 1600: (0, 0, 0), 1600: (255, 255, 255)}
    before, after = (
        parts.Image.open(io.BytesIO(content)).convert("RGB"),
        parts.decoded_image(result.artifacts[0]),
    )
    assert ImageChops.difference(before, after.convert("RGB")).getbbox() == (620, 300, 660, 340)


async def test_transparent_result_keeps_its_alpha(
    fal: fakes.Fal, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    task = parts.task("remove-background", {"image": parts.source(tmp_path)}, format="png")
    result = await engine(fal, outside, "remove-background").run(task, record)
    image = parts.decoded_image(result.artifacts[0])
    assert (image.mode, image.size) == ("RGBA", (300, 200))


@pytest.mark.parametrize(("units", "micros"), [("", 25_000), ("2", 50_000)])
async def test_cost_to_the_operator_is_recorded(
    fal: fakes.Fal, outside: ServerServices, record: Record, units: str, micros: int
) -> None:
    fal.billable_units = units
    result = await engine(fal, outside).run(parts.drawing(), record)
    assert result.upstream_cost_micros == micros


async def test_every_call_has_the_hop_header(fal: fakes.Fal, outside: ServerServices, record: Record) -> None:
    await engine(fal, outside).run(parts.drawing(), record)
    ours = [request for request in fal.faults.requests if request.step != "file"]
    assert len(ours) >= 4
    assert all(request.headers["x-sixfold-hop"] == "1" for request in ours)


async def test_key_is_not_sent_to_the_url_of_a_result(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    await engine(fal, outside).run(parts.drawing(), record)
    (fetched,) = fal.faults.steps("file")
    assert "authorization" not in fetched.headers


LOCKED = {"detail": "User is locked. Reason: Exhausted balance. Top up at fal.ai/dashboard/billing."}
POLICY = {"detail": [{"loc": ["body", "prompt"], "msg": "flagged", "type": "content_policy_violation"}]}
PROMPT = {"detail": [{"loc": ["body", "prompt"], "msg": "Too long", "type": "string_too_long"}]}
SIZE = {"detail": [{"loc": ["body", "image_size", "width"], "msg": "Too large", "type": "x"}]}


@pytest.mark.parametrize(
    ("status", "document", "sentence"),
    [
        (401, {"detail": "nope"}, "The fal key was refused: an operator can set another"),
        (403, LOCKED, "The operator's account at fal has no credit left."),
        (402, {"detail": "Payment required"}, "The operator's account at fal has no credit left."),
        (404, {"detail": "Application 'x' not found"}, "fal does not have this model"),
        (422, POLICY, "content policy"),
        (422, PROMPT, "fal refused the input prompt: Too long."),
        (422, SIZE, "fal refused the input width: Too large."),
        (500, {"detail": "Traceback of a runner"}, "fal failed with status 500: try again later."),
    ],
)
async def test_a_refusal_is_one_sentence(
    fal: fakes.Fal, outside: ServerServices, record: Record, status: int, document: Any, sentence: str
) -> None:
    fal.faults.add("submit", fault_server.answer(status, document))
    text = await fails(engine(fal, outside), parts.drawing(), record)
    assert sentence in text
    assert len(fal.faults.steps("submit")) == 1


async def test_refused_prompt_is_a_client_error(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.faults.add("submit", fault_server.answer(422, POLICY))
    with pytest.raises(UnusableInput):
        await engine(fal, outside).run(parts.drawing(), record)


async def test_image_blackened_by_the_safety_checker_is_refused(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.nsfw = True
    assert "content policy" in await fails(engine(fal, outside), parts.drawing(), record)


async def test_rate_limit_is_retried_after_the_stated_time(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    busy = fault_server.answer(429, {"detail": "Too many requests"}, {"Retry-After": "0.05"})
    fal.faults.add("submit", busy, busy)
    result = await engine(fal, outside).run(parts.drawing(), record)
    assert len(result.artifacts) == 1
    assert len(fal.faults.steps("submit")) == 3


async def test_retry_after_beyond_the_wait_fails_at_once(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.faults.add("submit", fault_server.answer(429, {"detail": "Slow down"}, {"Retry-After": "3600"}))
    assert "limiting" in await fails(engine(fal, outside), parts.drawing(), record)


async def test_failed_status_request_is_retried(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.faults.add(
        "status",
        fault_server.answer(500, {}),
        fault_server.answer(503, {}),
        fault_server.raw(b"{", status=200),
    )
    result = await engine(fal, outside).run(parts.drawing(), record)
    assert len(result.artifacts) == 1


async def test_submission_without_a_response_is_not_repeated(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.faults.add("submit", fault_server.hang)
    result = engine(fal, outside, limits={"call_seconds": 0.2})
    assert await fails(result, parts.drawing(), record) == "fal did not respond in time: try again later."
    assert len(fal.faults.steps("submit")) == 1


async def test_endless_response_times_out(fal: fakes.Fal, outside: ServerServices, record: Record) -> None:
    fal.faults.add("submit", fault_server.trickle)
    result = engine(fal, outside, limits={"call_seconds": 0.2})
    assert "did not respond in time" in await fails(result, parts.drawing(), record)


async def test_a_run_longer_than_its_limit_is_canceled_at_fal(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.ends = False
    result = engine(fal, outside, limits={"whole_seconds": 2.0})
    assert await fails(result, parts.drawing(), record) == "fal did not finish within 2 seconds."
    assert [job.canceled for job in fal.jobs.values()] == [True]


async def test_reason_of_a_failed_model_is_requested_once(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.failure = (500, {"detail": "Internal error", "error_type": "internal_error"})
    assert "fal failed with status 500" in await fails(engine(fal, outside), parts.drawing(), record)
    assert len(fal.faults.steps("result")) == 1


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (fault_server.image(640, 512)[:1500], "image/png"),
        (b"<html>not here</html>", "image/png"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        (b"", "image/png"),
    ],
)
async def test_unreadable_image_of_fal_is_not_a_client_error(
    fal: fakes.Fal, outside: ServerServices, record: Record, content: bytes, content_type: str
) -> None:
    fal.file = (content, content_type)
    with pytest.raises(EngineError, match="fal returned an image that cannot be read") as excinfo:
        await engine(fal, outside).run(parts.drawing(), record)
    assert not isinstance(excinfo.value, UnusableInput)


@pytest.mark.parametrize(
    "address", ["http://10.0.0.1/a.png", "http://169.254.169.254/a", "file:///etc/passwd"]
)
async def test_a_result_at_a_private_address_is_not_fetched(
    fal: fakes.Fal, outside: ServerServices, record: Record, address: str
) -> None:
    fal.address = address
    assert "could not be fetched" in await fails(engine(fal, outside), parts.drawing(), record)


async def test_failed_fetch_of_a_result_is_retried(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.faults.add("file", fault_server.answer(503, {}))
    result = await engine(fal, outside).run(parts.drawing(), record)
    assert len(result.artifacts) == 1


async def test_result_above_the_size_limit_is_refused(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    result = engine(fal, outside, limits={"file_bytes": 1000})
    assert "could not be fetched" in await fails(result, parts.drawing(), record)


async def test_response_above_the_size_limit_is_refused(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    result = engine(fal, outside, limits={"answer_bytes": 100})
    assert "a response of more than 100 bytes" in await fails(result, parts.drawing(), record)


async def test_inline_image_is_not_fetched(fal: fakes.Fal, outside: ServerServices, record: Record) -> None:
    fal.address = parts.data_uri(fault_server.image(640, 512))
    await engine(fal, outside).run(parts.drawing(), record)
    assert fal.faults.steps("file") == []


async def test_queue_outage_is_survived_without_a_second_submission(
    outside: ServerServices, record: Record
) -> None:
    fake = fakes.Fal(ends=False)
    async with fakes.running(fake):
        run = asyncio.create_task(engine(fake, outside).run(parts.drawing(), record))
        await record.start_event.wait()
    fake.ends = True
    async with fakes.running(fake):
        result = await run
    assert len(result.artifacts) == 1
    assert len(fake.jobs) == 1


async def test_unreachable_queue_is_named_in_the_error(outside: ServerServices, record: Record) -> None:
    async with fakes.running() as fake:
        pass
    assert "fal could not be reached" in await fails(engine(fake, outside), parts.drawing(), record)


async def test_a_canceled_run_is_canceled_at_fal(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.ends = False
    run = asyncio.create_task(engine(fal, outside).run(parts.drawing(num_images=8), record))
    await record.start_event.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(fal.jobs) == 2
    assert all(job.canceled for job in fal.jobs.values())


async def test_run_canceled_during_progress_is_canceled_at_fal(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    record.wanted = False
    with pytest.raises(Canceled):
        await engine(fal, outside).run(parts.drawing(), record)
    assert [job.canceled for job in fal.jobs.values()] == [True]


async def test_run_canceled_during_submission_is_canceled_at_fal(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    held_event = asyncio.Event()

    async def late(_request: Request) -> None:
        await held_event.wait()

    fal.faults.add("submit", late)
    run = asyncio.create_task(engine(fal, outside).run(parts.drawing(), record))
    await fal.faults.event("submit").wait()
    run.cancel()
    held_event.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [job.canceled for job in fal.jobs.values()] == [True]


async def test_failed_call_cancels_the_other_calls_at_fal(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    fal.ends = False

    async def refused_later(request: Request) -> Response | None:
        await record.start_event.wait()
        return await fault_server.answer(422, POLICY)(request)

    fal.faults.add("submit", fault_server.succeed, refused_later)
    assert "policy" in await fails(engine(fal, outside), parts.drawing(num_images=8), record)
    assert [job.canceled for job in fal.jobs.values()] == [True]


async def test_run_without_a_key_sends_no_request(fal: fakes.Fal, record: Record) -> None:
    async with parts.server_services({}) as ways:
        result = FalEngine(ways, route="image")
        text = await fails(result, parts.drawing(), record)
    assert "Key for fal not found" in text
    assert "sixfold provider set fal" in text


@pytest.mark.parametrize("key", ["ключ-от-fal-которого-нет", "key-with-a-line\nbreak-in-it"])
async def test_key_invalid_in_a_header_is_refused_and_not_shown(
    fal: fakes.Fal, record: Record, key: str
) -> None:
    async with parts.server_services({"fal_key": key}) as ways:
        text = await fails(engine(fal, ways), parts.drawing(), record)
    assert "key was refused" in text
    assert key not in text
    assert fal.faults.requests == []


async def test_logs_and_errors_do_not_contain_the_key(
    fal: fakes.Fal, outside: ServerServices, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # A server that an earlier test started has raised the level of this logger.
    caplog.set_level(logging.DEBUG, logger="httpx")
    echo = fault_server.answer(
        422, {"detail": [{"loc": ["body", "prompt"], "msg": f"Key {fakes.KEY} {fakes.KEY}"}]}
    )
    fal.faults.add("submit", echo)
    with pytest.raises(EngineError) as excinfo:
        await engine(fal, outside).run(parts.drawing(), record)
    await engine(fal, outside).run(parts.drawing(), record)
    messages = [str(excinfo.value), repr(excinfo.value), caplog.text, *record.lines]
    assert not any(fakes.KEY in text or fakes.KEY.partition(":")[2] in text for text in messages)
    assert "HTTP Request" in caplog.text


async def test_key_is_sent_only_to_its_own_server(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    async with fakes.running() as thief:
        elsewhere = f"{thief.url}/fal-ai/flux/requests/00000000-52a4-4d0e-8a6a-0f3b6c1d2e3f"
        ticket = {
            "request_id": "x",
            "status_url": f"{elsewhere}/status",
            "response_url": elsewhere,
            "cancel_url": f"{elsewhere}/cancel",
        }
        result = engine(fal, outside)
        await result.run(parts.drawing(), record)
        fal.faults.add("submit", fault_server.answer(200, ticket))
        await result.run(parts.drawing(), record)
    assert thief.faults.requests == []


async def test_configured_inputs_override_those_of_the_route(
    fal: fakes.Fal, outside: ServerServices, record: Record
) -> None:
    over = {"inputs": {"num_inference_steps": 40}, "price": {"usd": "0.5"}}
    output = engine(fal, outside, model="fal-ai/flux/schnell", **over)
    result = await output.run(parts.drawing(), record)
    (request,) = fal.faults.steps("submit")
    assert (request.path, request.document["num_inference_steps"]) == ("/fal-ai/flux/schnell", 40)
    assert result.data["provider_model"] == "fal-ai/flux/schnell"
    assert result.upstream_cost_micros == 500_000
