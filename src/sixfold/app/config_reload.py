"""Reloading of a changed configuration while the server runs: aliases, model servers, policy, prices.

The configuration consists of `sixfold.toml` and the entries that operators set, which are in the database.
The new configuration is read and checked completely before any of it is applied. An invalid file is not
applied, and the reason is logged; an entry that has become invalid is left out. Changes that require a
restart are logged as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sixfold import errors
from sixfold.app import catalog as app_catalog
from sixfold.app import graphs as app_graphs
from sixfold.app.configuration_entries import FILE_ERRORS, EntryValues
from sixfold.app.gateway import runtime as app_gateway
from sixfold.app.gateway import tool_servers as app_tool_servers
from sixfold.app.gateway import web_search as app_web_search
from sixfold.app.gateway.runtime import GatewayRuntime
from sixfold.clients.chat.llama.options import KIND as GGUF
from sixfold.core.account_data import retention
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog.models import Catalog
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import ConfigEntry
from sixfold.core.database import Database
from sixfold.core.gateway import policy as policies
from sixfold.core.gateway.policy import FIXED_AT_START, GatewayPolicy
from sixfold.core.gateway.pricing.price_book import PriceBook
from sixfold.settings import InvalidSetting, Settings

_LOG = logging.getLogger("sixfold.configuration")
_POLL_SECONDS = 0.5
# The entries are read every second time.
_ENTRY_POLLS = 2
# Settings that can change without a restart.
_RELOADED = frozenset({"tables", "prices_own_hardware"})
# Tables of services whose changes `on_settings` applies.
_SERVICES = ("mcp", "search")
_Stamp = tuple[int, int, int] | None


class WatchedFile(msgspec.Struct, frozen=True):
    """The source of the settings: a function that loads them, and the settings loaded at startup.

    If there is no file, the settings do not change.
    """

    load: Callable[[], Settings]
    loaded: Settings
    is_file: bool = True


class _ParsedConfig(msgspec.Struct, frozen=True):
    """A valid configuration; `restart` lists the changes that require a restart."""

    settings: Settings
    prices: PriceTable
    book: PriceBook
    policy: GatewayPolicy
    restart: tuple[str, ...]


class ConfigReloader:
    """Watches the configuration file and the entries of a running server.

    If there is no source, a file is not watched. `on_entries` is called with all entries when one has
    changed.
    """

    def __init__(
        self,
        source: WatchedFile,
        catalog: Catalog,
        gateway_runtime: GatewayRuntime,
        database: Database,
        values: EntryValues,
    ) -> None:
        self._source = source
        self._catalog = catalog
        self._gateway_runtime = gateway_runtime
        self._database = database
        self.values = values
        self._requested = asyncio.Event()
        self._applying = asyncio.Lock()
        self._refreshing = asyncio.Lock()
        self._rows: tuple[ConfigEntry, ...] = ()
        self.settings = self.file_settings = source.loaded
        # The problems of entries that are not applied, by section and name.
        self.faults: Mapping[tuple[str, str], str] = {}
        # The reason in one sentence why the last version of the file is not applied, or an empty string.
        self.file_problem = ""
        # Called with the settings after each reload.
        self.on_settings: Callable[[Settings], None] = lambda _settings: None
        self.on_entries: Callable[[Iterable[ConfigEntry]], Awaitable[None]] | None = None

    def request(self) -> None:
        """Reload the file now, even if it has not changed."""
        self._requested.set()

    async def start(self) -> None:
        """Apply the entries before the server accepts requests."""
        await self.refresh()

    async def run(self) -> None:
        """Reload the configuration after each change and on request.

        A changed file is read once it is no longer being written.
        """
        path = self._source.loaded.config_file if self._source.is_file else None
        # Not a stamp, so that a change between startup and this point is also applied.
        read: _Stamp | str = "never"
        before = await asyncio.to_thread(_stamp, path)
        turn = 0
        while True:
            stamp = await asyncio.to_thread(_stamp, path)
            if self._requested.is_set() or (stamp != read and stamp == before):
                requested, first = self._requested.is_set(), read == "never"
                self._requested.clear()
                read = stamp
                await self.reload(quiet=first and not requested)
            before, turn = stamp, (turn + 1) % _ENTRY_POLLS
            if not turn:
                await self.refresh()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._requested.wait()

    async def refresh(self) -> None:
        """Apply the entries if any of them has changed; return once they are in effect."""
        # Another refresh may be applying the same change. A failed read is repeated by the next iteration.
        async with self._refreshing:
            with contextlib.suppress(errors.StoreFailed):
                await self._refresh()

    async def _refresh(self) -> None:
        rows = await self._database.read(entries.all_entries(), snapshot=False)
        if rows == self._rows:
            return
        self._rows = rows
        if self.on_entries is not None:
            await self.on_entries(rows)
        await self.reload(quiet=True, by_entries=True)

    async def reload(self, *, quiet: bool = False, by_entries: bool = False) -> bool:
        """Read, check and apply the configuration; return False if the file is invalid.

        If `quiet` is set, an unchanged file is not logged.
        """
        async with self._applying:
            return await self._reload(quiet=quiet, by_entries=by_entries)

    async def _reload(self, *, quiet: bool, by_entries: bool) -> bool:
        path = "the configuration of the operator's pages" if by_entries else self._source.loaded.config_file
        try:
            # An entry can be changed even while the file is invalid.
            settings = self.file_settings if by_entries else await asyncio.to_thread(self._source.load)
            parsed = await asyncio.to_thread(self._parse, settings)
        except FILE_ERRORS as error:
            problem = f"{path} was not reloaded; the previous configuration stays in force: {error}"
            _LOG.error("%s", problem)
            if not by_entries:
                self.file_problem = problem
            return False
        if not by_entries:
            self.file_problem = ""
        changes = _changes(self.settings, parsed.settings)
        if changes:
            self._catalog.reprice(parsed.prices)
            await self._gateway_runtime.reconfigure(parsed.policy, parsed.book)
        self.settings = parsed.settings
        self.on_settings(parsed.settings)
        if changes:
            _LOG.info("%s was reloaded: %s", path, ", ".join(changes))
        elif not quiet and not parsed.restart:
            _LOG.info("%s was read again; nothing has changed", path)
        if parsed.restart:
            _LOG.warning("%s: a restart is needed for %s", path, ", ".join(parsed.restart))
        return True

    def check(self, rows: Iterable[ConfigEntry]) -> None:
        """Raise one of `FILE_ERRORS` if the file is invalid with these entries."""
        self._parsed(self.values.merge(self.file_settings, rows))

    def _parse(self, settings: Settings) -> _ParsedConfig:
        """Check the file's settings and the entries; raises `InvalidSetting` for an error in the file."""
        rows = self._rows
        try:
            parsed = self._parsed(self.values.merge(settings, rows))
            faults: dict[tuple[str, str], str] = {}
        except FILE_ERRORS:
            # Either the file itself is invalid, which raises an error here, or some entries are.
            self._parsed(settings)
            faults = {(row.section, row.name): fault for row in rows if (fault := self._fault(settings, row))}
            valid = [row for row in rows if (row.section, row.name) not in faults]
            parsed = self._parsed(self.values.merge(settings, valid))
        for (section, name), fault in faults.items():
            if (section, name) not in self.faults:
                _LOG.error("the entry %s of %s is not applied: %s", name, section, fault)
        self.file_settings, self.faults = settings, faults
        return parsed

    def _fault(self, settings: Settings, row: ConfigEntry) -> str:
        try:
            self._parsed(self.values.merge(settings, [row]))
        except FILE_ERRORS as error:
            return str(error)
        return ""

    def _parsed(self, settings: Settings) -> _ParsedConfig:
        running = self._gateway_runtime.gateway.policy
        with InvalidSetting.of(ValueError):
            prices = self._catalog.checked(app_catalog.price_table(settings))
            if settings.tables.get("engines") != self._source.loaded.tables.get("engines"):
                app_catalog.catalog(settings, prices)
            book, policy = _services(settings)
        restart = (*_restart(self._source.loaded, settings), *_restart_of_gateway(running, policy))
        fixed: dict[str, Any] = {name: getattr(running, name) for name in FIXED_AT_START}
        gguf = tuple(row for row in running.servers if row.kind == GGUF)
        rows = tuple(row for row in policy.servers if row.kind != GGUF)
        policy = msgspec.structs.replace(policy, **fixed, servers=(*rows, *gguf))
        return _ParsedConfig(settings, prices, book, policy, restart)


def check(settings: Settings) -> None:
    """Check all tables of the configuration file as at the start of a server; raises one of `FILE_ERRORS`."""
    with InvalidSetting.of(ValueError):
        prices = app_catalog.price_table(settings)
        app_catalog.catalog(settings, prices).checked(prices)
        _services(settings)
        retention.policy(settings.tables.get("retention", {}))


def _services(settings: Settings) -> tuple[PriceBook, GatewayPolicy]:
    book = app_gateway.price_book(settings)
    policy = policies.parse(settings.tables.get("gateway", {}))
    app_graphs.comfyui_urls(settings)
    app_tool_servers.check(settings)
    app_web_search.check(settings)
    return book, policy


def _stamp(path: Path | None) -> _Stamp:
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _restart(started: Settings, now: Settings) -> tuple[str, ...]:
    """Return the names of changed settings and tables that require a restart."""
    names = [field.name for field in dataclasses.fields(Settings) if field.name not in _RELOADED]
    changed = [name for name in names if getattr(started, name) != getattr(now, name)]
    tables = ("engines", "buckets", "deposits", "retention", "sign_in")
    return (*changed, *(f"[{name}]" for name in tables if started.tables.get(name) != now.tables.get(name)))


def _restart_of_gateway(running: GatewayPolicy, now: GatewayPolicy) -> tuple[str, ...]:
    changed = [f"[gateway] {name}" for name in FIXED_AT_START if getattr(running, name) != getattr(now, name)]
    before, after = ({row.name: row for row in each.servers if row.kind == GGUF} for each in (running, now))
    files = [name for name in before | after if before.get(name) != after.get(name)]
    return (*changed, *(f"[gateway.upstreams.{name}]" for name in files))


def _changes(before: Settings, after: Settings) -> list[str]:
    """Return the names of tables and settings that a reload changes."""
    old: Mapping[str, Any] = before.tables.get("gateway", {})
    new: Mapping[str, Any] = after.tables.get("gateway", {})
    changed = [
        name for name in {**old, **new} if old.get(name) != new.get(name) and name not in FIXED_AT_START
    ]
    tables = frozenset({"aliases", "prices", "upstreams"})
    changes = [f"[gateway.{name}]" if name in tables else f"[gateway] {name}" for name in changed]
    priced = before.tables.get("prices", {}) != after.tables.get("prices", {})
    if priced or before.own_hardware_free != after.own_hardware_free:
        changes.append("[prices]")
    return [
        *changes,
        *(f"[{name}]" for name in _SERVICES if before.tables.get(name) != after.tables.get(name)),
    ]
