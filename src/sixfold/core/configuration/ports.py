"""Ports of the configuration and of provider keys, for the pages and the HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sixfold.core.accounts.keys import Principal

# Where a value is from: `file` is sixfold.toml (or the environment), `page` this server's pages or HTTP,
# `found` a server that was discovered, `provider` one that a key enables, `bundled` the program.
Source = Literal["file", "page", "found", "provider", "bundled"]
InstallState = Literal["absent", "running", "installed", "failed"]
CheckState = Literal["accepted", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class ServerView:
    """A model server with the models that it listed last; `problem` is why its entry is not applied."""

    name: str
    kind: str
    url: str
    source: Source
    state: str
    models: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    has_key: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AliasView:
    """An alias with its targets in order, each with whether a server has it now; `weights` may be empty."""

    name: str
    targets: tuple[tuple[str, bool], ...]
    source: Source
    weights: tuple[float, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TokenPriceView:
    """The price of a model of the gateway: the fields of `[gateway.prices]`, or a note such as "free"."""

    name: str
    fields: Mapping[str, str]
    source: Source
    note: str = ""


@dataclass(frozen=True, slots=True)
class PriceView:
    """A row of `[prices]`: USD by variant (`""` for the only one), and the bundled values."""

    name: str
    per: str
    usd: Mapping[str, str]
    bundled: Mapping[str, str]
    source: Source
    models: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ComfyView:
    """A ComfyUI server that runs workflows; `problem` says why it is not used."""

    name: str
    url: str
    source: Source
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ConfigurationView:
    """The part of the configuration that operators may change, from all sources."""

    servers: tuple[ServerView, ...]
    aliases: tuple[AliasView, ...]
    token_prices: tuple[TokenPriceView, ...]
    prices: tuple[PriceView, ...]
    comfyui: tuple[ComfyView, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerProbe:
    """The result of a test of a model server: its models, or the problem in one sentence."""

    models: tuple[str, ...] = ()
    problem: str = ""


class ConfigurationService(Protocol):
    """Reads and changes the entries; a change is in force on this server when it returns."""

    async def view(self) -> ConfigurationView: ...

    async def put(self, actor: Principal, section: str, name: str, value: Any) -> None:
        """Set an entry; raises `BadRequest` with one sentence for one that is not valid, and sets nothing."""
        ...

    async def remove(self, actor: Principal, section: str, name: str) -> None:
        """Remove an entry; raises `NotFound`, and `BadRequest` if others would not be valid without it."""
        ...

    async def probe_comfyui(self, url: str) -> ServerProbe:
        """Ask a ComfyUI for its node classes, the `models` of the result, without storing its address."""
        ...

    async def probe(self, name: str, value: Any) -> ServerProbe:
        """Ask a model server for its models without storing it; raises `BadRequest` for a wrong value."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderView:
    """A provider; `hint` is the end of its key. `models` can use it, and `chats` are those that it lists."""

    name: str
    title: str
    variable: str
    keys_url: str
    unlocks: str
    source: Literal["", "file", "page"] = ""
    hint: str = ""
    set_at: str = ""
    checked_at: str = ""
    problem: str = ""
    missing: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    chats: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The result of a key check; `unknown` if the provider could not be reached."""

    state: CheckState
    message: str


class ProviderKeyService(Protocol):
    """Reads, checks and changes provider keys; keys in the environment or sixfold.toml cannot be changed."""

    async def view(self) -> tuple[ProviderView, ...]: ...

    async def set(self, actor: Principal, provider: str, key: str) -> KeyCheck:
        """Store a key unless the provider refuses it; raises `InvalidInput`, `NotFound`."""
        ...

    async def check(self, provider: str) -> KeyCheck:
        """Ask a provider about the key that is in use; raises `NotFound`."""
        ...

    async def remove(self, actor: Principal, provider: str) -> None:
        """Remove a stored key; raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class InstallView:
    """Weights that can be installed, or are; `percent` is None while the size is unknown.

    Suggested are the default weights of a family.
    """

    family: str
    name: str
    title: str
    state: InstallState
    gigabytes: float
    licence: str
    commercial: str
    is_suggested: bool
    is_downloadable: bool
    percent: int | None
    log: tuple[str, ...]
    size_bytes: int


class EngineInstallService(Protocol):
    """Installs and removes weights on this machine."""

    async def view(self) -> tuple[InstallView, ...]:
        """Return all weights with their state."""
        ...

    async def start(self, actor: Principal, family: str, name: str) -> None:
        """Begin to install weights; raises `NotFound`, `Conflict`."""
        ...

    async def stop(self, actor: Principal, family: str, name: str) -> None:
        """Stop an installation; raises `NotFound`."""
        ...

    async def remove(self, actor: Principal, family: str, name: str) -> None:
        """Delete installed weights; raises `NotFound`."""
        ...
