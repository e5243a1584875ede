"""The services of this server that a realtime session uses with the key that opened it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from sixfold import errors
from sixfold.api.gateway.chat_handler import SERVICES
from sixfold.api.gateway.key_auth import CachedKeyAuth
from sixfold.api.gateway.openai import media_jobs
from sixfold.api.gateway.openai.audio.routes import SPEECH, TRANSCRIPTION, recording_call, voice_name
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.media_jobs import MediaJobRequest, MediaJobRunner
from sixfold.api.gateway.openai.passthrough import UpstreamPassthrough
from sixfold.api.gateway.openai.realtime.configuration import (
    AudioOutput,
    InputTranscription,
    SessionConfiguration,
)
from sixfold.core import ids
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.realtime import audio
from sixfold.core.gateway.realtime.memory import RealtimeServerMemory
from sixfold.core.gateway.request_log import refunded_on_failure
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.routing import ModelRouter
from sixfold.core.gateway.tools.servers import Toolset
from sixfold.web import admission
from sixfold.web.bodies import BodyFields, FormPart
from sixfold.web.services import WebServices

_ENDPOINT, _TRANSCRIPTIONS = "realtime", "transcriptions"
# The client's name of the input of transcriptions.
_AUDIO_NAMES = {"audio_url": "audio"}
# OpenAI's names of realtime models, which the default chat model replaces if no server has them.
OPENAI_NAMES = ("gpt-realtime", "gpt-4o-realtime", "gpt-4o-mini-realtime", "gpt-audio")
DEFAULT = "default"


class _ServerTranscript(msgspec.Struct):
    text: str


class RealtimeParts(NamedTuple):
    """Services that all sessions of this server share."""

    auth: CachedKeyAuth
    jobs: MediaJobRunner
    forwarding: UpstreamPassthrough
    memory: RealtimeServerMemory


class Transcript(NamedTuple):
    """The text of a recording, and the seconds that are charged."""

    text: str
    seconds: float


class RealtimeServices:
    """The chat and speech of one session; each call is checked and charged as a request with its key."""

    def __init__(self, services: WebServices, parts: RealtimeParts, account_id: str, key_id: str) -> None:
        self._services = services
        self._auth = parts.auth
        self._jobs = parts.jobs
        self._forwarding = parts.forwarding
        self.memory = parts.memory.of(account_id)
        self.audio_memory = self.memory.audio()
        self._key = services.authenticator.delegate(key_id)
        self._credential = f"Bearer {self._key}".encode()

    async def wait_drain(self) -> None:
        """Wait until the server shuts down."""
        await self._services.predictions.waiters.wait_drain()

    @asynccontextmanager
    async def stream_chat(
        self, request_id: str, chat: ChatRequest, model: str, *, speaks: bool = False
    ) -> AsyncGenerator[ResponseStream]:
        """Open the stream of a chat, which counts as a streamed chat of the account.

        If the response `speaks`, the key must be allowed to use the model `tts`. Raises `ShuttingDown` and
        the errors of `Gateway.stream_chat`.
        """
        if self._services.predictions.draining:
            raise errors.ShuttingDown
        principal = await self._principal()
        if speaks:
            principal.permit(SPEECH)
        slot: dict[str, Any] = {}
        self._services.admission.chat_streams.hold(slot, principal.account_id)
        try:
            gateway = self._services.gateway
            name = chat_model(gateway.router, model)
            yield await gateway.stream_chat(principal, request_id, chat, name, _ENDPOINT, SERVICES)
        finally:
            admission.release(slot)

    def check_voice(self, settings: AudioOutput) -> None:
        """Raise `InvalidInput` for an unknown voice."""
        self._services.catalog[SPEECH].check(_speech_inputs(".", settings))

    def check_speech(self, settings: AudioOutput) -> None:
        """Raise `EngineUnavailable` with instructions if no engine of this server can speak."""
        self._services.predictions.quote(SPEECH, _speech_inputs(".", settings))

    async def speak(self, text: str, settings: AudioOutput) -> bytes:
        """Return a text as speech in 24 kHz PCM; this runs the model `tts`.

        Raises the errors of `POST /v1/audio/speech`. After an error or a cancelation, nothing is charged.
        """
        job = MediaJobRequest(await self._principal(), ids.new("req"), SPEECH, _speech_inputs(text, settings))
        (prediction,) = (await self._jobs.run(job)).predictions
        return await self._jobs.data(prediction)

    def check_transcription(self, settings: InputTranscription | None) -> None:
        """Raise `UnknownModel` if no engine and no model server transcribes with this model."""
        if settings is not None and not self._forwarding.serves(_TRANSCRIPTIONS, settings.model):
            media_jobs.resolve_model(TRANSCRIPTION, settings.model)

    async def transcribe(self, pcm: bytes, rate: int, settings: InputTranscription) -> Transcript:
        """Transcribe PCM audio. Raises the errors of `POST /v1/audio/transcriptions`."""
        principal = await self._principal()
        recording, seconds = audio.wav(pcm, rate), len(pcm) / (2 * rate)
        if self._forwarding.serves(_TRANSCRIPTIONS, settings.model):
            return await self._forward(principal, recording, seconds, settings)
        model = media_jobs.resolve_model(TRANSCRIPTION, settings.model)
        source = await self._jobs.receive("audio", "audio", recording)
        inputs = {"audio_url": source.blob, "language": settings.spoken_language}
        job = MediaJobRequest(
            principal, ids.new("req"), model, inputs, sources={"audio_url": source}, input_names=_AUDIO_NAMES
        )
        (prediction,) = (await self._jobs.run(job)).predictions
        return Transcript(str(media_jobs.output_data(prediction, "text")["text"]), round(seconds, 3))

    async def _forward(
        self, principal: Principal, recording: bytes, seconds: float, settings: InputTranscription
    ) -> Transcript:
        """Return the transcript of a model server."""
        values = {"model": settings.model, "language": settings.spoken_language, "prompt": settings.hint}
        texts = {name: value for name, value in values.items() if value}
        parts = [FormPart(name, text.encode()) for name, text in texts.items()]
        parts.append(FormPart("file", recording, "audio.wav", "audio/wav"))
        call = recording_call(_TRANSCRIPTIONS, BodyFields(dict(texts), parts=tuple(parts)), seconds)
        request_id = ids.new("req")
        request = Request({"type": "http", "headers": [], "sixfold.request_id": request_id})
        reply = await self._forwarding.complete(request, principal, call, None)
        async with refunded_on_failure(self._services.database, request_id):
            try:
                text = msgspec.json.decode(reply.raw or b"", type=_ServerTranscript).text
            except (msgspec.MsgspecError, UnicodeError) as error:
                raise errors.EngineFailed("The model server did not return a transcript") from error
        return Transcript(text, round(seconds, 3))

    async def check_tools(self, settings: SessionConfiguration) -> None:
        """Raise `InvalidRequest` for a tool server that the operator has not connected for this account."""
        if settings.server_tools:
            self._check_tools(await self._services.authenticator.find(self._key), settings)

    @asynccontextmanager
    async def open_tools(self, settings: SessionConfiguration) -> AsyncGenerator[Toolset | None]:
        """Yield the tools of the session's tool servers, or None if it has no tool servers.

        Raises `Forbidden`, `InvalidRequest`, `ToolServerFailed` and `TooManyRequests`.
        """
        if not settings.server_tools:
            yield None
            return
        principal = await self._services.authenticator.find(self._key)
        self._check_tools(principal, settings)
        names = {tools.server_label: tools.tool_names for tools in settings.server_tools}
        async with self._services.tool_servers.toolset(principal, tuple(names)) as toolset:
            toolset.restrict(names)
            yield toolset

    def _check_tools(self, principal: Principal, settings: SessionConfiguration) -> None:
        self._services.tool_servers.check(principal)
        allowed = self._services.tool_servers.names(principal)
        for tools in settings.server_tools:
            if tools.server_label not in allowed:
                names = f"one of {', '.join(allowed)}" if allowed else "connected by the operator first"
                message = f"The tool server {tools.server_label[:40]!r} is not available: it must be {names}"
                raise InvalidRequest(message, param="tools")

    async def rate_limits(self) -> list[dict[str, Any]]:
        """Return the limits of the key and the remaining amounts, as in `rate_limits.updated`."""
        authenticator = self._services.authenticator
        try:
            principal = await authenticator.find(self._key)
            scope, rate_id = principal.scope, principal.rate_id or ""
            rows = (
                ("requests", scope.rpm, authenticator.request_rates),
                ("tokens", scope.tpm, self._services.gateway.token_rates),
            )
            remainders = [
                (name, limit, await rates.left(rate_id, limit))
                for name, limit, rates in rows
                if limit is not None and rate_id
            ]
        except errors.SixfoldError:
            # The chat that follows reports it.
            return []
        return [
            {"name": name, "limit": limit, "remaining": rest.amount, "reset_seconds": rest.reset_seconds}
            for name, limit, rest in remainders
        ]

    async def _principal(self) -> Principal:
        """Return the current principal of the key, and count a request against its rate."""
        return await self._auth.admit({b"authorization": self._credential})


def _speech_inputs(text: str, settings: AudioOutput) -> dict[str, Any]:
    voice = settings.voice if isinstance(settings.voice, str) else settings.voice.id
    return {"prompt": text, "voice": voice_name(voice), "format": "pcm", "speed": settings.speed}


def chat_model(router: ModelRouter, name: str) -> str:
    """Return the chat model for a name; names of OpenAI's models that are not routed mean the default."""
    if name.startswith(OPENAI_NAMES):
        try:
            router.resolve_chat(name)
        except errors.SixfoldError:
            return DEFAULT
    return name
