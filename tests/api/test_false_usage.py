"""Usage that a model server reports incorrectly: the response is estimated and charged by the estimate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import bearer
from tests.api.gateway import running_gateway

Change = Callable[[dict[str, Any]], Any]
MESSAGES = [{"role": "user", "content": "say 20 words"}]
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("chat/completions", {"model": "acme/small", "max_tokens": 100, "messages": MESSAGES}),
    ("responses", {"model": "acme/small", "max_output_tokens": 100, "input": "say 20 words"}),
    ("messages", {"model": "anth/small", "max_tokens": 100, "messages": MESSAGES}),
)
# The details of the parts, by API.
DETAILS = ("prompt_tokens_details", "input_tokens_details", "completion_tokens_details")


def _each(change: Callable[[int], Any]) -> Change:
    return lambda usage: {
        name: change(value) if isinstance(value, int) else value for name, value in usage.items()
    }


def _without_output(usage: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in usage.items() if name.startswith(("prompt", "input"))}


def _with_details(tokens: Any) -> Change:
    names = ("cached_tokens", "reasoning_tokens", "audio_tokens", "image_tokens")
    details = dict.fromkeys(names, tokens)
    return lambda usage: usage | dict.fromkeys(DETAILS, details)


# Totals that cannot be charged, and parts that do not fit in their totals.
UNCOUNTED: dict[str, Change] = {
    "negative": _each(lambda _count: -5),
    "none": _each(lambda _count: 0),
    "text": _each(str),
    "huge": _each(lambda _count: 10**15),
    "half": _without_output,
    "missing": lambda _usage: None,
}
PARTS: dict[str, Change] = {"more": _with_details(10**8), "less": _with_details(-(10**8))}


@pytest.mark.parametrize("name", [*UNCOUNTED, *PARTS])
async def test_false_usage_neither_frees_nor_raises_a_charge(tmp_path: Path, name: str) -> None:
    change = UNCOUNTED.get(name) or PARTS[name]
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.report = gateway.anth.report = change
        for number, (path, body) in enumerate(
            (path, {**body, "stream": stream}) for path, body in CALLS for stream in (False, True)
        ):
            response = await gateway.app.client.post(f"/v1/{path}", json=body, headers=gateway.headers)
            assert response.status_code == 200, (path, response.text)
            call = (await gateway.settled(number + 1))[0]
            usage, case = call["usage"], (path, body["stream"], call)
            assert usage["counted_by"] == ("estimate" if name in UNCOUNTED else "server"), case
            assert 0 <= usage["cached_tokens"] <= usage["input_tokens"] <= 40, case
            assert 3 <= usage["output_tokens"] <= 40, case
            # Input and output cost at most 100 and 1000 USD per million tokens.
            assert 0.003 <= float(call["cost_usd"]) <= 0.004 + usage["output_tokens"] * 0.001, case
        assert await gateway.app.faults() == ()


async def test_false_usage_does_not_use_up_the_rate_of_a_key(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        gateway.acme.report = _each(lambda _count: 10**9)
        key = bearer(await gateway.app.limited_key(KeyLimits(tpm=10_000)))
        path, body = CALLS[0]
        for _ in range(2):
            response = await gateway.app.client.post(f"/v1/{path}", json=body, headers=key)
            assert response.status_code == 200, response.text


async def test_all_output_of_a_request_without_a_limit_counts(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        key = bearer(await gateway.app.limited_key(KeyLimits(tpm=5_000)))
        # The gateway holds the price of 4,096 tokens.
        body = {"model": "acme/small", "messages": [{"role": "user", "content": "say 20000 words"}]}
        answers = [
            await gateway.app.client.post("/v1/chat/completions", json=body, headers=key) for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [200, 429], answers[0].text[:200]
