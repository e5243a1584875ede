"""The chat models that a user can choose, with their prices and context."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from sixfold import errors
from sixfold.core.accounts.keys import Principal, covers
from sixfold.core.gateway.capabilities import ServedModel
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.pricing.token_rates import TokenRates
from sixfold.core.gateway.routing import RouteTarget
from sixfold.core.money import short_usd
from sixfold.web.services import WebServices

_MAX_MODELS = 500
_THOUSAND, _KIBI = 1000, 1024
# The gateway rejects requests for models without a price.
_UNPRICED = "no price"
_NO_CONTEXT = "context not stated"


class ModelChoice(msgspec.Struct, frozen=True):
    """A model by its name in requests, which begins with that of its server; price and context in words."""

    name: str
    price: str
    context: str
    vision: bool | None
    usable: bool

    @property
    def label(self) -> str:
        return " · ".join(part for part in (self.name, self.context, self.price) if part)


class ModelGroup(msgspec.Struct, frozen=True):
    """The models of one server."""

    title: str
    models: list[ModelChoice] = []


def groups(gateway: Gateway, principal: Principal) -> tuple[ModelGroup, ...]:
    """Return the chat models by server: local servers first, at most 500 models."""
    by_name: dict[str, ModelGroup] = {}
    count = 0
    allowed = principal.scope.services
    for upstream in sorted(gateway.router.servers(), key=lambda each: not each.local):
        for model in upstream.listing():
            name = f"{upstream.name}/{model.name}"
            if not model.chat or (allowed and not covers(allowed, (name,))) or count >= _MAX_MODELS:
                continue
            count += 1
            title = f"{upstream.name} (this network)" if upstream.local else upstream.name
            group = by_name.setdefault(upstream.name, ModelGroup(title))
            group.models.append(_choice(name, model, gateway.rates(RouteTarget(upstream, model.name))))
    return tuple(by_name.values())


def names(choices: Sequence[ModelGroup]) -> Mapping[str, ModelChoice]:
    return {choice.name: choice for group in choices for choice in group.models}


def first(choices: Sequence[ModelGroup]) -> str:
    """Return the name of the first model that can be used, or an empty string."""
    return next((each.name for group in choices for each in group.models if each.usable), "")


def _choice(name: str, model: ServedModel, rates: TokenRates | None) -> ModelChoice:
    price = _UNPRICED if rates is None else _price(rates)
    context = f"{_tokens(model.context)} context" if model.context else _NO_CONTEXT
    return ModelChoice(name, price, context, model.vision, rates is not None)


def _price(rates: TokenRates) -> str:
    if rates.list_rates is not None or not (rates.input or rates.output):
        return "free"
    return f"{short_usd(rates.input)} USD in, {short_usd(rates.output)} USD out per million tokens"


def _tokens(count: int) -> str:
    """Return the number in thousands or millions, and 32768 as 32k like the names of models."""
    thousand = _KIBI if count % _KIBI == 0 and count % _THOUSAND else _THOUSAND
    if count >= thousand**2:
        return f"{count / thousand**2:.3g}M"
    return f"{round(count / thousand)}k" if count >= thousand else str(count)


def speech_models(services: WebServices) -> frozenset[str]:
    """Return which of `tts` and `stt` an engine of this server can run now."""
    names: set[str] = set()
    for name in ("tts", "stt"):
        with contextlib.suppress(errors.EngineUnavailable):
            if name in services.catalog:
                services.catalog[name].choose({}, services.predictions.terms)
                names.add(name)
    return frozenset(names)
