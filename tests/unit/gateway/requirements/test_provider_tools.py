"""Provider tools: limited in the request, held at the limit, charged as reported."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sixfold.clients.chat.messages import Messages
from sixfold.clients.chat.responses import ResponsesProtocol
from sixfold.core.gateway.pricing.price_book import PriceBook
from sixfold.core.gateway.pricing.token_rates import rates
from sixfold.core.gateway.pricing.usage import TokenUsage, Units
from sixfold.core.gateway.requirements import provider_tools
from sixfold.core.gateway.requirements.provider_tools import RequestTools

SEARCH, CLAUDE = {"type": "web_search"}, {"type": "web_search_20250305", "name": "web_search"}
FILES, CODE = {"type": "file_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}
FUNCTION, PREVIEW = {"type": "function", "name": "f"}, {"type": "web_search_preview"}
SHELL = {"type": "shell", "environment": {"type": "container_auto"}}
RUN = {"type": "code_execution_20250825", "name": "code_execution"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


LIMITS: list[tuple[str, str, dict[str, Any], Units | None]] = [
    ("responses", "gpt-4.1", {"tools": [FUNCTION]}, None),
    ("responses", "gpt-4.1", {"tools": [SEARCH]}, Units(web_searches=10)),
    (
        "responses",
        "gpt-4.1",
        {"tools": [SEARCH, FILES], "max_tool_calls": 2},
        Units(web_searches=2, file_searches=2),
    ),
    ("responses", "gpt-4.1", {"tools": [PREVIEW, CODE]}, Units(preview_searches=10, code_containers=1)),
    ("responses", "gpt-4.1", {"tools": [SEARCH, PREVIEW]}, Units(preview_searches=10)),
    ("responses", "gpt-5-chat-latest", {"tools": [PREVIEW]}, Units(preview_searches=10)),
    ("responses", "unknown", {"tools": [PREVIEW]}, Units(preview_searches=10)),
    ("responses", "openai/gpt-5.5", {"tools": [PREVIEW]}, Units(web_searches=10)),
    ("responses", "o4-mini", {"tools": [PREVIEW]}, Units(web_searches=10)),
    ("responses", "gpt-5", {"tools": [SEARCH], "max_tool_calls": True}, Units(web_searches=10)),
    ("responses", "gpt-5", {"tools": [SHELL]}, Units(code_containers=1)),
    ("responses", "gpt-5", {"tools": [{"type": "shell"}]}, None),
    ("messages", "m", {"tools": [CLAUDE]}, Units(web_searches=10)),
    ("messages", "m", {"tools": [{**CLAUDE, "max_uses": 3}, CLAUDE]}, Units(web_searches=13)),
    ("messages", "m", {"tools": [RUN, CLAUDE]}, Units(web_searches=10, code_executions=1)),
    ("messages", "m", {"tools": [RUN, {"type": "web_fetch_20260209"}]}, None),
    ("messages", "m", {"tools": [{"name": "f", "input_schema": {}}]}, None),
    ("chat", "gpt-4.1", {"tools": [FUNCTION]}, None),
    ("chat", "gpt-4.1", {"web_search_options": {}}, Units(preview_searches=1)),
    ("chat", "gpt-4o-search-preview", {}, Units(preview_searches=1)),
    ("chat", "gpt-5-search-api", {}, Units(web_searches=1)),
    ("responses", "gpt-5", {"tools": "web_search"}, None),
]


@pytest.mark.parametrize(("wire", "model", "fields", "units"), LIMITS)
def test_most_uses_follow_from_the_request(
    wire: str, model: str, fields: dict[str, Any], units: Units | None
) -> None:
    assert RequestTools(wire, body(**fields)).max_uses(model) == units


UNPRICED: list[tuple[str, dict[str, Any]]] = [
    ("responses", {"tools": [SEARCH, {"type": "image_generation"}]}),
    ("responses", {"tools": [{**CODE, "container": {"type": "auto", "memory_limit": "64g"}}]}),
    ("responses", {"tools": [{**SHELL, "environment": {"type": "container_auto", "memory_limit": "4g"}}]}),
    ("responses", {"tools": [{"type": "x_search"}]}),
    ("responses", {"tools": [{"type": "functionary"}]}),
    ("chat", {"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]}),
    ("chat", {"search_parameters": {"mode": "on"}}),
    ("chat", {"enable_search": True}),
    ("messages", {"tools": [{"type": "advisor_20260301", "name": "advisor"}]}),
    ("messages", {"speed": "fast"}),
    ("messages", {"inference_geo": "us"}),
]


@pytest.mark.parametrize(("wire", "fields"), UNPRICED)
def test_tool_without_a_price_has_an_error(wire: str, fields: dict[str, Any]) -> None:
    assert RequestTools(wire, body(**fields)).unpriced is not None
    priced = [CLAUDE, RUN, {"type": "bash_20250124"}] if wire == "messages" else [SEARCH, CODE, SHELL]
    assert RequestTools(wire, body(tools=[FUNCTION] if wire == "chat" else priced)).unpriced is None


def test_uses_are_charged_at_the_price_of_the_request() -> None:
    reported = TokenUsage(1, 1, units=Units(web_searches=2, file_searches=1))
    preview = RequestTools("responses", body(tools=[PREVIEW, FILES]))
    assert preview.used("gpt-4.1", reported).units == Units(preview_searches=2, file_searches=1)
    assert preview.used("gpt-5", reported) is reported
    # No server reports the searches of a chat.
    chat = RequestTools("chat", body(web_search_options={}), 3)
    assert chat.used("gpt-4.1", TokenUsage(1, 1)).units == Units(preview_searches=3)
    ran = TokenUsage(1, 1, units=Units(web_searches=1, code_executions=1))
    assert RequestTools("messages", body(tools=[RUN])).used("m", ran) is ran
    free = {"type": "web_search_20260209", "name": "web_search"}
    assert RequestTools("messages", body(tools=[free])).used("m", ran).units == Units(web_searches=1)


def test_code_that_a_message_ran_is_counted() -> None:
    block = {"type": "server_tool_use", "name": "bash_code_execution", "id": "s"}
    counts = {"input_tokens": 5, "output_tokens": 7}
    usage, _ = Messages().usage(json.dumps({"content": [block], "usage": counts}).encode())
    assert usage == TokenUsage(5, 7, units=Units(code_executions=1))
    scanner = Messages().scanner()
    scanner.forward(event(type="message_start", message={"usage": counts}), keep_usage=True)
    scanner.forward(event(type="content_block_start", index=0, content_block=block), keep_usage=True)
    assert scanner.usage == usage


def test_tools_with_an_escaped_name_are_found() -> None:
    escaped = body(tools=[SEARCH]).replace(b'"tools"', b'"\\u0074ools"')
    assert RequestTools("responses", escaped).max_uses("gpt-5") == Units(web_searches=10)


def test_request_without_a_limit_gets_one() -> None:
    sent = json.loads(ResponsesProtocol().rewrite_request(body(tools=[SEARCH]), "m"))
    assert sent["max_tool_calls"] == provider_tools.MAX_USES
    own = json.loads(ResponsesProtocol().rewrite_request(body(tools=[SEARCH], max_tool_calls=2), "m"))
    assert own["max_tool_calls"] == 2
    assert b"max_tool_calls" not in ResponsesProtocol().rewrite_request(body(tools=[FUNCTION]), "m")
    claude = json.loads(Messages().rewrite_request(body(tools=[CLAUDE, {**CLAUDE, "max_uses": 3}]), "m"))
    assert [tool["max_uses"] for tool in claude["tools"]] == [provider_tools.MAX_USES, 3]


OUTPUT: list[dict[str, Any]] = [
    {"type": "web_search_call", "action": {"type": "search", "query": "a"}},
    {"type": "web_search_call", "action": {"type": "open_page", "url": "https://example.com"}},
    {"type": "file_search_call"},
    {"type": "code_interpreter_call", "container_id": "c1"},
    {"type": "web_search_call"},
    {"type": "shell_call", "environment": {"type": "container_reference", "container_id": "c1"}},
    {"type": "shell_call", "environment": {"type": "local"}},
    {"type": "function_call", "name": "f"},
    {"type": "message", "content": []},
]
USED = Units(web_searches=2, file_searches=1, code_containers=1)


def event(**fields: Any) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


def test_uses_in_a_response_are_counted() -> None:
    response = {"output": OUTPUT, "usage": {"input_tokens": 5, "output_tokens": 7}}
    usage, _ = ResponsesProtocol().usage(json.dumps(response).encode())
    assert usage == TokenUsage(5, 7, units=USED)
    scanner = ResponsesProtocol().scanner()
    for item in OUTPUT:
        scanner.forward(event(type="response.output_item.done", item=item), keep_usage=True)
    # A caller that disconnects now has caused these uses.
    assert scanner.usage == TokenUsage(reported=False, units=USED)
    scanner.forward(event(type="response.completed", response=response), keep_usage=True)
    assert scanner.usage == usage


def test_searches_in_a_message_are_counted() -> None:
    counts = {"input_tokens": 5, "output_tokens": 7, "server_tool_use": {"web_search_requests": 3}}
    usage, _ = Messages().usage(json.dumps({"content": [], "usage": counts}).encode())
    assert usage == TokenUsage(5, 7, units=Units(web_searches=3))
    scanner = Messages().scanner()
    scanner.forward(event(type="message_start", message={"usage": {"input_tokens": 5}}), keep_usage=True)
    block = {"type": "server_tool_use", "name": "web_search", "id": "s"}
    scanner.forward(event(type="content_block_start", index=0, content_block=block), keep_usage=True)
    assert scanner.usage == TokenUsage(5, 0, units=Units(web_searches=1))
    scanner.forward(event(type="message_delta", delta={}, usage=counts), keep_usage=True)
    scanner.forward(event(type="message_stop"), keep_usage=True)
    assert scanner.usage == usage


def test_uses_are_charged_at_the_rates_of_the_table() -> None:
    table = tomllib.loads(Path("src/sixfold/data/gateway_prices.toml").read_text("utf-8"))
    assert all(row["as_of"] and row["source"] for row in table["tools"].values())
    book = PriceBook(table["models"], {}, tools=table["tools"])
    result = book.find("openai", "gpt-5")
    assert result is not None
    lines = {line.unit: line for line in book.with_tools(result).lines(TokenUsage(units=USED))}
    assert {unit: line.quantity for unit, line in lines.items()} == {
        "web_searches": 2,
        "file_searches": 1,
        "code_containers": 1,
    }
    assert book.with_tools(result).cost(TokenUsage(units=USED)) == 20_000 + 2_500 + 30_000
    others = TokenUsage(units=Units(preview_searches=2, code_executions=1))
    assert book.with_tools(result).cost(others) == 50_000 + 50_000
    own = rates({"input_per_million_usd": 1, "per_web_search_usd": "0.5"})
    assert book.with_tools(own).cost(TokenUsage(units=Units(web_searches=1))) == 500_000
