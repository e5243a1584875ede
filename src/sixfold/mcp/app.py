"""The face at /mcp: the tools of the areas that are served, behind one address."""

from __future__ import annotations

from pathlib import Path

from sixfold.core.accounts import rights
from sixfold.core.memory import operations
from sixfold.mcp import memory_tools, transport
from sixfold.mcp.model_tools import Making
from sixfold.mcp.server import Feature, Server
from sixfold.mcp.tools import Tool, Toolbox
from sixfold.mcp.transport import Endpoint
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services

PATH = "/mcp"
INSTRUCTIONS = (Path(__file__).parent / "instructions.md").read_text("utf-8")


def build(services: Services) -> Server:
    """The server of the product: the memory where it is served, and the models where any of them is."""
    areas = set(services.settings.areas)
    tools: list[Tool] = []
    features: list[Feature] = []
    if "memory" in areas:
        known = list(operations.operations(services.memory).values())
        tools += memory_tools.tools(known)
        features += [memory_tools.Pages(known).feature(), memory_tools.prompts()]
    if areas - {"memory"}:
        tools += Making(services).tools()
    return Server([Toolbox(tools).feature(), *features], INSTRUCTIONS.format(name="Sixfold").strip())


def face(services: Services) -> Face:
    """The route of the tools."""
    return serve(services, build(services))


def serve(services: Services, server: Server, ping_seconds: float = transport.PING_SECONDS) -> Face:
    """A server of tools at its address; a stream that is silent for `ping_seconds` gets a sign of life."""
    endpoint = Endpoint(services, server, ping_seconds)
    handlers = {"POST": endpoint.post, "GET": endpoint.get, "DELETE": endpoint.get}
    route = Route(
        PATH,
        handlers,
        services.settings.inline_body_bytes,
        access={"POST": rights.ANY, "GET": rights.PUBLIC, "DELETE": rights.PUBLIC},
    )
    return Face("mcp", transport.dialect(services.settings.base_url), (route,), prefixes=(PATH + "/",))
