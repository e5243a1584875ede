"""Token costs, and token counts of requests."""

from __future__ import annotations

import math
import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    ImagePart,
    TextPart,
    ToolCall,
    ToolResult,
    ToolSpec,
    estimate,
    tokens_of,
)
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.gateway.pricing.price_book import PriceBook
from sixfold.core.gateway.pricing.token_rates import TokenRates, rates
from sixfold.core.gateway.pricing.usage import TokenUsage, Units, merge_usage
from sixfold.core.gateway.requirements.requirements import RequestNeeds

BUNDLED = tomllib.loads(Path("src/sixfold/data/gateway_prices.toml").read_text("utf-8"))["models"]


def test_every_kind_of_token_has_its_rate() -> None:
    result = rates(
        {
            "input_per_million_usd": "1",
            "output_per_million_usd": 10,
            "cached_input_per_million_usd": "0.1",
            "cache_write_per_million_usd": "2",
            "image_input_per_million_usd": "5",
            "audio_input_per_million_usd": "20",
            "audio_output_per_million_usd": "40",
        }
    )
    used = TokenUsage(100, 10, cached=10, cache_write=20, image_in=30, audio_in=15, audio_out=4)
    assert result.cost(used) == 25 + 1 + 40 + 150 + 300 + 60 + 160


def test_cost_is_rounded_up_and_zero_usage_is_free() -> None:
    result = TokenRates(input=100_000, output=100_000)
    assert (
        result.cost(TokenUsage(1, 0)),
        result.cost(TokenUsage(10, 0)),
        result.cost(TokenUsage(11, 0)),
    ) == (1, 1, 2)
    assert result.cost(TokenUsage()) == 0


def test_a_long_request_has_its_own_rates() -> None:
    result = TokenRates(1_000_000, 2_000_000, long_input=2_000_000, long_output=3_000_000, long_tokens=100)
    assert (result.cost(TokenUsage(100, 10)), result.cost(TokenUsage(101, 10))) == (120, 232)


@pytest.mark.parametrize(
    "row",
    [
        {"output_per_million_usd": 1},
        {"input_per_million_usd": "dear"},
        {"input_per_million_usd": -1},
        {"input_per_million_usd": 1, "tokens": 3},
    ],
)
def test_invalid_price_is_named_in_the_error(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"per_million_usd|price"):
        rates(row)


def test_a_price_that_rounds_to_nothing_is_not_free() -> None:
    result = rates({"input_per_million_usd": "0.0000001", "per_image_usd": "0.0000004"})
    assert (result.input, result.output, result.per_image) == (1, 0, 1)


def test_a_dated_model_costs_what_its_family_costs() -> None:
    book = PriceBook(BUNDLED, {"own/gpt-4o": {"input_per_million_usd": 9}})
    family = book.find("openai", "gpt-4o")
    assert family is not None
    assert book.find("openai", "gpt-4o-2024-08-06") == family
    assert book.find("openai", "gpt-4o-mini-2024-07-18") == book.find("openai", "gpt-4o-mini") != family
    assert book.find("anthropic", "claude-opus-4-5-20251101") == book.find("anthropic", "claude-opus-4-5")
    assert book.find("openai", "gpt-4o-audio") is None
    assert book.find("own", "gpt-4o") == TokenRates(9_000_000, 0)


def test_images_and_audio_are_priced_by_their_units() -> None:
    each, minute = rates({"per_image_usd": "0.04"}), rates({"per_minute_usd": "0.006"})
    assert each.cost(TokenUsage(units=Units(images=3))) == 120_000
    assert minute.cost(TokenUsage(units=Units(milliseconds=30_500))) == 3_050
    assert rates({"character_per_million_usd": 15}).cost(TokenUsage(units=Units(characters=101))) == 1_515
    drawn = rates(
        {"input_per_million_usd": 1, "output_per_million_usd": 2, "image_output_per_million_usd": 5}
    )
    assert drawn.cost(TokenUsage(10, 30, units=Units(image_out=20))) == 10 + 20 + 100


def test_missing_usage_is_filled_from_the_expected_usage() -> None:
    expected = TokenUsage(10, 200, units=Units(2, 1000, 40))
    assert merge_usage(None, expected) == TokenUsage(10, 200, reported=False, units=Units(2, 1000, 40))
    spoken = TokenUsage(10, 20, audio_in=10, units=Units(milliseconds=1000))
    heard = TokenUsage(100, 200, audio_in=100, reported=False, units=Units(milliseconds=10_000))
    assert merge_usage(None, spoken, 600) == heard, "a transcript of 600 characters takes at least 10 s"
    assert merge_usage(None, spoken, 60) == TokenUsage(
        10, 20, audio_in=10, reported=False, units=spoken.units
    )
    assert merge_usage(TokenUsage(5, 7), expected) == TokenUsage(5, 7, units=Units(2, 1000, 40))
    response = TokenUsage(reported=False, units=Units(milliseconds=900))
    assert merge_usage(response, expected) == TokenUsage(10, 200, reported=False, units=Units(2, 900, 40))


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_price_is_dated_and_consistent(name: str) -> None:
    row, result = BUNDLED[name], rates(BUNDLED[name])
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", row["as_of"])
    assert row["as_of"] >= "2025-11"
    # An amount of money must not be a float.
    assert all(isinstance(value, str) for value in row.values())
    # OpenAI's moderation is free.
    assert any((result.input, result.character, result.per_minute, result.per_image)) or "moderation" in name
    assert result.output >= result.input or not result.output or result.per_minute
    for less, more in (
        (result.cached_input, result.input),
        (result.input, result.cache_write),
        (result.cache_write, result.cache_write_long),
        (result.input, result.long_input),
        (result.output, result.long_output),
        (result.input, result.image_input),
        (result.input, result.audio_input),
        (result.input, result.image_output),
    ):
        assert less is None or more is None or less <= more


def test_family_is_selected_by_the_longest_matching_name() -> None:
    book = PriceBook(BUNDLED, {})
    assert book.find("openai", "gpt-image-1-mini-2025-10-06") == book.find("openai", "gpt-image-1-mini")
    assert (
        book.find("openai", "tts-1-hd-1106")
        == book.find("openai", "tts-1-hd")
        != book.find("openai", "tts-1")
    )


def test_estimate_counts_the_whole_request() -> None:
    short = ChatRequest((ChatMessage("user", (TextPart("x" * 35),)),))
    assert estimate(short) == 10 + 8
    request = ChatRequest(
        (ChatMessage("user", (TextPart("x" * 35), ImagePart(url="https://example.com/a.png"))),)
    )
    assert estimate(request) == estimate(short) + 1500
    tool = ToolSpec("weather", "x" * 350, {"type": "object"})
    assert estimate(ChatRequest(short.messages, tools=(tool,))) > estimate(short) + 100
    turns = (
        ChatMessage("assistant", (ToolCall("1", "weather", "{}"),)),
        ChatMessage("user", (ToolResult("1", (TextPart("rain"),)),)),
    )
    assert estimate(ChatRequest((*short.messages, *turns))) > estimate(short)
    assert (tokens_of(0), tokens_of(1), tokens_of(35)) == (0, 1, 10)


COUNT = st.integers(0, 2_000_000)
RATE = st.integers(0, 200_000_000)
OPTIONAL_RATE = st.none() | RATE
PRICED = st.builds(
    TokenRates,
    *(
        RATE,
        RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
        RATE,
        RATE,
        RATE,
        OPTIONAL_RATE,
        OPTIONAL_RATE,
    ),
    st.sampled_from([0, 1000]),
)
USED = st.builds(
    lambda special, plain, out, units: TokenUsage(
        sum(special[:5]) + plain,
        out[0] + out[1] + units.image_out + out[2],
        *special[:5],
        audio_out=out[1],
        reasoning=out[2],
        units=units,
    ),
    st.tuples(COUNT, COUNT, COUNT, COUNT, COUNT),
    COUNT,
    st.tuples(COUNT, COUNT, COUNT),
    st.builds(Units, COUNT, COUNT, COUNT, COUNT),
)


@given(rates=PRICED, used=USED)
def test_usage_lines_have_every_unit_and_sum_to_the_cost(rates: TokenRates, used: TokenUsage) -> None:
    units = used.units
    assert units is not None
    lines = {line.unit: line for line in rates.lines(used)}
    assert all(line.quantity > 0 for line in lines.values())
    counted = {
        "cached_tokens": used.cached,
        "cache_write_tokens": used.cache_write,
        "cache_write_1h_tokens": used.cache_write_long,
        "image_input_tokens": used.image_in,
        "audio_input_tokens": used.audio_in,
        "reasoning_tokens": used.reasoning,
        "audio_output_tokens": used.audio_out,
        "image_output_tokens": units.image_out,
        "images": units.images,
        "audio_seconds": units.milliseconds,
        "characters": units.characters,
    }
    for unit, quantity in counted.items():
        assert (lines[unit].quantity if unit in lines else 0) == quantity, unit
    read = [line.quantity for unit, line in lines.items() if unit in INPUT]
    messages = [
        line.quantity for unit, line in lines.items() if unit.endswith("tokens") and unit not in INPUT
    ]
    assert (sum(read), sum(messages)) == (used.input, used.output)
    exact = sum((Fraction(line.quantity * line.rate, line.per) for line in lines.values()), Fraction())
    assert rates.cost(used) == math.ceil(exact)


INPUT = {
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "image_input_tokens",
    "audio_input_tokens",
}


def test_lines_of_inconsistent_usage_are_limited_to_totals() -> None:
    result = TokenRates(1_000_000, 1_000_000, image_output=2_000_000)
    wrong = TokenUsage(5, 3, cached=9, reasoning=50, units=Units(image_out=7))
    assert [(line.unit, line.quantity) for line in result.lines(wrong)] == [
        ("cached_tokens", 9),
        ("image_output_tokens", 3),
    ]
    assert result.lines(TokenUsage(-5, -3)) == ()


DATA = "A" * 40_000
URI = "data:image/png;base64," + DATA
MEDIA: dict[str, Any] = {
    "chat": {"messages": [{"content": [{"type": "image_url", "image_url": {"url": URI}}]}]},
    "responses": {"input": [{"content": [{"type": "input_image", "image_url": URI}]}]},
    "output": {
        "input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": URI}]}]
    },
    "messages": {"messages": [{"content": [{"type": "image", "source": {"type": "base64", "data": DATA}}]}]},
    "tool result": {
        "messages": [
            {"content": [{"type": "tool_result", "content": [{"type": "image", "source": {"data": DATA}}]}]}
        ]
    },
    "thinking": {"messages": [{"content": [{"type": "thinking", "signature": DATA}]}]},
    "ollama": {"messages": [{"content": "Look", "images": [DATA]}]},
    "generate": {"prompt": "Look", "images": [DATA]},
    "audio": {"messages": [{"content": [{"type": "input_audio", "input_audio": {"data": DATA}}]}]},
    "file": {"messages": [{"content": [{"type": "file", "file": {"file_data": URI}}]}]},
}
TEXTS: dict[str, Any] = {
    "message": {"messages": [{"content": DATA}]},
    "part": {"messages": [{"content": [{"type": "text", "text": URI}]}]},
    "member": {"messages": [{"content": [{"type": "text", "text": "x", "data": DATA}]}]},
    "document": {"messages": [{"content": [{"type": "document", "source": {"type": "text", "data": DATA}}]}]},
    "arguments": {
        "messages": [
            {"content": [{"type": "tool_use", "input": {"type": "image", "source": {"data": DATA}}}]}
        ]
    },
    "schema": {"tools": [{"type": "image", "source": {"data": DATA}}]},
}


def body_tokens(body: bytes) -> int:
    call = GatewayRequest(Principal("a", "", ""), "r", "chat", "chat", "m", body, lambda: ChatRequest(()))
    return RequestNeeds(call).input_tokens


@pytest.mark.parametrize("name", MEDIA)
def test_an_estimate_counts_media_in_base64_once(name: str) -> None:
    rest = len(msgspec.json.encode(MEDIA[name])) - len(DATA)
    assert body_tokens(msgspec.json.encode(MEDIA[name])) == 1500 + tokens_of(rest)


@pytest.mark.parametrize("name", TEXTS)
def test_an_estimate_counts_base64_elsewhere_as_text(name: str) -> None:
    body = msgspec.json.encode(TEXTS[name])
    assert body_tokens(body) == tokens_of(len(body))


def test_an_estimate_finds_long_words_of_any_length() -> None:
    for size in (1024, 256 * 1024, 2**20 + 5):
        body = b'{"messages":[{"content":"' + b"x y " * 250 + b"A" * size + b'"}]}'
        assert body_tokens(body) == tokens_of(len(body)), size


def test_provider_bill_does_not_apply_to_partial_usage() -> None:
    rates = TokenRates(1_000_000, 2_000_000, as_billed=True)
    full_usage = TokenUsage(100, 50, billed_micros=1_230)
    assert rates.cost(full_usage) == 1_230
    assert rates.cost(msgspec.structs.replace(full_usage, output=10, reported=False)) == 120
