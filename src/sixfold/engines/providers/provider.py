"""What the engines of all providers share: a route, options, and calls that carry the operator's key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sixfold.clients.provider_client import ProviderClient, ProviderEndpoint, ProviderLimits
from sixfold.core.workers.remote_engines import HostServices
from sixfold.engines.providers import model_table
from sixfold.engines.providers.model_table import Override


class ProviderEngine:
    """One capability of one provider; what a run does there is its subclass's.

    Options: `route` (a row of `providers.toml`), `base_url` of a server that speaks the same protocol,
    `limits` (the fields of `ProviderLimits`), and what goes over the row (the fields of `Override`).
    """

    version = "1"
    provider: ClassVar[ProviderEndpoint]
    setting: ClassVar[str]  # under which the operator's key is asked for

    def __init__(
        self,
        outside: HostServices,
        *,
        route: str,
        base_url: str = "",
        limits: Mapping[str, Any] | None = None,
        **over: Any,
    ) -> None:
        self._outside = outside
        self._route = model_table.route(self.provider.name, route, Override(**over))
        self._base_url = base_url
        self._limits = ProviderLimits(**(limits or {}))
        self.name = self._route.name

    def _calls(self) -> ProviderClient:
        """The way to the provider for one run, with the key as it is now."""
        return ProviderClient(
            self._outside.client,
            self.provider,
            self._outside.key(self.setting),
            base_url=self._base_url,
            limits=self._limits,
            names=self._route.names(),
        )

    async def close(self) -> None:
        """Nothing is held between runs: connections are the server's."""
