"""What model servers say is wrong, in the words that each of them has for it."""

from __future__ import annotations

import json

import pytest

from sixfold.clients.chat.completions import parse_rejection
from sixfold.core.gateway.ports import UpstreamRejection
from sixfold.errors import TooLong, UpstreamRefused

EXCESSES = {
    "openai": {"message": "Too much", "code": "context_length_exceeded"},
    "openai's responses": {"message": "Your input exceeds the context window of this model. Please adjust."},
    "vllm": {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000."},
    "llama.cpp": {"message": "the request exceeds the available context size. try increasing it"},
    "anthropic": {"message": "prompt is too long: 212345 tokens > 200000 maximum"},
    "anthropic with its answer": {
        "message": "input length and `max_tokens` exceed context limit: 9 + 9 > 10"
    },
    "gemini": {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."},
}


@pytest.mark.parametrize("told", EXCESSES.values(), ids=EXCESSES)
def test_a_conversation_that_is_too_long_is_known_by_the_words_of_every_server(told: dict[str, str]) -> None:
    found = parse_rejection(json.dumps({"error": told}).encode())
    assert found.message == told["message"]
    assert isinstance(found.error(400), TooLong)


@pytest.mark.parametrize("text", ["temperature is too long a word", "context must be a text", "Not found"])
def test_other_objections_are_no_excess(text: str) -> None:
    assert type(parse_rejection(json.dumps({"message": text}).encode()).error(404)) is UpstreamRefused


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"{}", b'{"error": {"message": null}}'])
def test_what_says_nothing_is_told_in_a_sentence(body: bytes) -> None:
    assert parse_rejection(body) == UpstreamRejection("The model server rejected this request")
