"""Runs that are charged by time, but use model servers: local ones are free, and providers are charged."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import ledger_queries
from sixfold.core.gateway.policy import ModelAlias
from sixfold.core.predictions.models import Prediction
from tests.api.app_fixture import bearer
from tests.api.gateway import PRICE, Gateway, running_gateway
from tests.fakes.chat_servers import ModelServer, model_server

RUNS: Mapping[str, Mapping[str, Any]] = {
    "text-llm": {"prompt": "say 3 words"},
    "speech-to-speech": {"task": "chat", "text": "say 3 words"},
}
RUN = "/api/containers/run"


@asynccontextmanager
async def gateway_with(
    folder: Path, server: ModelServer, *, local: bool, provider: ModelServer | None = None
) -> AsyncGenerator[Gateway]:
    """Run the real catalog with one or two model servers while own hardware is free."""
    shared: dict[str, Any] = {"kind": "openai", "models": ["small"]}
    # A server on this machine without a key counts as local.
    mine = {"local": True} if local else {"api_key": "sk-acme"}
    upstreams = {"near": {**shared, "base_url": server.url, **mine}}
    if provider is not None:
        upstreams["far"] = {**shared, "base_url": provider.url, "api_key": "sk-acme"}
    async with running_gateway(
        folder,
        models=app_catalog.models_document(),
        tables={"prices": {"own_hardware": "free"}},
        upstreams=upstreams,
        prices={"near/small": PRICE, "far/small": PRICE},
        aliases={},
    ) as running:
        yield running


async def run(running: Gateway, model: str, key: str, **fields: Any) -> Any:
    body = {"model": model, "input": RUNS[model], **fields}
    return await running.app.client.post(RUN, json=body, headers=bearer(key))


@pytest.mark.parametrize("model", RUNS)
async def test_a_run_of_a_local_model_server_is_free(either: Path, model: str) -> None:
    async with model_server() as server, gateway_with(either, server, local=True) as running:
        response = await run(running, model, running.app.poor)
        document = response.json()
        assert (response.status_code, document["status"]) == (200, "succeeded"), document
        assert document["cost"] == "0.00"
        assert float(document["list_price"]) > 0
        quote = await running.app.client.post(
            f"/api/containers/{model}/quote", json={"input": RUNS[model]}, headers=running.headers
        )
        assert (quote.json()["hold_usd"], quote.json()["price_usd"]) == ("0.00", "0.00")
        assert await running.app.database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("model", RUNS)
async def test_a_run_of_a_provider_is_charged(either: Path, model: str) -> None:
    async with model_server() as server, gateway_with(either, server, local=False) as running:
        assert (await run(running, model, running.app.poor)).status_code == 402
        document = (await run(running, model, running.app.key)).json()
        assert document["status"] == "succeeded", document
        assert float(document["cost"]) > 0
        assert "list_price" not in document


@pytest.mark.parametrize("model", RUNS)
async def test_a_free_run_never_uses_a_provider(either: Path, model: str) -> None:
    async with (
        model_server() as server,
        model_server() as provider,
        gateway_with(either, server, local=True, provider=provider) as running,
    ):
        router, accept = (
            running.app.server.gateway_runtime.gateway.router,
            running.app.predictions.on_accepted,
        )
        servers = router.servers()

        def change_default(prediction: Prediction) -> None:
            router.reconfigure(lambda: servers, {"first": (ModelAlias("far/small"),)})
            accept(prediction)

        running.app.predictions.on_accepted = change_default
        document = (await run(running, model, running.app.poor)).json()
        assert (document["status"], document["cost"]) == ("failed", "0.00")
        assert "was accepted free of charge" in document["error"]
        assert not server.requests
        assert not provider.requests
