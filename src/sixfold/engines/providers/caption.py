"""Caption engines: a vision model of OpenAI (or a server with its API) or Anthropic describes an image."""

from __future__ import annotations

import asyncio

from sixfold.clients.anthropic import ANTHROPIC, AnthropicClient
from sixfold.clients.openai import OPENAI, OpenAIClient, OpenAIUsage
from sixfold.clients.provider_client import ProviderClient
from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines.providers import image_io, model_table
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.model_table import UsedInputs
from sixfold.engines.providers.provider import ProviderEngine

_MAX_SIDE = 1024  # pixels; sufficient for a description


class _Caption(ProviderEngine):
    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Return the description as `text`, with the image's size and the model that wrote it."""
        path = task.files.get("image_url") or task.files.get("image")
        if path is None:
            raise UnusableInput("image_url is required.")
        image = await asyncio.to_thread(image_io.prepare_upload, path, _MAX_SIDE)
        context.progress(0.1)
        async with self._start(context, client).time_limit():
            text, used = await self._describe(client, model_table.prompt_template("caption"), image)
        context.progress(1.0)
        width, height = image.source_size
        data = {
            "text": text,
            "width": width,
            "height": height,
            "provider": self.provider.spec.name,
            "provider_model": self._route.model,
        }
        cost = self._route.cost.micros(UsedInputs(text_in=used.text_in, out=used.out))
        return Result(data=data, quality="full", upstream_cost_micros=cost)

    async def _describe(
        self, client: ProviderClient, prompt: str, image: UploadImage
    ) -> tuple[str, OpenAIUsage]:
        raise NotImplementedError


class OpenAICaption(_Caption):
    """Caption engine that calls `POST /chat/completions`."""

    provider = OPENAI

    async def _describe(
        self, client: ProviderClient, prompt: str, image: UploadImage
    ) -> tuple[str, OpenAIUsage]:
        return await OpenAIClient(client).describe(self._route.model, prompt, image.data_uri())


class AnthropicCaption(_Caption):
    """Caption engine that calls `POST /messages`."""

    provider = ANTHROPIC

    async def _describe(
        self, client: ProviderClient, prompt: str, image: UploadImage
    ) -> tuple[str, OpenAIUsage]:
        return await AnthropicClient(client).describe(
            self._route.model, prompt, image.data, image.content_type
        )
