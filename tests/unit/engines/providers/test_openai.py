"""The OpenAI engine against a loopback API that follows OpenAI's documentation."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers.openai import OpenAIEngine
from tests.fakes import fault_server
from tests.fakes import openai as fakes
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record


def engine(
    openai: fakes.OpenAI, outside: ServerServices, route: str = "image", **options: Any
) -> OpenAIEngine:
    limits = {**LIMITS, **options.pop("limits", {})}
    return OpenAIEngine(outside, route=route, base_url=openai.url, limits=limits, **options)


async def fails(engine: OpenAIEngine, task: Task, record: Record) -> str:
    with pytest.raises(EngineError) as excinfo:
        await engine.run(task, record)
    return str(excinfo.value)


@pytest.mark.parametrize("size", [(1024, 1024), (64, 64), (2048, 64), (64, 2048), (1360, 768), (777, 1111)])
async def test_every_size_maps_to_an_openai_size_and_returns_exact(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, size: tuple[int, int]
) -> None:
    result = await engine(openai, outside).run(parts.drawing(width=size[0], height=size[1]), record)
    assert parts.decoded_image(result.artifacts[0]).size == size


async def test_cost_is_computed_from_the_tokens(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    result = await engine(openai, outside).run(parts.drawing(num_images=2), record)
    assert len(result.artifacts) == 2
    # Tokens of the prompt and of the images.
    assert result.upstream_cost_micros == 4 * 5 + 2 * 1_767 * 30
    openai.usage = False
    result = await engine(openai, outside).run(parts.drawing(), record)
    assert result.upstream_cost_micros is None


async def test_negative_prompt_joins_the_prompt_and_seed_is_logged(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    result = await engine(openai, outside).run(parts.drawing(negative_prompt="people"), record)
    (request,) = openai.faults.steps("generate")
    assert request.document["prompt"] == "a lighthouse\n\nLeave out: people"
    assert any("seed" in line and "left out" in line for line in record.lines)
    assert "seeds" not in result.data
    assert request.headers["x-sixfold-hop"] == "1"


async def test_image_to_image_keeps_the_size(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    task = parts.task(
        "style-transfer", {"source_image_url": parts.source(tmp_path)}, style_prompt="ukiyo-e", format="webp"
    )
    result = await engine(openai, outside, "style").run(task, record)
    image = parts.decoded_image(result.artifacts[0])
    assert (image.format, image.size) == ("WEBP", (300, 200))
    ((_, sent),) = openai.uploads
    with Image.open(io.BytesIO(sent)) as uploaded:
        assert uploaded.size == (300, 200)
    (request,) = openai.faults.steps("edit")
    assert "Style: ukiyo-e" in request.document["prompt"]
    assert result.upstream_cost_micros is not None


def error_document(message: str, *, code: str | None = None, param: str | None = None) -> Any:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


@pytest.mark.parametrize(
    ("status", "document", "sentence"),
    [
        (
            401,
            error_document("Incorrect API key provided: sk-proj-x", code="invalid_api_key"),
            "key was refused",
        ),
        (429, error_document("You exceeded your quota", code="insufficient_quota"), "has no credit left"),
        (400, error_document("Hard limit reached", code="billing_hard_limit_reached"), "has no credit left"),
        (400, error_document("Rejected by the safety system", code="moderation_blocked"), "content policy"),
        (404, error_document("No such model", code="model_not_found"), "OpenAI does not have this model"),
        (400, error_document("Too long.", param="prompt"), "OpenAI refused the input prompt: Too long."),
        (302, {}, "OpenAI failed with status 302"),
    ],
)
async def test_refusal_is_one_sentence_and_is_not_retried(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, status: int, document: Any, sentence: str
) -> None:
    openai.faults.add("generate", fault_server.answer(status, document))
    assert sentence in await fails(engine(openai, outside), parts.drawing(), record)
    assert len(openai.faults.steps("generate")) == 1


async def test_moderated_prompt_is_a_client_error(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    openai.faults.add("generate", fault_server.answer(400, error_document("no", code="moderation_blocked")))
    with pytest.raises(UnusableInput):
        await engine(openai, outside).run(parts.drawing(), record)


async def test_failed_or_limited_call_is_retried(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    limited = fault_server.answer(
        429, error_document("slow down", code="rate_limit_exceeded"), {"Retry-After": "0.02"}
    )
    openai.faults.add("generate", fault_server.answer(500, {}), limited)
    result = await engine(openai, outside).run(parts.drawing(), record)
    assert len(result.artifacts) == 1
    assert len(openai.faults.steps("generate")) == 3


@pytest.mark.parametrize("fault", [fault_server.hang, fault_server.trickle])
async def test_hanging_call_times_out_and_is_not_repeated(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, fault: fault_server.Fault
) -> None:
    openai.faults.add("generate", fault)
    result = engine(openai, outside, limits={"whole_seconds": 2.0})
    text = await fails(result, parts.drawing(), record)
    assert "OpenAI did not" in text
    assert len(openai.faults.steps("generate")) == 1


@pytest.mark.parametrize(
    "fault",
    [
        fault_server.raw(b'{"created": 1, "data": [{"b64_js'),
        fault_server.raw(b"<html></html>", "text/html"),
        fault_server.answer(200, {"created": 1, "data": []}),
        fault_server.answer(200, {"created": 1, "data": [{"b64_json": "***"}]}),
        fault_server.answer(200, {"created": 1, "data": [{"b64_json": "aGVsbG8="}]}),
        fault_server.answer(200, ["not", "an", "object"]),
    ],
)
async def test_malformed_response_fails_the_run(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, fault: fault_server.Fault
) -> None:
    openai.faults.add("generate", fault)
    assert "OpenAI " in await fails(engine(openai, outside), parts.drawing(), record)


async def test_truncated_image_fails_the_run(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    openai.file = fault_server.image(640, 512)[:1500]
    assert "cannot be read" in await fails(engine(openai, outside), parts.drawing(), record)


async def test_compatible_server_needs_no_key_and_can_return_a_url(
    openai: fakes.OpenAI, record: Record
) -> None:
    openai.by_address = True
    async with parts.server_services({"openai_api_key": fakes.KEY}) as ways:
        result = await engine(openai, ways, model="gpt-image-1-mini").run(parts.drawing(), record)
    assert parts.decoded_image(result.artifacts[0]).size == (640, 512)
    async with parts.server_services({}) as keyless:
        text = await fails(engine(openai, keyless), parts.drawing(), record)
    # The request was sent without a key, which this server requires.
    assert "refused" in text
    assert "authorization" not in openai.faults.steps("generate")[-1].headers


async def test_canceled_run_closes_its_connection(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    openai.faults.add("generate", fault_server.hang)
    run = asyncio.create_task(engine(openai, outside).run(parts.drawing(), record))
    await openai.faults.event("generate").wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert run.cancelled()


async def test_logs_and_errors_do_not_contain_the_key(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # A server that an earlier test started has raised the level of this logger.
    caplog.set_level(logging.DEBUG, logger="httpx")
    openai.faults.add(
        "generate", fault_server.answer(400, error_document(f"Bad key {fakes.KEY} here", param="prompt"))
    )
    text = await fails(engine(openai, outside), parts.drawing(), record)
    await engine(openai, outside).run(parts.drawing(), record)
    assert fakes.KEY not in "\n".join((text, caplog.text, *record.lines))
    assert "HTTP Request" in caplog.text
