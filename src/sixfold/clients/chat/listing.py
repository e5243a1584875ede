"""Lists the models of a server with their capabilities, and which are loaded.

Sources: https://docs.ollama.com/api (tags, ps, show), https://lmstudio.ai/docs/developer/rest (v0 and v1),
llama.cpp's tools/server/README.md (props, models), https://docs.sglang.io/docs/basic_usage/native_api.md
(model info), and llama-swap's /running. All of them support /v1/models; further requests add what it lacks,
and without a response the models are described by their names.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sixfold.clients.chat.transport import Transport
from sixfold.core.gateway import usage
from sixfold.core.gateway.capabilities import (
    CHAT,
    EMBEDDINGS,
    THINKING,
    TOOLS,
    VISION,
    ServedModel,
    guess_model,
)
from sixfold.core.gateway.ports import UpstreamFailure, UpstreamStream
from sixfold.core.gateway.usage import TokenRates

# Limit of one response; the details of a model may include its license and template.
MAX_BYTES = 4 * 2**20
MAX_MODELS = 1000
_MAX_NAME = 200
# Models that one refresh queries Ollama about, and how many concurrently.
_MAX_QUERIED = 16
_CONCURRENCY = 4
# Ollama's details of a model: license, template and tensors.
_SHOW_BYTES = 512 * 1024
# Pause before Ollama is queried again about a model after an unreadable response.
_FAILED_SECONDS = 60.0
# Time for optional details of a list.
_OPTIONAL_SECONDS = 2.0
# Larger responses are decoded off the event loop.
_THREADED_BYTES = 64 * 1024
# Ollama's names of capabilities that are used here.
_OLLAMA: Mapping[str, str] = {
    "completion": CHAT,
    "embedding": EMBEDDINGS,
    "vision": VISION,
    "tools": TOOLS,
    "thinking": THINKING,
}
_LM_STUDIO: Mapping[str, frozenset[str]] = {
    "llm": frozenset({CHAT}),
    "vlm": frozenset({CHAT, VISION}),
    "embeddings": frozenset({EMBEDDINGS}),
    "embedding": frozenset({EMBEDDINGS}),
}
_MISTRAL: Mapping[str, str] = {
    "completion_chat": CHAT,
    "vision": VISION,
    "function_calling": TOOLS,
    "reasoning": THINKING,
}
_TOGETHER: Mapping[str, frozenset[str]] = {
    "chat": frozenset({CHAT}),
    "embedding": frozenset({EMBEDDINGS}),
    **dict.fromkeys(("image", "audio", "video", "moderation", "rerank", "transcribe"), frozenset[str]()),
}
_OPENROUTER: Mapping[str, str] = {"tools": TOOLS, "reasoning": THINKING}
# The names of prices in the lists of OpenRouter and Together.
_PRICES: Mapping[str, str] = {
    "prompt": "input",
    "completion": "output",
    "input_cache_read": "cached_input",
    "input_cache_write": "cache_write",
    "input": "input",
    "output": "output",
    "cached_input": "cached_input",
}
T = TypeVar("T")
Models = tuple[ServedModel, ...]
# Returns the headers of a request: method, URL and body.
Authorize = Callable[[str, str, bytes], Awaitable[Mapping[str, str]]]


# Servers may send values of any type; each field is checked where it is used.
class _Row(msgspec.Struct):
    id: Any = None
    status: Any = None
    architecture: Any = None
    type: Any = None
    state: Any = None
    capabilities: Any = None
    key: Any = None
    loaded_instances: Any = None
    supported_parameters: Any = None
    pricing: Any = None
    context_length: Any = None
    max_context_length: Any = None
    context_window: Any = None
    max_model_len: Any = None
    max_completion_tokens: Any = None
    top_provider: Any = None
    meta: Any = None

    def limits(self) -> dict[str, int]:
        """Return the limits of tokens that the row states."""
        contexts = (
            self.context_length,
            self.max_context_length,
            self.context_window,
            self.max_model_len,
            _member(self.meta, "n_ctx_train"),
        )
        outputs = (self.max_completion_tokens, _member(self.top_provider, "max_completion_tokens"))
        return {"context": _first_count(contexts), "max_output": _first_count(outputs)}


class _OpenAIList(msgspec.Struct):
    data: list[_Row]


class _StudioList(msgspec.Struct):
    models: list[_Row]


class _OllamaTag(msgspec.Struct):
    name: Any = None
    model: Any = None
    digest: Any = None
    capabilities: Any = None
    remote_host: Any = None
    state: Any = None


class _Tags(msgspec.Struct):
    models: list[_OllamaTag]


class _LoadedModels(msgspec.Struct):
    running: list[_OllamaTag]


class _ModelDetails(msgspec.Struct):
    capabilities: Any = None


class _Props(msgspec.Struct):
    modalities: Any = None


class _ModelInfo(msgspec.Struct):
    is_generation: Any = None
    has_image_understanding: Any = None


class ModelQueries:
    """Requests to one server for its models.

    Raises `UpstreamFailure` if the server does not respond, or exceeds the size limit.
    """

    def __init__(self, transport: Transport, base_url: str, authorize: Authorize) -> None:
        self._transport = transport
        self._base_url = base_url
        self._root = base_url.removesuffix("/v1")
        self._authorize = authorize

    def at(self, old: str, new: str) -> ModelQueries:
        """Return queries to another address: with `old` in the base URL replaced."""
        return ModelQueries(self._transport, self._base_url.replace(old, new), self._authorize)

    async def openai(self) -> list[_Row] | None:
        """Return the rows of `/v1/models`, or None if there is no such list."""
        response = await self._get(f"{self._base_url}/models")
        # Together's list is not in an object.
        kind = cast("type[_OpenAIList | list[_Row]]", _OpenAIList | list[_Row])
        document = await _decoded(response, kind)
        rows = document.data if isinstance(document, _OpenAIList) else document
        return None if rows is None else rows[:MAX_MODELS]

    async def get(self, path: str, kind: type[T]) -> T | None:
        """GET a path of the server's own API; return None unless the document is of this kind."""
        return await _decoded(await self._get(self._root + path), kind)

    async def _get(self, url: str) -> UpstreamStream:
        return await self._transport.get(url, await self._authorize("GET", url, b""))

    async def post(self, path: str, body: Any, kind: type[T], limit: int = MAX_BYTES) -> T | None:
        """POST to the server's own API; return None unless the document is of this kind."""
        raw = msgspec.json.encode(body)
        url = self._root + path
        headers = await self._authorize("POST", url, raw)
        response = await self._transport.post(url, headers, raw, stream=True)
        return await _decoded(response, kind, limit)


async def read_limited(response: UpstreamStream, limit: int = MAX_BYTES) -> bytes:
    """Read a whole response and close it; raises `UpstreamFailure` above the limit."""
    parts: list[bytes] = []
    size = 0
    try:
        while block := await response.read():
            size += len(block)
            if size > limit:
                raise UpstreamFailure(f"returned more than {limit} bytes")
            parts.append(block)
    finally:
        await response.aclose()
    return b"".join(parts)


async def _decoded(response: UpstreamStream, kind: type[T], limit: int = MAX_BYTES) -> T | None:
    body = await read_limited(response, limit)
    if response.status != 200:
        return None
    try:
        if len(body) > _THREADED_BYTES:
            return await asyncio.to_thread(msgspec.json.decode, body, type=kind)
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def model_name(value: Any) -> str:
    """Return the model name, or an empty string if it is invalid."""
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_NAME and value.isprintable() else ""


def strings(value: Any) -> frozenset[str]:
    """Return the strings of a list; empty for any other value."""
    return (
        frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()
    )


def _member(value: Any, field: str) -> Any:
    return value.get(field) if isinstance(value, dict) else None


def _first_count(values: Iterable[Any]) -> int:
    """Return the first value that is a plausible number of tokens, or 0."""
    counts = (usage.parse_token_count(value) or 0 for value in values)
    return next((count for count in counts if count > 0), 0)


async def optional(query: Awaitable[T | None]) -> T | None:
    """Return an optional detail, or None if it does not arrive soon."""
    with contextlib.suppress(UpstreamFailure, TimeoutError):
        async with asyncio.timeout(_OPTIONAL_SECONDS):
            return await query
    return None


async def _openai_models(
    queries: ModelQueries, *, loaded: bool = False, price_unit: int = 0
) -> Models | None:
    """Return the models of `/v1/models`, with capabilities by name unless a row states them.

    With a `price_unit`, the rows have prices in USD for so many tokens.
    """
    rows = await queries.openai()
    if rows is None:
        return None
    return tuple(
        replace(
            _model_of_row(name, row, loaded), rates=_listed_rates(row.pricing, price_unit), **row.limits()
        )
        for row in rows
        if (name := model_name(row.id))
    )


def _model_of_row(name: str, row: _Row, loaded: bool) -> ServedModel:
    status = _member(row.status, "value")
    model = guess_model(name, loaded=loaded if status is None else status == "loaded")
    if isinstance(row.capabilities, dict) and "completion_chat" in row.capabilities:
        stated = {word for each, word in _MISTRAL.items() if row.capabilities.get(each) is True}
        return replace(model, capabilities=frozenset(stated) or model.capabilities - {CHAT}, stated=True)
    if isinstance(row.type, str) and row.type in _TOGETHER and row.type != CHAT:
        return replace(model, capabilities=_TOGETHER[row.type], stated=True)
    modalities = strings(_member(row.architecture, "input_modalities"))
    outputs = strings(_member(row.architecture, "output_modalities"))
    if outputs and "text" not in outputs:
        return replace(model, capabilities=frozenset(), stated=True)
    if not modalities or not model.chat:
        return model
    capabilities = model.capabilities | {VISION} if "image" in modalities else model.capabilities - {VISION}
    parameters = strings(row.supported_parameters)
    capabilities |= {word for each, word in _OPENROUTER.items() if each in parameters}
    return replace(model, capabilities=capabilities, stated=True)


def _listed_rates(pricing: Any, unit: int) -> TokenRates | None:
    """Return the rates of a provider's list, or None; both rates at 0 are not believed without a bill."""
    if not unit or not isinstance(pricing, dict):
        return None
    row: dict[str, Decimal] = {}
    try:
        for name, rate in _PRICES.items():
            if pricing.get(name) is not None:
                row[f"{rate}_per_million_usd"] = Decimal(str(pricing[name])) * 1_000_000 / unit
        rates = usage.rates(row)
    except (ValueError, ArithmeticError):
        return None
    if unit == 1:
        return dataclasses.replace(rates, as_billed=True)
    return rates if rates.input or rates.output else None


async def _vllm(queries: ModelQueries) -> Models | None:
    return await _openai_models(queries, loaded=True)


async def _llamacpp(queries: ModelQueries) -> Models | None:
    """Return the list; for a server with one model, `/props` states whether it accepts images."""
    models = await _openai_models(queries, loaded=True)
    if models is None or len(models) != 1 or not models[0].chat or models[0].stated:
        return models
    props = await optional(queries.get("/props", _Props))
    vision = _member(None if props is None else props.modalities, "vision")
    if not isinstance(vision, bool):
        return models
    capabilities = frozenset({CHAT, VISION}) if vision else frozenset({CHAT})
    return (replace(models[0], capabilities=capabilities, stated=True),)


async def _sglang(queries: ModelQueries) -> Models | None:
    models, info = await asyncio.gather(
        _openai_models(queries, loaded=True), optional(queries.get("/get_model_info", _ModelInfo))
    )
    if models is None or info is None or not isinstance(info.is_generation, bool):
        return models
    if not info.is_generation:
        capabilities = frozenset({EMBEDDINGS})
    elif isinstance(info.has_image_understanding, bool):
        capabilities = frozenset({CHAT, VISION}) if info.has_image_understanding else frozenset({CHAT})
    else:
        return models
    return tuple(replace(model, capabilities=capabilities, stated=True) for model in models)


async def _llamaswap(queries: ModelQueries) -> Models | None:
    models, running = await asyncio.gather(
        _openai_models(queries), optional(queries.get("/running", _LoadedModels))
    )
    rows = [] if running is None else running.running
    loaded = {model_name(row.model) for row in rows if row.state in (None, "ready")}
    return models and tuple(replace(model, loaded=model.name in loaded) for model in models)


async def _lmstudio(queries: ModelQueries) -> Models | None:
    """Return LM Studio's own list of either version, else that of `/v1/models`."""
    old = await queries.get("/api/v0/models", _OpenAIList)
    if old is not None:
        return _studio_models(old.data, lambda row: row.id, lambda row: row.state == "loaded")
    new = await queries.get("/api/v1/models", _StudioList)
    if new is not None:
        return _studio_models(new.models, lambda row: row.key, lambda row: bool(row.loaded_instances))
    return await _openai_models(queries)


def _studio_models(
    rows: Iterable[_Row], name_of: Callable[[_Row], Any], loaded: Callable[[_Row], bool]
) -> Models:
    models: list[ServedModel] = []
    for row in list(rows)[:MAX_MODELS]:
        name = model_name(name_of(row))
        if not name:
            continue
        capabilities = _LM_STUDIO.get(row.type if isinstance(row.type, str) else "", frozenset())
        if _member(row.capabilities, "vision") is True:
            capabilities |= {VISION}
        if (
            "tool_use" in strings(row.capabilities)
            or _member(row.capabilities, "trained_for_tool_use") is True
        ):
            capabilities |= {TOOLS}
        model = ServedModel(name, capabilities, loaded(row), stated=True)
        models.append(replace(model, **row.limits()))
    return tuple(models)


class _Ollama:
    """Ollama's own list. Missing capabilities of a model are queried once and cached by its digest."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str] | None] = {}
        # When a model may be queried again after a failure.
        self._failed: dict[str, float] = {}

    async def __call__(self, queries: ModelQueries) -> Models | None:
        tags = await queries.get("/api/tags", _Tags)
        if tags is None:
            return await _openai_models(queries)
        running = await optional(queries.get("/api/ps", _Tags))
        loaded = {
            model_name(row.name) or model_name(row.model) for row in (running.models if running else [])
        }
        # Models in Ollama's cloud come last, so that a default request does not leave this network.
        rows = sorted(tags.models[:MAX_MODELS], key=lambda row: bool(row.remote_host))
        stated = [
            (name, _key(name, row), _capabilities(row.capabilities))
            for row in rows
            if (name := model_name(row.name) or model_name(row.model))
        ]
        unknown = {key: name for name, key, capabilities in stated if capabilities is None}
        self._known = {key: capabilities for key, capabilities in self._known.items() if key in unknown}
        self._failed = {key: until for key, until in self._failed.items() if key in unknown}
        await self._query_details(queries, unknown, loaded)
        return tuple(
            _ollama_model(
                name, self._known.get(key) if capabilities is None else capabilities, name in loaded
            )
            for name, key, capabilities in stated
        )

    async def _query_details(
        self, queries: ModelQueries, unknown: Mapping[str, str], loaded: Container[str]
    ) -> None:
        """Query unknown models, at most `_MAX_SHOWN`; those that failed before come last."""
        now = time.monotonic()
        pending = [key for key in unknown if key not in self._known and self._failed.get(key, now) <= now]
        pending.sort(key=lambda key: (key in self._failed, unknown[key] not in loaded))
        remaining = iter(pending[:_MAX_QUERIED])

        async def ask() -> None:
            for key in remaining:
                # Counts as failed until it is answered, as the time limit may end it.
                self._failed[key] = time.monotonic() + _FAILED_SECONDS
                with contextlib.suppress(UpstreamFailure):
                    body = {"model": unknown[key]}
                    details = await queries.post("/api/show", body, _ModelDetails, _SHOW_BYTES)
                    if details is not None:
                        self._known[key] = _capabilities(details.capabilities)
                        del self._failed[key]

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OPTIONAL_SECONDS):
                await asyncio.gather(*(ask() for _ in range(_CONCURRENCY)))


def _capabilities(value: Any) -> frozenset[str] | None:
    """Return the capabilities that Ollama states, or None if it states none."""
    names = strings(value)
    return frozenset(word for each, word in _OLLAMA.items() if each in names) if names else None


def _ollama_model(name: str, capabilities: frozenset[str] | None, loaded: bool) -> ServedModel:
    return (
        guess_model(name, loaded=loaded)
        if capabilities is None
        else ServedModel(name, capabilities, loaded, stated=True)
    )


def _key(name: str, row: _OllamaTag) -> str:
    return row.digest if isinstance(row.digest, str) and 0 < len(row.digest) <= _MAX_NAME else name


Listing = Callable[[ModelQueries], Awaitable["Models | None"]]
_LISTINGS: Mapping[str, Callable[[], Listing]] = {
    "ollama": _Ollama,
    "lmstudio": lambda: _lmstudio,
    "llamacpp": lambda: _llamacpp,
    "llamaswap": lambda: _llamaswap,
    "vllm": lambda: _vllm,
    "sglang": lambda: _sglang,
}


def listing_of(kind: str, price_unit: int = 0) -> Listing:
    """Return the function that lists a kind of server; it returns None without a readable list."""
    if kind in _LISTINGS:
        return _LISTINGS[kind]()
    return lambda queries: _openai_models(queries, price_unit=price_unit)


def configured(models: Iterable[str], listed: Models) -> Models:
    """Return the configured models in their order, with the capabilities that the server states."""
    by_name = {model.name: model for model in listed}
    return tuple(
        replace(model, name=name)
        if (model := by_name.get(name) or by_name.get(f"{name}:latest"))
        else guess_model(name)
        for name in models
    )
