"""Anthropic's Messages API for image descriptions; chats go through the gateway.

Source: https://platform.claude.com/docs/en/api/messages (fields, usage, `x-api-key`, `anthropic-version`).
Its errors contain a `type` and a `message`, as those of OpenAI do.
"""

from __future__ import annotations

import base64
from typing import Any

from sixfold.clients import provider_client
from sixfold.clients.openai import OpenAIUsage
from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderRefusal, RequestBody
from sixfold.providers import PROVIDERS

ANTHROPIC = ProviderEndpoint(PROVIDERS["anthropic"])
_MAX_TOKENS = 300


class AnthropicClient:
    """A client of Anthropic or a compatible server, with one key."""

    def __init__(self, to: ProviderClient) -> None:
        self._to = to

    async def describe(
        self, model: str, prompt: str, image: bytes, content_type: str
    ) -> tuple[str, OpenAIUsage]:
        """Describe an image with `POST /messages`; return the text and the tokens used."""
        data = base64.b64encode(image).decode("ascii")
        source = {"type": "base64", "media_type": content_type, "data": data}
        content = [{"type": "image", "source": source}, {"type": "text", "text": prompt}]
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": _MAX_TOKENS,
            "messages": [{"role": "user", "content": content}],
        }
        seconds = self._to.limits.whole_seconds
        document = provider_client.mapping(
            (await self._to.post("messages", RequestBody(body), seconds=seconds)).document
        )
        text = " ".join(
            str(block.get("text") or "") for block in provider_client.objects(document.get("content"))
        ).strip()
        if not text:
            raise self._to.failed(ProviderRefusal("broken", message="returned a response without text"))
        usage = provider_client.mapping(document.get("usage"))
        return text, OpenAIUsage(
            provider_client.count(usage.get("input_tokens")),
            0,
            provider_client.count(usage.get("output_tokens")),
        )
