"""The client of media providers against a server that repeats the key in its errors."""

from __future__ import annotations

import json

import httpx
import pytest

from sixfold.clients.fal import FAL
from sixfold.clients.provider_client import ProviderClient, ProviderLimits
from sixfold.core.catalog.engines import EngineError
from tests.unit.net import servers

KEY = "easel.7Qm2-Zp9x"


@pytest.mark.parametrize("shape", ["{key}", "the key {key} may not use this size", "user:{key}@host"])
async def test_error_of_a_provider_does_not_contain_the_key(shape: str) -> None:
    text = f"Unsupported size. {shape.format(key=KEY)}"
    body = json.dumps({"detail": text}).encode()
    async with (
        servers.serving(
            routes={"/models": servers.reply(body, status="422 Unprocessable Content")}
        ) as server,
        httpx.AsyncClient() as client,
    ):
        provider = ProviderClient(
            client, FAL, KEY, base_url=server.url("").rstrip("/"), limits=ProviderLimits(attempts=1)
        )
        with pytest.raises(EngineError, match="Unsupported size") as excinfo:
            await provider.get("models")
    assert KEY not in str(excinfo.value)
