"""Holds for usage beyond the request's text: documents, audio, caches, tool results."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from sixfold.clients.chat.messages import Messages
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.capabilities import ServedModel
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.requirements import maximum_usage, output_limits
from sixfold.core.gateway.requirements.maximum_usage import MAX_TOKENS, Contents
from sixfold.core.gateway.requirements.provider_tools import RequestTools

TEXT = TokenUsage(100, 50)


def most(wire: str, context: int = 0, **fields: Any) -> TokenUsage:
    body = json.dumps({"model": "m", **fields}).encode()
    return maximum_usage.add_media_and_tools(Contents(body), TEXT, RequestTools(wire, body), "m", context)


def part(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [fields]}]}


PDF = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}


@pytest.mark.parametrize(
    ("wire", "fields", "expected"),
    [
        ("chat", {"messages": []}, TEXT),
        ("messages", part(**PDF), TokenUsage(100 + MAX_TOKENS, 50)),
        ("chat", part(type="file", file={"file_data": "JVBERi0="}), TokenUsage(100 + MAX_TOKENS, 50)),
        ("chat", part(type="image_url", image_url={"url": "https://x.test/a"}), TokenUsage(5100, 50)),
        ("chat", {"prediction": {"type": "content", "content": "x"}}, TokenUsage(100, 150)),
        ("chat", {"modalities": ["audio"]}, TokenUsage(100, 50, audio_out=50)),
        ("messages", {"cache_control": {"type": "ephemeral"}}, TokenUsage(100, 50, cache_write=100)),
        (
            "messages",
            {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
            TokenUsage(100, 50, cache_write_long=100),
        ),
        ("messages", {"mcp_servers": [{"url": "https://x.test"}]}, TokenUsage(100 + MAX_TOKENS, 50)),
        ("responses", {"tools": [{"type": "mcp"}]}, TokenUsage(100 + MAX_TOKENS, 50)),
        (
            "messages",
            {"tools": [{"type": "web_fetch_20250910", "max_uses": 2, "max_content_tokens": 500}]},
            TokenUsage(1100, 50),
        ),
    ],
)
def test_hold_covers_usage_beyond_the_text(wire: str, fields: dict[str, Any], expected: TokenUsage) -> None:
    assert most(wire, **fields) == expected


def test_results_of_searches_are_held() -> None:
    search = most("responses", tools=[{"type": "web_search"}, {"type": "file_search"}], max_tool_calls=2)
    assert search.input == 100 + 2 * 8_000 + 2 * 16_000
    sound = most("chat", **part(type="input_audio", input_audio={"data": "A" * 13_000, "format": "mp3"}))
    assert 100 < sound.audio_in < 105
    assert sound.input == 100 + sound.audio_in


def test_context_and_escapes_bound_the_hold() -> None:
    assert most("messages", 8_000, **part(**PDF)).input == 8_100
    body = json.dumps({"model": "m", **part(**PDF)}).replace('"document"', '"\\u0064ocument"').encode()
    assert Contents(body).documents


def test_fetched_web_pages_get_token_limits() -> None:
    fetch = {"type": "web_fetch_20250910", "name": "web_fetch"}
    own = {**fetch, "max_uses": 1, "max_content_tokens": 20}
    body = json.dumps({"model": "m", "tools": [fetch, own]}).encode()
    first, second = json.loads(Messages().rewrite_request(body, "m"))["tools"]
    assert (first["max_uses"], first["max_content_tokens"]) == (10, 8_000)
    assert second == own


def test_limit_of_output_is_that_of_the_model_or_is_set() -> None:
    body = json.dumps({"model": "m", "messages": []}).encode()
    chat = ChatRequest((), max_tokens=None)
    request = GatewayRequest(Principal("a", "", ""), "r", "chat", "chat", "m", body, lambda: chat, answers=2)
    target: Any = SimpleNamespace(model_info=lambda: ServedModel("m", max_output=9000))
    assert output_limits.output_tokens(request, target, 4096) == 18_000
    small = output_limits.limit_output(request, 4096)
    assert small is not None
    assert json.loads(small.body)["max_completion_tokens"] == small.parse().max_tokens == 4096
    assert output_limits.output_tokens(small, target, 1) == 2 * 4096
    assert output_limits.limit_output(small, 10) is None


@pytest.mark.parametrize(("model", "tokens"), [("gpt-4o-mini", 50_000), ("gpt-5.4", 10_000), ("m", 5_000)])
def test_images_are_held_as_large_as_the_model_counts_them(model: str, tokens: int) -> None:
    typed = part(type="image_url", image_url={"url": "https://x.test/a"})
    untyped = {"messages": [{"role": "user", "images": ["iVBORw0KGgoAAAA", "/9j/4AAQ"]}]}
    for fields, images in ((typed, 1), (untyped, 2)):
        assert Contents(json.dumps(fields).encode()).image_tokens(model) == images * tokens
