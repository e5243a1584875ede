"""Model servers: configured ones, those discovered on known ports, and providers with an API key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from sixfold.clients import local_servers
from sixfold.clients.chat import listing, server_protocols
from sixfold.clients.chat.credentials import credentials_of
from sixfold.clients.chat.ollama import OllamaListing
from sixfold.clients.chat.provider_listings import LISTINGS
from sixfold.clients.chat.transport import Transport
from sixfold.clients.hosts import CONTAINER_HOST, LOOPBACK, ProbeHosts
from sixfold.clients.local_servers import LocalServer
from sixfold.core.gateway import hosted_models
from sixfold.core.gateway.capabilities import LATEST, ServedModel, guess_model
from sixfold.core.gateway.policy import LOCAL_KINDS, UpstreamRow
from sixfold.core.gateway.ports import (
    Upstream,
    UpstreamFailure,
    UpstreamStream,
    WireProtocol,
)
from sixfold.core.gpu.arbiter import GpuAccess
from sixfold.core.reachability import Outage, Reachability, ServerState
from sixfold.providers import CHAT_PROVIDERS, ProviderSpec

# The kind of servers with OpenAI's API at another base URL.
_COMPATIBLE = "openai"
# Protocols for which the caller's headers are forwarded.
_FORWARDED_HEADERS = frozenset({"messages", "edits", "transcriptions", "translations"})
# Default base URLs by kind of server.
_BASES = {
    **{spec.name: spec.base_url_with({}) for spec in CHAT_PROVIDERS.values()},
    **{server.kind: f"{server.url}/v1" for server in local_servers.CHAT},
    # The port in the documentation of TEI; its container uses another one.
    "tei": f"http://{LOOPBACK}:8080",
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_LIST_SECONDS, _KEY_SECONDS = 10.0, 1.0
# Timeout for a response from a known port; a closed port refuses the connection at once.
PROBE_SECONDS = 3.0
_SLOW_REASON = "did not respond in time"
# Maximum size of a response to a probe; llama.cpp's properties include a chat template.
_PROBE_BYTES = 2**20


class ModelServer:
    """A model server. `key` is called for each request, as an operator may set the key at any time."""

    def __init__(
        self,
        row: UpstreamRow,
        transport: Transport,
        key: Callable[[], str],
        *,
        bases: Mapping[str, str] = _BASES,
        discovered: bool = False,
    ) -> None:
        self.name, self.kind = row.name, row.kind
        self.base_url = _with_path(row, bases.get(row.kind, "")) if row.base_url else bases[row.kind]
        self._spec = CHAT_PROVIDERS.get(row.kind, CHAT_PROVIDERS[_COMPATIBLE])
        self._row, self._transport, self._key = row, transport, key
        self._list = _listing_of(row.kind, self._spec)
        self.price_table = self._spec.price_table
        self._listed: tuple[str, ...] = ()
        self._models: tuple[ServedModel, ...] = ()
        self._by_name: dict[str, ServedModel] = {}
        self.available = True
        # A discovered server whose port is closed is no longer used at once.
        self.reachability = Reachability(1 if discovered else 2)
        self.in_flight = 0
        self.gpu: GpuAccess | None = None
        self.discovered = discovered
        # Whether the server may accept calls without a key.
        self._needs_no_key = bool(row.base_url) or row.kind in LOCAL_KINDS
        self._cached_headers: tuple[str | None, dict[str, str]] = (None, {})
        host = urlsplit(self.base_url).hostname or ""
        self.local = row.local or row.kind in LOCAL_KINDS or (host in _LOOPBACK and not key())
        self.in_local_network = self.local or local_servers.is_in_local_network(host)
        own_service = row.kind != _COMPATIBLE or self.base_url == bases[_COMPATIBLE]
        self.reads_documents = self._spec.documents and own_service and not self.in_local_network
        # Only a server of the kind `openai` may belong to someone other than the provider.
        is_provider = row.kind in CHAT_PROVIDERS and own_service
        self._credentials = credentials_of(self._spec, transport)
        self._main_wire, self._own = server_protocols.of(row, self._spec, is_provider=is_provider)
        self._set_models(())

    @property
    def ready(self) -> bool:
        """Whether the last probe found the server, and the key is set if it needs one."""
        return bool(self.base_url) and self.available and (self._needs_no_key or bool(self._key()))

    @property
    def outage(self) -> Outage | None:
        """Since when the server does not respond; None for a known port where no server was found."""
        is_known = self.reachability.was_ready if self.discovered else self.ready
        return self.reachability.outage if is_known else None

    def wire(self, protocol: str) -> WireProtocol:
        """Return the caller's protocol if the server supports it, or else the server's main protocol."""
        return self._own.get(protocol, self._main_wire)

    def serves(self, model: str) -> bool:
        """Return whether the server may serve a model; any name is tried unless the models are configured."""
        return model in self._row.models if self._row.models else bool(model) and model.isprintable()

    def models(self) -> tuple[str, ...]:
        return self._listed

    def listing(self) -> tuple[ServedModel, ...]:
        return self._models

    def describe(self, model: str) -> ServedModel:
        return (
            self._by_name.get(model)
            or self._by_name.get(model + LATEST)
            or self._completed(guess_model(model))
        )

    async def refresh(self) -> None:
        """Fetch the list of models; if the server does not respond, the previous list remains.

        If the configuration names the models, only a local server is queried for their capabilities, and the
        list of any other one shows only that it responds.
        """
        if not self.ready:
            return
        try:
            models = await asyncio.wait_for(self._list(self.queries()), _LIST_SECONDS)
        except (UpstreamFailure, TimeoutError) as failure:
            # Whether a discovered server responds is known from its probe.
            if not self.discovered:
                self.record_failure(failure)
            return
        self.reachability.record_response()
        is_complete = bool(self._row.models) and self._row.kind not in LOCAL_KINDS
        if models is not None and not is_complete:
            self._set_models(models)

    def record_failure(self, failure: Exception) -> None:
        """Record a failed probe; a server with calls in progress may not have time for it."""
        is_slow = isinstance(failure, TimeoutError)
        self.reachability.record_failure(
            str(failure) or _SLOW_REASON, is_slow=is_slow, is_busy=self.in_flight > 0
        )

    async def probe(self, seconds: float) -> tuple[tuple[str, ...], str]:
        """Return the models that the server lists now, and the reason in one sentence if there are none."""
        if not self.ready:
            return (), "A server of this kind needs a key"
        try:
            models = await asyncio.wait_for(self._list(self.queries()), seconds)
        except (UpstreamFailure, TimeoutError) as failure:
            return (), f"The model server {str(failure) or f'did not respond within {seconds:g} s'}"
        if models is None:
            return (
                (),
                "The server does not return a list of models: check the kind, the address and the key",
            )
        return tuple(model.name for model in models), ""

    def queries(self) -> listing.ModelQueries:
        """Return an object for requests to the server's native API."""
        return listing.ModelQueries(self._transport, self.base_url, self._authorize)

    def _set_models(self, models: tuple[ServedModel, ...]) -> None:
        served = listing.configured(self._row.models, models) if self._row.models else models
        self._models = tuple(self._completed(model) for model in served)
        self._by_name = {model.name: model for model in self._models}
        self._listed = tuple(self._by_name)

    def _completed(self, model: ServedModel) -> ServedModel:
        """Return a model completed with the operator's context.

        Hosted models are completed from the bundled table; names on local servers are ambiguous.
        """
        known = model if self.local else hosted_models.completed(model, self.price_table)
        is_stated = known.context or not known.chat
        return known if is_stated else msgspec.structs.replace(known, context=self._row.context)

    def open(
        self, wire: WireProtocol, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        if self._credentials is not None:
            return self._open_authorized(self.base_url + path, body, stream=stream)
        own_headers = self._headers()
        if wire.name in _FORWARDED_HEADERS:
            own_headers = {**own_headers, **headers}
        opening = self._transport.post(self.base_url + path, own_headers, body, stream=stream)
        return self._counted(opening) if self.local else opening

    async def _counted(self, opening: Coroutine[Any, Any, UpstreamStream]) -> UpstreamStream:
        self.in_flight += 1
        try:
            return _CountedStream(await opening, self)
        except BaseException:
            self.in_flight -= 1
            raise

    async def delete(self, path: str) -> int:
        url = self.base_url + path
        response = await self._transport.delete(url, await self._authorize("DELETE", url, b""))
        await response.aclose()
        return response.status

    async def _open_authorized(self, url: str, body: bytes, *, stream: bool) -> UpstreamStream:
        headers = await self._authorize("POST", url, body)
        opening = self._transport.post(url, headers, body, stream=stream)
        # The transport has the body, which is not kept while the response is awaited.
        del body
        return await opening

    async def _authorize(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        if self._credentials is None:
            return self._headers()
        headers = await self._credentials.headers(self._key(), method, url, body)
        return {"Content-Type": "application/json", **headers}

    def _headers(self) -> dict[str, str]:
        key = self._key()
        if self._cached_headers[0] == key:
            return self._cached_headers[1]
        headers = {"Content-Type": "application/json", **self._spec.key_headers(key)}
        self._cached_headers = (key, headers)
        return headers


class _CountedStream:
    """A response that counts as a call in progress until it is closed."""

    def __init__(self, response: UpstreamStream, server: ModelServer) -> None:
        self._response = response
        self._server: ModelServer | None = server
        self.status = response.status
        self.retry_after = response.retry_after
        self.read = response.read

    async def aclose(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.in_flight -= 1
        await self._response.aclose()


def _listing_of(kind: str, spec: ProviderSpec) -> listing.Listing:
    if kind == "ollama":
        return OllamaListing()
    return LISTINGS.get(kind) or listing.listing_of(kind, spec.price_unit)


def _with_path(row: UpstreamRow, base: str) -> str:
    """Return the URL of a row, with `/v1` appended to an origin, which Anthropic's clients accept."""
    is_origin = row.kind != _COMPATIBLE and not urlsplit(row.base_url).path
    return f"{row.base_url}/v1" if is_origin and urlsplit(base).path == "/v1" else row.base_url


def _base_urls(parameter: Callable[[str], str]) -> Mapping[str, str]:
    """Return the addresses of all kinds, by the values of the settings that they contain."""
    return _BASES | {
        spec.name: spec.base_url_with({name: parameter(name) for name in spec.parameters})
        for spec in CHAT_PROVIDERS.values()
        if spec.parameters
    }


def _address(url: str) -> tuple[str, int | None, str]:
    """Return host, port and path, by which URLs of the same server compare equal."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return LOOPBACK if host in _LOOPBACK else host, port, parts.path.rstrip("/")


class EmbeddedServer(Upstream, Protocol):
    """A model server that runs inside this server, such as that for model files."""

    async def aclose(self) -> None:
        """Stop the processes of loaded models."""
        ...


class ServerStatus(msgspec.Struct, frozen=True):
    """The result of the last probe of a model server.

    `slow`: it did not respond in time, as when it loads a model. `absent`: no server responds at `url`, or a
    provider's key is missing. `outage`: since when a server that is configured or was found does not respond.
    `url` is without `/v1`, and empty for models that this server runs itself. `discovered`: found on a known
    port of `host` instead of configured. `listing` contains the models with their capabilities and whether
    they are loaded.
    """

    name: str
    url: str
    state: ServerState
    models: tuple[str, ...]
    kind: str = ""
    title: str = ""
    host: str = ""
    discovered: bool = False
    listing: tuple[ServedModel, ...] = ()
    outage: Outage | None = None


class _Probe:
    """Probes one host for one kind of server."""

    def __init__(self, kind: LocalServer, host: str, transport: Transport) -> None:
        self.kind = kind
        self.host = host
        name = kind.kind if host == LOOPBACK else f"{kind.kind}@{host}"
        self.url = kind.url_on(host)
        row = UpstreamRow(name, kind.kind, f"{self.url}/v1")
        self.server = ModelServer(row, transport, str, discovered=True)
        self.server.available = False
        self._transport = transport

    async def probe(self, hosts: ProbeHosts, seconds: float) -> None:
        """Check whether the server responds; after a timeout it counts as found for two minutes."""
        try:
            async with asyncio.timeout(seconds):
                responds = await hosts.resolves(self.host) and await self._responds()
        except TimeoutError as timeout:
            self.server.record_failure(timeout)
        else:
            if responds:
                self.server.reachability.record_response()
            else:
                self.server.record_failure(UpstreamFailure("could not be reached"))
        self.server.available = self.server.reachability.outage is None

    async def _responds(self) -> bool:
        try:
            answer = await self._transport.get(self.url + self.kind.path, {})
            body = await listing.read_limited(answer, _PROBE_BYTES)
        except UpstreamFailure:
            return False
        return answer.status == 200 and self.kind.matches(body)


class ModelServers:
    """All model servers: configured, built in, providers, and discovered.

    `setting` returns the key of a provider, or a parameter of its URL, by the name of the setting.
    """

    def __init__(
        self,
        rows: Iterable[UpstreamRow],
        transport: Transport,
        setting: Callable[[str], str],
        *,
        hosts: ProbeHosts,
        own_ports: frozenset[int] = frozenset(),
        own: Sequence[EmbeddedServer] = (),
    ) -> None:
        self._transport = transport
        self.probe_seconds = PROBE_SECONDS
        self._own = own
        self._hosts = hosts
        configured, bases = tuple(rows), _base_urls(setting)

        def opened(row: UpstreamRow) -> ModelServer:
            return ModelServer(row, transport, _key_source(row, setting, bases), bases=bases)

        configured_servers = [opened(row) for row in configured]
        names = self._configured = frozenset(row.name for row in configured)
        addresses = {_address(server.base_url) for server in configured_servers}
        self._servers: list[Upstream] = [*configured_servers, *own]
        for kind in CHAT_PROVIDERS:
            if bases[kind] and kind not in names and _address(bases[kind]) not in addresses:
                self._servers.append(opened(UpstreamRow(kind, kind)))
        candidates = [_Probe(kind, host, transport) for host in hosts.names for kind in local_servers.CHAT]
        self._probes = [
            probe
            for probe in candidates
            if probe.server.name not in names
            and _address(probe.server.base_url) not in addresses
            and not (probe.host == LOOPBACK and probe.kind.port in own_ports)
        ]
        self._all = (*self._servers, *(probe.server for probe in self._probes))
        self.refreshed = asyncio.Event()

    def __call__(self) -> tuple[Upstream, ...]:
        """Return every server, including those that are absent."""
        return self._all

    async def refresh_own(self) -> None:
        """Probe the known ports, and fetch the models of configured servers and of the local network."""
        await self._refresh(
            [server for server in self._servers if server.in_local_network or server.name in self._configured]
        )

    async def refresh(self) -> None:
        """Probe the known ports, and fetch the models of all servers."""
        await self._refresh(self._servers)
        self.refreshed.set()

    async def _refresh(self, servers: Iterable[Upstream]) -> None:
        await asyncio.gather(
            *(server.refresh() for server in servers), *(self._probe(probe) for probe in self._probes)
        )
        self._drop_duplicates()

    async def _probe(self, probe: _Probe) -> None:
        await probe.probe(self._hosts, self.probe_seconds)
        await probe.server.refresh()

    def _drop_duplicates(self) -> None:
        """Leave out servers that are found on this machine and again under the container host's name.

        Docker Desktop resolves that name to this machine too, so the same server responds at both addresses.
        """
        local_servers_by_kind = {
            probe.kind.kind: probe.server for probe in self._probes if probe.host == LOOPBACK
        }
        for probe in self._probes:
            local_server = local_servers_by_kind.get(probe.kind.kind)
            if probe.host == CONTAINER_HOST and local_server is not None and local_server.available:
                probe.server.available &= local_server.models() != probe.server.models()

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Return the status of every server as of the last probe."""
        titles = {kind.kind: kind.title for kind in local_servers.CHAT}
        return tuple(_status(server, titles) for server in self._all)

    async def aclose(self) -> None:
        """Close the connections and stop local models."""
        await asyncio.gather(*(server.aclose() for server in self._own))
        await self._transport.aclose()


def _status(server: Upstream, titles: Mapping[str, str]) -> ServerStatus:
    is_client = isinstance(server, ModelServer)
    url = server.base_url.removesuffix("/v1") if is_client else ""
    kind = server.kind if is_client else "gguf"
    # A known port whose server responds too slowly was not found yet, but is not free.
    state: ServerState = server.reachability.state if is_client else "ready"
    return ServerStatus(
        server.name,
        url,
        "absent" if state == "ready" and not server.ready else state,
        server.models() if server.ready else (),
        kind=kind,
        title=titles.get(kind, server.name),
        host=urlsplit(url).hostname or "",
        discovered=server.discovered,
        listing=server.listing() if server.ready else (),
        outage=server.outage,
    )


def _key_source(row: UpstreamRow, key: Callable[[str], str], bases: Mapping[str, str]) -> Callable[[], str]:
    """Return a function that returns a server's key: that of its row, or the stored key of the provider."""
    if row.api_key:
        return lambda: row.api_key
    spec = CHAT_PROVIDERS.get(row.kind)
    # The URL of a provider with parameters is specific to the operator's account.
    if spec is None or (row.base_url and row.base_url != bases[row.kind] and not spec.parameters):
        return str
    return _CachedKey(lambda: key(spec.key))


class _CachedKey:
    """A key that is read from disk again after a second."""

    def __init__(self, read_key: Callable[[], str]) -> None:
        self._read_key = read_key
        self._value = ""
        self._expires_at = 0.0

    def __call__(self) -> str:
        current_time = time.monotonic()
        if current_time >= self._expires_at:
            self._value, self._expires_at = self._read_key(), current_time + _KEY_SECONDS
        return self._value
