"""Paths to handlers: which face a path belongs to, and which of its handlers answers a method."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from sixfold.core.accounts.rights import Access
from sixfold.errors import SixfoldError
from sixfold.web.raw_asgi import RawHandler

Handler = Callable[[Request], Awaitable[Response]]
Conversation = Callable[[WebSocket], Awaitable[None]]
Dialect = Callable[[SixfoldError, str], Response]

_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One path (`{name}` is one segment, `{name:path}` the rest) and a handler for each method.

    `body_bytes` is the largest body that is read; 0 where none is expected, and a small one goes unread.
    Where a GET is not `safe`, as it makes something, a HEAD is not answered by it. `access` is what a caller
    needs, the same for every method or by method; a route without it is refused when the table is built.
    """

    path: str
    handlers: Mapping[str, Handler | RawHandler]
    body_bytes: int = 0
    safe: bool = True
    access: Access | Mapping[str, Access] | None = None

    def needs(self, method: str) -> Access | None:
        """What a caller of a method needs; a HEAD needs what a GET does."""
        access = self.access
        if access is None or isinstance(access, Access):
            return access
        return access.get("GET" if method == "HEAD" else method)

    def handler(self, method: str) -> Handler | RawHandler | None:
        """What answers a method; a HEAD is a GET of which nobody reads the body."""
        known = self.handlers.get(method)
        return self.handlers.get("GET") if known is None and method == "HEAD" and self.safe else known


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """One path on which a websocket is spoken; `trusts` decides by Host and Origin, before it is accepted.

    `access` is what its caller needs, as of a route.
    """

    path: str
    converse: Conversation
    trusts: Callable[[WebSocket], bool]
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """Some routes that speak one dialect of errors.

    The dialect also answers for unknown paths: those below `prefixes`, and the exact ones in `reserved`.
    """

    name: str
    dialect: Dialect
    routes: tuple[RouteEntry, ...]
    prefixes: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    sockets: tuple[SocketRoute, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """Where a path leads: its face, its route when there is one, and the values in its path."""

    face: ApiGroup
    route: RouteEntry | None
    params: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table: a method of a route, or a websocket (`WS`), and what a caller needs."""

    face: str
    method: str
    path: str
    access: Access | None


class Router:
    """Every route of every face; exact paths are one look-up."""

    def __init__(self, faces: Iterable[ApiGroup], fallback: ApiGroup) -> None:
        self._fallback = fallback
        self._faces = tuple(faces)
        self._exact: dict[str, RouteMatch] = {}
        self._patterns: list[tuple[re.Pattern[str], ApiGroup, RouteEntry]] = []
        self._prefixes: list[tuple[str, ApiGroup]] = []
        self._sockets: list[tuple[re.Pattern[str], SocketRoute]] = []
        for face in self._faces:
            for socket in face.sockets:
                _require_declared(face, f"websocket {socket.path}", socket.access)
                self._sockets.append((_compile(socket.path), socket))
            for route in face.routes:
                self._add(face, route)
            for path in face.reserved:
                self._exact.setdefault(path, RouteMatch(face, None))
            self._prefixes += [(prefix, face) for prefix in face.prefixes]
        self._prefixes.sort(key=lambda pair: len(pair[0]), reverse=True)

    def _add(self, face: ApiGroup, route: RouteEntry) -> None:
        for method in route.handlers:
            _require_declared(face, f"route {method} {route.path}", route.needs(method))
        if "{" in route.path:
            self._patterns.append((_compile(route.path), face, route))
            return
        known = self._exact.get(route.path)
        if known is not None and known.route is not None:
            raise ValueError(f"two routes have the path {route.path}")
        self._exact[route.path] = RouteMatch(face, route)

    def entries(self) -> Iterator[Entry]:
        """Every method of every route, and every websocket, with what a caller needs."""
        for face in self._faces:
            for route in face.routes:
                for method in route.handlers:
                    yield Entry(face.name, method, route.path, route.needs(method))
            for socket in face.sockets:
                yield Entry(face.name, "WS", socket.path, socket.access)

    def find(self, path: str) -> RouteMatch:
        """The match of a path; of an unknown one, the face in whose dialect to say so."""
        known = self._exact.get(path)
        if known is not None:
            return known
        for pattern, face, route in self._patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return RouteMatch(face, route, found.groupdict())
        for prefix, face in self._prefixes:
            if path.startswith(prefix):
                return RouteMatch(face, None)
        return RouteMatch(self._fallback, None)

    def find_socket(self, path: str) -> tuple[SocketRoute, Mapping[str, str]] | None:
        """The websocket of a path, and the values in it."""
        for pattern, socket in self._sockets:
            found = pattern.fullmatch(path)
            if found is not None:
                return socket, found.groupdict()
        return None


def _require_declared(face: ApiGroup, what: str, access: Access | None) -> None:
    if access is None:
        raise ValueError(f"The {what} of {face.name} declares no right: give it an access, if only PUBLIC")


def _compile(path: str) -> re.Pattern[str]:
    pattern, end = "", 0
    for found in _PARAMETER.finditer(path):
        pattern += re.escape(path[end : found.start()])
        pattern += f"(?P<{found[1]}>.+)" if found[2] else f"(?P<{found[1]}>[^/]+)"
        end = found.end()
    return re.compile(pattern + re.escape(path[end:]), re.DOTALL)
