"""The MCP API at /mcp: the tools of the enabled APIs at one endpoint."""

from __future__ import annotations

from pathlib import Path

from sixfold.core.accounts import rights
from sixfold.core.memory import operations
from sixfold.mcp import memory_tools, search_tool, transport
from sixfold.mcp.model_tools import ModelTools
from sixfold.mcp.server import McpServer, ServerFeature
from sixfold.mcp.tools import McpTool, Toolbox
from sixfold.mcp.transport import McpEndpoint
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

PATH = "/mcp"
INSTRUCTIONS = (Path(__file__).parent / "instructions.md").read_text("utf-8")


def build(services: WebServices) -> McpServer:
    """Return the MCP server with the memory tools and model tools of the enabled APIs."""
    enabled = services.settings.enabled_apis
    tools: list[McpTool] = []
    features: list[ServerFeature] = []
    if "memory" in enabled:
        memory_operations = list(operations.operations(services.memory).values())
        tools += memory_tools.tools(memory_operations)
        tools += memory_tools.fact_tools(services.memory_facts, services.settings.base_url)
        features += [memory_tools.MemoryPages(memory_operations).feature(), memory_tools.prompts()]
    if enabled - {"memory"}:
        tools += ModelTools(services).tools()
    tools.append(search_tool.tool(services))
    return McpServer([Toolbox(tools).feature(), *features], INSTRUCTIONS.format(name="Sixfold").strip())


def build_api(services: WebServices) -> ApiGroup:
    return serve(services, build(services))


def serve(services: WebServices, server: McpServer, ping_seconds: float = transport.PING_SECONDS) -> ApiGroup:
    """Return the route of an MCP server; an idle stream receives a comment every `ping_seconds`."""
    endpoint = McpEndpoint(services, server, ping_seconds)
    handlers = {"POST": endpoint.post, "GET": endpoint.get, "DELETE": endpoint.get}
    route = RouteEntry(
        PATH,
        handlers,
        services.settings.inline_body_bytes,
        access={"POST": rights.ANY, "GET": rights.PUBLIC, "DELETE": rights.PUBLIC},
    )
    return ApiGroup("mcp", transport.dialect(services.settings.base_url), (route,), prefixes=(PATH + "/",))
