"""Lookup of a space's server, and description of the space as a model that an engine calls there."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from sixfold import errors, setting_values
from sixfold.clients.gradio import schema as gradio_schema
from sixfold.clients.gradio.schema import SpaceFunction
from sixfold.clients.gradio.server import GradioServer, SpaceError
from sixfold.core.catalog.gradio_spaces import RUNTIME, ImportedSpace, SpaceId
from sixfold.core.catalog.metering import CONTAINER_TIME
from sixfold.net import limited_responses
from sixfold.net.clients import HttpClients
from sixfold.net.response_memory import response_memory
from sixfold.settings import Settings
from sixfold.store.secrets import provider_key

_HUB_SECONDS, _HUB_BYTES = 20.0, 4 * 2**20
_FACTORY = "sixfold.engines.providers.gradio:GradioEngine"


class GradioSpaces:
    """Spaces (`core.catalog.gradio_spaces`) of a Hub, or of the endpoint in the settings.

    The operator's endpoint is trusted like all base URLs in the settings, unless the request determines its
    host. Such a URL and one from the Hub are fetched through the guard, with the operator's token only if the
    operator imports the space.
    """

    def __init__(self, clients: HttpClients, hub: str, endpoint: str, token: Callable[[], str]) -> None:
        self._clients = clients
        self._hub = hub.rstrip("/")
        self._endpoint = endpoint
        self._token = token

    async def read(self, space: SpaceId, *, hardware: str | None, private: bool) -> ImportedSpace:
        """Return the space as a model; raises `BadRequest` and `EngineFailed`."""
        base, trusted, token = await self._location(space, private)
        client = self._clients.upstream if trusted else self._clients.guarded
        server = GradioServer(client, base, self._token() if token else "")
        try:
            with response_memory(base) as memory:
                config, info = await server.describe(memory)
                function = await asyncio.to_thread(gradio_schema.best_function, config, info)
        except SpaceError as error:
            if error.status in (200, 404):
                raise errors.BadRequest(
                    f"Space {space} is not a Gradio application of version 4, 5 or 6"
                ) from error
            raise errors.EngineFailed(f"Space {space} could not be read: {error}") from error
        location = {"base": base, "prefix": server.prefix, "trusted": trusted, "token": token}
        engine = {
            "factory": _FACTORY,
            "kind": "space",
            "max_tasks": 4,
            "unlock": f"open {self.home(space)} to wake the space",
            "options": {**location, **arguments(function)},
        }
        title = str(config.get("title") or space.name)[:200]
        return ImportedSpace(space, document(space, self.home(space), title, function, engine, hardware))

    def home(self, space: SpaceId) -> str:
        """Return the space's page on the Hub."""
        return f"{self._hub}/spaces/{space}"

    async def image(self, space: SpaceId, template: str) -> str:
        """Return the container image: from the operator's template, or else from the registry of its host."""
        if template:
            return template.replace("{owner}", space.owner).replace("{name}", space.name).lower()
        host = await self._get_from_hub(f"/api/spaces/{space}/host", space, self._token())
        name, _, domain = str(urlsplit(str(host.get("host") or "")).hostname or "").partition(".")
        if not domain:
            raise errors.EngineFailed(f"The Hub's response does not contain the host of space {space}")
        return f"registry.{domain}/{name}:latest"

    async def _location(self, space: SpaceId, private: bool) -> tuple[str, bool, bool]:
        """Return the base URL, whether it is in the settings, and whether to send the token."""
        if self._endpoint:
            base = self._endpoint.replace("{owner}", space.owner).replace("{name}", space.name)
            if not setting_values.has_valid_port(base):
                raise errors.BadRequest(
                    f"SIXFOLD_SPACE_ENDPOINT has no valid port for space {space}: it must be from 1 to 65535"
                )
            # The owner of a space whose host the request names must not receive the operator's token.
            trusted = private or "{" not in (urlsplit(self._endpoint).hostname or "")
            return base.rstrip("/"), trusted, trusted and bool(self._token())
        token = self._token() if private else ""
        details = await self._get_from_hub(f"/api/spaces/{space}", space, token)
        host_info = await self._get_from_hub(f"/api/spaces/{space}/host", space, token)
        host = str(host_info.get("host") or "")
        if urlsplit(host).scheme != "https" or not urlsplit(host).hostname:
            raise errors.EngineFailed(f"The Hub's response does not contain the host of space {space}")
        return host.rstrip("/"), False, bool(token) and details.get("private") is True

    async def _get_from_hub(self, path: str, space: SpaceId, token: str) -> Mapping[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            response = await limited_responses.request(
                self._clients.upstream,
                "GET",
                f"{self._hub}{path}",
                headers=headers,
                follow_redirects=False,
                max_bytes=_HUB_BYTES,
                seconds=_HUB_SECONDS,
            )
            document = await limited_responses.json_object(response.body) if response.status == 200 else {}
        except httpx.HTTPError as error:
            raise errors.EngineFailed(
                f"The Hub did not return a valid response for space {space}: try again"
            ) from error
        if response.status in (401, 403, 404):
            raise errors.BadRequest(f"Space {space} was not found on the Hub, or is private")
        if response.status != 200:
            raise errors.EngineFailed(f"The Hub returned status {response.status} for space {space}")
        return document


def build(settings: Settings, clients: HttpClients) -> GradioSpaces:
    token = functools.partial(provider_key, settings, "hf_token")
    return GradioSpaces(clients, settings.hub_url, settings.space_endpoint, token)


def arguments(function: SpaceFunction) -> dict[str, Any]:
    """Return the engine options that describe how to call a function."""
    places = [
        {"name": argument.name, "kind": argument.kind, "default": argument.default, "values": argument.values}
        for argument in function.places
    ]
    return {
        "function": function.index,
        "places": places,
        "output": function.output,
        "output_kind": function.output_kind,
        "returns": list(function.returns),
    }


def document(
    space: SpaceId,
    home: str,
    title: str,
    function: SpaceFunction,
    engine: Mapping[str, Any],
    hardware: str | None,
) -> dict[str, Any]:
    """Return the catalog document of a space; `engine` describes where it runs."""
    name = space.model
    model = {
        "title": title,
        "description": f"{title}: the space {space}, by its function {function.api_name}",
        "output_kind": function.output_kind,
        "price": CONTAINER_TIME,
        "hardware": hardware,
        "engines": [name],
        "inputs": function.inputs,
    }
    template = {
        "image": f"space:{space}",
        "category": None,
        "repository": home,
        "upstream": home,
        "license": "see the space",
        "tags": ["space", "gradio"],
        "schema": {
            "runtime": RUNTIME,
            "apiName": function.api_name,
            "spaceId": str(space),
            "dockerArgs": None,
        },
    }
    defaults = {"version": "1", "quality": "full", "concurrency": 1, "idle_seconds": 120}
    return {"engines": {name: {**defaults, **engine}}, "models": {name: model}, "template": template}
