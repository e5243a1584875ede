"""Conversion of a LiteLLM proxy's `config.yaml` to tables of `sixfold.toml`.

Each deployment of `model_list` becomes a target `SERVER/model`; those of one `model_name` become an alias.
All settings without an equivalent are listed with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, DecimalException
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from sixfold.core.gateway.policy import LOCAL_KINDS
from sixfold.providers import CHAT_PROVIDERS

MAX_DEPLOYMENTS = 1_000
# A value that refers to an environment variable.
_VARIABLE = re.compile(r"os\.environ/(.*)")
_COMPATIBLE = "openai"
# Kinds of servers by LiteLLM's prefix of a model name.
_KINDS = {
    **{name: name for name in CHAT_PROVIDERS},
    **{name: name for name in ("ollama", "llamacpp", "vllm")},
    "ollama_chat": "ollama",
    "lm_studio": "lmstudio",
    "hosted_vllm": "vllm",
    "together_ai": "together",
    "vertex_ai": "vertex",
    "bedrock_converse": "bedrock",
    "azure_ai": _COMPATIBLE,
    "azure_text": "azure",
    "custom_openai": _COMPATIBLE,
    "openai_like": _COMPATIBLE,
    "text-completion-openai": _COMPATIBLE,
    "litellm_proxy": _COMPATIBLE,
    "xinference": _COMPATIBLE,
    "llamafile": _COMPATIBLE,
}
# The provider of a model name without a prefix.
_FAMILIES = (
    (re.compile(r"(gpt|o\d|chatgpt|text-embedding|davinci|babbage|dall-e|whisper|tts)\b"), _COMPATIBLE),
    (re.compile(r"claude\b"), "anthropic"),
    (re.compile(r"gemini\b"), "gemini"),
    (re.compile(r"(mistral|codestral|ministral|magistral|pixtral)\b"), "mistral"),
)
# The path with which a server's URL must end.
_PATHS = {"azure": "/openai/v1", **dict.fromkeys((*LOCAL_KINDS, _COMPATIBLE), "/v1")}
_PRICES = {
    "input_cost_per_token": "input_per_million_usd",
    "output_cost_per_token": "output_per_million_usd",
    "cache_read_input_token_cost": "cached_input_per_million_usd",
}
# A price with a larger exponent would be written with as many digits.
_MAX_EXPONENT = 20
_WEIGHTS = ("weight", "rpm", "tpm")
_USED = frozenset(
    {"model", "api_base", "base_url", "api_key", "litellm_credential_name", "aws_region_name"}
    | {"vertex_project", "vertex_location", *_PRICES, *_WEIGHTS}
)
# Fields without an effect here: versions are not needed, and capabilities are detected.
_IGNORED_FIELDS = frozenset({"api_version", "custom_llm_provider", "drop_params", "stream_timeout"})
_NUMBERS = {"num_retries": "retries", "request_timeout": "timeout_seconds", "timeout": "timeout_seconds"}
_REASONS = {
    "master_key": "create keys with `sixfold key create`",
    "database_url": "accounts and keys are in Sixfold's own database",
    "cache": "set `cache = true` in [gateway] to cache equal requests",
    "environment_variables": "set these variables for the server: {names}",
    "include": "import the files that it names one by one",
    "context_window_fallbacks": "targets are tried in the order of the alias, whatever the error",
    "content_policy_fallbacks": "targets are tried in the order of the alias, whatever the error",
    "success_callback": "see docs/howto/telemetry.md",
    "callbacks": "see docs/howto/telemetry.md",
    "routing_strategy": "targets are drawn by weight",
}
_SLUG = re.compile(r"[^a-z0-9]+")


class UnreadableConfig(ValueError):
    """Raised if a document is not the configuration of a LiteLLM proxy; the message is the reason."""


class Omission(msgspec.Struct, frozen=True):
    """A setting that was not converted, and the reason."""

    setting: str
    reason: str


class ConvertedConfig(msgspec.Struct):
    """Tables for `sixfold.toml`, the variables that they read, and the rows that were not converted."""

    settings: dict[str, int | float] = {}
    servers: dict[str, dict[str, Any]] = {}
    aliases: dict[str, list[Any]] = {}
    prices: dict[str, dict[str, str]] = {}
    variables: list[str] = []
    omitted: list[Omission] = []
    # Servers of the existing file; a row is reused if it is equal.
    present: Mapping[str, Mapping[str, Any]] = {}

    def omit(self, setting: str, reason: str) -> None:
        """Record a setting that was not converted."""
        self.omitted.append(Omission(setting, reason))


class _Deployment(msgspec.Struct, frozen=True):
    target: str
    weight: float | None


def convert(document: Any, present: Mapping[str, Mapping[str, Any]]) -> ConvertedConfig:
    """Convert a parsed `config.yaml`, reusing servers of `sixfold.toml`; raises `UnreadableConfig`."""
    config = _table(document, "the file")
    models = _list(config.get("model_list"), "model_list")
    if not models:
        raise UnreadableConfig("model_list is missing or empty: specify the config.yaml of a LiteLLM proxy")
    if len(models) > MAX_DEPLOYMENTS:
        raise UnreadableConfig(
            f"model_list has {len(models):,} rows; at most {MAX_DEPLOYMENTS:,} can be imported"
        )
    converted = ConvertedConfig(present=present)
    credentials = _credentials(config)
    groups: dict[str, list[_Deployment]] = {}
    for index, item in enumerate(models):
        place = f"model_list[{index}]"
        row = _table(item, place)
        name = row.get("model_name")
        if not isinstance(name, str) or not name:
            raise UnreadableConfig(f"{place}.model_name is missing")
        if (deployment := _deployment(row, place, credentials, converted)) is not None:
            groups.setdefault(name, []).append(deployment)
    _add_aliases(config, groups, converted)
    _add_settings(config, converted)
    return converted


def _credentials(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    rows = _list(config.get("credential_list"), "credential_list")
    tables = [_table(row, f"credential_list[{index}]") for index, row in enumerate(rows)]
    return {
        str(row.get("credential_name")): _table(row.get("credential_values") or {}, "credential_values")
        for row in tables
    }


# -- deployments ---------------------------------------------------------------------------------


def _deployment(
    row: Mapping[str, Any],
    place: str,
    credentials: Mapping[str, Mapping[str, Any]],
    converted: ConvertedConfig,
) -> _Deployment | None:
    """Add the server and the price of a deployment; return its target, or None if it has no equivalent."""
    parameters = _table(row.get("litellm_params") or {}, f"{place}.litellm_params")
    info = _table(row.get("model_info") or {}, f"{place}.model_info")
    credential_name = parameters.get("litellm_credential_name")
    if credential_name is not None and credential_name not in credentials:
        converted.omit(place, f"credential_list has no {credential_name!r}")
        return None
    parameters = {**credentials.get(str(credential_name), {}), **parameters}
    model = parameters.get("model")
    if not isinstance(model, str) or not model:
        raise UnreadableConfig(f"{place}.litellm_params.model is missing")
    has_url = bool(parameters.get("api_base") or parameters.get("base_url"))
    kind, model = _kind(model, str(parameters.get("custom_llm_provider") or ""), has_url=has_url)
    if not kind:
        converted.omit(
            place,
            f"the provider of {model!r} is unknown here; if it has OpenAI's API, add a server with its URL",
        )
        return None
    server = _server(kind, parameters, place, converted)
    if server is None:
        return None
    ignored = sorted(parameters.keys() - _USED - _IGNORED_FIELDS)
    if ignored:
        converted.omit(f"{place}.litellm_params", f"set per request: {', '.join(ignored)}")
    if model == "*" or model.endswith("/*"):
        converted.omit(place, f"not needed: every model of {server} is available as {server}/MODEL")
        return None
    target = f"{server}/{model}"
    models = converted.servers.get(server, {}).get("models")
    if models is not None and model not in models:
        models.append(model)
    _add_price(target, {**parameters, **info}, place, converted)
    return _Deployment(target, _weight(parameters))


def _kind(model: str, provider: str, *, has_url: bool) -> tuple[str, str]:
    """Return the kind of server and the model's name on it; an empty kind if none fits."""
    prefix, slash, model_name = model.partition("/")
    if provider:
        return _KINDS.get(provider, ""), model_name if slash and prefix == provider else model
    if slash and prefix in _KINDS:
        kind = _KINDS[prefix]
        # The API in `bedrock/converse/MODEL` and `azure/responses/MODEL` is chosen automatically.
        return kind, model_name.removeprefix("converse/").removeprefix("responses/")
    for family, kind in _FAMILIES:
        if not slash and family.match(model):
            return kind, model
    return (_COMPATIBLE if has_url and not slash else ""), model


def _server(kind: str, parameters: Mapping[str, Any], place: str, converted: ConvertedConfig) -> str | None:
    """Return the name of a deployment's server; add a row if it differs from the default server."""
    url = _url(kind, parameters, place, converted)
    if url is None:
        return None
    row: dict[str, Any] = {"kind": kind}
    if url:
        row["base_url"] = url
    spec, key = CHAT_PROVIDERS.get(kind), parameters.get("api_key")
    if variable := _variable(key):
        if url or spec is None or variable != spec.variable:
            row["api_key_env"] = variable
        if variable not in converted.variables:
            converted.variables.append(variable)
    elif isinstance(key, str) and key and key.lower() not in ("none", "empty", "dummy", "anything"):
        row["api_key"] = key
    if row == {"kind": kind}:
        return kind
    names = {**converted.present, **converted.servers}
    for name, setting in names.items():
        if {**setting, "models": None} == {**row, "models": None}:
            return name
    name = _unused(_slug(kind, url), names)
    # Azure does not list deployments, so the models must be configured.
    converted.servers[name] = {**row, "models": []} if kind == "azure" else row
    return name


def _url(kind: str, parameters: Mapping[str, Any], place: str, converted: ConvertedConfig) -> str | None:
    """Return the base URL, an empty string for the default one, or None if it cannot be converted."""
    url = parameters.get("api_base") or parameters.get("base_url") or ""
    region, project = parameters.get("aws_region_name"), parameters.get("vertex_project")
    location = parameters.get("vertex_location") or "global"
    if variable := _variable(url):
        if kind == "azure":
            converted.omit(f"{place}.litellm_params.api_base", "set AZURE_OPENAI_ENDPOINT to its value")
            return ""
        converted.omit(place, f"the URL is in the variable {variable}: write it into the file")
        return None
    if kind == "bedrock" and isinstance(region, str) and not _variable(region):
        return f"https://bedrock-runtime.{region}.amazonaws.com"
    if kind == "vertex" and isinstance(project, str) and not _variable(project):
        host = "aiplatform" if location == "global" else f"{location}-aiplatform"
        return f"https://{host}.googleapis.com/v1/projects/{project}/locations/{location}/publishers/google"
    if not url:
        return ""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or not urlsplit(url).hostname:
        converted.omit(place, f"api_base {str(url)[:100]!r} is not an http or https URL")
        return None
    url = url.rstrip("/")
    path = _PATHS.get(kind, "")
    return url if not path or urlsplit(url).path else url + path


def _variable(value: Any) -> str:
    match = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else ""


def _slug(kind: str, url: str) -> str:
    host = urlsplit(url).hostname or ""
    host = host.removeprefix("bedrock-runtime.")
    label = host if host.replace(".", "").isdigit() else host.split(".")[0]
    return _SLUG.sub("-", f"{kind}-{label}" if label else kind).strip("-")


def _unused(name: str, names: Mapping[str, Any]) -> str:
    number, candidate = 1, name if name not in CHAT_PROVIDERS and name not in LOCAL_KINDS else f"{name}-1"
    while candidate in names:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _weight(parameters: Mapping[str, Any]) -> float | None:
    """Return the weight of a deployment in LiteLLM's random choice: the first of weight, rpm and tpm."""
    for name in _WEIGHTS:
        value = parameters.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _add_price(target: str, row: Mapping[str, Any], place: str, converted: ConvertedConfig) -> None:
    amounts: dict[str, str] = {}
    for name, ours in _PRICES.items():
        if (value := row.get(name)) is None:
            continue
        try:
            amount = (Decimal(str(value)) * 1_000_000).normalize()
        except DecimalException:
            amount = Decimal(-1)
        if not amount.is_finite() or amount < 0 or abs(amount.adjusted()) > _MAX_EXPONENT:
            converted.omit(f"{place}.{name}", f"{str(value)[:50]!r} is not an amount")
            continue
        amounts[ours] = f"{amount:f}"
    if "input_per_million_usd" in amounts:
        converted.prices[target] = amounts
    elif amounts:
        converted.omit(f"{place}.model_info", "a price must have input_cost_per_token")


# -- aliases and settings ------------------------------------------------------------------------


def _add_aliases(
    config: Mapping[str, Any], groups: Mapping[str, Sequence[_Deployment]], converted: ConvertedConfig
) -> None:
    fallbacks = _fallbacks(config, converted)
    for name, deployments in groups.items():
        fallback_rows = [other for group in fallbacks.get(name, ()) for other in groups.get(group, ())]
        converted.aliases[name] = _targets(deployments, fallback_rows)
        missing = [group for group in fallbacks.get(name, ()) if group not in groups]
        if missing:
            converted.omit(f"fallbacks of {name}", f"not in model_list: {', '.join(missing)}")
    renamed = _table(
        _table(config.get("router_settings") or {}, "router_settings").get("model_group_alias") or {},
        "model_group_alias",
    )
    for name, value in renamed.items():
        group = value.get("model") if isinstance(value, dict) else value
        if group in converted.aliases:
            converted.aliases[name] = converted.aliases[group]
        else:
            converted.omit(f"model_group_alias.{name}", f"{group!r} is not in model_list")


def _targets(deployments: Sequence[_Deployment], fallbacks: Sequence[_Deployment]) -> list[Any]:
    """Return the targets of an alias: deployments, chosen at random by weight, and then the fallbacks."""
    targets = list(dict.fromkeys(row.target for row in deployments))
    fallback_targets = [
        target for target in dict.fromkeys(row.target for row in fallbacks) if target not in targets
    ]
    if len(targets) == 1:
        return targets + fallback_targets
    weights = dict.fromkeys(targets, 0.0)
    for row in deployments:
        weights[row.target] += row.weight if row.weight is not None else 1
    rows: list[Any] = [{"target": target, "weight": _plain(weight)} for target, weight in weights.items()]
    return rows + [{"target": target, "weight": 0} for target in fallback_targets]


def _plain(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number


def _fallbacks(config: Mapping[str, Any], converted: ConvertedConfig) -> dict[str, list[str]]:
    fallbacks: dict[str, list[str]] = {}
    for section in ("litellm_settings", "router_settings"):
        settings = _table(config.get(section) or {}, section)
        for index, row in enumerate(_list(settings.get("fallbacks"), f"{section}.fallbacks")):
            for name, groups in _table(row, f"{section}.fallbacks[{index}]").items():
                fallbacks[name] = [str(group) for group in _list(groups, f"{section}.fallbacks[{index}]")]
        everywhere = settings.get("default_fallbacks")
        if everywhere:
            converted.omit(f"{section}.default_fallbacks", "add its targets to each alias that needs them")
    return fallbacks


def _add_settings(config: Mapping[str, Any], converted: ConvertedConfig) -> None:
    """Convert retries and timeouts, and list the other settings as omitted."""
    for section in ("litellm_settings", "router_settings", "general_settings"):
        for name, value in _table(config.get(section) or {}, section).items():
            ours = _NUMBERS.get(name)
            if ours and isinstance(value, int | float) and not isinstance(value, bool):
                converted.settings.setdefault(ours, min(max(value, 0), 10) if ours == "retries" else value)
            elif name not in ("fallbacks", "model_group_alias", "default_fallbacks", *_IGNORED_FIELDS):
                converted.omit(f"{section}.{name}", _REASONS.get(name, "there is no equivalent"))
    known_sections = {
        "model_list",
        "credential_list",
        "litellm_settings",
        "router_settings",
        "general_settings",
    }
    for name, value in config.items():
        if name not in known_sections:
            names = ", ".join(value) if isinstance(value, dict) else ""
            converted.omit(name, _REASONS.get(name, "there is no equivalent").format(names=names))


def _table(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableConfig(f"{place} must be a mapping")
    return {str(name): item for name, item in cast("dict[Any, Any]", value).items()}


def _list(value: Any, place: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableConfig(f"{place} must be a list")
    return cast("list[Any]", value)
