"""Prices of services that cost the same for every call, whichever model server answers it."""

from __future__ import annotations

from collections.abc import Callable

from sixfold.core.accounts.prices import PriceRow
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.gateway.pricing.token_rates import TokenRates
from sixfold.core.gateway.routing import RouteTarget

RatedTargets = tuple[tuple[RouteTarget, TokenRates], ...]


class ServicePrices:
    """Replaces the token rates of the targets of a call by the price of its service.

    `find` returns the price of one call of a service on a local or another model server, or None if the
    service is charged by tokens.
    """

    def __init__(self) -> None:
        self.find: Callable[[str, bool], PriceRow | None] = lambda _service, _local: None

    def apply(self, request: GatewayRequest, targets: RatedTargets) -> RatedTargets:
        """Return the targets with the rates of this request; its prediction pays for a prepaid one."""
        if request.prepaid_hold is not None or len(request.services) != 1:
            return targets
        service = request.services[0]
        return tuple(
            [(target, self._rates(service, target.upstream.local) or rates) for target, rates in targets]
        )

    def _rates(self, service: str, local: bool) -> TokenRates | None:
        price = self.find(service, local)
        if price is None:
            return None
        list_rates = None if price.list_micros is None else TokenRates(0, 0, per_call=price.list_micros)
        return TokenRates(0, 0, per_call=price.micros, list_rates=list_rates)
