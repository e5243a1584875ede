"""Management of provider keys on the pages and over HTTP: the encrypted files of `store.secrets`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from sixfold import errors
from sixfold.app import storage
from sixfold.clients import provider_check
from sixfold.clients.chat.servers import ServerStatus
from sixfold.clients.provider_client import ProviderLimits, UpstreamError
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.catalog.engines import EngineError
from sixfold.core.catalog.models import Catalog
from sixfold.core.configuration import entries
from sixfold.core.configuration.entries import ConfigEntry
from sixfold.core.configuration.ports import KeyCheck, ProviderView
from sixfold.core.database import Database, Transaction
from sixfold.providers import PROVIDERS, ProviderSpec
from sixfold.settings import Settings
from sixfold.store import secrets
from sixfold.store.secrets import Secrets, SecretUnreadable

# A user waits for the result.
_LIMITS = ProviderLimits(connect_seconds=3, call_seconds=6, attempts=1, waiting_seconds=0)
_MAX_CHATS = 200


class ProviderKeys:
    """The provider keys of a server; `changed` makes it query providers and model servers again."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        catalog: Catalog,
        servers: Callable[[], Iterable[ServerStatus]],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._database = database
        self._catalog = catalog
        self._servers = servers
        self._changed = changed
        self._stored = Secrets(settings.data_dir, storage.server_secret(settings.data_dir, secrets.MASTER))

    async def view(self) -> tuple[ProviderView, ...]:
        """Return all providers, starting with those that have a key."""
        models = _models_by_setting(self._catalog)
        chats = {status.name: status.models[:_MAX_CHATS] for status in self._servers()}
        rows = await asyncio.to_thread(
            lambda: [self._row(spec, models.get(spec.key, ()), chats) for spec in PROVIDERS.values()]
        )
        return tuple(sorted(rows, key=lambda row: not row.source))

    async def set(self, actor: Principal, provider: str, key: str) -> KeyCheck:
        spec, key = self._editable(provider), key.strip()
        if not secrets.is_valid_key(key):
            raise errors.InvalidInput.of("key", secrets.KEY_FORMAT)
        result = await self._ask(spec, key)
        if result.state == "refused":
            raise errors.InvalidInput.of("key", result.message)
        before = await asyncio.to_thread(self._stored.stored, spec.key)
        document = await asyncio.to_thread(self._stored.put, spec.key, key)
        if result.state == "accepted":
            await asyncio.to_thread(self._stored.mark_checked, spec.key, key)
        change = None if before is None else {"set_at": before.set_at}, {"key": "set"}
        await self._database.write(_record(actor, "provider.key", spec, document, change))
        await self._changed()
        return result

    async def check(self, provider: str) -> KeyCheck:
        spec = _spec(provider)
        key = await asyncio.to_thread(secrets.provider_key, self._settings, spec.key)
        if not key:
            raise errors.NotFound(f"Key for {spec.title} not found: add it first")
        result = await self._ask(spec, key)
        if result.state == "accepted":
            await asyncio.to_thread(self._stored.mark_checked, spec.key, key)
        return result

    async def remove(self, actor: Principal, provider: str) -> None:
        spec = self._editable(provider)
        if not await asyncio.to_thread(self._stored.remove, spec.key):
            raise errors.NotFound(f"Key for {spec.title} not found")
        change = {"key": "set"}, None
        await self._database.write(_record(actor, "provider.remove", spec, self._stored.removed(), change))
        await self._changed()

    async def adopt(self, rows: Iterable[ConfigEntry]) -> None:
        """Apply the keys that another server or `sixfold provider` has set or removed."""
        documents = {row.name: row.value for row in rows if row.section == entries.KEYS}
        changes = await asyncio.to_thread(
            lambda: [self._stored.adopt(name, document) for name, document in documents.items()]
        )
        if any(changes):
            await self._changed()

    def _editable(self, provider: str) -> ProviderSpec:
        spec = _spec(provider)
        if getattr(self._settings, spec.key):
            raise errors.InvalidInput.of(
                "key", f"{spec.variable} is set in the environment or in sixfold.toml: change it there"
            )
        return spec

    async def _ask(self, spec: ProviderSpec, key: str) -> KeyCheck:
        parameters = {name: str(getattr(self._settings, name)) for name in spec.parameters}
        base_url = spec.check_url_with(parameters)
        if not base_url:
            missing = ", ".join(_missing(spec, self._settings))
            return KeyCheck("unknown", f"{spec.title} also needs {missing}: set it for the server")
        try:
            await provider_check.check(spec, key, base_url, _LIMITS)
        except UpstreamError as error:
            if error.refusal.kind == "key":
                return KeyCheck("refused", f"{spec.title} refused this key")
            return KeyCheck("unknown", str(error))
        except EngineError as error:
            return KeyCheck("unknown", str(error))
        return KeyCheck("accepted", f"{spec.title} accepts the key")

    def _row(
        self, spec: ProviderSpec, models: tuple[str, ...], chats: Mapping[str, tuple[str, ...]]
    ) -> ProviderView:
        row = ProviderView(
            spec.name,
            spec.title,
            spec.variable,
            spec.keys_url,
            spec.unlocks,
            missing=_missing(spec, self._settings),
            models=models,
            chats=chats.get(spec.name, ()),
        )
        fixed = str(getattr(self._settings, spec.key))
        try:
            key = fixed or self._stored.get(spec.key)
        except SecretUnreadable as unreadable:
            return replace(row, source="page", problem=str(unreadable))
        if not key:
            return row
        stored = None if fixed else self._stored.stored(spec.key)
        return replace(
            row,
            source="file" if fixed else "page",
            hint=secrets.hint(key),
            set_at=stored.set_at if stored else "",
            checked_at=self._stored.checked_at(spec.key, key) or "",
        )


def _record(
    actor: Principal, action: str, spec: ProviderSpec, document: str, change: tuple[Any, Any]
) -> Transaction[None]:
    """Return a transaction that stores an encrypted key or its removal for the other servers, and logs it."""
    yield from entries.store(ConfigEntry(entries.KEYS, spec.key, document))
    yield actions.note(actor, action, f"{entries.KEYS}.{spec.name}", *change)


def _spec(provider: str) -> ProviderSpec:
    if provider not in PROVIDERS:
        raise errors.NotFound(f"Provider {provider[:40]!r} not found")
    return PROVIDERS[provider]


def _missing(spec: ProviderSpec, settings: Settings) -> tuple[str, ...]:
    return tuple(name.upper() for name in spec.parameters if not getattr(settings, name))


def _models_by_setting(catalog: Catalog) -> Mapping[str, tuple[str, ...]]:
    """Return the models served by the engines that a setting enables, by the setting's name."""
    names: dict[str, dict[str, None]] = {}
    for model in catalog.models():
        for engine in model.engines:
            if engine.setting:
                names.setdefault(engine.setting, {})[model.name] = None
    return {setting: tuple(served) for setting, served in names.items()}
