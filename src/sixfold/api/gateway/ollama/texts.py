"""Ollama's completions without a template: `raw` prompts, and a gap before a `suffix`.

They are forwarded to servers that have OpenAI's text completions; responses are not streamed.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from starlette.responses import Response

from sixfold import errors
from sixfold.api.gateway.chat_handler import ChatCall, ChatHandler
from sixfold.api.gateway.ollama import responses as ollama_responses
from sixfold.api.gateway.openai import text_completions
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import Stop
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.request_log import refunded_on_failure
from sixfold.web import bodies, responses
from sixfold.web.raw_asgi import RawRequest
from sixfold.web.services import WebServices

_STOPS: dict[str, Stop] = {"length": "length"}
_HEADERS = (b"content-length", b"content-type")


class _TextChoice(msgspec.Struct):
    text: str
    finish_reason: str | None = None


class _TextUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Texts(msgspec.Struct):
    choices: list[_TextChoice]
    usage: _TextUsage | None = None


_read = msgspec.json.Decoder(_Texts)


class OllamaTexts:
    """Forwards text completions, and converts the response."""

    def __init__(self, services: WebServices) -> None:
        dialect = msgspec.structs.replace(text_completions.DIALECT, dialect=ollama_responses.error)
        self._database = services.database
        self._handler = ChatHandler(services, services.gateway, dialect)

    async def answer(
        self, request: RawRequest, principal: Principal, call: ChatCall, fields: dict[str, Any]
    ) -> Response:
        """Return the completion of `fields`, in the form that `call` requests."""
        raw = responses.encode({**fields, "model": call.model})
        forwarded = await bodies.parse(text_completions.parse_call, raw)
        reply = await self._handler.answer(request, principal, forwarded, raw)
        async with refunded_on_failure(self._database, request.request_id):
            body = await bodies.parse(functools.partial(_convert, call=call), bytes(reply.body))
        kind = ollama_responses.LINES if call.stream else "application/json"
        response = Response(body, 200, media_type=kind)
        response.raw_headers += [pair for pair in reply.raw_headers if pair[0] not in _HEADERS]
        return response


def _convert(raw: bytes, *, call: ChatCall) -> bytes:
    """Convert a response of OpenAI's API to Ollama's format; raises `EngineFailed`."""
    try:
        document = _read.decode(raw)
        choice = document.choices[0]
    except (msgspec.MsgspecError, UnicodeError, IndexError) as error:
        raise errors.EngineFailed("The model server returned a response that cannot be parsed") from error
    usage = document.usage or _TextUsage()
    tokens = TokenUsage(usage.prompt_tokens, usage.completion_tokens)
    return ollama_responses.complete_response(
        call, choice.text, _STOPS.get(choice.finish_reason or "", "end"), tokens
    )
