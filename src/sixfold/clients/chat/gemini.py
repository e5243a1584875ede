"""Google's `generateContent`, of the Gemini API and of Vertex AI.

Source: https://ai.google.dev/api/generate-content (fields, finish reasons, usage, whose output excludes
thoughts), …/gemini-api/docs/thinking and …/thought-signatures (a function call of Gemini 3 needs the
signature that came with it, or a placeholder in its place).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from sixfold.clients.chat import sse
from sixfold.clients.chat.messages import parse_arguments
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import (
    GEMINI_SIGNATURE,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    Event,
    ImagePart,
    MessageEnd,
    Part,
    ReasoningDelta,
    ReasoningPart,
    Stop,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
)
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage, parse_token_count, parse_totals

_encode = msgspec.json.Encoder().encode
_STOPS: dict[str, Stop] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"),
        "filter",
    ),
}
# Google's documented placeholder for calls with an unknown signature.
_NO_SIGNATURE = "skip_thought_signature_validator"
# Up to Gemini 2.5, thinking has a budget of tokens; since 3, it has a level.
_WITH_BUDGET = re.compile(r"gemini-[12][.-]")
_BUDGETS: Mapping[str, int] = {"minimal": 512, "low": 1024, "medium": 8192}
_LARGEST_BUDGET = 24_576
_LEVELS: Mapping[str, str] = {"minimal": "low", "low": "low", "medium": "medium"}


class _ModalityCount(msgspec.Struct, rename="camel"):
    modality: str = ""
    token_count: Any = None


class _GeminiUsage(msgspec.Struct, rename="camel"):
    prompt_token_count: Any = None
    tool_use_prompt_token_count: Any = None
    cached_content_token_count: Any = None
    candidates_token_count: Any = None
    thoughts_token_count: Any = None
    prompt_tokens_details: list[_ModalityCount] | None = None

    def read(self) -> TokenUsage | None:
        # Gemini omits a count of 0.
        answered = 0 if self.candidates_token_count is None else self.candidates_token_count
        totals = parse_totals(self.prompt_token_count, answered)
        if totals is None:
            return None
        thoughts = parse_token_count(self.thoughts_token_count) or 0
        kinds = {
            detail.modality: parse_token_count(detail.token_count) or 0
            for detail in self.prompt_tokens_details or ()
        }
        return TokenUsage(
            input=totals[0] + (parse_token_count(self.tool_use_prompt_token_count) or 0),
            output=totals[1] + thoughts,
            cached=parse_token_count(self.cached_content_token_count) or 0,
            audio_in=kinds.get("AUDIO", 0),
            reasoning=thoughts,
        )


class _FunctionCall(msgspec.Struct):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()


class _GeminiPart(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _GeminiContent(msgspec.Struct):
    parts: list[_GeminiPart] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _GeminiContent | None = None
    finish_reason: str | None = None


class _PromptFeedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _GeminiDocument(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _GeminiUsage | None = None
    prompt_feedback: _PromptFeedback | None = None
    response_id: str | None = None
    model_version: str | None = None
    error: Any = None

    @property
    def parts(self) -> Sequence[_GeminiPart]:
        candidate = self.candidates[0] if self.candidates else _Candidate()
        return (candidate.content.parts if candidate.content is not None else None) or ()

    @property
    def stop(self) -> Stop | None:
        """The reason why the response ended, or None if it is incomplete."""
        if self.prompt_feedback is not None and self.prompt_feedback.block_reason:
            return "filter"
        reason = self.candidates[0].finish_reason if self.candidates else None
        return None if reason is None else _STOPS.get(reason, "end")

    @property
    def usage(self) -> TokenUsage | None:
        return None if self.usage_metadata is None else self.usage_metadata.read()


_decode = msgspec.json.Decoder(_GeminiDocument).decode


class Gemini(WireProtocol):
    """The protocol of `POST /models/{model}:generateContent`; the model is in the path."""

    name = "gemini"
    path = ":generateContent"

    def path_of(self, model: str, *, stream: bool) -> str:
        action = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/models/{quote(model.removeprefix('models/'), safe='')}:{action}"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Raise `NotImplementedError`, as callers do not use this protocol."""
        raise NotImplementedError

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        generation: dict[str, Any] = {
            "maxOutputTokens": chat.max_tokens,
            "temperature": chat.temperature,
            "topP": chat.top_p,
            "stopSequences": list(chat.stop) or None,
            "thinkingConfig": _thinking(model, chat.effort),
        }
        if chat.shape is not None:
            generation |= {"responseMimeType": "application/json", "responseJsonSchema": chat.shape.schema}
        generation = {name: value for name, value in generation.items() if value is not None}
        fields: dict[str, Any] = {
            "contents": _contents(chat.messages),
            "systemInstruction": {"parts": [{"text": chat.system}]} if chat.system else None,
            "generationConfig": generation or None,
            **_tools(chat),
        }
        return _encode({name: value for name, value in fields.items() if value is not None})

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        document = _response(body)
        return document.usage, sum(_chars(part) for part in document.parts)

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        document = _response(body)
        parts: list[TextPart | ToolCall | ReasoningPart] = []
        for part in document.parts:
            parts += _parse_part(part)
        stop = document.stop or "end"
        if stop == "end" and any(isinstance(part, ToolCall) for part in parts):
            stop = "tool"
        return ChatResponse(
            document.response_id or "",
            document.model_version or "",
            tuple(parts),
            stop,
            document.usage or NOTHING,
        )

    def parse_error(self, body: bytes) -> UpstreamRejection:
        # Without `alt=sse`, an error is the element of a list.
        return parse_rejection(body.strip().removeprefix(b"[").removesuffix(b"]"))

    def scanner(self) -> GeminiParser:
        return GeminiParser()

    def stream_parser(self, chat: ChatRequest) -> GeminiParser:
        return GeminiParser()


class GeminiParser:
    """Parses the `data:` lines of a streamed response, each of which is a response with the next parts."""

    def __init__(self) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        self.complete = False
        self.error = ""
        self._stop: Stop = "end"
        self._calls = 0
        self._splitter = sse.EventSplitter()

    @property
    def buffered(self) -> int:
        return self._splitter.size

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        self.events(block)
        return block

    def events(self, block: bytes) -> Sequence[Event]:
        events: list[Event] = []
        for data in sse.data(self._splitter.feed(block)[0] if block else self._splitter.flush()):
            try:
                document = _decode(data)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                continue
            if document.error is not None:
                self.error = f"The model server failed: {parse_rejection(data).message[:200]}"
            # Each report counts the whole response so far.
            self.usage = document.usage or self.usage
            for part in document.parts:
                self.chars += _chars(part)
                for event in _parse_part(part):
                    events += self._events_of(event)
            if document.stop is not None:
                self.complete, self._stop = True, document.stop
        return events

    def end(self) -> MessageEnd:
        stop = "tool" if self._stop == "end" and self._calls else self._stop
        return MessageEnd(stop, self.usage or NOTHING)

    def _events_of(self, part: TextPart | ToolCall | ReasoningPart) -> list[Event]:
        match part:
            case TextPart():
                return [TextDelta(part.text)]
            case ReasoningPart():
                return [ReasoningDelta(part.text, part.signature)]
            case ToolCall():
                number, self._calls = self._calls, self._calls + 1
                return [ToolCallStart(number, part.id, part.name), ToolCallDelta(number, part.arguments)]


def _response(body: bytes) -> _GeminiDocument:
    try:
        document = _decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError("the response is not valid JSON") from error
    if not document.candidates and document.stop is None:
        raise ValueError("the response has no candidates")
    return document


def _chars(part: _GeminiPart) -> int:
    return len(part.text or "") + (len(part.function_call.args) if part.function_call is not None else 0)


def _parse_part(part: _GeminiPart) -> list[TextPart | ToolCall | ReasoningPart]:
    """Return the text, thought or call of a part; the signature of a call is reasoning before it."""
    if part.thought:
        return [ReasoningPart(part.text)] if part.text else []
    if part.function_call is None:
        return [TextPart(part.text)] if part.text else []
    call = part.function_call
    arguments = (bytes(call.args) or b"{}").decode()
    tool_call = ToolCall(call.id or f"call_{secrets.token_hex(8)}", call.name, arguments)
    if not part.thought_signature:
        return [tool_call]
    return [ReasoningPart("", GEMINI_SIGNATURE + part.thought_signature), tool_call]


def _thinking(model: str, effort: str) -> dict[str, Any] | None:
    if effort in ("", "none"):
        return None
    if _WITH_BUDGET.search(model):
        return {"includeThoughts": True, "thinkingBudget": _BUDGETS.get(effort, _LARGEST_BUDGET)}
    return {"includeThoughts": True, "thinkingLevel": _LEVELS.get(effort, "high")}


def _tools(chat: ChatRequest) -> dict[str, Any]:
    if not chat.tools:
        return {}
    declarations = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "parametersJsonSchema": {"type": "object", **tool.schema},
        }
        for tool in chat.tools
    ]
    if chat.choice.startswith("="):
        calling: dict[str, Any] = {"mode": "ANY", "allowedFunctionNames": [chat.choice[1:]]}
    else:
        calling = {"mode": {"required": "ANY", "none": "NONE"}.get(chat.choice, "AUTO")}
    return {
        "tools": [{"functionDeclarations": declarations}],
        "toolConfig": {"functionCallingConfig": calling},
    }


def _contents(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Merge consecutive messages of one role: all results of a turn's calls must be in one message."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(message.parts, names)
        if parts and contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _parts(parts: Sequence[Part], names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the parts of a message; `names` maps the IDs of calls to their names."""
    converted: list[dict[str, Any]] = []
    # Only the first call of a turn needs the signature.
    signature = _NO_SIGNATURE
    for part in parts:
        match part:
            case ReasoningPart():
                if part.signature.startswith(GEMINI_SIGNATURE):
                    signature = part.signature.removeprefix(GEMINI_SIGNATURE)
            case TextPart():
                converted += [{"text": part.text}] if part.text else []
            case ImagePart():
                converted.append(_image(part))
            case ToolCall():
                names[part.id] = part.name
                call = {"name": part.name, "args": parse_arguments(part.arguments)}
                converted.append(
                    {"functionCall": call, **({"thoughtSignature": signature} if signature else {})}
                )
                signature = ""
            case ToolResult():
                texts = [inner.text for inner in part.parts if isinstance(inner, TextPart)]
                answer = {"error" if part.failed else "result": "\n".join(texts)}
                converted.append(
                    {"functionResponse": {"name": names.get(part.call_id, ""), "response": answer}}
                )
                converted += [_image(inner) for inner in part.parts if isinstance(inner, ImagePart)]
    return converted


def _image(part: ImagePart) -> dict[str, Any]:
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
