"""Token prices by model server and model: the operator's rows and the bundled rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol, cast

from msgspec.structs import replace

from sixfold.core.gateway.pricing.token_rates import FREE, TOOL_PRICES, TokenRates, micros, rates

# A date or version after the name of a family.
_VERSION = re.compile(r"-(?=.)(latest|\d[\d-]{3,})?(-?v\d+(:\d+)?)?")
_MAX_CACHED = 1024


class PricedServer(Protocol):
    """The attributes of a model server that determine prices.

    `price_table` is the prefix of the server's bundled rows.
    """

    name: str
    local: bool
    price_table: str


class PriceBook:
    """Prices of targets by model: the operator's rows first, then the bundled rows.

    `tools` contains the prices of providers' tools, by the name of the setting, for rows that do not set
    them.

    If `own_hardware_free` is set, local model servers are free, and the operator's rows are shown as list
    prices.
    """

    def __init__(
        self,
        bundled: Mapping[str, Mapping[str, Any]],
        own: Mapping[str, Mapping[str, Any]],
        *,
        tools: Mapping[str, Mapping[str, Any]] | None = None,
        own_hardware_free: bool = False,
    ) -> None:
        self._tools = {TOOL_PRICES[name]: micros(name, row["usd"]) for name, row in (tools or {}).items()}
        self._bundled = {name: rates(row) for name, row in bundled.items()}
        self._own = {name: _own_rates(name, row) for name, row in own.items()}
        self._free = own_hardware_free
        self._waived = {name: TokenRates(0, 0, list_rates=row) for name, row in self._own.items()}
        self._cache: dict[tuple[str, str], TokenRates | None] = {}

    def rates_of(self, server: PricedServer, model: str, stated: TokenRates | None) -> TokenRates | None:
        """Return the rates of a server's model, or None if its price is unknown.

        A local server is free unless the operator has set a price. Other servers have the operator's rates,
        or else those that the provider states in its list of models, or else the bundled rates.
        """
        if server.local:
            return self.local(server.name, model)
        rates = self.own(server.name, model) or stated or self.find(server.name, model, server.price_table)
        return None if rates is None else self.with_tools(rates)

    def find(self, upstream: str, model: str, table: str = "") -> TokenRates | None:
        """Return the operator's rates for `upstream/model` or the model, or else the bundled rates.

        The bundled rates are those of the model's family in the rows of a provider (`table/…`), or in the
        rows without a provider.
        """
        try:
            return self._cache[upstream, model]
        except KeyError:
            own = self.own(upstream, model)
            rates = own if own is not None else self._bundled.get(family(model, table, self._bundled))
        # Callers may send any number of different names.
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[upstream, model] = rates
        return rates

    def with_tools(self, rates: TokenRates) -> TokenRates:
        """Return rates completed with the prices of providers' tools that they do not set."""
        missing = {name: micros for name, micros in self._tools.items() if getattr(rates, name) is None}
        return replace(rates, **missing)

    def local(self, upstream: str, model: str) -> TokenRates:
        """Return the rates of a local model server: free unless the operator has set a price."""
        rows = self._waived if self._free else self._own
        return rows.get(f"{upstream}/{model}") or rows.get(model) or FREE

    def own(self, upstream: str, model: str) -> TokenRates | None:
        """Return only the operator's rates."""
        return self._own.get(f"{upstream}/{model}") or self._own.get(model)


def _own_rates(name: str, row: Any) -> TokenRates:
    if not isinstance(row, dict):
        raise ValueError(f'[gateway.prices."{name}"] must be a table (got {row!r})')  # noqa: TRY004 - as above
    try:
        return rates(cast("dict[str, Any]", row))
    except ValueError as error:
        raise ValueError(f'[gateway.prices."{name}"] {error}') from error


def family(model: str, table: str, bundled: Collection[str]) -> str:
    """Return the name of a model's row in a bundled table: its name, or the name without a suffix.

    A suffix is a date or version, as in `…-2025-08-07`, `…-latest` and `…-20250929-v1:0`. Names in the table
    of a provider contain the provider's slashes; names of other models are looked up without them.
    """
    prefix = f"{table}/" if table else ""
    base_name = f"{prefix}{model}" if table else model.rpartition("/")[2]
    if base_name in bundled:
        return base_name
    for name in sorted(bundled, key=len, reverse=True):
        is_prefix = name.startswith(prefix) and base_name.startswith(name)
        if is_prefix and _VERSION.fullmatch(base_name, len(name)):
            return name
    return ""
