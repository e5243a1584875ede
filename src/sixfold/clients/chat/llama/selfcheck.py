"""Self-check of a newly added model: it must generate readable text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from sixfold.clients.chat.llama import files, processes
from sixfold.clients.chat.llama.options import GgufOptions
from sixfold.core.catalog.engines import EngineError
from sixfold.core.gateway.ports import UpstreamFailure

_QUESTION = "Which colour does the sky have on a clear day? Answer in one short sentence."
_TOKENS, _SECONDS, _READABLE = 48, 600.0, 0.9


def words(folder: Path) -> str:
    """Return a short response of the model in a folder; raises `EngineError`."""
    models = files.named(folder)
    if not models:
        raise EngineError("There is no GGUF file among them.")
    name, model = next(iter(models.items()))
    try:
        said = asyncio.run(_said(name, model))
    except (UpstreamFailure, httpx.HTTPError) as error:
        raise EngineError(f"llama.cpp {error}.") from error
    readable = sum(letter.isprintable() and letter != "\ufffd" for letter in said)
    if not said or readable < _READABLE * len(said):
        raise EngineError("The model says nothing that can be read.")
    return said


async def _said(name: str, model: files.GgufModel) -> str:
    there = await processes.start(name, model, GgufOptions(context=512, slots=1))
    headers = {"Authorization": f"Bearer {there.key}"}
    asked = {"messages": [{"role": "user", "content": _QUESTION}], "max_tokens": _TOKENS, "temperature": 0}
    try:
        async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=_SECONDS) as client:
            answer = await client.post(f"{there.url}/v1/chat/completions", json=asked)
            answer.raise_for_status()
            message = answer.json()["choices"][0]["message"]
    finally:
        await there.stop()
    return " ".join(str(message.get("content") or message.get("reasoning_content") or "").split())
