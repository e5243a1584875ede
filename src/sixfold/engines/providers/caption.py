"""A picture in a sentence, by a model that sees: OpenAI's, those of servers like it, and Anthropic's."""

from __future__ import annotations

import asyncio

from sixfold.clients.anthropic import ANTHROPIC, AnthropicClient
from sixfold.clients.openai import OPENAI, OpenAIClient, OpenAIUsage
from sixfold.core.catalog.engines import Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.providers import image_io, model_table
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.model_table import UsedInputs
from sixfold.engines.providers.provider import ProviderEngine

_LONGEST = 1024  # pixels of a side: enough to say what is there


class _Caption(ProviderEngine):
    """`text` of `image_url`, in the words of a provider's model."""

    async def run(self, task: Task, context: Context) -> Result:
        """What it says, and who said it."""
        path = task.files.get("image_url") or task.files.get("image")
        if path is None:
            raise UnusableInput("There is no picture to describe.")
        sent = await asyncio.to_thread(image_io.prepared, path, _LONGEST)
        context.progress(0.1)
        try:
            async with asyncio.timeout(self._limits.whole_seconds):
                text, used = await self._said(model_table.look("caption"), sent)
        except TimeoutError:
            whole = self._limits.whole_seconds
            raise EngineError(f"{self.provider.title} did not finish within {whole:g} seconds.") from None
        context.progress(1.0)
        width, height = sent.own_size
        data = {
            "text": text,
            "width": width,
            "height": height,
            "provider": self.provider.name,
            "provider_model": self._route.model,
        }
        cost = self._route.price.micros(UsedInputs(text_in=used.text_in, out=used.out))
        return Result(data=data, quality="full", upstream_cost_micros=cost)

    async def _said(self, prompt: str, sent: UploadImage) -> tuple[str, OpenAIUsage]:
        raise NotImplementedError


class OpenAICaption(_Caption):
    """By `POST /chat/completions`."""

    provider = OPENAI
    setting = "openai_api_key"

    async def _said(self, prompt: str, sent: UploadImage) -> tuple[str, OpenAIUsage]:
        return await OpenAIClient(self._calls()).describe(self._route.model, prompt, sent.data_uri())


class AnthropicCaption(_Caption):
    """By `POST /messages`."""

    provider = ANTHROPIC
    setting = "anthropic_api_key"

    async def _said(self, prompt: str, sent: UploadImage) -> tuple[str, OpenAIUsage]:
        claude = AnthropicClient(self._calls())
        return await claude.describe(self._route.model, prompt, sent.data, sent.content_type)
