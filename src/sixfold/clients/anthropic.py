"""Anthropic's Messages API for image descriptions; chats go through the gateway.

Source: https://platform.claude.com/docs/en/api/messages (fields, usage, `x-api-key`, `anthropic-version`).
Its errors have a `type` and a `message`, as OpenAI's have.
"""

from __future__ import annotations

import base64
from typing import Any

from sixfold.clients import provider_client
from sixfold.clients.openai import OpenAIUsage, refusal
from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderRefusal, RequestBody

ANTHROPIC = ProviderEndpoint(
    "anthropic", "Anthropic", "", "https://api.anthropic.com/v1", refusal, header="x-api-key"
)
VERSION = {"anthropic-version": "2023-06-01"}
_MOST_TOKENS = 300


class AnthropicClient:
    """Anthropic, or a compatible server, with one key."""

    def __init__(self, to: ProviderClient) -> None:
        self._to = to

    async def describe(
        self, model: str, prompt: str, picture: bytes, content_type: str
    ) -> tuple[str, OpenAIUsage]:
        """Describe an image with `POST /messages`; return the text and the tokens used."""
        data = base64.b64encode(picture).decode("ascii")
        source = {"type": "base64", "media_type": content_type, "data": data}
        content = [{"type": "image", "source": source}, {"type": "text", "text": prompt}]
        document: dict[str, Any] = {
            "model": model,
            "max_tokens": _MOST_TOKENS,
            "messages": [{"role": "user", "content": content}],
        }
        seconds = self._to.limits.whole_seconds
        found = provider_client.mapping(
            (await self._to.post("messages", RequestBody(document), VERSION, seconds=seconds)).document
        )
        said = " ".join(
            str(one.get("text") or "") for one in provider_client.texts(found.get("content"))
        ).strip()
        if not said:
            raise self._to.failed(ProviderRefusal("broken", said="returned a response without text"))
        used = provider_client.mapping(found.get("usage"))
        return said, OpenAIUsage(
            provider_client.count(used.get("input_tokens")),
            0,
            provider_client.count(used.get("output_tokens")),
        )
