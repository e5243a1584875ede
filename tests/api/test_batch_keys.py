"""Batches and background responses whose server stops before it stores the response for their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import idempotency
from sixfold.core.batches.service import BatchService
from sixfold.core.database import Transaction, one
from sixfold.core.failpoints import FailpointHit
from tests.api.gateway import Gateway, running_gateway
from tests.api.test_batches import chat_line, jsonl

ROUTES = ("/v1/batches", "/v1/messages/batches", "/v1/responses")


async def _body(gateway: Gateway, path: str) -> dict[str, Any]:
    message = {"role": "user", "content": "say 3 words"}
    params = {"model": "anth/small", "max_tokens": 10, "messages": [message]}
    if path == "/v1/messages/batches":
        return {"requests": [{"custom_id": "a", "params": params}]}
    if path == "/v1/responses":
        return {"model": "acme/small", "input": "say 3 words", "background": True}
    file = await gateway.openai().files.create(file=jsonl([chat_line("a")]), purpose="batch")
    return {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}


@pytest.mark.parametrize("path", ROUTES)
async def test_batch_is_created_once_for_its_key(
    either: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    finish, failures = idempotency.finish, 0

    def fail_once(*parameters: Any, **more: Any) -> Transaction[None]:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise FailpointHit("the response is not stored")
        return finish(*parameters, **more)

    # No line runs.
    async with running_gateway(either, {"batch_concurrency": 0}) as gateway:
        body = await _body(gateway, path)
        headers = {**gateway.headers, "Idempotency-Key": "once"}
        monkeypatch.setattr(idempotency, "finish", fail_once)
        first = await gateway.app.client.post(path, json=body, headers=headers)
        assert first.status_code == 500
        responses = [await gateway.app.client.post(path, json=body, headers=headers) for _ in range(2)]
        assert [response.status_code for response in responses] == [200, 200]
        assert responses[0].json()["id"] == responses[1].json()["id"]
        other = await gateway.app.client.post(path, json=body, headers=gateway.headers)
        assert other.json()["id"] != responses[0].json()["id"]
        assert await _unfinished(gateway, path) == 2


@pytest.mark.parametrize("path", ROUTES)
async def test_batch_whose_commit_was_not_confirmed_is_found(
    either: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    created, failures = BatchService._created, 0

    async def fail_once(service: BatchService, transaction: Transaction[Any]) -> Any:
        nonlocal failures
        failures += 1
        batch = await created(service, transaction)
        if failures == 1:
            raise errors.StoreFailed
        return batch

    async with running_gateway(either, {"batch_concurrency": 0}) as gateway:
        body = await _body(gateway, path)
        headers = {**gateway.headers, "Idempotency-Key": "once"}
        monkeypatch.setattr(BatchService, "_created", fail_once)
        responses = [await gateway.app.client.post(path, json=body, headers=headers) for _ in range(3)]
        assert [response.status_code for response in responses] == [503, 200, 200]
        assert responses[1].json()["id"] == responses[2].json()["id"]
        assert await _unfinished(gateway, path) == 1


async def _unfinished(gateway: Gateway, path: str) -> int:
    is_response, account_id = int(path == "/v1/responses"), gateway.app.account.id
    row = await gateway.app.database.read(
        one("batches_unfinished", account_id=account_id, response=is_response)
    )
    assert row is not None
    return int(row["batches"])
