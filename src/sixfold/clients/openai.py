"""OpenAI's API: images, speech, transcriptions, image descriptions; also for compatible servers.

Sources: https://developers.openai.com/api/reference/resources/images/methods/generate.md and
…/methods/edit.md (fields, usage; `gpt-image-1` was shut down on 2026-10-23, so newer models are named
elsewhere), https://developers.openai.com/api/docs/guides/error-codes (errors; 500 and 503 may be retried);
for audio, …/audio/subresources/speech/methods/create.md and
…/audio/subresources/transcriptions/methods/create.md. GPT image models always return `b64_json`; other
servers may return a `url`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sixfold.clients import provider_client
from sixfold.clients.provider_client import (
    ProviderClient,
    ProviderEndpoint,
    ProviderRefusal,
    ProviderResponse,
    RequestBody,
)
from sixfold.providers import PROVIDERS

_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_POLICY = frozenset({"moderation_blocked", "content_policy_violation", "safety_violation"})


def refusal(status: int, document: Any) -> ProviderRefusal:
    """Parse an error response of OpenAI: `error` with `code`, `type` and the invalid `param`."""
    error = provider_client.mapping(provider_client.mapping(document).get("error"))
    codes = {provider_client.text_of(error.get(name)) for name in ("code", "type")}
    if codes & _CREDIT:
        return ProviderRefusal("credit")
    if codes & _POLICY:
        return ProviderRefusal("policy")
    if "model_not_found" in codes:
        return ProviderRefusal("absent")
    return provider_client.by_status(
        status, provider_client.text_of(error.get("message")), provider_client.text_of(error.get("param"))
    )


# The API is synchronous: after an error response, the provider does not continue and bills nothing.
OPENAI = ProviderEndpoint(PROVIDERS["openai"], also_repeated=frozenset({500, 502}))


class OpenAIUsage(msgspec.Struct, frozen=True):
    """Billed tokens; 0 if a compatible server does not report them."""

    text_in: int
    image_in: int
    out: int


class OpenAIImages(msgspec.Struct, frozen=True):
    """Images in base64 or as URLs, and the tokens used."""

    encoded: tuple[str, ...]
    addresses: tuple[str, ...]
    usage: OpenAIUsage | None


class TranscriptionResult(msgspec.Struct, frozen=True):
    """A transcript with its segments and words, each with `start` and `end` in seconds."""

    text: str
    language: str
    segments: Sequence[Mapping[str, Any]]
    words: Sequence[Mapping[str, Any]]


class OpenAIClient:
    """A client of OpenAI or a compatible server, with one key."""

    def __init__(self, to: ProviderClient) -> None:
        self._to = to

    async def generate(self, fields: Mapping[str, Any]) -> OpenAIImages:
        """Generate images with `POST /images/generations`."""
        limits = self._to.limits
        return self._images(
            await self._to.post("images/generations", RequestBody(dict(fields)), seconds=limits.whole_seconds)
        )

    async def edit(
        self, fields: Mapping[str, Any], images: Sequence[tuple[str, bytes, str]], mask: bytes | None = None
    ) -> OpenAIImages:
        """Edit images, as (name, content, type), with `POST /images/edits` and an optional PNG mask."""
        files = [("image[]", image) for image in images]
        if mask is not None:
            files.append(("mask", ("mask.png", mask, "image/png")))
        body = RequestBody(fields={name: str(value) for name, value in fields.items()}, files=tuple(files))
        return self._images(await self._to.post("images/edits", body, seconds=self._to.limits.whole_seconds))

    async def speak(self, fields: Mapping[str, Any]) -> bytes:
        """Return the audio file of `POST /audio/speech`."""
        seconds = self._to.limits.whole_seconds
        return (
            await self._to.post_for_file("audio/speech", RequestBody(dict(fields)), seconds=seconds)
        ).content

    async def listen(
        self, fields: Mapping[str, str | list[str]], recording: tuple[str, bytes, str]
    ) -> TranscriptionResult:
        """Transcribe a recording, as (name, content, type), with `POST /audio/transcriptions`."""
        body = RequestBody(fields=fields, files=(("file", recording),))
        seconds = self._to.limits.whole_seconds
        document = provider_client.mapping(
            (await self._to.post("audio/transcriptions", body, seconds=seconds)).document
        )
        if not isinstance(document.get("text"), str):
            raise self._to.failed(ProviderRefusal("broken", message="returned a response without text"))
        return TranscriptionResult(
            document["text"].strip(),
            provider_client.text_of(document.get("language")),
            provider_client.objects(document.get("segments")),
            provider_client.objects(document.get("words")),
        )

    async def describe(self, model: str, prompt: str, image_url: str) -> tuple[str, OpenAIUsage]:
        """Describe an image (a `data:` URI) with `POST /chat/completions`; return the text and tokens."""
        content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": image_url}}]
        document = {"model": model, "messages": [{"role": "user", "content": content}]}
        response = await self._to.post(
            "chat/completions", RequestBody(document), seconds=self._to.limits.whole_seconds
        )
        body = provider_client.mapping(response.document)
        choice = next(iter(provider_client.objects(body.get("choices"))), {})
        text, usage = (
            provider_client.mapping(choice.get("message")).get("content"),
            provider_client.mapping(body.get("usage")),
        )
        if not isinstance(text, str) or not text.strip():
            raise self._to.failed(ProviderRefusal("broken", message="returned a response without text"))
        return text.strip(), OpenAIUsage(
            provider_client.count(usage.get("prompt_tokens")),
            0,
            provider_client.count(usage.get("completion_tokens")),
        )

    def _images(self, response: ProviderResponse) -> OpenAIImages:
        document = provider_client.mapping(response.document)
        images = provider_client.objects(document.get("data"))
        encoded = tuple(str(image["b64_json"]) for image in images if image.get("b64_json"))
        urls = tuple(str(image["url"]) for image in images if image.get("url") and not image.get("b64_json"))
        if not encoded and not urls:
            raise self._to.failed(ProviderRefusal("broken", message="returned a response without an image"))
        return OpenAIImages(encoded, urls, _usage(document.get("usage")))


def _usage(value: Any) -> OpenAIUsage | None:
    usage = provider_client.mapping(value)
    if not usage:
        return None
    details = provider_client.mapping(usage.get("input_tokens_details"))
    inputs = provider_client.count(usage.get("input_tokens"))
    image_in = provider_client.count(details.get("image_tokens"))
    text_in = provider_client.count(details.get("text_tokens")) if details else inputs
    return OpenAIUsage(text_in, image_in, provider_client.count(usage.get("output_tokens")))
