"""The services of this server that a realtime session uses, as the key that opened it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from sixfold import errors
from sixfold.api.gateway.chat_handler import SERVICES, CachedKeyAuth
from sixfold.api.gateway.openai.audio.routes import SPEECH, voice_name
from sixfold.api.gateway.openai.media_jobs import MediaJobRequest, MediaJobRunner
from sixfold.api.gateway.openai.realtime.configuration import AudioOutput
from sixfold.core import ids
from sixfold.core.accounts.keys import Principal
from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.response_stream import ResponseStream
from sixfold.core.gateway.routing import ModelRouter
from sixfold.web import admission
from sixfold.web.services import WebServices

_ENDPOINT = "realtime"
# OpenAI's names of realtime models, which the default chat model replaces if no server has them.
_OPENAI_NAMES = ("gpt-realtime", "gpt-4o-realtime", "gpt-4o-mini-realtime", "gpt-audio")
DEFAULT = "default"


class RealtimeParts(NamedTuple):
    """What all sessions of this server share."""

    auth: CachedKeyAuth
    jobs: MediaJobRunner


class RealtimeServices:
    """Chats and speech of one session, with the checks and charges of requests with its key."""

    def __init__(self, services: WebServices, parts: RealtimeParts, key_id: str) -> None:
        self._services = services
        self._auth = parts.auth
        self._jobs = parts.jobs
        self._credential = f"Bearer {services.authenticator.delegate(key_id)}".encode()

    async def wait_drain(self) -> None:
        """Wait until the server shuts down."""
        await self._services.predictions.waiters.wait_drain()

    @asynccontextmanager
    async def stream_chat(
        self, request_id: str, chat: ChatRequest, model: str
    ) -> AsyncGenerator[ResponseStream]:
        """Open the stream of a chat, which counts as a streamed chat of the account.

        Raises what `Gateway.stream_chat` raises, and `TooManyRequests`.
        """
        if self._services.predictions.draining:
            raise errors.ShuttingDown
        principal = await self._principal()
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
        """Return a text as speech, in PCM with 24 kHz; a request of the model `tts`.

        Raises what `POST /v1/audio/speech` raises; then, and after a cancelation, nothing is charged.
        """
        job = MediaJobRequest(await self._principal(), ids.new("req"), SPEECH, _speech_inputs(text, settings))
        (prediction,) = (await self._jobs.run(job)).predictions
        return await self._jobs.data(prediction)

    async def _principal(self) -> Principal:
        """Return the key as it is now, and count a request of it."""
        return await self._auth.admit({b"authorization": self._credential})


def _speech_inputs(text: str, settings: AudioOutput) -> dict[str, Any]:
    voice = settings.voice if isinstance(settings.voice, str) else settings.voice.id
    return {"prompt": text, "voice": voice_name(voice), "format": "pcm", "speed": settings.speed}


def chat_model(router: ModelRouter, name: str) -> str:
    """Return the chat model for a name: the default one for a name of OpenAI that no server has."""
    if name.startswith(_OPENAI_NAMES):
        try:
            router.resolve_chat(name)
        except errors.SixfoldError:
            return DEFAULT
    return name
