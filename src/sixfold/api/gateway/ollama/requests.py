"""Ollama's requests as chat requests: messages, options, formats.

Source: https://docs.ollama.com/api (chat, generate).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import msgspec

from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    ImagePart,
    Part,
    ReasoningPart,
    ResponseFormat,
    TextPart,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from sixfold.web import bodies

# The beginning of an image's base64 by its media type.
_IMAGE_TYPES: Mapping[str, str] = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
# The reasoning effort of each value of `think`; "none" disables the thinking that some models do by default.
_EFFORTS: Mapping[bool | str, str] = {
    True: "medium",
    False: "none",
    "low": "low",
    "medium": "medium",
    "high": "high",
}
# Fields of `generate` that change the answer and that a model server behind a chat cannot apply.
_REFUSED: Mapping[str, str] = {
    "template": "the model server applies the template of the model",
    "context": "send the conversation to /ollama/api/chat",
    "logprobs": "this server does not return log probabilities",
}
# Options that text completions have under the same name.
_TEXT_OPTIONS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "stop")
_encode = msgspec.json.Encoder().encode


class _OllamaFunction(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}


class _Call(msgspec.Struct):
    function: _OllamaFunction
    id: str = ""


class _OllamaMessage(msgspec.Struct):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[_Call] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _ToolFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _OllamaTool(msgspec.Struct):
    function: _ToolFunction


class _OllamaOptions(msgspec.Struct):
    """The options that every model server supports; other options are ignored, as by Ollama."""

    num_predict: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None


class _OllamaRequest(msgspec.Struct, kw_only=True):
    model: str
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: _OllamaOptions | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    template: Any = None
    context: Any = None
    logprobs: Any = None


class _OllamaChat(_OllamaRequest):
    messages: list[_OllamaMessage] | None = None
    tools: list[_OllamaTool] | None = None


class _Generate(_OllamaRequest):
    prompt: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    system: str | None = None
    images: list[str] | None = None


_T = TypeVar("_T")


def read(raw: bytes, kind: type[_T]) -> _T:
    """Parse a body as a `kind`; raises `InvalidRequest`, `BadRequest` and `InputTooLarge`."""
    body = bodies.parse_object(raw)
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid request: {error}") from error


def parse_chat(raw: bytes) -> ChatCall:
    """Parse the body of `POST /ollama/api/chat`. Raises the errors of `read`."""
    body = read(raw, _OllamaChat)
    system, messages = _messages(body.messages or ())
    return _call(body, messages, system, tuple(_tool(tool) for tool in body.tools or ()))


def parse_generate(raw: bytes) -> ChatCall:
    """Parse the body of `POST /ollama/api/generate`. Raises the errors of `read`."""
    body = read(raw, _Generate)
    parts = _content(body.prompt, body.images, "images")
    messages = (ChatMessage("user", parts),) if parts else ()
    return _call(body, messages, body.system or "", ())


def text_fields(raw: bytes) -> dict[str, Any] | None:
    """Return the fields of a text completion for a `raw` prompt or one with a `suffix`, else None.

    Raises the errors of `read`.
    """
    body = read(raw, _Generate)
    if not (body.raw or body.suffix) or not body.prompt:
        return None
    for name in ("system", "images", "format"):
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported with raw or suffix: omit it", param=name)
    options = body.options or _OllamaOptions()
    fields = {
        "prompt": body.prompt,
        "suffix": body.suffix or None,
        "max_tokens": options.num_predict if (options.num_predict or 0) > 0 else None,
        **{name: getattr(options, name) for name in _TEXT_OPTIONS},
    }
    return {name: value for name, value in fields.items() if value is not None}


def _call(
    body: _OllamaRequest, messages: tuple[ChatMessage, ...], system: str, tools: tuple[ToolSpec, ...]
) -> ChatCall:
    for name, reason in _REFUSED.items():
        if getattr(body, name):
            raise InvalidRequest(f"{name} is not supported: {reason}", param=name)
    options = body.options or _OllamaOptions()
    # Ollama's negative numbers mean as many as possible.
    max_tokens = options.num_predict if (options.num_predict or 0) > 0 else None
    chat = ChatRequest(
        messages=messages,
        system=system,
        tools=tools,
        shape=_format(body.format),
        max_tokens=max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        stop=parsing.stop_sequences(options.stop),
        effort="" if body.think is None else _EFFORTS[body.think],
        seed=options.seed,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
    )
    echo = {"model": body.model, "thinking": body.think is not False}
    return ChatCall(body.model, body.stream is not False, max_tokens, lambda: chat, echo=lambda: echo)


def _format(value: str | dict[str, Any] | None) -> ResponseFormat | None:
    if not value:
        return None
    if isinstance(value, dict):
        return ResponseFormat(schema=value)
    if value != "json":
        raise InvalidRequest("format must be json or a JSON schema", param="format")
    return ResponseFormat()


def _tool(tool: _OllamaTool) -> ToolSpec:
    function = tool.function
    parameters: Mapping[str, Any] = function.parameters or {"type": "object", "properties": {}}
    return ToolSpec(function.name, function.description or "", parameters)


def _messages(items: Sequence[_OllamaMessage]) -> tuple[str, tuple[ChatMessage, ...]]:
    """Return the system prompt and the messages.

    Ollama's tool calls may lack ids: a result without an id belongs to the first open call with its name.
    """
    system: list[str] = []
    messages: list[ChatMessage] = []
    open_calls: _OpenCalls = _OpenCalls(())
    for index, item in enumerate(items):
        path = f"messages[{index}]"
        match item.role:
            case "system":
                system.append(item.content or "")
            case "user":
                messages.append(ChatMessage("user", _content(item.content, item.images, f"{path}.images")))
            case "assistant":
                calls = [
                    ToolCall(call.id or f"call_{index}_{number}", call.function.name, _arguments(call))
                    for number, call in enumerate(item.tool_calls or ())
                ]
                open_calls = _OpenCalls(calls)
                thoughts = [ReasoningPart(item.thinking)] if item.thinking else []
                parts = _content(item.content, None, path)
                messages.append(ChatMessage("assistant", (*thoughts, *parts, *calls)))
            case "tool":
                call = open_calls.take(item, path)
                result = cast("tuple[TextPart, ...]", _content(item.content, None, path))
                messages.append(ChatMessage("user", (ToolResult(call.id, result),)))
    return "\n\n".join(text for text in system if text), tuple(messages)


def _arguments(call: _Call) -> str:
    return _encode(call.function.arguments).decode()


class _OpenCalls:
    """The calls of a message whose results are missing."""

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        # Those with each id, each name and each pair of them, in order.
        self._queues: dict[tuple[str, str], deque[ToolCall]] = {}
        self._answered: set[int] = set()
        for call in calls:
            for key in {("", ""), (call.id, ""), ("", call.name), (call.id, call.name)}:
                self._queues.setdefault(key, deque()).append(call)

    def take(self, item: _OllamaMessage, path: str) -> ToolCall:
        """Return and remove the first call that a result may belong to; raises `InvalidRequest`."""
        queue = self._queues.get((item.tool_call_id or "", item.tool_name or ""), deque())
        while queue:
            call = queue.popleft()
            if id(call) not in self._answered:
                self._answered.add(id(call))
                return call
        raise InvalidRequest(
            f"{path} does not match a tool call of the previous message: send the assistant message with its "
            "tool_calls first",
            param=path,
        )


def _content(text: str | None, images: Sequence[str] | None, path: str) -> tuple[Part, ...]:
    texts: tuple[Part, ...] = (TextPart(text),) if text else ()
    return (*texts, *(_image(data, path) for data in images or ()))


def _image(data: str, path: str) -> ImagePart:
    for beginning, media_type in _IMAGE_TYPES.items():
        if data.startswith(beginning):
            return ImagePart(media_type=media_type, data=data)
    raise InvalidRequest(f"{path} must contain only PNG, JPEG, WebP or GIF images in base64", param=path)
