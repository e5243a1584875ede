"""Routing of paths to APIs."""

from __future__ import annotations

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from sixfold.core.accounts.rights import PUBLIC
from sixfold.web.responses import error_response
from sixfold.web.routing import ApiGroup, RouteEntry, Router, SocketRoute


async def handler(_request: Request) -> Response:
    return Response()


def face(name: str, *paths: str, prefixes: tuple[str, ...] = (), reserved: tuple[str, ...] = ()) -> ApiGroup:
    """Return an API with some paths."""
    return ApiGroup(
        name,
        error_response,
        tuple(RouteEntry(path, {"GET": handler}, access=PUBLIC) for path in paths),
        prefixes,
        reserved,
    )


def table() -> Router:
    """Return two APIs, and a fallback."""
    a = face("a", "/a", "/a/{name}", "/a/{name}/end", prefixes=("/a/",), reserved=("/b/reserved",))
    b = face("b", "/b/{rest:path}", prefixes=("/a/deeper/",))
    return Router([a, b], face("none"))


@pytest.mark.parametrize(
    ("path", "owner", "route", "params"),
    [
        ("/a", "a", "/a", {}),
        ("/a/x", "a", "/a/{name}", {"name": "x"}),
        ("/a/x/end", "a", "/a/{name}/end", {"name": "x"}),
        ("/a/x/other", "a", None, {}),
        ("/a/", "a", None, {}),
        ("/a/deeper/x/y", "b", None, {}),
        ("/b/x/y", "b", "/b/{rest:path}", {"rest": "x/y"}),
        ("/b/reserved", "a", None, {}),
        ("/A", "none", None, {}),
        ("/a\n", "none", None, {}),
        ("", "none", None, {}),
    ],
)
def test_path_is_routed_to_its_api(path: str, owner: str, route: str | None, params: dict[str, str]) -> None:
    result = table().find(path)
    assert result.api.name == owner
    assert (result.route.path if result.route is not None else None) == route
    assert dict(result.params) == params


@pytest.mark.parametrize(
    ("path", "route", "params"),
    [
        ("/other/a", "/a", {}),
        ("/other/a/x", "/a/{name}", {"name": "x"}),
        ("/other/a/x/y", None, {}),
        ("/other", None, {}),
    ],
)
def test_alias_serves_the_routes_of_its_prefix(path: str, route: str | None, params: dict[str, str]) -> None:
    alias = msgspec.structs.replace(face("b", prefixes=("/other",)), aliases={"/other/": "/"})
    result = Router([face("a", "/a", "/a/{name}", prefixes=("/a/",)), alias], face("none")).find(path)
    assert result.api.name == ("b" if path == "/other" else "a")
    assert (result.route.path if result.route is not None else None) == route
    assert dict(result.params) == params


def test_no_two_routes_share_a_path() -> None:
    with pytest.raises(ValueError, match="duplicate route"):
        Router([face("a", "/x"), face("b", "/x")], face("none"))


def test_a_route_that_declares_no_right_is_refused_by_its_name() -> None:
    undeclared = ApiGroup("notes", error_response, (RouteEntry("/api/notes", {"GET": handler}),))
    with pytest.raises(ValueError, match="route GET /api/notes of notes does not declare its access"):
        Router([undeclared], ApiGroup("none", error_response, ()))


def test_route_with_rights_for_only_some_methods_is_refused() -> None:
    access = {"GET": PUBLIC}
    half = ApiGroup(
        "notes", error_response, (RouteEntry("/api/notes", {"GET": handler, "POST": handler}, access=access),)
    )
    with pytest.raises(ValueError, match="route POST /api/notes of notes does not declare its access"):
        Router([half], ApiGroup("none", error_response, ()))


def test_websocket_without_a_right_is_refused_by_name() -> None:
    async def converse(_websocket: WebSocket) -> None: ...

    silent = ApiGroup(
        "notes", error_response, (), sockets=(SocketRoute("/ws/notes", converse, lambda _websocket: True),)
    )
    with pytest.raises(ValueError, match="websocket /ws/notes of notes does not declare its access"):
        Router([silent], ApiGroup("none", error_response, ()))
