"""The configuration that operators change on pages or over HTTP, and the source of each value."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, cast

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.app import configuration_entries as merging
from sixfold.app.config_reload import ConfigReloader
from sixfold.app.gateway import tool_servers as app_tool_servers
from sixfold.app.gateway import web_search as app_web_search
from sixfold.app.gateway.runtime import GatewayRuntime
from sixfold.core import money
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog.models import Catalog
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import (
    ALIASES,
    COMFYUI,
    GATEWAY,
    PRICES,
    SEARCH,
    SEARXNG,
    SERVERS,
    TOKEN_PRICES,
    TOOL_SERVERS,
    ConfigEntry,
)
from sixfold.core.configuration.ports import (
    AliasView,
    ComfyView,
    ConfigurationView,
    ContentView,
    PriceView,
    SearchView,
    ServerProbe,
    ServerView,
    Source,
    TokenPriceView,
    ToolServerView,
)
from sixfold.core.database import Database
from sixfold.core.gateway import policy as policies
from sixfold.core.gateway.guardrails.models import Guardrail
from sixfold.core.gateway.pricing.token_rates import TokenRates
from sixfold.core.gateway.routing import RouteTarget
from sixfold.net.clients import HttpClients
from sixfold.providers import CHAT_PROVIDERS
from sixfold.settings import InvalidSetting

# Seconds that a change waits for slow model servers; it is applied once they have responded.
_APPLY_SECONDS = 3.0
_MAX_MODELS = 500
_RATE_FIELDS: Mapping[str, str] = {
    "input_per_million_usd": "input",
    "output_per_million_usd": "output",
    "cached_input_per_million_usd": "cached_input",
    "per_image_usd": "per_image",
    "per_minute_usd": "per_minute",
}


class OperatorConfiguration:
    """Implements `core.configuration.ports.ConfigurationService`."""

    def __init__(
        self, database: Database, reloader: ConfigReloader, catalog: Catalog, gateway: GatewayRuntime
    ) -> None:
        self._database = database
        self._values = reloader.values
        self._reloader = reloader
        self._catalog = catalog
        self._gateway = gateway
        self.comfyui_prober: Callable[[str], Awaitable[ServerProbe]] | None = None
        self.clients: HttpClients | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        faults = (
            f"The entry {name} of {section} is not applied: {fault}"
            for (section, name), fault in self._reloader.faults.items()
        )
        return tuple(filter(None, (self._reloader.file_problem, *faults)))

    async def view(self) -> ConfigurationView:
        tables = self._reloader.settings.tables
        return ConfigurationView(
            self._servers(tables),
            self._aliases(),
            self._token_prices(tables),
            self._prices(tables),
            self._comfyui(tables),
            self._tool_servers(tables),
            self._search(tables),
            self._content(tables),
        )

    async def put(self, actor: Principal, section: str, name: str, value: Any) -> None:
        self._require_editable(section, name)
        rows = await self._database.read(entries.all_entries(), snapshot=False)
        old = next((row for row in rows if (row.section, row.name) == (section, name)), None)
        new = entries.entry(section, name, self._values.with_encrypted_key(section, name, value, old))
        await self._check([*(row for row in rows if row is not old), new], new)
        await self._database.write(entries.put(actor, new, self._default(new)))
        await self._apply()

    async def remove(self, actor: Principal, section: str, name: str) -> None:
        """Remove an entry; raises `NotFound`."""
        self._require_editable(section, name)
        await self._database.write(entries.remove(actor, section, name))
        await self._apply()

    async def probe_comfyui(self, url: str) -> ServerProbe:
        """Query a ComfyUI server for its node classes."""
        if self.comfyui_prober is None:
            raise errors.NotFound("This server does not use ComfyUI")
        return await self.comfyui_prober(url)

    async def probe_tools(self, name: str, value: Any) -> ServerProbe:
        document = await self._document(TOOL_SERVERS, name, value)
        return await self._probed(lambda clients: app_tool_servers.probe(clients, name, document))

    async def probe_search(self, url: str) -> ServerProbe:
        return await self._probed(lambda clients: app_web_search.probe(clients, url))

    async def _probed(self, probe: Callable[[HttpClients], Awaitable[ServerProbe]]) -> ServerProbe:
        if self.clients is None:
            raise errors.NotFound("This server does not connect to other servers")
        try:
            return await probe(self.clients)
        except InvalidSetting as error:
            raise errors.InvalidInput.of("value", _sentence(error)) from None

    async def _document(self, section: str, name: str, value: Any) -> Any:
        """Return a value as in `sixfold.toml`, with the stored key if it does not contain another one."""
        rows = await self._database.read(entries.all_entries(), snapshot=False)
        old = next((row for row in rows if (row.section, row.name) == (section, name)), None)
        new = entries.entry(section, name, self._values.with_encrypted_key(section, name, value, old))
        return self._values.decrypt(new)

    async def probe(self, name: str, value: Any) -> ServerProbe:
        document = await self._document(SERVERS, name, value)
        try:
            policy = policies.parse({policies.SERVERS: {name: document}})
        except ValueError as error:
            raise errors.InvalidInput.of("value", _sentence(error)) from None
        if not policy.servers:
            raise errors.InvalidInput.of(
                "kind", f"A server of the kind {document.get('kind')} does not support chats"
            )
        models, problem = await self._gateway.probe(policy.servers[0])
        return ServerProbe(models[:_MAX_MODELS], problem)

    def _default(self, new: ConfigEntry) -> Any:
        """Return the bundled price that is replaced when an operator first sets a price."""
        if new.section != PRICES:
            return None
        amounts = _usd(PriceTable(app_catalog.read_toml("prices.toml")), new.name)
        return {"usd": amounts.get("", {variant: usd for variant, usd in amounts.items() if variant})}

    async def _check(self, rows: Sequence[ConfigEntry], new: ConfigEntry) -> None:
        if new.section == ALIASES:
            # A server that has just been added may not have responded yet.
            self._check_targets(new, {row.name for row in rows if row.section == SERVERS})
        try:
            await asyncio.to_thread(self._reloader.check, tuple(rows))
        except merging.FILE_ERRORS as error:
            raise errors.InvalidInput.of("value", _sentence(error)) from None

    def _check_targets(self, new: ConfigEntry, added: Collection[str]) -> None:
        """Raise `InvalidInput` if a target's server is unknown, or if servers do not list its model."""
        server_names = {server.name.partition("@")[0] for server in self._gateway.model_servers()}
        servers = server_names.union(added)
        models = {name for name, _owner in self._gateway.gateway.router.models()}
        targets: list[Any] = new.document if isinstance(new.document, list) else [new.document]
        for target in targets:
            name = str(cast("Any", target).get("target") if isinstance(target, dict) else target)
            prefix, slash, _ = name.partition("/")
            if name == new.name:
                raise errors.InvalidInput.of("value", "An alias cannot refer to itself")
            if name not in models and not (slash and prefix in servers):
                hint = "write SERVER/MODEL, or a model that is listed"
                raise errors.InvalidInput.of(
                    "value", f"{name[:80]!r} is not available on any model server: {hint}"
                )

    async def _apply(self) -> None:
        """Apply the change to this server; the other servers apply it within a second."""
        applying = asyncio.ensure_future(self._reloader.refresh())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(applying), _APPLY_SECONDS)

    def _require_editable(self, section: str, name: str) -> None:
        if name in merging.table(self._reloader.file_settings.tables, section):
            raise errors.InvalidInput.of("name", f"{name[:80]} is set in sixfold.toml: change it there")

    # -- views -----------------------------------------------------------------------------------

    def _source(self, section: str, name: str) -> Source:
        return "file" if name in merging.table(self._reloader.file_settings.tables, section) else "page"

    def _problem(self, section: str, name: str) -> str:
        return self._reloader.faults.get((section, name), "")

    def _servers(self, tables: Mapping[str, Any]) -> tuple[ServerView, ...]:
        rows = merging.table(tables, SERVERS)
        views = [
            ServerView(
                status.name,
                status.kind,
                merging.shown_address(str(rows.get(status.name, {}).get("base_url", "")) or status.url),
                self._server_source(status.name, rows, discovered=status.discovered),
                status.state,
                status.models[:_MAX_MODELS],
                tuple(rows.get(status.name, {}).get("models", ())),
                bool(rows.get(status.name, {}).get("api_key")),
                context=int(rows.get(status.name, {}).get("context", 0)),
                outage="" if status.outage is None else status.outage.text,
            )
            for status in self._gateway.statuses()
            if status.state != "absent" or status.name in rows or status.outage is not None
        ]
        broken = [
            ServerView(name, "", "", "page", "absent", problem=problem)
            for (section, name), problem in self._reloader.faults.items()
            if section == SERVERS
        ]
        return (*views, *broken)

    def _server_source(self, name: str, rows: Mapping[str, Any], *, discovered: bool) -> Source:
        if name in rows:
            return self._source(SERVERS, name)
        return "found" if discovered else "provider" if name in CHAT_PROVIDERS else "file"

    def _comfyui(self, tables: Mapping[str, Any]) -> tuple[ComfyView, ...]:
        urls = {name: str(row["url"]) for name, row in merging.table(tables, COMFYUI).items()}
        broken = {name: "" for section, name in self._reloader.faults if section == COMFYUI}
        return tuple(
            ComfyView(name, url, self._source(COMFYUI, name), self._problem(COMFYUI, name))
            for name, url in (broken | urls).items()
        )

    def _tool_servers(self, tables: Mapping[str, Any]) -> tuple[ToolServerView, ...]:
        views = [
            ToolServerView(
                name,
                merging.shown_address(str(row["url"])),
                self._source(TOOL_SERVERS, name),
                row.get("accounts", "operators"),
                tuple(row.get("tools", ())),
                float(row.get("timeout_seconds", 30)),
                bool(row.get("api_key")),
            )
            for name, row in merging.table(tables, TOOL_SERVERS).items()
        ]
        broken = [
            ToolServerView(name, "", "page", problem=problem)
            for (section, name), problem in self._reloader.faults.items()
            if section == TOOL_SERVERS
        ]
        return (*views, *broken)

    def _search(self, tables: Mapping[str, Any]) -> SearchView:
        table = merging.table(tables, SEARCH)
        url, seconds = str(table.get(SEARXNG, "")), float(table.get("timeout_seconds", 10))
        problem = next(
            (text for (section, _), text in self._reloader.faults.items() if section == SEARCH), ""
        )
        source = self._source(SEARCH, SEARXNG) if url or problem else "bundled"
        return SearchView(merging.shown_address(url), source, seconds, problem)

    def _content(self, tables: Mapping[str, Any]) -> ContentView:
        policy, table = self._gateway.gateway.policy, merging.table(tables, GATEWAY)

        def source(name: str) -> Source:
            return self._source(GATEWAY, name) if name in table else "bundled"

        return ContentView(
            None if policy.guardrail is None else _shown_guardrail(policy.guardrail),
            source("guardrail"),
            policy.log_bodies,
            source("log_bodies"),
            policy.log_days,
            source("log_days"),
            next((text for (section, _), text in self._reloader.faults.items() if section == GATEWAY), ""),
        )

    def _aliases(self) -> tuple[AliasView, ...]:
        policy, router = self._gateway.gateway.policy, self._gateway.gateway.router
        views = [
            AliasView(
                name,
                tuple((target.target, router.has(target.target)) for target in targets),
                self._source(ALIASES, name),
                tuple(1.0 if target.weight is None else target.weight for target in targets)
                if router.is_weighted(name)
                else (),
            )
            for name, targets in policy.aliases.items()
        ]
        broken = [
            AliasView(name, (), "page", problem=problem)
            for (section, name), problem in self._reloader.faults.items()
            if section == ALIASES
        ]
        return (*views, *broken)

    def _token_prices(self, tables: Mapping[str, Any]) -> tuple[TokenPriceView, ...]:
        """Return the operator's prices, and the prices of the models that servers list now."""
        own_prices = merging.table(tables, TOKEN_PRICES)
        views = [
            TokenPriceView(
                name, {field: str(amount) for field, amount in row.items()}, self._source(TOKEN_PRICES, name)
            )
            for name, row in own_prices.items()
        ]
        gateway = self._gateway.gateway
        for upstream in gateway.router.servers():
            for model in upstream.listing()[:_MAX_MODELS]:
                name = f"{upstream.name}/{model.name}"
                if name not in own_prices and model.name not in own_prices:
                    rates = gateway.rates(RouteTarget(upstream, model.name))
                    views.append(TokenPriceView(name, *_rates_shown(rates)))
        return tuple(sorted(views[:_MAX_MODELS], key=lambda view: view.name))

    def _prices(self, tables: Mapping[str, Any]) -> tuple[PriceView, ...]:
        bundled = PriceTable(app_catalog.read_toml("prices.toml"))
        own_prices, current = merging.table(tables, PRICES), self._catalog.prices
        models: dict[str, list[str]] = {}
        for model in self._catalog.models():
            models.setdefault(model.price, []).append(model.name)
        return tuple(
            PriceView(
                name,
                current[name].per,
                _usd(current, name),
                _usd(bundled, name),
                self._source(PRICES, name) if name in own_prices else "bundled",
                tuple(models.get(name, ())),
                self._problem(PRICES, name),
            )
            for name in bundled.names()
        )


def _usd(table: PriceTable, name: str) -> Mapping[str, str]:
    rate = table[name]
    amounts = dict(rate.variants) or {"": rate.unit}
    if rate.request:
        amounts["per request"] = rate.request
    return {variant: money.format_usd(micros) for variant, micros in amounts.items()}


def _rates_shown(rates: TokenRates | None) -> tuple[Mapping[str, str], Source, str]:
    """Return the fields of bundled rates, or a note if the rates are missing."""
    if rates is None:
        return {}, "bundled", "no price: calls are refused"
    amounts = {field: getattr(rates, name) for field, name in _RATE_FIELDS.items()}
    rates_usd = {field: money.format_usd(micros) for field, micros in amounts.items() if micros}
    return rates_usd, "bundled", "" if rates_usd else "free"


def _sentence(error: BaseException) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def _shown_guardrail(guardrail: Guardrail) -> dict[str, Any]:
    """Return a guardrail without a secret in the URL of its hook, which may come from `sixfold.toml`."""
    document = guardrail.document()
    if guardrail.hook is not None:
        document["hook"]["url"] = merging.shown_address(guardrail.hook.url)
    return document
