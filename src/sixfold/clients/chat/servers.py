"""The model servers: configured, found on this machine, and providers whose key is there."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from sixfold.clients import local_servers
from sixfold.clients.chat import listing
from sixfold.clients.chat.completions import Completions
from sixfold.clients.chat.media_protocols import MAKING
from sixfold.clients.chat.messages import Messages
from sixfold.clients.chat.responses import ResponsesProtocol
from sixfold.clients.chat.transport import Transport
from sixfold.clients.hosts import CONTAINER_HOST, LOOPBACK, ProbeHosts
from sixfold.clients.local_servers import LocalServer
from sixfold.core.gateway.capabilities import ServedModel
from sixfold.core.gateway.policy import LOCAL_KINDS, UpstreamRow
from sixfold.core.gateway.ports import Upstream, UpstreamFailure, UpstreamStream, WireProtocol

_WIRES: Mapping[str, WireProtocol] = {
    "chat": Completions(),
    "messages": Messages(),
    "responses": ResponsesProtocol(),
    **{wire.name: wire for wire in MAKING},
}
_OPENAIS = Completions("max_completion_tokens")  # whose thinking models refuse the older name
_HEADED = frozenset({"messages", "edits", "transcriptions"})  # protocols whose callers' headers go on
_BASES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    **{server.kind: f"{server.url}/v1" for server in local_servers.CHAT},
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_NEAR = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
_VERSION = "2023-06-01"
_LIST_SECONDS, _KEY_SECONDS = 10.0, 1.0
PROBE_SECONDS = 3.0  # for an answer from a known port; a port where nothing listens is refused at once
_BUSY_SECONDS = 120.0  # for which a server that was there and answers nothing counts as busy
_PROBE_BYTES = 2**20  # llama.cpp's properties hold a chat template


class ModelServer:
    """One model server. `key` is asked for each time: an operator may set it while the server runs."""

    def __init__(
        self, row: UpstreamRow, transport: Transport, key: Callable[[], str], *, discovered: bool = False
    ) -> None:
        self.name = row.name
        self.kind = row.kind
        self.base_url = row.base_url or _BASES[row.kind]
        self._row = row
        self._transport = transport
        self._key = key
        self._list = listing.listing_of(row.kind)
        self._listed: tuple[str, ...] = ()
        self._models: tuple[ServedModel, ...] = ()
        self._take(())
        self.there = True
        self.discovered = discovered
        self._open = bool(row.base_url) or row.kind in LOCAL_KINDS  # it may want no key
        self._headed: tuple[str | None, dict[str, str]] = (None, {})
        own = urlsplit(self.base_url).hostname in _LOOPBACK
        self.local = row.local or row.kind in LOCAL_KINDS or (own and not key())
        self.in_local_network = self.local or _stands_near(urlsplit(self.base_url).hostname or "")
        speaks = self.base_url == _BASES["openai"] if row.responses is None else row.responses
        self._own = {"messages"} if row.kind == "anthropic" else _WIRES.keys() - {"messages"}
        if not speaks:
            self._own -= {"responses"}
        self._main = _WIRES["messages"] if row.kind == "anthropic" else _OPENAIS if speaks else _WIRES["chat"]

    @property
    def ready(self) -> bool:
        """Whether it was there when it was last looked for, and a provider's key is set."""
        return self.there and (self._open or bool(self._key()))

    def wire(self, protocol: str) -> WireProtocol:
        """The caller's own protocol where it speaks that."""
        return _WIRES[protocol] if protocol in self._own else self._main

    def serves(self, model: str) -> bool:
        """Whether it has a model; one without a list is simply asked, for what a header can tell."""
        return model in self._row.models if self._row.models else bool(model) and model.isprintable()

    def models(self) -> tuple[str, ...]:
        """What it has."""
        return self._listed

    def listing(self) -> tuple[ServedModel, ...]:
        """What it has, with what each model can do."""
        return self._models

    async def refresh(self) -> None:
        """Ask what it has; without an answer the last one stands.

        Where the configuration names its models, it is asked only if it could say what they can do.
        """
        if not self.ready or (self._row.models and self._row.kind not in LOCAL_KINDS):
            return
        queries = listing.ModelQueries(self._transport, self.base_url, self._headers())
        with contextlib.suppress(UpstreamFailure, TimeoutError):
            async with asyncio.timeout(_LIST_SECONDS):
                found = await self._list(queries)
            if found is not None:
                self._take(found)

    def _take(self, found: tuple[ServedModel, ...]) -> None:
        self._models = listing.configured(self._row.models, found) if self._row.models else found
        self._listed = tuple(model.name for model in self._models)

    def open(
        self, wire: WireProtocol, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]:
        """POST a body; raises `UpstreamFailure`."""
        ours = self._headers()
        if wire.name in _HEADED:
            ours = {**ours, **headers}
        return self._transport.post(self.base_url + path, ours, body, stream=stream)

    def _headers(self) -> dict[str, str]:
        key = self._key()
        if self._headed[0] == key:
            return self._headed[1]
        headers = {"Content-Type": "application/json"}
        if self._row.kind == "anthropic":
            headers["anthropic-version"] = _VERSION
            if key:
                headers["x-api-key"] = key
        elif key:
            headers["Authorization"] = f"Bearer {key}"
        self._headed = (key, headers)
        return headers


def _address(url: str) -> tuple[str, int | None, str]:
    """Return what two URLs of the same server have in common: host, port and path."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return LOOPBACK if host in _LOOPBACK else host, port, parts.path.rstrip("/")


def _stands_near(host: str) -> bool:
    """Whether a host is of this machine or its network, by its name or its address."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_NEAR)


class OwnAddresses(Upstream, Protocol):
    """A model server that is part of this one, as models of files are."""

    async def aclose(self) -> None:
        """Let go of what it has loaded."""
        ...


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What the last look at one model server found.

    `slow`: it did not answer in time, which is what a server that loads a model does too. `absent`: nothing
    that is such a server answers at `url`, or a provider's key is missing. `url` is without `/v1`, and empty
    for models that run in this program. `discovered`: it was looked for on a known port of `host`, rather
    than configured. `listing` has the same models with what each can do and which are loaded.
    """

    name: str
    url: str
    state: Literal["ready", "slow", "absent"]
    models: tuple[str, ...]
    kind: str = ""
    title: str = ""
    host: str = ""
    discovered: bool = False
    listing: tuple[ServedModel, ...] = ()


class _Probe:
    """Looks for one kind of server on one host."""

    def __init__(self, kind: LocalServer, host: str, transport: Transport) -> None:
        self.kind = kind
        self.host = host
        name = kind.kind if host == LOOPBACK else f"{kind.kind}@{host}"
        self.url = kind.url_on(host)
        row = UpstreamRow(name, kind.kind, f"{self.url}/v1")
        self.server = ModelServer(row, transport, str, discovered=True)
        self.server.there = False
        self.slow = False
        self._transport = transport
        self._answered_at: float | None = None

    async def look(self, hosts: ProbeHosts, seconds: float) -> None:
        """See whether the server is there. One that was, and now is only slow, stays for two minutes."""
        try:
            async with asyncio.timeout(seconds):
                there = await hosts.resolves(self.host) and await self._answers()
        except TimeoutError:
            self.slow = True
            moment = self._answered_at
            self.server.there &= moment is not None and time.monotonic() - moment < _BUSY_SECONDS
            return
        self.slow, self.server.there = False, there
        if there:
            self._answered_at = time.monotonic()

    async def _answers(self) -> bool:
        try:
            answer = await self._transport.get(self.url + self.kind.path, {})
            body = await listing.read_limited(answer, _PROBE_BYTES)
        except UpstreamFailure:
            return False
        return answer.status == 200 and self.kind.answers_with(body)


class ModelServers:
    """All of them: those that were configured, this server's own, providers, and those that were found."""

    def __init__(
        self,
        rows: Iterable[UpstreamRow],
        transport: Transport,
        key: Callable[[str], str],
        *,
        hosts: ProbeHosts,
        own_ports: frozenset[int] = frozenset(),
        own: Sequence[OwnAddresses] = (),
    ) -> None:
        self._transport = transport
        self.probe_seconds = PROBE_SECONDS
        self._own = own
        self._hosts = hosts
        configured = tuple(rows)
        first = [ModelServer(row, transport, _given(row, key)) for row in configured]
        names = {row.name for row in configured}
        bases = {_address(server.base_url) for server in first}
        self._servers: list[Upstream] = [*first, *own]
        for kind in ("openai", "anthropic"):
            if kind not in names and _address(_BASES[kind]) not in bases:
                row = UpstreamRow(kind, kind)
                self._servers.append(ModelServer(row, transport, _given(row, key)))
        every = [_Probe(kind, host, transport) for host in hosts.names for kind in local_servers.CHAT]
        self._probes = [
            probe
            for probe in every
            if probe.server.name not in names
            and _address(probe.server.base_url) not in bases
            and not (probe.host == LOOPBACK and probe.kind.port in own_ports)
        ]
        self._all = (*self._servers, *(probe.server for probe in self._probes))
        self.looked = asyncio.Event()

    def __call__(self) -> tuple[Upstream, ...]:
        """Every server, whether it is there or not."""
        return self._all

    async def look(self) -> None:
        """Look for servers on known ports, and ask those of this network what they have."""
        await self._ask([server for server in self._servers if server.in_local_network])

    async def refresh(self) -> None:
        """The same, and ask providers too."""
        await self._ask(self._servers)
        self.looked.set()

    async def _ask(self, servers: Iterable[Upstream]) -> None:
        """Ask all at once, none waiting for another."""
        await asyncio.gather(
            *(server.refresh() for server in servers), *(self._look(probe) for probe in self._probes)
        )
        self._drop_doubles()

    async def _look(self, probe: _Probe) -> None:
        await probe.look(self._hosts, self.probe_seconds)
        await probe.server.refresh()

    def _drop_doubles(self) -> None:
        """Leave out what is found under the name of a container's host and is the server of this machine.

        Docker Desktop gives its host that name, too, and the same server answers at both addresses.
        """
        here = {probe.kind.kind: probe.server for probe in self._probes if probe.host == LOOPBACK}
        for probe in self._probes:
            same = here.get(probe.kind.kind)
            if probe.host == CONTAINER_HOST and same is not None and same.there:
                probe.server.there &= same.models() != probe.server.models()

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Report on every server as of the last look."""
        titles = {kind.kind: kind.title for kind in local_servers.CHAT}
        slow = {probe.server.name for probe in self._probes if probe.slow}
        return tuple(_status(server, titles, slow) for server in self._all)

    async def aclose(self) -> None:
        """Let go of the connections."""
        await asyncio.gather(*(server.aclose() for server in self._own))
        await self._transport.aclose()


def _status(server: Upstream, titles: Mapping[str, str], slow: Container[str]) -> ServerStatus:
    url = server.base_url.removesuffix("/v1") if isinstance(server, ModelServer) else ""
    kind = server.kind if isinstance(server, ModelServer) else "gguf"
    return ServerStatus(
        server.name,
        url,
        "ready" if server.ready else "slow" if server.name in slow else "absent",
        server.models() if server.ready else (),
        kind=kind,
        title=titles.get(kind, server.name),
        host=urlsplit(url).hostname or "",
        discovered=server.discovered,
        listing=server.listing() if server.ready else (),
    )


def _given(row: UpstreamRow, key: Callable[[str], str]) -> Callable[[], str]:
    """Where a server's key comes from: its row, else the provider's own where it is the provider's server."""
    if row.api_key:
        return lambda: row.api_key
    if row.base_url and row.base_url != _BASES.get(row.kind):
        return str
    return _FreshProbe(lambda: key(f"{row.kind}_api_key")) if row.kind not in LOCAL_KINDS else str


class _FreshProbe:
    """A key that is looked up again after a second: each look asks the disk."""

    def __init__(self, look: Callable[[], str]) -> None:
        self._look = look
        self._known = ""
        self._until = 0.0

    def __call__(self) -> str:
        moment = time.monotonic()
        if moment >= self._until:
            self._known, self._until = self._look(), moment + _KEY_SECONDS
        return self._known
