"""The `[gateway]` table of the configuration: servers, aliases and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.core.gateway.guardrails import models as guardrails
from sixfold.core.gateway.guardrails.models import Guardrail
from sixfold.providers import CHAT_PROVIDERS, PROVIDERS

LOCAL_KINDS = frozenset({"ollama", "lmstudio", "llamacpp", "llamaswap", "vllm", "sglang", "tei"})
CHAT_KINDS = frozenset({*CHAT_PROVIDERS, "gguf"}) | LOCAL_KINDS
_KINDS = sorted(CHAT_KINDS | PROVIDERS.keys())
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "retries": (0, 10),
    "timeout_seconds": (0.01, 3600),
    "connect_seconds": (0.01, 60),
    "call_seconds": (1, 24 * 3600),
    "keep_alive_seconds": (0.01, 600),
    "max_tokens": (1, 10_000_000),
    "cache_seconds": (1, 30 * 24 * 3600),
    "cache_bytes": (0, 2**34),
    "log_days": (0, 3650),
    "responses_days": (0, 3650),
    "responses_bytes": (0, 2**40),
    "conversations": (0, 10_000_000),
    "conversation_items": (1, 100_000),
    "conversations_bytes": (0, 2**40),
}
_INTEGERS = frozenset(_NUMBERS) - {
    "timeout_seconds",
    "connect_seconds",
    "call_seconds",
    "keep_alive_seconds",
    "cache_seconds",
}
_SWITCHES = frozenset({"cache", "allow_unpriced", "log_bodies", "store_responses"})
FIXED_AT_START = ("timeout_seconds", "connect_seconds", "cache", "cache_seconds", "cache_bytes")
# The table of model servers.
SERVERS = "upstreams"
_TABLES = frozenset({SERVERS, "aliases", "prices", "guardrail"})
_FIELDS = frozenset({"kind", "base_url", "api_key", "models", "local", "responses"})


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """A configured model server; if `models` is empty, the models that the server lists."""

    name: str
    kind: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    models: tuple[str, ...] = ()
    local: bool = False
    responses: bool | None = None
    # Options of a model that llama.cpp runs on this machine.
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ModelAlias(msgspec.Struct, frozen=True):
    """A target of an alias.

    If targets have weights, the first is drawn at random and the others follow.
    """

    target: str
    weight: float | None = None


class GatewayPolicy(msgspec.Struct, frozen=True):
    """The settings of the gateway; `max_tokens` is held for requests without a limit."""

    retries: int = 2
    timeout_seconds: float = 600.0
    connect_seconds: float = 10.0
    call_seconds: float = 3600.0
    keep_alive_seconds: float = 10.0
    max_tokens: int = 4096
    cache: bool = False
    cache_seconds: float = 3600.0
    cache_bytes: int = 64 * 2**20
    allow_unpriced: bool = False
    log_bodies: bool = False
    log_days: int = 30
    store_responses: bool = True
    responses_days: int = 30
    responses_bytes: int = 2**30
    # The quotas of an account: conversations, items of each, and total bytes.
    conversations: int = 10_000
    conversation_items: int = 10_000
    conversations_bytes: int = 2**30
    servers: tuple[UpstreamRow, ...] = ()
    aliases: Mapping[str, tuple[ModelAlias, ...]] = {}
    # The guardrail of all keys and accounts without a separate guardrail.
    guardrail: Guardrail | None = None


def parse(table: Mapping[str, Any]) -> GatewayPolicy:
    """Parse the table; raises `ValueError` with a one-line message that names the setting."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name in _NUMBERS:
            values[name] = _number(name, value)
        elif name in _SWITCHES:
            if not isinstance(value, bool):
                raise ValueError(f"[gateway] {name} must be true or false, not {value!r}")
            values[name] = value
        elif name not in _TABLES:
            allowed = ", ".join(sorted({*_NUMBERS, *_SWITCHES, *_TABLES}))
            raise ValueError(f"[gateway] has an unknown setting {name!r}; use {allowed}")
    servers = tuple(_upstream(name, row) for name, row in _table(table, SERVERS).items())
    aliases = {name: _alias_targets(name, value) for name, value in _table(table, "aliases").items()}
    return GatewayPolicy(
        **values,
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
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"[gateway.{name}] must be a table")  # noqa: TRY004 - all that is wrong here is a ValueError
    return cast("dict[str, Any]", value)


def _number(name: str, value: Any) -> float:
    minimum, maximum = _NUMBERS[name]
    kinds = (int,) if name in _INTEGERS else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not minimum <= value <= maximum:
        raise ValueError(f"[gateway] {name} must be a number from {minimum:g} to {maximum:g}, not {value!r}")
    return value


def _upstream(name: str, value: Any) -> UpstreamRow | None:
    """Return a model server, or None for a media provider, which the engines read."""
    if not isinstance(value, dict) or "/" in name:
        raise ValueError(f"[gateway.upstreams.{name}] must be a table, and its name must not contain /")
    row = cast("dict[str, Any]", value)
    label, kind = f"[gateway.upstreams.{name}]", row.get("kind")
    if not isinstance(kind, str):
        raise ValueError(f"{label} must have a kind, one of {', '.join(_KINDS)}")  # noqa: TRY004 - as above
    if kind not in CHAT_KINDS:
        if kind in PROVIDERS:
            return None
        raise ValueError(f"{label} kind must be one of {', '.join(_KINDS)}, not {kind!r}")
    if kind == "gguf":
        options = {name: value for name, value in row.items() if name != "kind"}
        return UpstreamRow(name, kind, local=True, options=options)
    if unknown := set(row) - _FIELDS - {"api_key_env"}:
        allowed = ", ".join(sorted(_FIELDS))
        raise ValueError(f"{label} has an unknown field {sorted(unknown)[0]!r}; use {allowed}")
    base_url = row.get("base_url", "")
    if not isinstance(base_url, str) or (base_url and not base_url.startswith(("http://", "https://"))):
        raise ValueError(f"{label} base_url must be an http or https address")
    models = row.get("models", [])
    if not isinstance(models, list) or not all(isinstance(model, str) for model in cast("list[Any]", models)):
        raise ValueError(f"{label} models must be a list of names")
    return UpstreamRow(
        name=name,
        kind=kind,
        base_url=base_url.rstrip("/"),
        api_key=str(row.get("api_key", "")),
        models=tuple(cast("list[str]", models)),
        local=bool(row.get("local", False)),
        responses=row.get("responses"),
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
