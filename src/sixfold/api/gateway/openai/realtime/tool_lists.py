"""Items of a realtime session that list the tools of an MCP server for the client."""

from __future__ import annotations

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.realtime import items
from sixfold.api.gateway.openai.realtime.configuration import SessionConfiguration
from sixfold.api.gateway.openai.realtime.output import EventSender
from sixfold.api.gateway.openai.realtime.services import RealtimeServices
from sixfold.core.gateway.realtime.conversation import RealtimeConversation
from sixfold.core.gateway.realtime.items import ToolListItem


async def announce(
    services: RealtimeServices,
    send: EventSender,
    conversation: RealtimeConversation,
    settings: SessionConfiguration,
) -> None:
    """Add an item with the tools of the one server in `settings`, or send the error that prevents it."""
    (server,) = settings.server_tools
    item = ToolListItem(items.new_id(), server.server_label)
    try:
        previous = conversation.add(item)
        place = {"previous_item_id": previous}
        await send("conversation.item.added", **place, item=items.render(item))
        await send("mcp_list_tools.in_progress", item_id=item.id)
        async with services.open_tools(settings) as toolset:
            item.tools = tuple(tool.spec for tool in toolset.tools.values()) if toolset is not None else ()
            item.chars = len(msgspec.json.encode([tool.schema for tool in item.tools]))
    except errors.SixfoldError as error:
        await send("mcp_list_tools.failed", item_id=item.id)
        await send("error", error={**openai_errors.document(error)["error"], "event_id": None})
        return
    await send("conversation.item.done", **place, item=items.render(item))
    await send("mcp_list_tools.completed", item_id=item.id)
