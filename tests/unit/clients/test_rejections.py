"""Error messages of model servers, in the format of each."""

from __future__ import annotations

import json

import pytest

from sixfold.clients.chat.rejections import parse_rejection
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


@pytest.mark.parametrize("error", EXCESSES.values(), ids=EXCESSES)
def test_context_overflow_is_recognised_for_every_server(error: dict[str, str]) -> None:
    result = parse_rejection(json.dumps({"error": error}).encode())
    assert result.message == error["message"]
    assert isinstance(result.error(400), TooLong)


@pytest.mark.parametrize("text", ["temperature is too long a word", "context must be a text", "Not found"])
def test_other_rejections_are_not_context_overflows(text: str) -> None:
    assert type(parse_rejection(json.dumps({"message": text}).encode()).error(404)) is UpstreamRefused


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"{}", b'{"error": {"message": null}}'])
def test_rejection_without_a_reason_is_a_general_sentence(body: bytes) -> None:
    assert parse_rejection(body) == UpstreamRejection("The model server rejected this request")


@pytest.mark.parametrize("field", ["message", "detail"])
def test_unknown_field_of_a_mistral_error_is_named(field: str) -> None:
    wrong = {"type": "extra_forbidden", "loc": ["body", "messages", 0, "x"], "msg": "Extra inputs"}
    body = {"message": {"detail": [wrong]}} if field == "message" else {"detail": [wrong]}
    assert parse_rejection(json.dumps(body).encode()).message == "messages.0.x: Extra inputs"


@pytest.mark.parametrize("code", [[], {}, None, 3])
def test_an_error_code_of_any_type_is_read(code: object) -> None:
    body = {"error": {"message": "m", "code": code, "detail": [{"loc": 3}]}}
    assert parse_rejection(json.dumps(body).encode()) == UpstreamRejection("m")
