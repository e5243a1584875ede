"""The route table: it finds the API and the handler of a path."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope
from starlette.websockets import WebSocket

from sixfold.core.accounts.rights import Access
from sixfold.errors import MethodNotAllowed, NotFound, SixfoldError
from sixfold.web.raw_asgi import RawHandler

Handler = Callable[[Request], Awaitable[Response]]
SocketHandler = Callable[[WebSocket], Awaitable[None]]
ErrorFormat = Callable[[SixfoldError, str], Response]

_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")


class RouteEntry(msgspec.Struct, frozen=True):
    """A path (`{name}` matches one segment, `{name:path}` the rest) with a handler for each method.

    `body_bytes` is the largest accepted body; if it is 0, a small body is accepted and ignored. A GET that
    has side effects is not `safe`, and does not serve HEAD. `access` is required of the caller, for all
    methods or by method; a route without it is rejected when the table is built.
    """

    path: str
    handlers: Mapping[str, Handler | RawHandler]
    body_bytes: int = 0
    safe: bool = True
    access: Access | Mapping[str, Access] | None = None

    def needs(self, method: str) -> Access | None:
        """Return the access that a method requires; HEAD requires that of GET."""
        access = self.access
        if access is None or isinstance(access, Access):
            return access
        return access.get("GET" if method == "HEAD" else method)

    def handler(self, method: str) -> Handler | RawHandler | None:
        """Return the handler of a method; GET also serves HEAD."""
        handler = self.handlers.get(method)
        return self.handlers.get("GET") if handler is None and method == "HEAD" and self.safe else handler


class SocketRoute(msgspec.Struct, frozen=True):
    """A websocket path; `trusts` checks Host and Origin before the websocket is accepted.

    `access` is required of the caller, as with `RouteEntry`.
    """

    path: str
    handler: SocketHandler
    trusts: Callable[[WebSocket], bool]
    access: Access | None = None


class ApiGroup(msgspec.Struct, frozen=True):
    """Routes that share an error format.

    It also applies to unknown paths below `prefixes`, and to the exact paths in `reserved`. `variants`
    has the error formats of clients that send a header with this name. `missing` returns the error for an
    unknown path, and `wrong_method` for a path with other methods. `aliases` maps prefixes of paths to the
    prefixes whose routes they serve.
    """

    name: str
    error_format: ErrorFormat
    routes: tuple[RouteEntry, ...]
    prefixes: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    sockets: tuple[SocketRoute, ...] = ()
    variants: Mapping[bytes, ErrorFormat] = {}
    missing: Callable[[Scope], SixfoldError] = lambda _scope: NotFound()
    wrong_method: Callable[[Scope], SixfoldError] = lambda _scope: MethodNotAllowed()
    aliases: Mapping[str, str] = {}

    def format_of(self, headers: Iterable[tuple[bytes, bytes]]) -> ErrorFormat:
        """Return the error format of a request with these headers."""
        if not self.variants:
            return self.error_format
        return next((self.variants[name] for name, _ in headers if name in self.variants), self.error_format)


class RouteMatch(msgspec.Struct, frozen=True):
    """The API of a path, its route (None for an unknown path), and the values of its parameters."""

    api: ApiGroup
    route: RouteEntry | None
    params: Mapping[str, str] = {}


class Entry(msgspec.Struct, frozen=True):
    """A row of the route table: a method of a route, or a websocket (`WS`), and its required access."""

    api: str
    method: str
    path: str
    access: Access | None


class Router:
    """The routes of all APIs; exact paths take one dictionary look-up."""

    def __init__(self, apis: Iterable[ApiGroup], fallback: ApiGroup) -> None:
        self._fallback = fallback
        self._apis = tuple(apis)
        self._exact: dict[str, RouteMatch] = {}
        self._patterns: list[tuple[re.Pattern[str], ApiGroup, RouteEntry]] = []
        self._prefixes: list[tuple[str, ApiGroup]] = []
        self._sockets: list[tuple[re.Pattern[str], SocketRoute]] = []
        self._aliases = {alias: prefix for api in self._apis for alias, prefix in api.aliases.items()}
        for api in self._apis:
            for socket in api.sockets:
                _require_declared(api, f"websocket {socket.path}", socket.access)
                self._sockets.append((_compile(socket.path), socket))
            for route in api.routes:
                self._add(api, route)
            for path in api.reserved:
                self._exact.setdefault(path, RouteMatch(api, None))
            self._prefixes += [(prefix, api) for prefix in api.prefixes]
        self._prefixes.sort(key=lambda pair: len(pair[0]), reverse=True)

    def _add(self, api: ApiGroup, route: RouteEntry) -> None:
        for method in route.handlers:
            _require_declared(api, f"route {method} {route.path}", route.needs(method))
        if "{" in route.path:
            self._patterns.append((_compile(route.path), api, route))
            return
        existing = self._exact.get(route.path)
        if existing is not None and existing.route is not None:
            raise ValueError(f"duplicate route: {route.path}")
        self._exact[route.path] = RouteMatch(api, route)

    def entries(self) -> Iterator[Entry]:
        """Yield every method of every route, and every websocket."""
        for api in self._apis:
            for route in api.routes:
                for method in route.handlers:
                    yield Entry(api.name, method, route.path, route.needs(method))
            for socket in api.sockets:
                yield Entry(api.name, "WS", socket.path, socket.access)

    def find(self, path: str) -> RouteMatch:
        """Return the match of a path; for an unknown path, it contains the API whose error format applies."""
        exact = self._exact.get(path)
        if exact is not None:
            return exact
        for alias, prefix in self._aliases.items():
            if path.startswith(alias):
                return self.find(prefix + path.removeprefix(alias))
        for pattern, api, route in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                return RouteMatch(api, route, match.groupdict())
        for prefix, api in self._prefixes:
            if path.startswith(prefix):
                return RouteMatch(api, None)
        return RouteMatch(self._fallback, None)

    def find_socket(self, path: str) -> tuple[SocketRoute, Mapping[str, str]] | None:
        for pattern, socket in self._sockets:
            match = pattern.fullmatch(path)
            if match is not None:
                return socket, match.groupdict()
        return None


def _require_declared(api: ApiGroup, kind: str, access: Access | None) -> None:
    if access is None:
        raise ValueError(
            f"A {kind} of {api.name} does not declare its access: set `access`, for example to PUBLIC"
        )


@functools.lru_cache(maxsize=1024)
def _compile(path: str) -> re.Pattern[str]:
    pattern, end = "", 0
    for match in _PARAMETER.finditer(path):
        pattern += re.escape(path[end : match.start()])
        pattern += f"(?P<{match[1]}>.+)" if match[2] else f"(?P<{match[1]}>[^/]+)"
        end = match.end()
    return re.compile(pattern + re.escape(path[end:]), re.DOTALL)
