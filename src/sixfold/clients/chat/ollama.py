"""List of an Ollama server's models with the details that it states.

Source: https://docs.ollama.com/api (tags, ps, show).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Container, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold.clients.chat import listing
from sixfold.clients.chat.listing import ModelQueries, Models, model_name, optional, strings
from sixfold.core.gateway.capabilities import (
    ALL,
    CHAT,
    EMBEDDINGS,
    THINKING,
    TOOLS,
    VISION,
    ServedModel,
    guess_model,
)
from sixfold.core.gateway.ports import UpstreamFailure

# Maximum number of models that one refresh queries, in total and concurrently.
_MAX_QUERIED = 16
_CONCURRENCY = 4
# Maximum size of the details of a model: license, template and tensors.
_SHOW_BYTES = 512 * 1024
# Pause before a model is queried again after an unreadable response.
_FAILED_SECONDS = 60.0
# Capabilities by Ollama's name.
_CAPABILITIES: Mapping[str, str] = {
    "completion": CHAT,
    "embedding": EMBEDDINGS,
    "vision": VISION,
    "tools": TOOLS,
    "thinking": THINKING,
}


class _Tag(msgspec.Struct):
    name: Any = None
    model: Any = None
    digest: Any = None
    capabilities: Any = None
    remote_host: Any = None


class _Tags(msgspec.Struct):
    models: list[_Tag]


class _Details(msgspec.Struct):
    capabilities: Any = None
    model_info: Any = None


class _ModelFacts(msgspec.Struct, frozen=True):
    """The details of a model that the listing uses."""

    capabilities: frozenset[str] = frozenset()
    context: int = 0
    embedding: int = 0


class OllamaListing:
    """Lists one server's models. The details of a model are queried once and cached by its digest."""

    def __init__(self) -> None:
        self._known: dict[str, _ModelFacts] = {}
        # Earliest time of the next query after a failure, by model.
        self._failed: dict[str, float] = {}

    async def __call__(self, queries: ModelQueries) -> Models | None:
        tags = await queries.get("/api/tags", _Tags)
        if tags is None:
            return await listing.openai_models(queries)
        running = await optional(queries.get("/api/ps", _Tags))
        loaded_names = {
            model_name(row.name) or model_name(row.model) for row in (running.models if running else [])
        }
        # Models in Ollama's cloud come last, so that a default request does not leave this network.
        rows = sorted(tags.models[: listing.MAX_MODELS], key=lambda row: bool(row.remote_host))
        named = [
            (name, _key(name, row), row)
            for row in rows
            if (name := model_name(row.name) or model_name(row.model))
        ]
        names = {key: name for name, key, _ in named}
        self._known = {key: facts for key, facts in self._known.items() if key in names}
        self._failed = {key: until for key, until in self._failed.items() if key in names}
        await self._query_details(queries, names, loaded_names)
        return tuple(
            _described(name, row.capabilities, self._known.get(key, _ModelFacts()), name in loaded_names)
            for name, key, row in named
        )

    async def _query_details(
        self, queries: ModelQueries, names: Mapping[str, str], loaded: Container[str]
    ) -> None:
        """Query unknown models, at most `_MAX_QUERIED`; those that failed before come last."""
        now = time.monotonic()
        pending = [key for key in names if key not in self._known and self._failed.get(key, now) <= now]
        pending.sort(key=lambda key: (key in self._failed, names[key] not in loaded))
        remaining = iter(pending[:_MAX_QUERIED])

        async def query() -> None:
            for key in remaining:
                # Counts as failed until the response arrives, as a timeout may cancel the query.
                self._failed[key] = time.monotonic() + _FAILED_SECONDS
                with contextlib.suppress(UpstreamFailure):
                    body = {"model": names[key]}
                    details = await queries.post("/api/show", body, _Details, _SHOW_BYTES)
                    if details is not None:
                        self._known[key] = _facts(details)
                        del self._failed[key]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(listing.OPTIONAL_SECONDS):
                await asyncio.gather(*(query() for _ in range(_CONCURRENCY)))


def _key(name: str, row: _Tag) -> str:
    return row.digest if isinstance(row.digest, str) and 0 < len(row.digest) <= listing.MAX_NAME else name


def _facts(details: _Details) -> _ModelFacts:
    info = details.model_info
    architecture = listing.member(info, "general.architecture")
    context, embedding = (
        listing.first_count((listing.member(info, f"{architecture}.{field}_length"),))
        for field in ("context", "embedding")
    )
    return _ModelFacts(strings(details.capabilities), context, embedding)


def _described(name: str, tagged: Any, facts: _ModelFacts, loaded: bool) -> ServedModel:
    model = guess_model(name, loaded=loaded)
    if stated := strings(tagged) or facts.capabilities:
        able = frozenset(word for each, word in _CAPABILITIES.items() if each in stated)
        model = replace(model, capabilities=able, lacks=ALL - able, stated=True)
    dimensions = facts.embedding if EMBEDDINGS in model.capabilities else 0
    return replace(model, context=facts.context, dimensions=dimensions)
