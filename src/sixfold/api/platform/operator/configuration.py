"""`/api/operator/configuration` and `/api/operator/providers`: servers, aliases, prices, tools and keys."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.platform.operator import configuration_schemas as schemas
from sixfold.core.accounts import rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.configuration.entries import MAX_NAME
from sixfold.core.configuration.ports import KeyCheck, ServerProbe
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_BODY_BYTES = 32_768
_MAX_SECTION = 40


class ConfigurationRoutes(ServiceHandlers):
    """Handlers of the configuration and of provider keys."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._configuration = services.configuration
        self._keys = services.provider_keys

    async def show(self, request: Request) -> Response:
        """Return servers, aliases, prices, tool servers and the web search with the source of each."""
        await self._enter(request)
        return await self._shown()

    async def put(self, request: Request) -> Response:
        """Set an entry of a section, and return the configuration."""
        principal, body = await self._fields(request)
        if "value" not in body:
            raise errors.InvalidInput.of("value", "value is required")
        section = requests.path_value(request, "section")
        await self._configuration.put(principal, section, _name(body.get("name")), body["value"])
        return await self._shown()

    async def remove(self, request: Request) -> Response:
        """Remove an entry of a section, and return the configuration."""
        principal = await self._enter(request)
        name = requests.query_text(request, "name", MAX_NAME)
        section = requests.path_value(request, "section")[:_MAX_SECTION]
        await self._configuration.remove(principal, section, name)
        return await self._shown()

    async def probe(self, request: Request) -> Response:
        """Request the list of models from a model server, without adding the server."""
        _principal, body = await self._fields(request)
        result = await self._configuration.probe(_name(body.get("name", "test")), body.get("value"))
        return _probed(result, models=list(result.models))

    async def probe_tools(self, request: Request) -> Response:
        """Request the list of tools from an MCP server, without adding the server."""
        _principal, body = await self._fields(request)
        result = await self._configuration.probe_tools(_name(body.get("name", "test")), body.get("value"))
        return _probed(result, tools=list(result.models))

    async def probe_search(self, request: Request) -> Response:
        """Make a test search on a SearXNG server, without using the server."""
        _principal, body = await self._fields(request)
        url = body.get("url")
        if not isinstance(url, str):
            raise errors.InvalidInput.of("url", "url must be a string")
        return _probed(await self._configuration.probe_search(url))

    async def list_providers(self, request: Request) -> Response:
        """List the providers, those with a key first."""
        await self._enter(request)
        return await self._providers()

    async def set_key(self, request: Request) -> Response:
        """Store a provider's key, unless the provider rejects it."""
        principal, body = await self._fields(request)
        key = body.get("key")
        if not isinstance(key, str):
            raise errors.InvalidInput.of("key", "key must be a string")
        return _checked(await self._keys.set(principal, requests.path_value(request, "provider"), key))

    async def check_key(self, request: Request) -> Response:
        """Check whether a provider accepts the key in use."""
        await self._enter(request)
        return _checked(await self._keys.check(requests.path_value(request, "provider")))

    async def remove_key(self, request: Request) -> Response:
        principal = await self._enter(request)
        await self._keys.remove(principal, requests.path_value(request, "provider"))
        return await self._providers()

    async def _shown(self) -> Response:
        return responses.unstored_json(schemas.configuration(await self._configuration.view()))

    async def _providers(self) -> Response:
        rows = [schemas.provider(row) for row in await self._keys.view()]
        return responses.unstored_json({"providers": rows})

    async def _fields(self, request: Request) -> tuple[Principal, dict[str, Any]]:
        principal = await self._enter(request)
        return principal, bodies.parse_object(await request.body() or b"{}")


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise errors.InvalidInput.of("name", "name must be a string")
    return value


def _probed(result: ServerProbe, **found: list[str]) -> Response:
    body = {"ok": not result.problem, **found, "problem": result.problem or None}
    return responses.unstored_json(body)


def _checked(result: KeyCheck) -> Response:
    return responses.unstored_json({"state": result.state, "message": result.message})


def routes(services: WebServices) -> tuple[RouteEntry, ...]:
    handlers, root = ConfigurationRoutes(services), "/api/operator"
    see, change = rights.OPERATE_READ, rights.OPERATE_CHANGES
    provider = f"{root}/providers/{{provider}}"
    return (
        RouteEntry(f"{root}/configuration", {"GET": handlers.show}, access=see),
        RouteEntry(
            f"{root}/configuration/{{section}}",
            {"PUT": handlers.put, "DELETE": handlers.remove},
            _BODY_BYTES,
            access=change,
        ),
        RouteEntry(f"{root}/model-servers/test", {"POST": handlers.probe}, _BODY_BYTES, access=change),
        RouteEntry(f"{root}/tool-servers/test", {"POST": handlers.probe_tools}, _BODY_BYTES, access=change),
        RouteEntry(f"{root}/web-search/test", {"POST": handlers.probe_search}, _BODY_BYTES, access=change),
        RouteEntry(f"{root}/providers", {"GET": handlers.list_providers}, access=see),
        RouteEntry(
            provider, {"PUT": handlers.set_key, "DELETE": handlers.remove_key}, _BODY_BYTES, access=change
        ),
        RouteEntry(f"{provider}/test", {"POST": handlers.check_key}, access=change),
    )
