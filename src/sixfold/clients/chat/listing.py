"""Lists of a server's models with their capabilities, and whether each is loaded.

Sources: https://lmstudio.ai/docs/developer/rest (v0 and v1), llama.cpp's tools/server/README.md (props,
models), https://docs.sglang.io/docs/basic_usage/native_api.md (model info), and llama-swap's /running. All of
them support /v1/models; further requests add missing details; without a response, the models are described
by their names. `ollama.py` lists the models of Ollama.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.clients.chat.transport import Transport
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.capabilities import (
    CHAT,
    EMBEDDINGS,
    MODERATION,
    RERANK,
    THINKING,
    TOOLS,
    VISION,
    ServedModel,
    guess_model,
)
from sixfold.core.gateway.ports import UpstreamFailure, UpstreamStream
from sixfold.core.gateway.pricing import token_rates, usage
from sixfold.core.gateway.pricing.token_rates import TokenRates
from sixfold.core.input_limits import json_limits

# Maximum size of one response; the details of a model may include its license and template.
MAX_BYTES = 4 * 2**20
MAX_MODELS = 1000
MAX_NAME = 200
# Timeout for optional details of a list.
OPTIONAL_SECONDS = 2.0
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
    "moderation": MODERATION,
}
_TOGETHER: Mapping[str, frozenset[str]] = {
    "chat": frozenset({CHAT}),
    "embedding": frozenset({EMBEDDINGS}),
    **{kind: frozenset({kind}) for kind in (MODERATION, RERANK)},
    **dict.fromkeys(("image", "audio", "video", "transcribe"), frozenset[str]()),
}
_OPENROUTER: Mapping[str, str] = {"tools": TOOLS, "reasoning": THINKING}
# Names of prices in the lists of OpenRouter and Together.
_PRICES: Mapping[str, str] = {
    "prompt": "input",
    "completion": "output",
    "input_cache_read": "cached_input",
    "input_cache_write": "cache_write",
    "input": "input",
    "output": "output",
    "cached_input": "cached_input",
}
# The statuses of a proxy whose server does not respond, and of a server that does not have its model yet.
_UNAVAILABLE = frozenset({502, 503, 504})
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
    max_input_tokens: Any = None
    max_tokens: Any = None
    top_provider: Any = None
    meta: Any = None

    def limits(self) -> dict[str, int]:
        """Return the context and the maximum output in tokens that the row states, or 0."""
        contexts = (
            self.context_length,
            self.max_context_length,
            self.context_window,
            self.max_model_len,
            self.max_input_tokens,
            member(self.meta, "n_ctx_train"),
        )
        outputs = (
            self.max_completion_tokens,
            self.max_tokens,
            member(self.top_provider, "max_completion_tokens"),
        )
        return {"context": first_count(contexts), "max_output": first_count(outputs)}


class _OpenAIList(msgspec.Struct):
    data: list[_Row]


class _StudioList(msgspec.Struct):
    models: list[_Row]


class RunningModel(msgspec.Struct):
    """A model that llama-swap has started."""

    model: Any = None
    state: Any = None


class RunningModels(msgspec.Struct):
    """The response of llama-swap's `/running`."""

    running: list[RunningModel]


class _Props(msgspec.Struct):
    modalities: Any = None
    default_generation_settings: Any = None


class _ModelInfo(msgspec.Struct):
    is_generation: Any = None
    has_image_understanding: Any = None


class ModelQueries:
    """Requests to one server for its models.

    Raises `UpstreamFailure` if the server does not respond, or only a proxy before it, or if the response
    exceeds the size limit.
    """

    def __init__(self, transport: Transport, base_url: str, authorize: Authorize) -> None:
        self._transport = transport
        self._base_url = base_url
        self._root = base_url.removesuffix("/v1")
        self._authorize = authorize

    def at(self, old: str, new: str) -> ModelQueries:
        """Return queries to a base URL in which `old` is replaced with `new`."""
        return ModelQueries(self._transport, self._base_url.replace(old, new), self._authorize)

    async def openai(self) -> list[_Row] | None:
        """Return the rows of `/v1/models`, or None if the server does not support it."""
        response = await self._get(f"{self._base_url}/models")
        # Together's list is not in an object.
        kind = cast("type[_OpenAIList | list[_Row]]", _OpenAIList | list[_Row])
        document = await _decoded(response, kind)
        rows = document.data if isinstance(document, _OpenAIList) else document
        return None if rows is None else rows[:MAX_MODELS]

    async def get(self, path: str, kind: type[T]) -> T | None:
        """GET a path of the server's native API; return None unless the document has the type `kind`."""
        return await _decoded(await self._get(self._root + path), kind)

    async def _get(self, url: str) -> UpstreamStream:
        return await self._transport.get(url, await self._authorize("GET", url, b""))

    async def post(self, path: str, body: Any, kind: type[T], limit: int = MAX_BYTES) -> T | None:
        """POST to the server's native API; return None unless the document has the type `kind`."""
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
    if response.status in _UNAVAILABLE:
        raise UpstreamFailure(f"responds with status {response.status}")
    if response.status != 200:
        return None
    return await PARSER.run_large(len(body), _decode, body, kind)


def _decode(body: bytes, kind: type[T]) -> T | None:
    try:
        json_limits.DEFAULT.check(body)
        return msgspec.json.decode(body, type=kind)
    except errors.InputTooLarge as error:
        raise UpstreamFailure("returned a list with too many values") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def model_name(value: Any) -> str:
    """Return the model name, or an empty string if it is invalid."""
    return value if isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable() else ""


def strings(value: Any) -> frozenset[str]:
    """Return the strings of a list, or an empty set for any other value."""
    return (
        frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
    )


def member(value: Any, field: str) -> Any:
    return value.get(field) if isinstance(value, dict) else None


def first_count(values: Iterable[Any]) -> int:
    """Return the first value that is a plausible number of tokens, or 0."""
    counts = (usage.parse_token_count(value) or 0 for value in values)
    return next((count for count in counts if count > 0), 0)


async def optional(query: Awaitable[T | None]) -> T | None:
    """Return an optional detail, or None if it does not arrive within `OPTIONAL_SECONDS`."""
    with contextlib.suppress(UpstreamFailure, TimeoutError):
        async with asyncio.timeout(OPTIONAL_SECONDS):
            return await query
    return None


async def openai_models(queries: ModelQueries, *, loaded: bool = False, price_unit: int = 0) -> Models | None:
    """Return the models of `/v1/models`.

    Capabilities are guessed from the name unless a row states them. If `price_unit` is set, the rows contain
    prices in USD per `price_unit` tokens.
    """
    rows = await queries.openai()
    if rows is None:
        return None
    return tuple(
        replace(
            _model_of_row(name, row, loaded), rates=_provider_rates(row.pricing, price_unit), **row.limits()
        )
        for row in rows
        if (name := model_name(row.id))
    )


def _model_of_row(name: str, row: _Row, loaded: bool) -> ServedModel:
    status = member(row.status, "value")
    model = guess_model(name, loaded=loaded if status is None else status == "loaded")
    if isinstance(row.capabilities, dict) and "completion_chat" in row.capabilities:
        own_capabilities = {word for each, word in _MISTRAL.items() if row.capabilities.get(each) is True}
        lacks = frozenset(_MISTRAL.values()) - own_capabilities
        able = frozenset(own_capabilities) or model.capabilities - {CHAT}
        return replace(model, capabilities=able, lacks=lacks, stated=True)
    if isinstance(row.type, str) and row.type in _TOGETHER and row.type != CHAT:
        return replace(model, capabilities=_TOGETHER[row.type], stated=True)
    modalities = strings(member(row.architecture, "input_modalities"))
    outputs = strings(member(row.architecture, "output_modalities"))
    if outputs and "text" not in outputs:
        return replace(model, capabilities=frozenset(), stated=True)
    if not modalities or not model.chat:
        return model
    capabilities = model.capabilities | {VISION} if "image" in modalities else model.capabilities - {VISION}
    parameters = strings(row.supported_parameters)
    capabilities |= {word for each, word in _OPENROUTER.items() if each in parameters}
    lacks = frozenset({TOOLS}) - capabilities if parameters else frozenset[str]()
    return replace(model, capabilities=capabilities, lacks=lacks, stated=True)


def _provider_rates(pricing: Any, unit: int) -> TokenRates | None:
    """Return the rates in a provider's list, or None if they are missing or if both are 0 and not billed."""
    if not unit or not isinstance(pricing, dict):
        return None
    row: dict[str, Decimal] = {}
    try:
        for name, rate in _PRICES.items():
            if pricing.get(name) is not None:
                row[f"{rate}_per_million_usd"] = Decimal(str(pricing[name])) * 1_000_000 / unit
        rates = token_rates.rates(row)
    except (ValueError, ArithmeticError):
        return None
    if unit == 1:
        return msgspec.structs.replace(rates, as_billed=True)
    return rates if rates.input or rates.output else None


async def _vllm(queries: ModelQueries) -> Models | None:
    return await openai_models(queries, loaded=True)


async def _llamacpp(queries: ModelQueries) -> Models | None:
    """Return the models; for a single model, `/props` states its context and whether it accepts images."""
    models = await openai_models(queries, loaded=True)
    if models is None or len(models) != 1 or not models[0].chat or models[0].stated:
        return models
    props = await optional(queries.get("/props", _Props)) or _Props()
    context = first_count((member(props.default_generation_settings, "n_ctx"), models[0].context))
    model = replace(models[0], context=context)
    vision = member(props.modalities, "vision")
    if not isinstance(vision, bool):
        return (model,)
    capabilities = frozenset({CHAT, VISION}) if vision else frozenset({CHAT})
    return (replace(model, capabilities=capabilities, stated=True),)


async def _sglang(queries: ModelQueries) -> Models | None:
    models, info = await asyncio.gather(
        openai_models(queries, loaded=True), optional(queries.get("/get_model_info", _ModelInfo))
    )
    if models is None or info is None or not isinstance(info.is_generation, bool):
        return models
    if not info.is_generation:
        capabilities = frozenset({EMBEDDINGS})
    elif isinstance(info.has_image_understanding, bool):
        capabilities = frozenset({CHAT, VISION}) if info.has_image_understanding else frozenset({CHAT})
    else:
        return models
    lacks = frozenset({EMBEDDINGS, CHAT}) - capabilities
    return tuple(replace(model, capabilities=capabilities, lacks=lacks, stated=True) for model in models)


async def _llamaswap(queries: ModelQueries) -> Models | None:
    models, running = await asyncio.gather(
        openai_models(queries), optional(queries.get("/running", RunningModels))
    )
    rows = [] if running is None else running.running
    loaded = {model_name(row.model) for row in rows if row.state in (None, "ready")}
    return models and tuple(replace(model, loaded=model.name in loaded) for model in models)


async def _lmstudio(queries: ModelQueries) -> Models | None:
    """Return the models of LM Studio's native API (v1 or v0), or else those of `/v1/models`."""
    old = await queries.get("/api/v0/models", _OpenAIList)
    if old is not None:
        return _studio_models(old.data, lambda row: row.id, lambda row: row.state == "loaded")
    new = await queries.get("/api/v1/models", _StudioList)
    if new is not None:
        return _studio_models(new.models, lambda row: row.key, lambda row: bool(row.loaded_instances))
    return await openai_models(queries)


def _studio_models(
    rows: Iterable[_Row], name_of: Callable[[_Row], Any], loaded: Callable[[_Row], bool]
) -> Models:
    models: list[ServedModel] = []
    for row in list(rows)[:MAX_MODELS]:
        name = model_name(name_of(row))
        if not name:
            continue
        capabilities = _LM_STUDIO.get(row.type if isinstance(row.type, str) else "", frozenset())
        if member(row.capabilities, "vision") is True:
            capabilities |= {VISION}
        if (
            "tool_use" in strings(row.capabilities)
            or member(row.capabilities, "trained_for_tool_use") is True
        ):
            capabilities |= {TOOLS}
        # LM Studio describes tools in a prompt to models that are not trained for them.
        lacks = frozenset({EMBEDDINGS, CHAT}) - capabilities if capabilities else frozenset[str]()
        model = ServedModel(name, capabilities, loaded(row), stated=True, lacks=lacks)
        models.append(replace(model, **row.limits()))
    return tuple(models)


Listing = Callable[[ModelQueries], Awaitable["Models | None"]]
_LISTINGS: Mapping[str, Listing] = {
    "lmstudio": _lmstudio,
    "llamacpp": _llamacpp,
    "llamaswap": _llamaswap,
    "vllm": _vllm,
    "sglang": _sglang,
}


def listing_of(kind: str, price_unit: int = 0) -> Listing:
    """Return the function that lists the models of a kind of server, or None if the list is unreadable."""
    return _LISTINGS.get(kind) or functools.partial(openai_models, price_unit=price_unit)


def configured(models: Iterable[str], listed: Models) -> Models:
    """Return the configured models in their order, with the capabilities that the server states."""
    by_name = {model.name: model for model in listed}
    return tuple(
        replace(model, name=name)
        if (model := by_name.get(name) or by_name.get(f"{name}:latest"))
        else guess_model(name)
        for name in models
    )
