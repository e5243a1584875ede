"""Responses with MCP tools for which later requests to the model are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from sixfold.api.gateway.openai.responses.mcp.run import McpRun, TimeLimitExceeded
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.input_limits import json_decoding
from tests.api.test_response_tools import APPROVED, SAID, kinds, respond, running


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["upstream_refused", "rate_limited", "budget_exceeded"])
async def test_refusal_after_a_call_ends_the_response_incomplete(
    either: Path, reason: str, stream: bool
) -> None:
    limits = {"rate_limited": KeyLimits(tpm=100), "budget_exceeded": KeyLimits(budget_day=62_000)}
    async with running(either) as (gateway, cities):
        before = await gateway.app.balance()
        key = await gateway.app.limited_key(limits.get(reason, KeyLimits()))
        if reason == "upstream_refused":
            gateway.acme.modes = ["well", "refuse"]
        response = await respond(gateway, key, stream=stream, max_output_tokens=50)
        if stream:
            events = [event async for event in response]
            assert events[-1].type == "response.incomplete"
            response = events[-1].response
        assert (response.status, response.incomplete_details.reason) == ("incomplete", reason)
        assert (response.incomplete_details.message, response.error) != ("", None)
        assert (kinds(response), cities) == (["mcp_list_tools", "mcp_call"], ["Oslo"])
        assert (response.output[1].status, response.output[1].output) == ("completed", "snow in Oslo")
        calls = await gateway.settled(1)
        paid = [call for call in calls if call["status"] == "succeeded"]
        assert (len(paid), await gateway.pending()) == (1, 0)
        assert response.usage.output_tokens == paid[0]["usage"]["output_tokens"]
        after = await gateway.app.balance()
        assert float(before[0]) - float(after[0]) == pytest.approx(float(paid[0]["cost_usd"]))
        # The caller continues without a second call of the tool.
        fields: Any = {"input": "Go on", "previous_response_id": response.id, "tools": []}
        assert (await respond(gateway, **fields)).status == "completed"
        assert (cities, await gateway.app.faults()) == (["Oslo"], ())


async def test_refusal_after_an_approved_call_reports_the_call(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        first = await respond(gateway, tools=[APPROVED])
        answer = {"type": "mcp_approval_response", "approval_request_id": first.output[1].id, "approve": True}
        fields: Any = {"input": [answer], "previous_response_id": first.id, "tools": [APPROVED]}
        for stream in (False, True):
            gateway.acme.mode = "refuse"
            response = await respond(gateway, **fields, stream=stream)
            if stream:
                response = [event async for event in response][-1].response
            assert (response.status, kinds(response)) == ("incomplete", ["mcp_call"])
            assert response.output[0].output == "snow in Oslo"
            gateway.acme.mode = "well"
            fields = {**fields, "previous_response_id": first.id}
        assert cities == ["Oslo", "Oslo"]


async def test_invalid_request_makes_no_approved_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, cities):
        first = await respond(gateway, tools=[APPROVED])
        answer = {"type": "mcp_approval_response", "approval_request_id": first.output[1].id, "approve": True}
        fields: Any = {"input": [answer], "previous_response_id": first.id, "tools": [APPROVED]}
        with pytest.raises(openai.BadRequestError, match="tool_choice must name one of the tools"):
            await respond(gateway, **fields, tool_choice={"type": "function", "name": "none"})
        assert cities == []
        assert kinds(await respond(gateway, **fields)) == ["mcp_call", "message"]


async def test_time_limit_ends_the_response_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(_self: McpRun) -> None:
        raise TimeLimitExceeded

    monkeypatch.setattr(McpRun, "_check_time", expired)
    async with running(tmp_path) as (gateway, _):
        response = await respond(gateway)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "time_limit_exceeded")


async def test_large_input_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = json_decoding.decode

    def counted(raw: Any) -> Any:
        decoded.append(len(bytes(raw)))
        return decode(raw)

    monkeypatch.setattr(json_decoding, "decode", counted)
    async with running(tmp_path) as (gateway, _):
        text = "Will it snow? " + "x" * 20_000
        assert (await respond(gateway, input=text, max_output_tokens=50)).output_text == SAID
        assert len([size for size in decoded if size > 20_000]) == 1
