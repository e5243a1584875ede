"""The JSON of the configuration and of providers, and their operations in the OpenAPI document."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Literal, TypedDict

import msgspec

from sixfold.core.configuration.entries import SECTIONS
from sixfold.core.configuration.ports import (
    CheckState,
    ConfigurationView,
    ContentView,
    ProviderView,
    Source,
    ToolServerView,
)
from sixfold.web import openapi
from sixfold.web.openapi import OperationSpec


class ModelServerSchema(TypedDict):
    """A model server; `problem` is the reason why its entry is not applied, or null.

    `outage` states since when and why the server does not respond, or is null. `context` is the operator's
    number of tokens for models whose context the server does not state.
    """

    name: str
    kind: str
    url: str
    source: Source
    state: str
    models: list[str]
    has_key: bool
    context: int | None
    outage: str | None
    problem: str | None


class AliasTargetSchema(TypedDict):
    """A target of an alias; `served` states whether a server has the model now.

    `weight` is null if the targets are tried in order.
    """

    target: str
    served: bool
    weight: float | None


class AliasSchema(TypedDict):
    """An alias with its targets in the order in which they are tried."""

    name: str
    source: Source
    targets: list[AliasTargetSchema]
    problem: str | None


class TokenPriceSchema(TypedDict):
    """The price of a model of the gateway: fields of `[gateway.prices]`, or a note."""

    name: str
    source: Source
    fields: dict[str, str]
    note: str | None


class MediaPriceSchema(TypedDict):
    """A row of `[prices]`: USD by variant, with "" for the only one, and the bundled values."""

    name: str
    per: str
    source: Source
    usd: dict[str, str]
    bundled_usd: dict[str, str]
    models: list[str]
    problem: str | None


class ToolServerSchema(TypedDict):
    """An MCP server whose tools chats may use; `tools` is null if all of its tools are offered."""

    name: str
    url: str
    source: Source
    accounts: Literal["operators", "all"]
    tools: list[str] | None
    timeout_seconds: float
    has_key: bool
    problem: str | None


class WebSearchSchema(TypedDict):
    """The web search; `url` is the address of the SearXNG server, or null without one."""

    url: str | None
    source: Source | None
    timeout_seconds: float
    problem: str | None


class ContentSettingsSchema(TypedDict):
    """The guardrail of accounts without their own, and what the log of calls stores for how many days.

    A source is `bundled` for a value that is not set.
    """

    guardrail: dict[str, Any] | None
    guardrail_source: Source
    log_bodies: bool
    log_bodies_source: Source
    log_days: int
    log_days_source: Source
    problem: str | None


class OperatorConfigurationSchema(TypedDict):
    """The settings that operators may change, from all sources."""

    servers: list[ModelServerSchema]
    aliases: list[AliasSchema]
    token_prices: list[TokenPriceSchema]
    prices: list[MediaPriceSchema]
    tool_servers: list[ToolServerSchema]
    web_search: WebSearchSchema
    content: ContentSettingsSchema


class ProviderSchema(TypedDict):
    """A provider; `source` is null without a key, and `hint` the end of the key."""

    name: str
    title: str
    variable: str
    unlocks: str
    source: Literal["file", "page"] | None
    hint: str | None
    checked_at: str | None
    problem: str | None
    missing: list[str]
    models: list[str]


class KeyCheckSchema(TypedDict):
    """The result of a key check."""

    state: CheckState
    message: str


def configuration(view: ConfigurationView) -> OperatorConfigurationSchema:
    return {
        "servers": [
            {
                "name": row.name,
                "kind": row.kind,
                "url": row.url,
                "source": row.source,
                "state": row.state,
                "models": list(row.models),
                "has_key": row.has_key,
                "context": row.context or None,
                "outage": row.outage or None,
                "problem": row.problem or None,
            }
            for row in view.servers
        ],
        "aliases": [
            {
                "name": row.name,
                "source": row.source,
                "targets": [
                    {"target": target, "served": served, "weight": weight}
                    for (target, served), weight in zip_longest(row.targets, row.weights)
                ],
                "problem": row.problem or None,
            }
            for row in view.aliases
        ],
        "token_prices": [
            {"name": row.name, "source": row.source, "fields": dict(row.fields), "note": row.note or None}
            for row in view.token_prices
        ],
        "prices": [
            {
                "name": row.name,
                "per": row.per,
                "source": row.source,
                "usd": dict(row.usd),
                "bundled_usd": dict(row.bundled),
                "models": list(row.models),
                "problem": row.problem or None,
            }
            for row in view.prices
        ],
        "tool_servers": [_tool_server(row) for row in view.tool_servers],
        "web_search": {
            "url": view.search.url or None,
            "source": view.search.source if view.search.url or view.search.problem else None,
            "timeout_seconds": view.search.timeout_seconds,
            "problem": view.search.problem or None,
        },
        "content": _content(view.content),
    }


def _content(view: ContentView) -> ContentSettingsSchema:
    return {
        "guardrail": None if view.guardrail is None else dict(view.guardrail),
        "guardrail_source": view.guardrail_source,
        "log_bodies": view.log_bodies,
        "log_bodies_source": view.log_bodies_source,
        "log_days": view.log_days,
        "log_days_source": view.log_days_source,
        "problem": view.problem or None,
    }


def _tool_server(row: ToolServerView) -> ToolServerSchema:
    return {
        "name": row.name,
        "url": row.url,
        "source": row.source,
        "accounts": "all" if row.accounts == "all" else "operators",
        "tools": list(row.tools) or None,
        "timeout_seconds": row.timeout_seconds,
        "has_key": row.has_key,
        "problem": row.problem or None,
    }


def provider(row: ProviderView) -> ProviderSchema:
    return {
        "name": row.name,
        "title": row.title,
        "variable": row.variable,
        "unlocks": row.unlocks,
        "source": row.source or None,
        "hint": row.hint or None,
        "checked_at": row.checked_at or None,
        "problem": row.problem or None,
        "missing": list(row.missing),
        "models": [*row.models, *row.chats],
    }


def operations() -> dict[str, OperationSpec]:
    root = "/api/operator"
    section, provider_path = f"{root}/configuration/{{section}}", f"{root}/providers/{{provider}}"
    configuration_response = {
        200: openapi.response("The configuration in force", OperatorConfigurationSchema)
    }
    page = openapi.shape("Providers", providers=list[ProviderSchema])
    providers = {200: openapi.response("Those with a key first", page)}
    probe = openapi.shape("ServerTest", ok=bool, models=list[str], problem=str | None)
    tool_test = openapi.shape("ToolServerTest", ok=bool, tools=list[str], problem=str | None)
    search_test = openapi.shape("WebSearchTest", ok=bool, problem=str | None)
    checked = {200: openapi.response("The provider's answer", KeyCheckSchema)}
    name = openapi.query("name", {"type": "string"})
    return {
        f"GET {root}/configuration": OperationSpec(
            "Servers, aliases, prices, tool servers and web search", configuration_response
        ),
        f"PUT {section}": OperationSpec(
            f"Set an entry of a section: {', '.join(SECTIONS)}",
            configuration_response,
            (400, 404),
            msgspec.defstruct("ConfigurationEntrySchema", [("name", str), ("value", Any)]),
        ),
        f"DELETE {section}": OperationSpec(
            "Remove an entry", configuration_response, (400, 404), parameters=(name,)
        ),
        f"POST {root}/model-servers/test": OperationSpec(
            "Ask a model server for its models",
            {200: openapi.response("Its models, or the problem", probe)},
            (400,),
            msgspec.defstruct("ServerTestRequestSchema", [("value", dict[str, Any]), ("name", str, "test")]),
        ),
        f"POST {root}/tool-servers/test": OperationSpec(
            "Ask an MCP server for its tools",
            {200: openapi.response("Its tools, or the problem", tool_test)},
            (400,),
            msgspec.defstruct(
                "ToolServerTestRequestSchema", [("value", dict[str, Any]), ("name", str, "test")]
            ),
        ),
        f"POST {root}/web-search/test": OperationSpec(
            "Make a test search on a SearXNG server",
            {200: openapi.response("Whether it returned results as JSON, or the problem", search_test)},
            (400,),
            msgspec.defstruct("WebSearchTestRequestSchema", [("url", str)]),
        ),
        f"GET {root}/providers": OperationSpec("The providers and their keys", providers),
        f"PUT {provider_path}": OperationSpec(
            "Store a key, unless the provider refuses it",
            checked,
            (400, 404),
            msgspec.defstruct("ProviderKeySchema", [("key", str)]),
        ),
        f"DELETE {provider_path}": OperationSpec("Remove a stored key", providers, (400, 404)),
        f"POST {provider_path}/test": OperationSpec("Test the key in use", checked, (404,)),
    }
