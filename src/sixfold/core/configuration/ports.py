"""Ports of the configuration, provider keys, weights and backups, for the pages and the HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from sixfold.core.accounts.keys import Principal
from sixfold.core.media.ports import BlobStore

# The source of a value: `file` is sixfold.toml (or the environment), `page` is this server's pages or HTTP,
# `found` is a discovered server, `provider` is enabled by a key, and `bundled` is part of Sixfold.
Source = Literal["file", "page", "found", "provider", "bundled"]
InstallState = Literal["absent", "running", "installed", "failed"]
BackupState = Literal["running", "ready", "failed"]
CheckState = Literal["accepted", "refused", "unknown"]


class ServerView(msgspec.Struct, frozen=True):
    """A model server with its last list of models; `problem` is the reason why its entry is not applied.

    `context` is what the operator states for models without a context in the list, or 0. `outage` states
    since when and why the server does not respond.
    """

    name: str
    kind: str
    url: str
    source: Source
    state: str
    models: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    has_key: bool = False
    problem: str = ""
    context: int = 0
    outage: str = ""


class AliasView(msgspec.Struct, frozen=True):
    """An alias with its targets in order, and whether a server has each now.

    `weights` are those of the targets, in the same order, or empty if the targets are tried in order.
    """

    name: str
    targets: tuple[tuple[str, bool], ...]
    source: Source
    weights: tuple[float, ...] = ()
    problem: str = ""


class TokenPriceView(msgspec.Struct, frozen=True):
    """The price of a model of the gateway: the fields of `[gateway.prices]`, or a note such as "free"."""

    name: str
    fields: Mapping[str, str]
    source: Source
    note: str = ""


class PriceView(msgspec.Struct, frozen=True):
    """A row of `[prices]`: USD by variant (`""` for the only one), and the bundled values."""

    name: str
    per: str
    usd: Mapping[str, str]
    bundled: Mapping[str, str]
    source: Source
    models: tuple[str, ...] = ()
    problem: str = ""


class ComfyView(msgspec.Struct, frozen=True):
    """A ComfyUI server that runs workflows; `problem` is the reason why it is not used."""

    name: str
    url: str
    source: Source
    problem: str = ""


class ToolServerView(msgspec.Struct, frozen=True):
    """An MCP server whose tools chats may use; `tools` is empty if all of its tools are offered."""

    name: str
    url: str
    source: Source
    accounts: str = "operators"
    tools: tuple[str, ...] = ()
    timeout_seconds: float = 30.0
    has_key: bool = False
    problem: str = ""


class SearchView(msgspec.Struct, frozen=True):
    """The web search: the address of its SearXNG server, or an empty string."""

    url: str = ""
    source: Source = "bundled"
    timeout_seconds: float = 10.0
    problem: str = ""


class ContentView(msgspec.Struct, frozen=True):
    """The guardrail of accounts without their own, or None, and what the log of calls stores for how long.

    A source is `bundled` for a value that is not set.
    """

    guardrail: Mapping[str, Any] | None = None
    guardrail_source: Source = "bundled"
    log_bodies: bool = False
    log_bodies_source: Source = "bundled"
    log_days: int = 0
    log_days_source: Source = "bundled"
    problem: str = ""


class ConfigurationView(msgspec.Struct, frozen=True):
    """The part of the configuration that operators may change, from all sources."""

    servers: tuple[ServerView, ...]
    aliases: tuple[AliasView, ...]
    token_prices: tuple[TokenPriceView, ...]
    prices: tuple[PriceView, ...]
    comfyui: tuple[ComfyView, ...] = ()
    tool_servers: tuple[ToolServerView, ...] = ()
    search: SearchView = SearchView()
    content: ContentView = ContentView()


class ServerProbe(msgspec.Struct, frozen=True):
    """The result of a test of a server: its models or tools, or the problem in one sentence."""

    models: tuple[str, ...] = ()
    problem: str = ""


class ConfigurationService(Protocol):
    """Reads and changes the entries; a change has taken effect on this server when the call returns."""

    @property
    def problems(self) -> tuple[str, ...]:
        """The parts of the configuration that are not applied, with the reasons, in one sentence each."""
        ...

    async def view(self) -> ConfigurationView: ...

    async def put(self, actor: Principal, section: str, name: str, value: Any) -> None:
        """Set an entry; raises `BadRequest` with one sentence if the value is not valid."""
        ...

    async def remove(self, actor: Principal, section: str, name: str) -> None:
        """Remove an entry; raises `NotFound`, and `BadRequest` if other entries depend on it."""
        ...

    async def probe_comfyui(self, url: str) -> ServerProbe:
        """Query a ComfyUI server, without storing it, for its node classes (the result's `models`)."""
        ...

    async def probe_tools(self, name: str, value: Any) -> ServerProbe:
        """Query a tool server, without storing it, for its tools (the result's `models`)."""
        ...

    async def probe_search(self, url: str) -> ServerProbe:
        """Make a test search on a SearXNG server, without storing it."""
        ...

    async def probe(self, name: str, value: Any) -> ServerProbe:
        """Query a model server, without storing it, for its models; raises `BadRequest`."""
        ...


class ProviderView(msgspec.Struct, frozen=True):
    """A provider; `hint` is the end of its key.

    `models` can use the provider, and `chats` are the chat models that it lists.
    """

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
    chats: tuple[str, ...] = msgspec.field(default=())


class KeyCheck(msgspec.Struct, frozen=True):
    """The result of a key check; `unknown` means that the provider could not be reached."""

    state: CheckState
    message: str


class ProviderKeyService(Protocol):
    """Reads, checks and changes provider keys.

    Keys in the environment or in sixfold.toml cannot be changed.
    """

    async def view(self) -> tuple[ProviderView, ...]: ...

    async def set(self, actor: Principal, provider: str, key: str) -> KeyCheck:
        """Store a key unless the provider refuses it; raises `InvalidInput` and `NotFound`."""
        ...

    async def check(self, provider: str) -> KeyCheck:
        """Ask the provider whether it accepts the key in use; raises `NotFound` without a key."""
        ...

    async def remove(self, actor: Principal, provider: str) -> None:
        """Remove a stored key; raises `NotFound`."""
        ...


class InstallView(msgspec.Struct, frozen=True):
    """Weights that are installed or can be; `percent` is None while the size is unknown.

    `is_suggested` marks the default weights of a family.
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
        """Begin to install weights; raises `NotFound` and `Conflict`."""
        ...

    async def stop(self, actor: Principal, family: str, name: str) -> None:
        """Stop an installation; raises `NotFound`."""
        ...

    async def remove(self, actor: Principal, family: str, name: str) -> None:
        """Delete installed weights; raises `NotFound`."""
        ...


class BackupView(msgspec.Struct, frozen=True):
    """A backup on this machine; `size_bytes` is the size so far while it is being written."""

    name: str
    state: BackupState
    size_bytes: int
    created_at: int
    problem: str = ""


class BackupFile(msgspec.Struct, frozen=True):
    """The file of a complete backup in its store; `tag` changes with its bytes."""

    media_type: ClassVar[str] = "application/x-tar"

    store: BlobStore
    key: str
    size: int
    tag: str


class BackupService(Protocol):
    """Writes, reads and deletes backups of the database and the files on this machine."""

    @property
    def folder(self) -> str:
        """The path of the folder on this machine."""
        ...

    async def view(self) -> tuple[BackupView, ...]:
        """Return the backups, newest first."""
        ...

    async def start(self, actor: Principal) -> str:
        """Begin a backup and return its name; raises `Conflict`."""
        ...

    async def open(self, actor: Principal, name: str) -> BackupFile:
        """Return a complete backup; raises `NotFound`."""
        ...

    async def remove(self, actor: Principal, name: str) -> None:
        """Delete a backup, or stop one that is being written; raises `NotFound` and `Conflict`."""
        ...
