"""The model servers: configured, found on this machine, and providers whose key is there."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from sixfold.core.relay.policy import LOCAL_KINDS, UpstreamRow
from sixfold.core.relay.ports import Broken, Stream, Upstream, Wire
from sixfold.upstreams import local
from sixfold.upstreams.chat.completions import Completions
from sixfold.upstreams.chat.making import MAKING
from sixfold.upstreams.chat.messages import Messages
from sixfold.upstreams.chat.responses import Responses
from sixfold.upstreams.chat.transport import Transport
from sixfold.upstreams.local import LocalServer

_WIRES: Mapping[str, Wire] = {
    "chat": Completions(),
    "messages": Messages(),
    "responses": Responses(),
    **{wire.name: wire for wire in MAKING},
}
_OPENAIS = Completions("max_completion_tokens")  # whose thinking models refuse the older name
_HEADED = frozenset({"messages", "edits", "transcriptions"})  # protocols whose callers' headers go on
_BASES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    **{server.kind: f"{server.url}/v1" for server in local.CHAT},
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_NEAR = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
_VERSION = "2023-06-01"
_LIST_SECONDS, _PROBE_SECONDS, _KEY_SECONDS = 5.0, 0.5, 1.0
_any = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What the last look at one model server found.

    `slow`: it did not answer in time, which is what a server that loads a model does too. `absent`: nothing
    that is such a server answers at `url`, or a provider's key is missing. `url` is without `/v1`, and empty
    for models that run in this program. `discovered`: it was looked for on its usual port.
    """

    name: str
    url: str
    state: Literal["ready", "slow", "absent"]
    models: tuple[str, ...]
    kind: str = ""
    title: str = ""
    discovered: bool = False


class Server:
    """One model server. `key` is asked for each time: an operator may set it while the server runs."""

    def __init__(self, row: UpstreamRow, transport: Transport, key: Callable[[], str]) -> None:
        self.name = row.name
        self.kind = row.kind
        self.base_url = row.base_url or _BASES[row.kind]
        self._row = row
        self._transport = transport
        self._key = key
        self._listed: tuple[str, ...] = row.models
        self.there = True
        self.slow = False
        self._open = bool(row.base_url) or row.kind in LOCAL_KINDS  # it may want no key
        self._headed: tuple[str | None, dict[str, str]] = (None, {})
        own = urlsplit(self.base_url).hostname in _LOOPBACK
        self.local = row.local or row.kind in LOCAL_KINDS or (own and not key())
        self.near = self.local or _stands_near(urlsplit(self.base_url).hostname or "")
        speaks = self.base_url == _BASES["openai"] if row.responses is None else row.responses
        self._own = {"messages"} if row.kind == "anthropic" else _WIRES.keys() - {"messages"}
        if not speaks:
            self._own -= {"responses"}
        self._main = _WIRES["messages"] if row.kind == "anthropic" else _OPENAIS if speaks else _WIRES["chat"]

    @property
    def ready(self) -> bool:
        """Whether it was there when it was last looked for, and a provider's key is set."""
        return self.there and (self._open or bool(self._key()))

    def wire(self, asked: str) -> Wire:
        """The caller's own protocol where it speaks that."""
        return _WIRES[asked] if asked in self._own else self._main

    def serves(self, model: str) -> bool:
        """Whether it has a model; one without a list is simply asked, for what a header can tell."""
        return model in self._row.models if self._row.models else bool(model) and model.isprintable()

    def models(self) -> tuple[str, ...]:
        """What it has."""
        return self._listed

    async def refresh(self) -> None:
        """Ask what it has, unless the configuration says; without an answer the last one stands."""
        if self._row.models or not self.ready:
            return
        with contextlib.suppress(Broken, TimeoutError, ValueError):
            async with asyncio.timeout(_LIST_SECONDS):
                answer = await self._transport.get(f"{self.base_url}/models", self._headers())
                try:
                    body = await answer.whole()
                finally:
                    await answer.aclose()
            if answer.status == 200:
                self._listed = _names(body)

    def open(
        self, wire: Wire, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> Coroutine[Any, Any, Stream]:
        """POST a body; raises `Broken`."""
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


def _stands_near(host: str) -> bool:
    """Whether a host is of this machine or its network, by its name or its address."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_NEAR)


def _names(body: bytes) -> tuple[str, ...]:
    try:
        document = _any(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError("no list of models") from error
    rows = cast("dict[str, Any]", document).get("data", []) if isinstance(document, dict) else []
    return tuple(str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row)


class Own(Upstream, Protocol):
    """A model server that is part of this one, as models of files are."""

    async def aclose(self) -> None:
        """Let go of what it has loaded."""
        ...


class Servers:
    """All of them: those that were configured, this server's own, providers, and those that were found."""

    def __init__(
        self,
        rows: Iterable[UpstreamRow],
        transport: Transport,
        key: Callable[[str], str],
        *,
        probe: bool,
        own_ports: frozenset[int] = frozenset(),
        own: Sequence[Own] = (),
    ) -> None:
        self._transport = transport
        self.probe_seconds = _PROBE_SECONDS
        self._own = own
        configured = tuple(rows)
        first = [Server(row, transport, _given(row, key)) for row in configured]
        names = {row.name for row in configured}
        bases = {server.base_url for server in first}
        self._servers: list[Upstream] = [*first, *own]
        for kind in ("openai", "anthropic"):
            if kind not in names and _BASES[kind] not in bases:
                row = UpstreamRow(kind, kind)
                self._servers.append(Server(row, transport, _given(row, key)))
        self._local: list[tuple[LocalServer, Server]] = []
        for here in local.CHAT if probe else ():
            base = f"{here.url}/v1"
            if here.kind not in names and base not in bases and here.port not in own_ports:
                server = Server(UpstreamRow(here.kind, here.kind, base), transport, str)
                server.there = False
                self._local.append((here, server))
        self._all = (*self._servers, *(server for _, server in self._local))
        self.looked = asyncio.Event()

    def __call__(self) -> tuple[Upstream, ...]:
        """Every server, whether it is there or not."""
        return self._all

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Report on every server as of the last look."""
        kinds = {server.name: here for here, server in self._local}
        return tuple(_status(server, kinds.get(server.name)) for server in self._all)

    async def look(self) -> None:
        """See which of the local ones are there."""
        await asyncio.gather(*(self._probe(here, server) for here, server in self._local))

    async def refresh(self) -> None:
        """Look for the local ones, and ask all what they have."""
        await self.look()
        await asyncio.gather(*(server.refresh() for server in self()))
        self.looked.set()

    async def _probe(self, here: LocalServer, server: Server) -> None:
        """Set whether a local server answers, or whether it is slow."""
        there = slow = False
        try:
            async with asyncio.timeout(self.probe_seconds):
                answer = await self._transport.get(here.url + here.path, {})
                try:
                    body = await answer.whole()
                finally:
                    await answer.aclose()
            there = answer.status == 200 and here.word in body.lower()
        except TimeoutError:
            slow = True
        except Broken:
            pass
        server.there, server.slow = there, slow

    async def aclose(self) -> None:
        """Let go of the connections."""
        await asyncio.gather(*(server.aclose() for server in self._own))
        await self._transport.aclose()


def _status(server: Upstream, here: LocalServer | None) -> ServerStatus:
    url, kind = (server.base_url, server.kind) if isinstance(server, Server) else ("", "gguf")
    slow = isinstance(server, Server) and server.slow
    state = "ready" if server.ready else "slow" if slow else "absent"
    models = server.models() if server.ready else ()
    title = server.name if here is None else here.title
    return ServerStatus(server.name, url.removesuffix("/v1"), state, models, kind, title, here is not None)


def _given(row: UpstreamRow, key: Callable[[str], str]) -> Callable[[], str]:
    """Where a server's key comes from: its row, else the provider's own where it is the provider's server."""
    if row.api_key:
        return lambda: row.api_key
    if row.base_url and row.base_url != _BASES.get(row.kind):
        return str
    return _Fresh(lambda: key(f"{row.kind}_api_key")) if row.kind not in LOCAL_KINDS else str


class _Fresh:
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
