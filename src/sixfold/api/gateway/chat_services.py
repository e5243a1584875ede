"""The services `chat` and `vision`: chat requests from their inputs, and the price of queued requests."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai import chat as chats
from sixfold.api.gateway.openai import model_routes
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.core import money
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.catalog.metering import TOKENS
from sixfold.core.catalog.models import Catalog, Model
from sixfold.core.catalog.templates import Templates
from sixfold.core.gateway.chat import ChatMessage, ChatRequest, TextPart, estimate
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.pricing import service_prices
from sixfold.core.gateway.requirements import token_limits
from sixfold.core.predictions.service import PredictionService

NAMES = ("chat", "vision")
# The prices of these services: by tokens, and per call.
_PRICES = (TOKENS, "vision")
# The models whose runs are one chat, and the model that replies to speech in some of its tasks.
_TEXT = "text-llm"
_CHATS = (*NAMES, _TEXT)
_SPEECH, _SPEECH_TASKS = "speech-to-speech", ("converse", "chat")
_UNCHANGED = ("max_tokens", "temperature", "top_p")
# Limit of a queued conversation; its images can be sent as files.
_MAX_BYTES = 2**20
# Placeholder for an image of which only the token count matters.
_PLACEHOLDER_IMAGE = "data:image/png;base64,AA=="
_encode = msgspec.json.Encoder().encode


def completion(values: Mapping[str, Any], image_url: str = "") -> dict[str, Any]:
    """Return checked inputs as a chat completion request, with the image as a URL."""
    turns: list[Any] = [*cast("list[Any]", values.get("messages") or [])]
    prompt = str(values.get("prompt") or "")
    if image_url or prompt:
        texts: list[dict[str, Any]] = [{"type": "text", "text": prompt}] if prompt else []
        images = [{"type": "image_url", "image_url": {"url": image_url}}] if image_url else []
        turns.append({"role": "user", "content": [*texts, *images]})
    if values.get("system"):
        turns.insert(0, {"role": "system", "content": values["system"]})
    options = {name: values[name] for name in _UNCHANGED if name in values}
    return {"model": _model_name(values), "messages": turns, **options}


def _model_name(values: Mapping[str, Any]) -> str:
    """Return the requested model, or else the default for text or for images."""
    return str(values.get("model") or ("vision" if values.get("image_url") else "default"))


def conversation(values: Mapping[str, Any], image_url: str = "") -> ChatRequest:
    """Return checked inputs as a `ChatRequest`; raises `InvalidInput` if the messages are invalid."""
    with input_errors():
        return chats.from_fields(completion(values, image_url))


@contextlib.contextmanager
def input_errors() -> Generator[None]:
    """Convert `InvalidRequest` of a chat completion into `InvalidInput`."""
    try:
        yield
    except InvalidRequest as error:
        name = error.param.partition("[")[0] or "messages"
        raise errors.InvalidInput.of(name, error.message) from error


def register(
    gateway: Gateway, predictions: PredictionService, templates: Templates
) -> Callable[[Mapping[str, Any], str], ChatRequest]:
    """Register the price and the admission of chat services; return the function that reads their inputs."""
    chat_services = _ChatServices(gateway, predictions.catalog, templates[_TEXT].model_variants)
    gateway.service_prices.find = chat_services.price_per_call
    gateway.router.describe_other = functools.partial(model_routes.describe, predictions.catalog)
    predictions.appraisers |= dict.fromkeys(_PRICES, chat_services.price)
    predictions.admit |= dict.fromkeys(_CHATS, chat_services.admit)
    predictions.admit[_SPEECH] = chat_services.admit_speech
    predictions.catalog.served_here |= dict.fromkeys((_TEXT, _SPEECH), chat_services.is_served_here)
    return conversation


class _ChatServices:
    """Hooks of the prediction service for chat services."""

    def __init__(self, gateway: Gateway, catalog: Catalog, variants: Sequence[str]) -> None:
        self._gateway = gateway
        self._catalog = catalog
        self._variants = frozenset(variants)

    def price_per_call(self, service: str, local: bool) -> PriceRow | None:
        """Return the price of a call, or None if the service is charged by tokens."""
        model = self._catalog[service] if service in NAMES and service in self._catalog else None
        if model is None or model.price == TOKENS:
            return None
        price = self._catalog.price(model, {})
        return price.waive() if local and self._catalog.prices.own_hardware_free else price

    def price(self, model: Model, values: Mapping[str, Any], *, charged: bool) -> PriceRow:
        """Return the maximum cost, which is held; raises `UnknownModel` or `UnpricedModel`."""
        # The rates of local models are zero.
        del charged
        chat, name = _queued_chat(values), _model_name(values)
        micros = self._gateway.max_cost(chat, name, (model.name,))
        targets = self._gateway.router.resolve_chat(name)
        if service_prices.covers(name, estimate(chat), chat.max_tokens):
            price = self.price_per_call(model.name, all(target.upstream.local for target in targets))
            if price is not None:
                return price
        text = f"{money.format_usd(micros)} USD at most, depending on the tokens"
        return PriceRow(micros, money.credits_for(micros), text, "units", 1)

    def is_served_here(self, values: Mapping[str, Any]) -> bool:
        """Return whether a run that is charged by time is only sent to local model servers."""
        router = self._gateway.router
        names = {name for name, _owner in router.models()} & self._variants
        return all(router.is_local(name) for name in ("vision" if values.get("image") else _TEXT, *names))

    async def admit(self, principal: Principal, values: Mapping[str, Any]) -> None:
        """Count the expected tokens against the key's tokens per minute."""
        if principal.scope.tpm is not None:
            await token_limits.check(self._gateway.token_rates, principal, _queued_chat(values))

    async def admit_speech(self, principal: Principal, values: Mapping[str, Any]) -> None:
        """Count the tokens of the texts against the key's tokens per minute; speech is not known yet."""
        if principal.scope.tpm is not None and values.get("task") in _SPEECH_TASKS:
            text = "".join(str(values.get(name) or "") for name in ("system_prompt", "history", "text"))
            chat = ChatRequest((ChatMessage("user", (TextPart(text),)),))
            await token_limits.check(self._gateway.token_rates, principal, chat)


def _queued_chat(values: Mapping[str, Any]) -> ChatRequest:
    """Return the conversation of a queued request; raises `TooLarge`."""
    size = len(_encode(values.get("messages") or []))
    if size > _MAX_BYTES:
        raise errors.TooLarge(
            f"A queued conversation must be at most {_MAX_BYTES:,} bytes (got {size:,}): "
            "send its images as URLs"
        )
    has_image = values.get("image_url") or values.get("image")
    return conversation(values, _PLACEHOLDER_IMAGE if has_image else "")
