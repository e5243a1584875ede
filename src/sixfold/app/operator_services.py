"""The services behind the operator's pages: reloads, configuration entries, and provider keys."""

from __future__ import annotations

from functools import partial

import msgspec

from sixfold.app import graphs as app_graphs
from sixfold.app import storage
from sixfold.app.backups import BackupFiles
from sixfold.app.config_reload import ConfigReloader, WatchedFile
from sixfold.app.configuration import OperatorConfiguration
from sixfold.app.configuration_entries import EntryValues
from sixfold.app.engine_installs import EngineInstalls
from sixfold.app.gateway import tool_servers as app_tool_servers
from sixfold.app.gateway import web_search as app_web_search
from sixfold.app.gateway.runtime import GatewayRuntime
from sixfold.app.provider_keys import ProviderKeys
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.core.catalog.models import Catalog
from sixfold.core.database import Database
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.search.service import WebSearch
from sixfold.core.gateway.tools.servers import ToolServers
from sixfold.engines.resources import InstalledResources
from sixfold.net.clients import HttpClients
from sixfold.settings import Settings


class ServerLinks(msgspec.Struct, frozen=True):
    """The connections to other servers whose addresses operators can change."""

    comfyui: ComfyAddress
    clients: HttpClients
    tool_servers: ToolServers
    web_search: WebSearch


class OperatorServices(msgspec.Struct, frozen=True):
    """The services of one server."""

    reloader: ConfigReloader
    configuration: OperatorConfiguration
    provider_keys: ProviderKeys
    installs: EngineInstalls
    backups: BackupFiles

    def connect(self, links: ServerLinks) -> OperatorServices:
        """Return the services with connections to other servers enabled.

        Entries set the addresses of ComfyUI, tool servers and the web search, which operators can test first.
        """
        self.configuration.comfyui_prober = partial(app_graphs.probe_comfyui, links.clients.upstream)
        self.configuration.clients = links.clients
        applied = self.reloader.settings.tables.get("search")

        def apply(settings: Settings) -> None:
            nonlocal applied
            links.comfyui.configure(app_graphs.comfyui_urls(settings))
            links.tool_servers.configure(app_tool_servers.servers(settings, links.clients))
            # An unchanged search engine keeps the result of its last probe.
            if settings.tables.get("search") != applied:
                applied = settings.tables.get("search")
                links.web_search.engine = app_web_search.engine(settings, links.clients)

        self.reloader.on_settings = apply
        return self


def links(settings: Settings, comfyui: ComfyAddress, clients: HttpClients, gateway: Gateway) -> ServerLinks:
    """Return the connections to other servers; raises `InvalidSetting`."""
    tools = app_tool_servers.build(settings, clients, gateway)
    return ServerLinks(comfyui, clients, tools, app_web_search.build(settings, clients, gateway))


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
    installs = EngineInstalls(settings, database, resources.refresh)
    return OperatorServices(reloader, configuration, keys, installs, BackupFiles(settings, database))
