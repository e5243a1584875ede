"""Batches in the formats of OpenAI and Anthropic, by the official clients."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Batch

from sixfold.api.gateway.openai.images import routes as image_routes
from sixfold.core import money
from sixfold.core.accounts import keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.core.batches import lines as line_ids
from sixfold.core.batches import processor, results, service
from sixfold.core.batches.processor import BatchProcessor
from sixfold.core.batches.validation import LineValidator, RawLine
from sixfold.core.database import Query, Transaction, many
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway

CHAT = "/v1/chat/completions"
DEEP = b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": ' + b"[" * 100_000
ENDED = ("completed", "failed", "expired", "cancelled")


def chat_line(custom_id: str, words: int = 3, model: str = "acme/small", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"say {words} words"}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": CHAT,
        "body": {"model": model, "messages": messages, "max_tokens": 50, **more},
    }


def jsonl(lines: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def create_batch(
    gateway: Gateway, lines: Sequence[Any] | bytes, endpoint: Any = CHAT, key: str | None = None, **more: Any
) -> Batch:
    client = gateway.openai(key)
    content = lines if isinstance(lines, bytes) else jsonl(lines)
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more
    )


async def finished_batch(gateway: Gateway, batch: Batch, key: str | None = None) -> Batch:
    """Wait until a batch has ended, and return it."""
    async with asyncio.timeout(60):
        while True:
            result = await gateway.openai(key).batches.retrieve(batch.id)
            if result.status in ENDED:
                return result
            await asyncio.sleep(0.02)


async def content(gateway: Gateway, file_id: str | None, key: str | None = None) -> list[Any]:
    if file_id is None:
        return []
    response = await gateway.openai(key).files.content(file_id)
    return [json.loads(line) for line in response.content.splitlines()]


async def test_deleted_input_of_an_open_batch_counts(either: Path) -> None:
    settings = {"file_bytes_per_account": 10_000, "batch_concurrency": 0}
    async with running_gateway(either, settings) as gateway:
        client = gateway.openai()
        batch = await create_batch(gateway, [chat_line("a", user="x" * 6_000)])
        other = await client.batches.create(
            input_file_id=str(batch.input_file_id), endpoint=CHAT, completion_window="24h"
        )
        await client.files.create(file=("b", b"x" * 3_000), purpose="batch")
        await client.files.delete(str(batch.input_file_id))
        with pytest.raises(openai.APIStatusError, match="would exceed the limit"):
            await client.files.create(file=("c", b"y" * 3_000), purpose="batch")
        for each in (batch, other):
            await client.batches.cancel(each.id)
            await finished_batch(gateway, each)
        await client.files.create(file=("c", b"y" * 3_000), purpose="batch")


async def test_a_batch_runs_every_line_and_charges_it_once(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    lines = [chat_line(f"n{count}", count) for count in range(1, 16)]
    single = await gateway.chat("say 1 words", max_tokens=50)
    before = money.parse_usd((await gateway.app.balance())[0])
    batch = await create_batch(gateway, lines, metadata={"job": "nightly"})
    assert (batch.object, batch.endpoint, batch.completion_window) == ("batch", CHAT, "24h")
    assert batch.expires_at == batch.created_at + 24 * 3600
    final_batch = await finished_batch(gateway, batch)
    assert (final_batch.status, final_batch.metadata, final_batch.error_file_id) == (
        "completed",
        {"job": "nightly"},
        None,
    )
    assert final_batch.request_counts is not None
    assert final_batch.request_counts.model_dump() == {"total": 15, "completed": 15, "failed": 0}
    result = {line["custom_id"]: line for line in await content(gateway, final_batch.output_file_id)}
    assert result.keys() == {line["custom_id"] for line in lines}
    assert len({line["id"] for line in result.values()}) == 15
    first = result["n1"]
    assert (first["response"]["status_code"], first["error"]) == (200, None)
    body = first["response"]["body"]
    assert body.keys() == single.json().keys()
    assert body["choices"][0]["message"]["content"] == "word"
    calls = [call for call in await gateway.settled(16) if call["id"] != single.headers["x-request-id"]]
    assert {call["id"] for call in calls} == {line["response"]["request_id"] for line in result.values()}
    paid = before - money.parse_usd((await gateway.app.balance())[0])
    assert paid == sum(money.parse_usd(call["cost_usd"]) for call in calls)
    assert paid == 15 * money.parse_usd(single.headers["x-sixfold-cost"]) + 1000 * sum(range(15))
    assert (await gateway.app.balance())[1] == "0.00"
    assert await gateway.app.faults() == ()
    scope = line_ids.scope_id(gateway.app.account.id, CHAT, f"{batch.id}/1/0")
    copies = await gateway.app.database.read(many("idempotency_get", id=scope))
    assert len(copies) == 0, "the answer is stored once"


async def test_large_answers_are_read_one_at_a_time(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, written = any_database_gateway, list[int]()
    write = results._write

    def record(batch: Any, outcome: Any, rows: Sequence[Any], sinks: Any) -> None:
        written.append(len(rows))
        write(batch, outcome, rows, sinks)

    monkeypatch.setattr(results, "_write", record)
    requests = [chat_line(f"line-{number}") for number in range(3)]
    for size, pages in ((2**23, [3]), (10, [1, 1, 1])):
        written.clear()
        monkeypatch.setattr(results, "_PAGE_CHARS", size)
        batch = await finished_batch(gateway, await create_batch(gateway, requests))
        answers = await content(gateway, batch.output_file_id)
        assert [answer["custom_id"] for answer in answers] == ["line-0", "line-1", "line-2"]
        assert written == pages


async def test_failed_requests_are_in_the_error_file(gateway: Gateway) -> None:
    lines = [chat_line("good"), chat_line("unknown", model="none/such"), chat_line("wrong", n=0)]
    batch = await finished_batch(gateway, await create_batch(gateway, lines))
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 3, "completed": 1, "failed": 2}
    assert [line["custom_id"] for line in await content(gateway, batch.output_file_id)] == ["good"]
    failed = {line["custom_id"]: line["response"] for line in await content(gateway, batch.error_file_id)}
    assert failed["unknown"]["status_code"] == 404
    assert failed["unknown"]["body"]["error"]["code"] == "model_not_found"
    assert failed["wrong"]["body"]["error"]["param"] == "n"


@pytest.mark.parametrize(
    ("lines", "code", "line", "param"),
    [
        (b"", "empty_file", None, None),
        (b"\n \n", "empty_file", None, None),
        (b"\n{nope}\n", "invalid_json_line", 2, None),
        (b"[]\n", "invalid_request", 1, None),
        (b"\xff\n", "invalid_json_line", 1, None),
        (b'{"custom_id": "a"}', "invalid_request", 1, None),
        (jsonl([chat_line("")]), "invalid_custom_id", 1, "custom_id"),
        (jsonl([chat_line("a" * 513)]), "invalid_custom_id", 1, "custom_id"),
        (jsonl([chat_line("a"), chat_line("a")]), "duplicate_custom_id", 2, "custom_id"),
        (jsonl([{**chat_line("a"), "method": "GET"}]), "invalid_method", 1, "method"),
        (jsonl([{**chat_line("a"), "url": "/v1/responses"}]), "mismatched_url", 1, "url"),
        (jsonl([{**chat_line("a"), "body": {}}]), "invalid_request", 1, "body"),
        (jsonl([{**chat_line("a"), "body": []}]), "invalid_request", 1, "body"),
        (jsonl([chat_line("a", stream=True)]), "invalid_request", 1, "body.stream"),
        (DEEP, "invalid_json_line", 1, None),
    ],
)
async def test_an_invalid_input_fails_before_any_line_runs(
    gateway: Gateway, lines: bytes, code: str, line: int | None, param: str | None
) -> None:
    batch = await finished_batch(gateway, await create_batch(gateway, lines or b"\n"))
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    error = batch.errors.data[0]
    assert (error.code, error.line, error.param) == (code, line, param)
    (line_error,) = await content(gateway, batch.error_file_id)
    assert (line_error["error"]["code"], line_error["response"]) == (code, None)
    assert gateway.acme.requests == []


async def test_an_input_is_not_read_further_after_many_problems(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input of 60 MB with 31 million invalid lines was read to its end, which took 11 s of the loop."""
    numbers: list[int] = []
    check = LineValidator.check

    def recorded(validator: LineValidator, group: Sequence[RawLine]) -> Any:
        numbers.extend(line.number for line in group)
        return check(validator, group)

    monkeypatch.setattr(processor, "MAX_PROBLEMS", 5)
    monkeypatch.setattr(LineValidator, "check", recorded)
    batch = await finished_batch(gateway, await create_batch(gateway, b"1\n" * 100_000))
    assert batch.status == "failed"
    assert len(await content(gateway, batch.error_file_id)) == 5
    assert max(numbers) < 50_000


async def test_an_input_has_at_most_the_stated_lines(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, {"batch_lines": 2, "batch_file_bytes": 2000}) as gateway:
        batch = await finished_batch(
            gateway, await create_batch(gateway, [chat_line(str(n)) for n in range(3)])
        )
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert batch.errors.data[0].code == "too_many_lines"
        with pytest.raises(openai.BadRequestError, match="at most 2,000 bytes"):
            await create_batch(gateway, b" " * 2001)
        assert (
            await finished_batch(gateway, await create_batch(gateway, [chat_line("a")]))
        ).status == "completed"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": 3}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
    ],
)
async def test_invalid_fields_create_no_batch(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    body = {"input_file_id": "file_1", "endpoint": CHAT, "completion_window": "24h", **fields}
    answer = await gateway.app.client.post("/v1/batches", json=body, headers=gateway.headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    response = await gateway.app.client.get("/v1/batches", headers=gateway.headers)
    assert response.json()["data"] == []


async def test_an_input_has_the_purpose_batch_and_one_account(gateway: Gateway) -> None:
    client = gateway.openai()
    file = await client.files.create(file=("a", b"x"), purpose="user_data")
    with pytest.raises(openai.BadRequestError, match="purpose batch"):
        await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    with pytest.raises(openai.NotFoundError):
        await gateway.openai(gateway.app.other).batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h"
        )


async def test_responses_embeddings_and_completions_run_in_batches(gateway: Gateway) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/v1/responses": {"model": "acme/small", "input": "say 2 words"},
        "/v1/completions": {"model": "acme/small", "prompt": "say 2 words"},
        "/v1/embeddings": {"model": "acme/small", "input": ["a", "b"]},
        "/v1/images/generations": {"model": "ra2", "prompt": "a dot", "size": "256x256"},
    }
    for endpoint, body in bodies.items():
        line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": body}
        batch = await finished_batch(gateway, await create_batch(gateway, [line], endpoint))
        result = await content(gateway, batch.output_file_id)
        assert result, await content(gateway, batch.error_file_id)
        direct = await gateway.app.client.post(endpoint, json=body, headers=gateway.headers)
        assert result[0]["response"]["body"].keys() == direct.json().keys()


async def test_large_images_of_a_line_are_urls(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_routes, "_MAX_LINE_BYTES", 0)
    body = {"model": "ra2", "prompt": "a dot", "size": "256x256", "response_format": "b64_json"}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/images/generations", "body": body}
    batch = await finished_batch(gateway, await create_batch(gateway, [line], line["url"]))
    (result,) = await content(gateway, batch.output_file_id)
    assert [row.keys() for row in result["response"]["body"]["data"]] == [{"url"}]


async def test_limits_of_a_key_on_models_hold_in_its_batches(gateway: Gateway) -> None:
    key = await gateway.app.limited_key(KeyLimits(services=("acme/small",)))
    lines = [chat_line("allowed"), chat_line("other", model="anth/small")]
    batch = await finished_batch(gateway, await create_batch(gateway, lines, key=key), key)
    assert [line["custom_id"] for line in await content(gateway, batch.output_file_id, key)] == ["allowed"]
    (error,) = await content(gateway, batch.error_file_id, key)
    assert (error["custom_id"], error["response"]["status_code"]) == ("other", 403)
    assert len(gateway.anth.requests) == 0


async def test_a_revoked_key_ends_its_batches(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    row = await gateway.app.database.write(keys.create(gateway.app.account.id))
    gateway.acme.mode = "wait"
    batch = await create_batch(gateway, [chat_line(str(n)) for n in range(60)], key=row.api_key)
    async with asyncio.timeout(60):
        await gateway.acme.request_event.wait()
    await gateway.app.database.write(keys.revoke(row.id))
    gateway.acme.mode = "well"
    gateway.acme.go_on.set()
    final_batch = await finished_batch(gateway, batch)
    assert final_batch.status == "failed"
    assert final_batch.errors is not None
    assert final_batch.errors.data is not None
    assert final_batch.errors.data[0].code == "invalid_api_key"
    answered = await content(gateway, final_batch.output_file_id)
    unanswered = await content(gateway, final_batch.error_file_id)
    assert len(answered) + len(unanswered) == 60
    assert len(unanswered) > 0
    assert len(gateway.acme.requests) == len(answered)


async def test_a_key_sees_its_own_batches_only(gateway: Gateway) -> None:
    batch = await create_batch(gateway, [chat_line("a")])
    await finished_batch(gateway, batch)
    result = keys.create(gateway.app.account.id, KeyLimits(), granted=Rights.RUN)
    run_only = (await gateway.app.database.write(result)).api_key
    for key in (run_only, gateway.app.other):
        client = gateway.openai(key)
        assert [each.id async for each in client.batches.list()] == []
        for call in (client.batches.retrieve, client.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await call(batch.id)
    own = await finished_batch(gateway, await create_batch(gateway, [chat_line("b")], key=run_only), run_only)
    assert len(await content(gateway, own.output_file_id, run_only)) == 1
    assert [each.id async for each in gateway.openai().batches.list(limit=1)] == [own.id, batch.id]


async def test_canceled_batch_keeps_completed_lines(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    gateway.acme.mode = "wait"
    batch = await create_batch(gateway, [chat_line(str(n)) for n in range(60)])
    async with asyncio.timeout(60):
        await gateway.acme.request_event.wait()
    canceled = await gateway.openai().batches.cancel(batch.id)
    assert (canceled.status, canceled.cancelling_at is None) == ("cancelling", False)
    gateway.acme.mode = "well"
    gateway.acme.go_on.set()
    final_batch = await finished_batch(gateway, batch)
    assert final_batch.status == "cancelled"
    answered = await content(gateway, final_batch.output_file_id)
    unanswered = await content(gateway, final_batch.error_file_id)
    assert len(answered) == len(gateway.acme.requests) < 60
    assert len(answered) + len(unanswered) == 60
    assert {line["error"]["code"] for line in unanswered} == {"batch_cancelled"}
    over = await finished_batch(gateway, await create_batch(gateway, [chat_line("a")]))
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'completed'"):
        await gateway.openai().batches.cancel(over.id)


async def test_the_completion_window_is_enforced(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = any_database_gateway
    monkeypatch.setattr(service, "WINDOW_US", 0)
    batch = await finished_batch(gateway, await create_batch(gateway, [chat_line(str(n)) for n in range(3)]))
    assert (batch.status, batch.expired_at is None) == ("expired", False)
    assert batch.output_file_id is None


async def test_batch_without_credit_waits_and_names_the_reason(gateway: Gateway) -> None:
    batch = await create_batch(gateway, [chat_line("a")], key=gateway.app.poor)
    path, headers = f"/v1/batches/{batch.id}", bearer(gateway.app.poor)
    async with asyncio.timeout(60):
        while True:
            body = (await gateway.app.client.get(path, headers=headers)).json()
            if body["waiting_for"]:
                break
            await asyncio.sleep(0.02)
    assert (body["status"], body["waiting_for"]) == ("in_progress", "Insufficient credits")
    assert body["request_counts"] == {"total": 1, "completed": 0, "failed": 0}
    assert gateway.acme.requests == []
    assert (await gateway.openai(gateway.app.poor).batches.cancel(batch.id)).status == "cancelling"


async def test_lines_wait_for_funds_held_by_other_lines(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    lines = [chat_line(str(n), max_tokens=3000) for n in range(12)]
    batch = await finished_batch(gateway, await create_batch(gateway, lines))
    assert len(await content(gateway, batch.output_file_id)) == 12
    assert (await gateway.app.balance())[1] == "0.00"


async def test_batch_waits_for_the_rate_limit_of_its_key(gateway: Gateway) -> None:
    key = await gateway.app.limited_key(KeyLimits(rpm=60))
    batch = await create_batch(gateway, [chat_line(str(n)) for n in range(62)], key=key)
    final_batch = await finished_batch(gateway, batch)
    assert final_batch.status == "completed"
    assert len(await content(gateway, final_batch.output_file_id)) == 62


async def test_lines_are_retried_when_the_model_server_fails(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sixfold.core.batches.lines.RETRY_SECONDS", (0, 0, 0))
    gateway.acme.modes = ["fail", "fail"]
    batch = await finished_batch(gateway, await create_batch(gateway, [chat_line("a")]))
    assert len(await content(gateway, batch.output_file_id)) == 1
    gateway.acme.mode = "fail"
    batch = await finished_batch(gateway, await create_batch(gateway, [chat_line("a")]))
    (failed,) = await content(gateway, batch.error_file_id)
    assert failed["response"]["status_code"] >= 500
    assert len([call for call in await gateway.settled(2) if call["status"] == "succeeded"]) == 1


async def test_unfinished_batches_of_an_account_are_limited(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, {"batches_per_account": 1, "batch_concurrency": 0}) as gateway:
        batch = await create_batch(gateway, [chat_line("a")])
        with pytest.raises(openai.RateLimitError, match="1 unfinished batches"):
            await create_batch(gateway, [chat_line("b")])
        await gateway.openai().batches.cancel(batch.id)
        assert (await finished_batch(gateway, batch)).status == "cancelled"
        await create_batch(gateway, [chat_line("c")])


async def test_batch_completes_after_its_input_file_is_deleted(gateway: Gateway) -> None:
    gateway.acme.mode = "wait"
    batch = await create_batch(gateway, [chat_line(str(n)) for n in range(20)])
    await gateway.openai().files.delete(batch.input_file_id)
    gateway.acme.mode = "well"
    gateway.acme.go_on.set()
    final_batch = await finished_batch(gateway, batch)
    assert len(await content(gateway, final_batch.output_file_id)) == 20


async def test_repeated_create_has_one_batch(gateway: Gateway) -> None:
    client = gateway.openai()
    file = await client.files.create(file=("in.jsonl", jsonl([chat_line("a")])), purpose="batch")
    results = [
        await client.batches.create(
            input_file_id=file.id,
            endpoint=CHAT,
            completion_window="24h",
            extra_headers={"Idempotency-Key": "once"},
        )
        for _ in range(2)
    ]
    assert results[0].id == results[1].id


async def test_batches_are_exported_and_erased(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    gateway.acme.modes = ["well"] * 3 + ["wait"] * 40
    batch = await create_batch(gateway, [chat_line(str(n)) for n in range(9)], metadata={"job": "mine"})
    async with asyncio.timeout(60):
        while batch.request_counts is None or batch.request_counts.completed < 3:
            await asyncio.sleep(0.02)
            batch = await gateway.openai().batches.retrieve(batch.id)
    response = await gateway.app.client.get("/api/account/export", headers=gateway.headers)
    with zipfile.ZipFile(io.BytesIO(response.content)) as result:
        (row,) = [json.loads(line) for line in result.read("batches.jsonl").splitlines()]
        assert (row["id"], row["metadata"]) == (batch.id, {"job": "mine"})
        responses = [json.loads(line) for line in result.read("batch-answers.jsonl").splitlines()]
        assert [each["response"]["object"] for each in responses] == ["chat.completion"] * 3
        assert len({each["id"] for each in responses}) == 3
    gateway.acme.modes.clear()
    gateway.acme.go_on.set()
    await finished_batch(gateway, batch)
    account_id = gateway.app.account.id

    def erase() -> Transaction[None]:
        for name in ("erase_batch_lines", "erase_batches"):
            yield Query(name, {"account_id": account_id})

    await gateway.app.database.write(erase())
    assert [each.id async for each in gateway.openai().batches.list()] == []


async def test_an_unforeseen_error_does_not_stop_the_batches(
    any_database_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = any_database_gateway
    look, errors = BatchProcessor._look, [RuntimeError("once")]

    async def failing_once(self: BatchProcessor) -> None:
        if errors:
            raise errors.pop()
        await look(self)

    monkeypatch.setattr(BatchProcessor, "_look", failing_once)
    batch = await finished_batch(gateway, await create_batch(gateway, [chat_line("n1", 1)]))
    assert (batch.status, errors) == ("completed", [])
