"""Responses with tools of MCP servers whose key is revoked while they are generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from sixfold import errors
from sixfold.api.gateway.openai.responses.mcp import rounds
from sixfold.core.accounts import keys
from sixfold.core.gateway.tools.servers import Toolset
from tests.api.test_response_tools import kinds, respond, running


@pytest.mark.parametrize("ends_in", ["the tool", "the model"])
async def test_revoked_key_ends_a_complete_response(
    either: Path, ends_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(either) as (gateway, cities):
        database = gateway.app.database
        key = await database.write(keys.create(gateway.app.account.id))
        if ends_in == "the tool":
            call = Toolset.call

            async def revoke(*parameters: Any) -> Any:
                await database.write(keys.revoke(key.id))
                return await call(*parameters)

            monkeypatch.setattr(Toolset, "call", revoke)
            response = await respond(gateway, key.api_key)
            assert (kinds(response), cities) == (["mcp_list_tools", "mcp_call"], ["Oslo"])
            assert response.status == "incomplete"
        else:
            request = rounds.request

            async def revoke_after(*parameters: Any) -> Any:
                source = await request(*parameters)
                await database.write(keys.revoke(key.id))
                return source

            monkeypatch.setattr(rounds, "request", revoke_after)
            with pytest.raises(openai.AuthenticationError, match="This credential was revoked"):
                await respond(gateway, key.api_key)
        assert len(gateway.acme.requests) == 1
        (model_call,) = await gateway.settled(1)
        # Without calls of tools, the caller gets nothing and does not pay.
        assert (float(model_call["cost_usd"]) > 0) == (ends_in == "the tool")
        assert (await gateway.pending(), await gateway.app.faults()) == (0, ())


@pytest.mark.parametrize("stream", [False, True])
async def test_database_failing_after_a_tool_refunds_its_model(
    either: Path, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    async with running(either) as (gateway, cities):
        call, billing = Toolset.call, gateway.app.server.gateway_runtime.gateway._billing
        write, failures = billing._database.write, 0

        async def fail(*_: Any, **__: Any) -> Any:
            nonlocal failures
            failures += 1
            if failures == 3:
                monkeypatch.setattr(billing._database, "write", write)
            raise errors.StoreFailed

        async def fail_after(*parameters: Any) -> Any:
            output = await call(*parameters)
            monkeypatch.setattr(billing._database, "write", fail)
            return output

        monkeypatch.setattr(Toolset, "call", fail_after)
        if stream:
            events = [event async for event in await respond(gateway, stream=True)]
            assert events[-1].type == "response.failed"
        else:
            with pytest.raises(openai.InternalServerError, match="storage"):
                await respond(gateway)
        assert cities == ["Oslo"]
        await gateway.app.until(posted="5.00", held="0.00")
        assert (failures, await gateway.app.faults()) == (3, ())
