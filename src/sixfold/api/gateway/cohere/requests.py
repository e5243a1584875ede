"""Cohere's chat requests as chat completions, which no model server gets in this form.

Sources: https://docs.cohere.com/reference/chat and the first version, https://docs.cohere.com/v1/reference/chat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.openai import chat, parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.chat import ChatRequest
from sixfold.web import bodies

# The model of a request of the first version that names none.
_DEFAULT_MODEL = "default"
_ROLES: Mapping[str, str] = {"USER": "user", "CHATBOT": "assistant", "SYSTEM": "system"}
_CHOICES: Mapping[str | None, str | None] = {None: None, "REQUIRED": "required", "NONE": "none"}
# Fields that change the answer and that no other model server has, with the remedy.
_REFUSED: Mapping[str, str] = {
    "documents": "put the texts into a message",
    "connectors": "put the texts into a message",
    "logprobs": "omit it, this server does not return log probabilities",
    "conversation_id": "send the turns in chat_history",
}
_REFUSED_FIRST: Mapping[str, str] = dict.fromkeys(("tools", "tool_results"), "use POST /v2/chat for tools")


class _Thinking(msgspec.Struct):
    type: Literal["enabled", "disabled"]


class _Format(msgspec.Struct):
    type: Literal["text", "json_object"] = "text"
    json_schema: dict[str, Any] | None = None
    # The name of the field in the first version.
    schema: dict[str, Any] | None = None


class _Options(msgspec.Struct, kw_only=True):
    """Fields of both versions; `k`, `safety_mode` and others that only Cohere's models have are ignored."""

    stream: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    p: float | None = None
    seed: int | None = None
    stop_sequences: list[str] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: _Format | None = None
    documents: Any = None
    connectors: Any = None
    logprobs: Any = None
    conversation_id: Any = None
    tools: list[dict[str, Any]] | None = None


class _CohereMessage(msgspec.Struct):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_plan: str | None = None
    tool_call_id: str | None = None


class _SecondBody(_Options, kw_only=True):
    model: str
    messages: list[_CohereMessage]
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    thinking: _Thinking | None = None


class _Turn(msgspec.Struct):
    role: Literal["USER", "CHATBOT", "SYSTEM"]
    message: str = ""


class _FirstBody(_Options, kw_only=True):
    message: str
    model: str = _DEFAULT_MODEL
    preamble: str | None = None
    chat_history: list[_Turn] = []
    tool_results: Any = None


class CohereCall(msgspec.Struct, frozen=True):
    """A parsed request, and the same request as a chat completion."""

    call: ChatCall
    body: bytes


_first = msgspec.json.Decoder(_FirstBody)
_second = msgspec.json.Decoder(_SecondBody)


def parse(raw: bytes) -> ChatRequest:
    """Parse the body of a `CohereCall`; raises `InvalidRequest`."""
    body = bodies.parse_object(raw)
    options = {name: body.get(name) for name in ("seed", "presence_penalty", "frequency_penalty")}
    return msgspec.structs.replace(chat.from_fields(body), **options)


def parse_second(raw: bytes) -> CohereCall:
    """Parse the body of `POST /v2/chat`; raises `BadRequest`, `InputTooLarge` and `InvalidRequest`."""
    body: _SecondBody = parsing.head(_second, raw)
    if not body.messages:
        raise InvalidRequest("messages must have at least one message", param="messages")
    messages = [_message(item, f"messages[{index}]") for index, item in enumerate(body.messages)]
    thinks = body.thinking is not None and body.thinking.type == "enabled"
    more = {
        "tools": body.tools,
        "tool_choice": _CHOICES[body.tool_choice],
        "reasoning_effort": "medium" if thinks else None,
    }
    return _call(body, body.model, messages, more, {})


def parse_first(raw: bytes) -> CohereCall:
    """Parse the body of `POST /v1/chat`; raises `BadRequest`, `InputTooLarge` and `InvalidRequest`."""
    body: _FirstBody = parsing.head(_first, raw)
    if not body.message:
        raise InvalidRequest("message must not be empty", param="message")
    for name, remedy in _REFUSED_FIRST.items():
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported here: {remedy}", param=name)
    turns = [{"role": _ROLES[turn.role], "content": turn.message} for turn in body.chat_history]
    system = [{"role": "system", "content": body.preamble}] if body.preamble else []
    history = [
        *msgspec.to_builtins(body.chat_history),
        {"role": "USER", "message": body.message},
    ]
    messages = [*system, *turns, {"role": "user", "content": body.message}]
    return _call(body, body.model, messages, {}, {"chat_history": history})


def _call(
    body: _Options,
    model: str,
    messages: list[dict[str, Any]],
    more: Mapping[str, Any],
    echo: Mapping[str, Any],
) -> CohereCall:
    for name, remedy in _REFUSED.items():
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported: {remedy}", param=name)
    if body.max_tokens is not None and body.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1 (got {body.max_tokens})", param="max_tokens")
    fields = {
        "model": model,
        "messages": messages,
        "max_tokens": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.p,
        "seed": body.seed,
        "stop": body.stop_sequences,
        "frequency_penalty": body.frequency_penalty,
        "presence_penalty": body.presence_penalty,
        "response_format": _format(body.response_format),
        **more,
    }
    raw = parsing.encode({name: value for name, value in fields.items() if value is not None})
    call = ChatCall(model, bool(body.stream), body.max_tokens, lambda: parse(raw), echo=lambda: echo)
    return CohereCall(call, raw)


def _format(value: _Format | None) -> dict[str, Any] | None:
    if value is None or value.type == "text":
        return None
    schema = value.json_schema or value.schema
    if schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _message(item: _CohereMessage, path: str) -> dict[str, Any]:
    """Return a message of a chat completion."""
    content = item.content
    if isinstance(content, list):
        parts = [_part(part, f"{path}.content[{index}]") for index, part in enumerate(content)]
        content = [part for part in parts if part is not None]
    if item.role == "assistant" and not content:
        # The plan is what the model wrote before its calls.
        content = item.tool_plan
    fields = {
        "role": item.role,
        "content": content,
        "tool_calls": item.tool_calls,
        "tool_call_id": item.tool_call_id,
    }
    if item.role == "tool" and not item.tool_call_id:
        raise InvalidRequest(f"{path}.tool_call_id is required", param=f"{path}.tool_call_id")
    return {name: value for name, value in fields.items() if value is not None}


def _part(part: dict[str, Any], path: str) -> dict[str, Any] | None:
    """Return a part of a message: documents of a tool as text, and no reasoning of earlier answers."""
    match part.get("type"):
        case "document":
            document = part.get("document")
            if document is None:
                raise InvalidRequest(f"{path}.document is required", param=f"{path}.document")
            if isinstance(document, dict):
                document = cast("dict[str, Any]", document).get("data", document)
            text = document if isinstance(document, str) else parsing.encode(document).decode()
            return {"type": "text", "text": text}
        case "thinking":
            return None
        case _:
            return part
