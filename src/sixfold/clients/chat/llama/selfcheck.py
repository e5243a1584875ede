"""Self-check of a newly added model: it must generate readable text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from sixfold.clients.chat.llama import files, processes
from sixfold.clients.chat.llama.options import GgufOptions
from sixfold.core.catalog.engines import EngineError
from sixfold.core.gateway.ports import UpstreamFailure

_QUESTION = "Which color does the sky have on a clear day? Answer in one short sentence."
_TOKENS, _SECONDS, _READABLE = 48, 600.0, 0.9


def words(folder: Path) -> str:
    """Return a short response of the model in a folder; raises `EngineError`."""
    models = files.models_at(folder)
    if not models:
        raise EngineError(f"No GGUF file was found in {folder}.")
    name, model = next(iter(models.items()))
    try:
        text = asyncio.run(_generate(name, model))
    except (UpstreamFailure, httpx.HTTPError) as error:
        raise EngineError(f"llama.cpp {error}.") from error
    readable = sum(character.isprintable() and character != "\ufffd" for character in text)
    if not text or readable < _READABLE * len(text):
        raise EngineError("Self-check failed: the model generated no readable text.")
    return text


async def _generate(name: str, model: files.GgufModel) -> str:
    process = await processes.start(name, model, GgufOptions(context=512, slots=1))
    headers = {"Authorization": f"Bearer {process.key}"}
    body = {"messages": [{"role": "user", "content": _QUESTION}], "max_tokens": _TOKENS, "temperature": 0}
    try:
        async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=_SECONDS) as client:
            response = await client.post(f"{process.url}/v1/chat/completions", json=body)
            response.raise_for_status()
            message = response.json()["choices"][0]["message"]
    finally:
        await process.stop()
    return " ".join(str(message.get("content") or message.get("reasoning_content") or "").split())
