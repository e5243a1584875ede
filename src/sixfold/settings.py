"""Settings, read once: environment variables override the configuration file, which overrides defaults.

This is the only module that reads the environment. A field `queue_limit` is `SIXFOLD_QUEUE_LIMIT` in the
environment and `queue_limit` in `sixfold.toml`; `docs/reference/settings.md` lists all settings.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from sixfold import near_names, setting_values
from sixfold.providers import PROVIDERS
from sixfold.setting_values import InvalidSetting, redacted

MIB = 2**20
GIB = 2**30
# The longest validity of signed URLs that cloud providers allow.
MAX_LINK_SECONDS = 7 * 24 * 3600
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
APIS = ("media", "gateway", "imagekit", "memory", "hosting", "workflows")
_ORIGIN = re.compile(r"https?://[^/\s@?#]+/?")
_BASE = re.compile(r"https?://[^\s@?#{}]+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?")
_MAX_PROBE_HOSTS = 16
_DATABASE = re.compile(r"(sqlite:)?|postgres(ql)?://.+")
# Fields that are not set by their name.
NO_SETTINGS = frozenset({"tables", "process"})
TABLES = frozenset(
    ["prices", "gateway", "engines", "buckets", "deposits", "retention", "search", "mcp", "sign_in"]
)
# Settings that providers add: their keys, which may also be stored encrypted, and parameters of their URLs.
_PARAMETERS = {name: default for spec in PROVIDERS.values() for name, default in spec.parameters.items()}
PROVIDER_KEYS = (*(spec.key for spec in PROVIDERS.values()), "hf_token")
_ALIASES = {
    "otel_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    **{name: name.upper() for name in (*PROVIDER_KEYS, *_PARAMETERS)},
}
if TYPE_CHECKING:

    class _ProviderSettings:
        """The settings of the table of providers, which are read by name."""
else:
    _ProviderSettings = dataclasses.make_dataclass(
        "_ProviderSettings",
        [
            *((spec.key, "str", field(default="", repr=False)) for spec in PROVIDERS.values()),
            *((name, "str", field(default=default)) for name, default in _PARAMETERS.items()),
        ],
        frozen=True,
        kw_only=True,
        slots=True,
    )

# Settings that name a server, each with an example.
_ORIGINS: Mapping[str, str] = {
    "public_url": "https://example.com",
    "comfyui_url": "http://127.0.0.1:8188",
    "hub_url": "https://example.com",
    "stripe_url": "https://api.stripe.com",
    "otel_endpoint": "http://127.0.0.1:4318",
}
# Durations that must not be 0.
_DURATIONS = (
    "session_pause_seconds", "lease_seconds", "run_limit_seconds", "graph_limit_seconds",
    "training_limit_seconds", "queue_ttl", "fetch_seconds", "fetch_film_seconds", "blob_seconds",
    "gpu_wait_seconds",
)  # fmt: skip
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "port": (0, 65535),
    "comfyui_port": (0, 65535),
    "workers": (0, 1024),
    "processes": (1, 64),
    "max_attempts": (1, 100),
    "queue_limit": (1, math.inf),
    "batch_concurrency": (0, 1024),
    "free_queue_limit": (1, math.inf),
    "model_versions": (1, math.inf),
    "session_limit": (1, math.inf),
    "graph_nodes": (1, math.inf),
    "graph_free_runs": (1, math.inf),
    "graph_values": (1, math.inf),
    "document_seconds": (1, 600),
    **dict.fromkeys(_DURATIONS, (0.001, math.inf)),
}


@dataclass(frozen=True, slots=True)
class Settings(_ProviderSettings):
    """The immutable configuration of one server, passed on by `app.bootstrap`."""

    data_dir: Path = field(default_factory=lambda: Path(".sixfold"))
    database_url: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    port: int = 8600
    public_url: str = ""
    areas: tuple[str, ...] = APIS
    comfyui_port: int = 0
    config: Path | None = None
    log_level: str = "info"

    # Storage of results and uploads.
    blob_url: str = ""
    blob_seconds: float = 30
    blob_cache_bytes: int = 2 * GIB
    blob_link_seconds: int = 0

    # Execution of predictions.
    driver: Literal["process", "inline", "ray"] = "process"
    ray_address: str = "auto"
    container_socket: str = ""
    sandbox: Literal["", "always", "off"] = ""
    workers: int = max(1, os.cpu_count() or 1)
    processes: int = 1
    worker_memory_bytes: int = 4 * GIB
    machine_memory_bytes: int | None = None
    idle_seconds: float | None = None
    run_limit_seconds: float = 600
    graph_limit_seconds: float = 3600
    graph_memory_bytes: int = 4 * GIB
    graph_free_runs: int = 2
    training_limit_seconds: float = 7200
    session_limit: int = 20
    session_pause_seconds: float = 60
    lease_seconds: float = 30
    max_attempts: int = 3
    queue_limit: int = 1000
    free_queue_limit: int = 100
    model_versions: int = 5000
    queue_ttl: float = 24 * 3600
    drain_seconds: float = 30
    inline_seconds: float = 600
    previews: Literal["", "allow"] = ""
    comfyui_graphs: Literal["", "allow"] = ""

    # Limits of requests and files.
    json_body_bytes: int = MIB
    inline_body_bytes: int = 32 * MIB
    unauthenticated_body_bytes: int = 128 * MIB
    body_memory_bytes: int = 384 * MIB
    upload_body_bytes: int = 512 * MIB
    header_seconds: float = 10
    body_bytes_per_second: int = 1024
    send_seconds: float = 60
    send_memory_bytes: int = 128 * MIB
    response_memory_bytes: int = 96 * MIB
    connections_per_peer: int = 2048
    unfinished_requests: int = 4096
    unfinished_requests_per_peer: int = 256
    websockets: int = 4096
    websockets_per_account: int = 100
    event_streams: int = 4096
    event_streams_per_account: int = 100
    chat_streams_per_account: int = 0
    requests_per_second_per_account: float = 2000
    requests_per_second_per_peer: float = 200
    graph_nodes: int = 5_000
    graph_values: int = 100_000
    upload_quota_bytes: int = 10 * GIB
    upload_life_days: int = 30
    files_per_account: int = 10_000
    file_bytes_per_account: int = 10 * GIB
    vector_stores_per_account: int = 100
    vector_store_bytes_per_account: int = GIB
    batch_lines: int = 50_000
    batch_file_bytes: int = 200 * MIB
    batches_per_account: int = 100
    batch_concurrency: int = 8
    fetch_allow: str = ""
    fetch_image_bytes: int = 64 * MIB
    fetch_image_pixels: int = 40_000_000
    fetch_seconds: float = 30
    fetch_film_bytes: int = 2 * GIB
    fetch_film_minutes: float = 30
    fetch_film_seconds: float = 300
    open_image_service: bool = False
    upload_url: str = ""

    # Limits of the memory.
    memory_index_bytes: int = 512 * MIB
    memory_plans: Literal["", "enforced"] = ""
    memory_page_bytes: int = MIB
    memory_import_files: int = 200_000
    memory_import_bytes: int = 2 * GIB
    memory_account_pages: int = 250_000
    memory_account_bytes: int = 10 * GIB
    # The chat model of the memory, and what an account may spend on it.
    memory_model: str = ""
    memory_call_usd: float = 0.1
    memory_day_usd: float = 1
    document_bytes: int = 64 * MIB
    document_pages: int = 2_000
    document_chars: int = 8_000_000
    document_seconds: int = 60

    # Services that replace the embedded engines.
    hub_url: str = "https://huggingface.co"
    space_endpoint: str = ""
    space_image: str = ""
    space_base_image: str = "python:3.11-slim"
    space_network: bool = False
    comfyui_url: str = ""
    comfyui_urls: tuple[str, ...] = ()
    hf_token: str = field(default="", repr=False)

    # Hosts that are probed for model servers, besides this machine.
    probe_hosts: tuple[str, ...] = ()

    # Programs that share a GPU.
    gpu_groups: tuple[str, ...] = ()
    gpu_turn_seconds: float = 20
    gpu_wait_seconds: float = 1800

    # Payments.
    prices_own_hardware: Literal["", "list", "free"] = ""
    stripe_secret_key: str = field(default="", repr=False)
    stripe_webhook_secret: str = field(default="", repr=False)
    stripe_url: str = "https://api.stripe.com"

    # Single sign-on.
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = field(default="", repr=False)
    oidc_name: str = "single sign-on"
    oidc_signup: Literal["", "allow"] = ""

    # C2PA manifests, account deletion and telemetry.
    c2pa_certificate: Path | None = None
    c2pa_key: Path | None = None
    deletion_days: float = 7
    otel_endpoint: str = ""

    # Tests only.
    testing: bool = False
    failpoints: str = ""
    probe: bool = True

    # Number of this process among `processes`, set by `serve`; process 0 runs the predictions.
    process: int = 0
    # Tables of the configuration file, which may contain keys.
    tables: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_origins_and_keys()
        self._check_space_endpoint()
        self._check_issuer()
        self._check_probe_hosts()
        self._check_own_hardware()
        if not _DATABASE.fullmatch(self.database_url):
            raise InvalidSetting(
                "database_url must be postgresql://…, or sqlite: for a file in the data folder"
            )
        unknown = self.enabled_apis - set(APIS)
        if unknown:
            raise InvalidSetting(f"areas has an unknown entry {sorted(unknown)[0]!r}: use {', '.join(APIS)}")
        if not 0 <= self.blob_link_seconds <= MAX_LINK_SECONDS:
            raise InvalidSetting(
                f"blob_link_seconds must be from 0 to {MAX_LINK_SECONDS} (got {self.blob_link_seconds})"
            )
        if self.failpoints and not self.testing:
            raise InvalidSetting("SIXFOLD_FAILPOINTS is for tests and requires SIXFOLD_TESTING=1")

    def _check_origins_and_keys(self) -> None:
        for name, example in _ORIGINS.items():
            value = getattr(self, name)
            kind, pattern = ("a URL", _BASE) if name == "otel_endpoint" else ("an origin", _ORIGIN)
            if value != Settings.__dataclass_fields__[name].default and not pattern.fullmatch(value):
                raise InvalidSetting(f"{name} must be {kind} such as {example} (got {redacted(value)})")
        if len(self.comfyui_servers) > _MAX_PROBE_HOSTS:
            raise InvalidSetting(f"comfyui_urls must have at most {_MAX_PROBE_HOSTS} entries")
        for url in (redacted(url) for url in self.comfyui_urls if not _ORIGIN.fullmatch(url)):
            raise InvalidSetting(f"comfyui_urls must be origins such as http://gpu-box:8188 (got {url})")
        for name in PROVIDER_KEYS:
            if not all("!" <= character <= "~" for character in getattr(self, name)):
                raise InvalidSetting(f"{name} must not contain spaces or non-ASCII characters")

    @property
    def comfyui_servers(self) -> tuple[str, ...]:
        """The URLs of the configured ComfyUI servers, without duplicates."""
        urls = (self.comfyui_url, *self.comfyui_urls)
        return tuple(dict.fromkeys(url.rstrip("/") for url in urls if url))

    def _check_probe_hosts(self) -> None:
        if len(self.probe_hosts) > _MAX_PROBE_HOSTS:
            raise InvalidSetting(
                f"probe_hosts must have at most {_MAX_PROBE_HOSTS} entries (got {len(self.probe_hosts)})"
            )
        for host in self.probe_hosts:
            if len(host) > 253 or not (_HOST.fullmatch(host) or setting_values.is_ipv6(host)):
                raise InvalidSetting(
                    f"probe_hosts must be host names or addresses such as gpu-box or 10.0.0.5, without a "
                    f"scheme or a port (got {host[:100]!r}): for another port, use [gateway.upstreams]"
                )

    def _check_issuer(self) -> None:
        if not self.oidc_issuer:
            return
        # The value is not shown, because an invalid URL may contain a password.
        if not _BASE.fullmatch(self.oidc_issuer):
            raise InvalidSetting("oidc_issuer must be a URL such as https://accounts.example.com")
        plain = not self.oidc_issuer.startswith("https://")
        if plain and urlsplit(self.oidc_issuer).hostname not in LOOPBACK_HOSTS:
            raise InvalidSetting(
                f"oidc_issuer must use https unless it is on this machine (got {self.oidc_issuer!r})"
            )
        if not self.oidc_client_id or not self.oidc_name:
            raise InvalidSetting("oidc_issuer requires oidc_client_id (from the provider) and oidc_name")

    def _check_own_hardware(self) -> None:
        table = self.tables.get("prices", {})
        if not isinstance(table, dict):
            raise InvalidSetting("[prices] must be a table")
        own_hardware = cast("dict[str, Any]", table).get("own_hardware", "list")
        if own_hardware not in ("list", "free"):
            raise InvalidSetting(f'[prices] own_hardware must be "list" or "free" (got {own_hardware!r})')

    def _check_space_endpoint(self) -> None:
        plain = self.space_endpoint.replace("{owner}", "1").replace("{name}", "1")
        # The value is not shown, because an invalid URL may contain a password.
        if plain and not (_BASE.fullmatch(plain) and setting_values.has_valid_port(plain)):
            raise InvalidSetting(
                "space_endpoint must be a URL such as http://127.0.0.1:7860 and may contain "
                "the placeholders {owner} and {name}"
            )

    def _check_numbers(self) -> None:
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if not isinstance(value, int | float):
                continue
            low, high = _BOUNDS.get(spec.name, (0, math.inf))
            if not (low <= value <= high) or math.isinf(value):
                bound = f"at least {low:g}" if high == math.inf else f"{low:g} to {high:g}"
                raise InvalidSetting(f"{spec.name} must be {bound} (got {value:g})")

    @property
    def enabled_apis(self) -> frozenset[str]:
        """The names of the enabled APIs, from `SIXFOLD_AREAS`."""
        return frozenset(self.areas)

    @property
    def config_file(self) -> Path:
        """The path of the configuration file, which may not exist."""
        return self.config or self.data_dir / "sixfold.toml"

    @property
    def on_postgres(self) -> bool:
        """Whether the database is PostgreSQL, which several servers may share."""
        return self.database_url.startswith("postgres")

    @property
    def is_shared(self) -> bool:
        """Whether other servers or processes use the database at the same time."""
        return self.on_postgres or self.processes > 1

    @property
    def scratch_dir(self) -> Path:
        """The folder of this process's temporary files, which its start deletes."""
        return self.data_dir / (f"scratch-{self.process}" if self.process else "scratch")

    @property
    def on_loopback(self) -> bool:
        """Whether the server listens on the loopback interface only."""
        return self.host in LOOPBACK_HOSTS

    @property
    def base_url(self) -> str:
        """The origin of absolute URLs in responses, without a trailing slash."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def own_hardware_free(self) -> bool:
        """Whether this installation's own engines and model servers are free of charge."""
        from_file = self.tables.get("prices", {}).get("own_hardware", "list")
        return (self.prices_own_hardware or from_file) == "free"

    @property
    def graphs_go_to_comfyui(self) -> bool:
        """Whether a workflow may run entirely on ComfyUI, where its nodes are not restricted."""
        return self.comfyui_graphs == "allow" or (self.on_loopback and not self.public_url)

    @property
    def previews_allowed(self) -> bool:
        """Whether engines of quality `preview` may be used: on loopback, or if the operator allows it."""
        return self.previews == "allow" or (self.on_loopback and not self.public_url)

    def replace(self, **changes: Any) -> Settings:
        """Return a copy with changed fields."""
        return dataclasses.replace(self, **changes)


def load(environ: Mapping[str, str] | None = None, *, with_keys: bool = True, **overrides: Any) -> Settings:
    """Load settings from the environment (default: the process's), the configuration file, and `overrides`.

    Raises `InvalidSetting` for the first invalid value; without `with_keys`, not for a missing `api_key_env`.
    """
    env = os.environ if environ is None else environ
    fields = dataclasses.fields(Settings)
    types = {spec.name: str(spec.type) for spec in fields if spec.name not in NO_SETTINGS}
    explicit = {name: value for name, value in overrides.items() if value is not None}
    values = {**_from_environment(env, types), **explicit}
    data_dir = Path(values.get("data_dir") or ".sixfold").expanduser().absolute()
    document = _read_config(values.get("config"), data_dir)
    tables = {name: document.pop(name) for name in TABLES if name in document}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InvalidSetting(f"[{name}] must be a table (got {table!r})")
    find_keys(tables.get("gateway"), env, required=with_keys)
    _find_keys("mcp", tables.get("mcp"), env, required=with_keys)
    remaining = {name: value for name, value in document.items() if name not in values}
    values |= _from_document(remaining, types)
    return Settings(**{**values, "data_dir": data_dir, "tables": tables})


def _from_environment(env: Mapping[str, str], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with non-empty variables; some have a second, well-known name."""
    values: dict[str, Any] = {}
    for name, kind in types.items():
        text = env.get(f"SIXFOLD_{name.upper()}") or env.get(_ALIASES.get(name, ""), "")
        if text:
            values[name] = _parse(name, kind, text)
    return values


def _from_document(document: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the configuration file outside of its tables."""
    for name, value in document.items():
        if name not in types:
            advice = near_names.advice(name, sorted(TABLES if isinstance(value, dict) else types))
            raise InvalidSetting(f"sixfold.toml has an unknown setting {name!r}{advice and f': {advice}'}")
    return {name: _parse(name, types[name], value) for name, value in document.items()}


def find_keys(gateway: Any, environ: Mapping[str, str] | None = None, *, required: bool = True) -> None:
    """Set `api_key` of each upstream from the variable of `api_key_env`; raises `InvalidSetting`."""
    upstreams = gateway.get("upstreams") if isinstance(gateway, dict) else None
    _find_keys("gateway.upstreams", upstreams, os.environ if environ is None else environ, required=required)


def _find_keys(label: str, rows: Any, env: Mapping[str, str], *, required: bool) -> None:
    for name, row in rows.items() if isinstance(rows, dict) else ():
        variable = row.get("api_key_env") if isinstance(row, dict) else None
        if variable and not row.get("api_key"):
            row["api_key"] = env.get(str(variable), "")
            if required and not row["api_key"]:
                raise InvalidSetting(f"[{label}.{name}] api_key_env: the variable {variable} is not set")


def api_key(environ: Mapping[str, str] | None = None) -> str | None:
    """Return `SIXFOLD_API_KEY`, the key of the CLI as a client, or None."""
    return (os.environ if environ is None else environ).get("SIXFOLD_API_KEY") or None


def plain_terminal() -> bool:
    """Return whether output must not be colored: `NO_COLOR` is set, or the terminal is dumb."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def worker_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a worker process may see: no keys, secrets or settings."""
    env = os.environ if environ is None else environ
    allowed = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
    return {name: env[name] for name in allowed if name in env}


def environment_with(values: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **values}


def _read_config(path: Any, data_dir: Path) -> dict[str, Any]:
    file = Path(path) if path else data_dir / "sixfold.toml"
    if not file.exists():
        if path:
            raise InvalidSetting(f"configuration file {file} not found")
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{file} is not valid TOML: {error}") from None


def _parse(name: str, kind: str, value: Any) -> Any:
    try:
        return setting_values.convert(kind, value)
    except (ValueError, TypeError):
        raise InvalidSetting(
            f"SIXFOLD_{name.upper()} must be {setting_values.noun(kind)} (got {value!r})"
        ) from None
