"""Prices of services that cost the same for every usual call, whichever model server answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from sixfold.core.accounts.prices import PriceRow
from sixfold.core.gateway.pricing.price_book import PricedServer
from sixfold.core.gateway.pricing.token_rates import TokenRates


class PricedTarget(Protocol):
    """A model of a server, which a call may use."""

    @property
    def upstream(self) -> PricedServer: ...


T = TypeVar("T", bound=PricedTarget)
# The names of the default model. The price of a call covers this model with at most so many tokens of input,
# by an upper estimate, and of output: a caller could choose an expensive model and a long conversation.
DEFAULT_MODELS = frozenset({"", "default", "vision"})
MAX_INPUT_TOKENS, MAX_OUTPUT_TOKENS = 16_000, 4_096


def covers(model: str, input_tokens: int, max_tokens: int | None) -> bool:
    """Return whether the price of a call covers a request; otherwise, it is the least price by tokens."""
    is_small = input_tokens <= MAX_INPUT_TOKENS and (max_tokens or 0) <= MAX_OUTPUT_TOKENS
    return is_small and model in DEFAULT_MODELS


class ServicePrices:
    """Applies the price of a service to the token rates of the targets of a call.

    `find` returns the price of one call of a service on a local or another model server, or None if the
    service is charged by tokens.
    """

    def __init__(self) -> None:
        self.find: Callable[[str, bool], PriceRow | None] = lambda _service, _local: None

    def apply(
        self, service: str, targets: tuple[tuple[T, TokenRates], ...], *, is_covered: bool
    ) -> tuple[tuple[T, TokenRates], ...]:
        """Return the targets with the rates of a call of a service; see `covers`."""
        return tuple(
            [
                (target, self._rates(service, target.upstream.local, rates, is_covered))
                for target, rates in targets
            ]
        )

    def _rates(self, service: str, local: bool, rates: TokenRates, is_covered: bool) -> TokenRates:
        price = self.find(service, local)
        if price is None:
            return rates
        micros = price.micros if price.list_micros is None else price.list_micros
        if is_covered:
            rates = TokenRates(0, 0, per_call=micros)
        else:
            rates = msgspec.structs.replace(rates.list_rates or rates, minimum=micros)
        return rates if price.list_micros is None else TokenRates(0, 0, list_rates=rates)
