"""The `[gateway]` table of the configuration: servers, aliases and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from sixfold import errors, setting_tables
from sixfold.core.gateway.guardrails import models as guardrails
from sixfold.core.gateway.guardrails.models import Guardrail
from sixfold.providers import CHAT_PROVIDERS, PROVIDERS
from sixfold.setting_tables import SECRET

LOCAL_KINDS = frozenset({"ollama", "lmstudio", "llamacpp", "llamaswap", "vllm", "sglang", "tei"})
CHAT_KINDS = frozenset({*CHAT_PROVIDERS, "gguf"}) | LOCAL_KINDS
_KINDS = sorted(CHAT_KINDS | PROVIDERS.keys())
FIXED_AT_START = ("timeout_seconds", "connect_seconds", "cache", "cache_seconds", "cache_bytes")
# The table of model servers.
SERVERS = "upstreams"
# The largest context in tokens that an operator can state.
MAX_CONTEXT = 100_000_000
# Limits of settings in days and in bytes.
_DAYS, _BYTES = Meta(ge=0, le=3650), Meta(ge=0, le=2**40)
_TABLES = frozenset({SERVERS, "aliases", "prices", "guardrail"})


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """A configured model server; if `models` is empty, the models that the server lists.

    `context` is the context in tokens of its chat models whose context the server does not state.
    """

    name: str
    kind: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    models: tuple[str, ...] = ()
    local: bool = False
    responses: bool | None = None
    context: int = 0
    # Options of a model that llama.cpp runs on this machine.
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ModelAlias(msgspec.Struct, frozen=True):
    """A target of an alias.

    If targets have weights, the first is drawn at random and the others follow.
    """

    target: str
    weight: float | None = None


class _ServerTable(msgspec.Struct):
    """A table `[gateway.upstreams.NAME]`."""

    kind: str
    base_url: Annotated[str, Meta(pattern=r"^(https?://|\Z)", description="an http or https address")] = ""
    api_key: Annotated[str, Meta(extra=SECRET)] = ""
    # Replaced by `api_key` when the file is read.
    api_key_env: Annotated[str, Meta(extra=SECRET)] = ""
    models: tuple[str, ...] = ()
    local: bool = False
    responses: bool | None = None
    context: Annotated[int, Meta(ge=0, le=MAX_CONTEXT)] = 0


class GatewaySettings(msgspec.Struct, frozen=True):
    """The values of `[gateway]` with their limits; `max_tokens` is held for requests without a limit."""

    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    timeout_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 600.0
    connect_seconds: Annotated[float, Meta(ge=0.01, le=60)] = 5.0
    call_seconds: Annotated[float, Meta(ge=1, le=24 * 3600)] = 3600.0
    keep_alive_seconds: Annotated[float, Meta(ge=0.01, le=600)] = 10.0
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] = 4096
    cache: bool = False
    cache_seconds: Annotated[float, Meta(ge=1, le=30 * 24 * 3600)] = 3600.0
    cache_bytes: Annotated[int, Meta(ge=0, le=2**34)] = 64 * 2**20
    allow_unpriced: bool = False
    log_bodies: bool = False
    log_days: Annotated[int, _DAYS] = 30
    store_responses: bool = True
    responses_days: Annotated[int, _DAYS] = 30
    responses_bytes: Annotated[int, _BYTES] = 2**30
    # The quotas of an account: conversations, items of each, and total bytes.
    conversations: Annotated[int, Meta(ge=0, le=10_000_000)] = 10_000
    conversation_items: Annotated[int, Meta(ge=1, le=100_000)] = 10_000
    conversations_bytes: Annotated[int, _BYTES] = 2**30


class GatewayPolicy(GatewaySettings, frozen=True):
    """The settings of the gateway, its servers and aliases."""

    servers: tuple[UpstreamRow, ...] = ()
    aliases: Mapping[str, tuple[ModelAlias, ...]] = {}
    # The guardrail of all keys and accounts without a separate guardrail.
    guardrail: Guardrail | None = None


def parse(table: Mapping[str, Any]) -> GatewayPolicy:
    """Parse the table; raises `ValueError` with a one-line message that names the setting."""
    values = setting_tables.convert("[gateway]", table, GatewaySettings, _TABLES)
    servers = tuple(_upstream(name, row) for name, row in _table(table, SERVERS).items())
    aliases = {name: _alias_targets(name, value) for name, value in _table(table, "aliases").items()}
    return GatewayPolicy(
        **msgspec.structs.asdict(values),
        servers=tuple(row for row in servers if row is not None),
        aliases=aliases,
        guardrail=_guardrail(_table(table, "guardrail")),
    )


def _guardrail(table: Mapping[str, Any]) -> Guardrail | None:
    try:
        guardrail = guardrails.parse(table)
    except errors.InvalidInput as error:
        raise ValueError(f"[gateway.guardrail] {error.message}") from error
    return None if guardrail.is_empty else guardrail


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    return setting_tables.as_table(f"[gateway.{name}]", table.get(name, {}))


def _upstream(name: str, value: Any) -> UpstreamRow | None:
    """Return a model server, or None for a media provider, which the engines read."""
    where = f"[gateway.upstreams.{name}]"
    if not isinstance(value, dict) or "/" in name:
        raise ValueError(f"{where} must be a table, and its name must not contain /")
    row = cast("dict[str, Any]", value)
    kind = row.get("kind")
    if not isinstance(kind, str):
        raise ValueError(f"{where} must have a kind, one of {', '.join(_KINDS)}")  # noqa: TRY004 - all that is wrong here is a ValueError
    if kind not in CHAT_KINDS:
        if kind in PROVIDERS:
            return None
        raise ValueError(f"{where} kind must be one of {', '.join(_KINDS)} (got {kind!r})")
    if kind == "gguf":
        options = {name: value for name, value in row.items() if name != "kind"}
        return UpstreamRow(name, kind, local=True, options=options)
    server = setting_tables.convert(where, row, _ServerTable)
    return UpstreamRow(
        name=name,
        kind=kind,
        base_url=server.base_url.rstrip("/"),
        api_key=server.api_key,
        models=server.models,
        local=server.local,
        responses=server.responses,
        context=server.context,
    )


def _alias_targets(name: str, value: Any) -> tuple[ModelAlias, ...]:
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    targets = tuple(_alias_target(name, item) for item in items)
    if not targets:
        raise ValueError(f"the alias {name} must have at least one target")
    return targets


def _alias_target(name: str, item: Any) -> ModelAlias:
    if isinstance(item, str) and item:
        return ModelAlias(item)
    if isinstance(item, dict):
        row = cast("dict[str, Any]", item)
        weight, target = row.get("weight", 1), row.get("target")
        if isinstance(target, str) and isinstance(weight, int | float) and weight >= 0:
            return ModelAlias(target, float(weight))
    raise ValueError(f'the targets of the alias {name} must be "NAME/model" or {{ target, weight }}')
