"""The services behind the operator's pages: reloads, configuration entries, and provider keys."""

from __future__ import annotations

from functools import partial

import msgspec

from sixfold.app import graphs as app_graphs
from sixfold.app import storage
from sixfold.app.config_reload import ConfigReloader, WatchedFile
from sixfold.app.configuration import OperatorConfiguration
from sixfold.app.configuration_entries import EntryValues
from sixfold.app.engine_installs import EngineInstalls
from sixfold.app.gateway.runtime import GatewayRuntime
from sixfold.app.provider_keys import ProviderKeys
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.catalog.models import Catalog
from sixfold.core.database import Database
from sixfold.engines.resources import InstalledResources
from sixfold.net.clients import HttpClients
from sixfold.settings import Settings


class OperatorServices(msgspec.Struct, frozen=True):
    """The services of one server."""

    reloader: ConfigReloader
    configuration: OperatorConfiguration
    provider_keys: ProviderKeys
    installs: EngineInstalls

    def connect(self, address: ComfyAddress, clients: HttpClients) -> OperatorServices:
        """Return the services with ComfyUI connections enabled.

        Entries set the addresses of ComfyUI servers, which operators can test first.
        """
        self.configuration.comfyui_prober = partial(app_graphs.probe_comfyui, clients.upstream)
        self.reloader.on_settings = lambda settings: address.configure(app_graphs.comfyui_urls(settings))
        return self


def build(
    settings: Settings,
    source: WatchedFile | None,
    database: Database,
    models: Catalog,
    gateway: GatewayRuntime,
    resources: InstalledResources,
) -> OperatorServices:
    """Return the services; `resources` queries providers and model servers again."""
    values = EntryValues(storage.server_secret(settings.data_dir, "server.key"))
    watched = source or WatchedFile(lambda: settings, settings, is_file=False)
    reloader = ConfigReloader(watched, models, gateway, database, values)
    keys = ProviderKeys(settings, database, models, gateway.statuses, resources.refresh)
    reloader.on_entries = keys.adopt
    configuration = OperatorConfiguration(database, reloader, models, gateway)
    return OperatorServices(
        reloader, configuration, keys, EngineInstalls(settings, database, resources.refresh)
    )
