"""Replies that the caller's guardrail has received, although the request is canceled or fails afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import keys
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, running_gateway
from tests.api.test_background_responses import deleted
from tests.api.test_guardrails import PATH as GUARDRAILS
from tests.api.test_guardrails import guard
from tests.fakes import fault_server

_PRICES = {"acme/small": PRICE}


class WaitingHook:
    """A hook that reports each reply, and answers it after `proceed` is set."""

    def __init__(self) -> None:
        self.replies: list[list[str]] = []
        self.received, self.proceed = asyncio.Event(), asyncio.Event()
        self.answer: dict[str, Any] = {"action": "allow"}

    async def check(self, request: Request) -> Response:
        self.replies.append((await request.json())["texts"])
        self.received.set()
        await self.proceed.wait()
        return JSONResponse(self.answer)


@asynccontextmanager
async def hooked(folder: Path, **settings: Any) -> AsyncIterator[tuple[Gateway, WaitingHook]]:
    """A gateway whose account has a hook for responses."""
    hook, fetching = WaitingHook(), {"fetch_allow": "127.0.0.0/8"}
    async with (
        fault_server.serve([Route("/hook", hook.check, methods=["POST"])]) as port,
        running_gateway(folder, settings=fetching, prices=_PRICES, **settings) as gateway,
    ):
        await guard(gateway.app, hook={"url": f"http://127.0.0.1:{port}/hook", "stages": ["response"]})
        yield gateway, hook


async def post(gateway: Gateway, path: str, **body: Any) -> httpx.Response:
    return await gateway.app.client.post(path, json=body, headers=gateway.headers)


async def test_canceled_response_that_a_hook_received_is_charged(either: Path) -> None:
    async with hooked(either) as (gateway, hook):
        response = await post(
            gateway, "/v1/responses", model="acme/small", input="say 9 words", background=True
        )
        await hook.received.wait()
        canceled = await post(gateway, f"/v1/responses/{response.json()['id']}/cancel")
        assert canceled.status_code == 200
        hook.proceed.set()
        await deleted(gateway, response.json()["id"])
        (call,) = await gateway.settled()
        assert (call["status"], call["cost_usd"]) == ("succeeded", "0.0098")
        assert await gateway.app.balance() == ("4.9902", "0.00")
        assert await gateway.app.faults() == ()


async def test_summary_that_a_hook_removes_is_charged(either: Path) -> None:
    async with hooked(either) as (gateway, hook):
        hook.proceed.set()
        hook.answer = {"action": "change", "texts": [""]}
        response = await post(gateway, "/v1/responses/compact", model="acme/small", input="say 9 words")
        assert (response.status_code, hook.received.is_set()) == (502, True)
        (call,) = await gateway.settled()
        assert (call["status"], float(call["cost_usd"]) > 0) == ("succeeded", True)
        assert await gateway.app.faults() == ()


@pytest.mark.parametrize("model", ["chat", "text-llm"])
async def test_reply_that_a_run_pays_for_is_not_sent_to_a_hook(either: Path, model: str) -> None:
    """A run that fails or is canceled is free, so its reply would be, too."""
    async with hooked(either, models=app_catalog.models_document()) as (gateway, hook):
        hook.proceed.set()
        response = await post(gateway, "/api/containers/run", model=model, input={"prompt": "say 3 words"})
        assert response.json()["status"] == "failed"
        assert "hook" in response.json()["error"]
        assert (hook.replies, gateway.acme.requests) == ([], [])
        assert await gateway.app.balance() == ("5.00", "0.00")


async def test_hook_of_an_operator_checks_replies_of_runs(either: Path) -> None:
    """An operator can use every model without paying, so nothing is lost if the run fails."""
    async with hooked(either, models=app_catalog.models_document()) as (gateway, hook):
        hook.proceed.set()
        app = gateway.app
        (own,) = (await app.client.get(GUARDRAILS, headers=app.bearer)).json()["guardrails"]
        headers = bearer((await app.database.write(keys.create(app.operator.id))).api_key)
        fields = {"hook": {"url": own["hook"]["url"], "stages": ["response"]}}
        assert (await app.client.put(GUARDRAILS, json=fields, headers=headers)).status_code == 200
        body = {"model": "chat", "input": {"prompt": "say 3 words"}}
        response = await app.client.post("/api/containers/run", json=body, headers=headers)
        assert (response.json()["status"], len(hook.replies)) == ("succeeded", 1), response.text
