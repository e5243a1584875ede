"""Batches and background responses whose server stops before it stores the response for their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import idempotency
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
        unfinished = one(
            "batches_unfinished",
            account_id=gateway.app.account.id,
            response=int(path == "/v1/responses"),
        )
        count = await gateway.app.database.read(unfinished)
        assert count is not None
        assert count["batches"] == 2
