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
from dataclasses import dataclass
from typing import Any

from sixfold.clients import provider_client
from sixfold.clients.provider_client import (
    ProviderClient,
    ProviderEndpoint,
    ProviderRefusal,
    ProviderResponse,
    RequestBody,
)

_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_POLICY = frozenset({"moderation_blocked", "content_policy_violation", "safety_violation"})


def refusal(status: int, document: Any) -> ProviderRefusal:
    """Parse an error response of OpenAI: `error` with `code`, `type` and the invalid `param`."""
    error = provider_client.mapping(provider_client.mapping(document).get("error"))
    codes = {str(error.get("code")), str(error.get("type"))}
    if codes & _CREDIT:
        return ProviderRefusal("credit")
    if codes & _POLICY:
        return ProviderRefusal("policy")
    if "model_not_found" in codes:
        return ProviderRefusal("absent")
    return provider_client.by_status(status, str(error.get("message") or ""), str(error.get("param") or ""))


# The API is synchronous: after an error response, nothing is running that could be billed.
OPENAI = ProviderEndpoint(
    "openai",
    "OpenAI",
    "Bearer",
    "https://api.openai.com/v1",
    refusal,
    also_repeated=frozenset({500, 502}),
)


@dataclass(frozen=True, slots=True)
class OpenAIUsage:
    """Billed tokens; 0 if a compatible server does not report them."""

    text_in: int
    image_in: int
    out: int


@dataclass(frozen=True, slots=True)
class OpenAIImages:
    """Images in base64 or as URLs, and the tokens used."""

    encoded: tuple[str, ...]
    addresses: tuple[str, ...]
    usage: OpenAIUsage | None


@dataclass(frozen=True, slots=True)
class TranscriptionResult:
    """A transcript with its segments and words, each with `start` and `end` in seconds."""

    text: str
    language: str
    segments: Sequence[Mapping[str, Any]]
    words: Sequence[Mapping[str, Any]]


class OpenAIClient:
    """OpenAI, or a compatible server, with one key."""

    def __init__(self, to: ProviderClient) -> None:
        self._to = to

    async def generate(self, fields: Mapping[str, Any]) -> OpenAIImages:
        """`POST /images/generations`."""
        limits = self._to.limits
        return self._images(
            await self._to.post("images/generations", RequestBody(dict(fields)), seconds=limits.whole_seconds)
        )

    async def edit(
        self, fields: Mapping[str, Any], pictures: Sequence[tuple[str, bytes, str]], mask: bytes | None = None
    ) -> OpenAIImages:
        """`POST /images/edits`: images as (name, content, type), and an optional PNG mask."""
        files = [("image[]", picture) for picture in pictures]
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
        """`POST /audio/transcriptions` with a recording as (name, content, type)."""
        body = RequestBody(fields=fields, files=(("file", recording),))
        seconds = self._to.limits.whole_seconds
        found = provider_client.mapping(
            (await self._to.post("audio/transcriptions", body, seconds=seconds)).document
        )
        if not isinstance(found.get("text"), str):
            raise self._to.failed(ProviderRefusal("broken", said="returned a response without text"))
        return TranscriptionResult(
            found["text"].strip(),
            str(found.get("language") or ""),
            provider_client.texts(found.get("segments")),
            provider_client.texts(found.get("words")),
        )

    async def describe(self, model: str, prompt: str, picture: str) -> tuple[str, OpenAIUsage]:
        """Describe an image (a `data:` URI) with `POST /chat/completions`; return the text and tokens."""
        content = [
            {"type": "text", "text": prompt},
            {"type": "image_url", "image_url": {"url": picture}},
        ]
        document = {"model": model, "messages": [{"role": "user", "content": content}]}
        answer = await self._to.post(
            "chat/completions", RequestBody(document), seconds=self._to.limits.whole_seconds
        )
        found = provider_client.mapping(answer.document)
        choice = next(iter(provider_client.texts(found.get("choices"))), {})
        said, used = (
            provider_client.mapping(choice.get("message")).get("content"),
            provider_client.mapping(found.get("usage")),
        )
        if not isinstance(said, str) or not said.strip():
            raise self._to.failed(ProviderRefusal("broken", said="returned a response without text"))
        return said.strip(), OpenAIUsage(
            provider_client.count(used.get("prompt_tokens")),
            0,
            provider_client.count(used.get("completion_tokens")),
        )

    def _images(self, answer: ProviderResponse) -> OpenAIImages:
        found = provider_client.mapping(answer.document)
        pictures = provider_client.texts(found.get("data"))
        encoded = tuple(str(one["b64_json"]) for one in pictures if one.get("b64_json"))
        addresses = tuple(str(one["url"]) for one in pictures if one.get("url") and not one.get("b64_json"))
        if not encoded and not addresses:
            raise self._to.failed(ProviderRefusal("broken", said="returned a response without an image"))
        return OpenAIImages(encoded, addresses, _usage(found.get("usage")))


def _usage(value: Any) -> OpenAIUsage | None:
    found = provider_client.mapping(value)
    if not found:
        return None
    details = provider_client.mapping(found.get("input_tokens_details"))
    inputs = provider_client.count(found.get("input_tokens"))
    image_in = provider_client.count(details.get("image_tokens"))
    text_in = provider_client.count(details.get("text_tokens")) if details else inputs
    return OpenAIUsage(text_in, image_in, provider_client.count(found.get("output_tokens")))
