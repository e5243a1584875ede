"""Events and items of MCP tools in a response: lists of tools, calls, and requests for approval."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from sixfold import errors
from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.openai.responses.event_writer import ResponseEventWriter
from sixfold.api.gateway.openai.responses.mcp.tools import McpPlan
from sixfold.api.gateway.openai.responses.mcp_items import ApprovedCall
from sixfold.core.gateway.chat import MessageEnd, ToolCallDelta, ToolCallStart, ToolSpec
from sixfold.core.gateway.guardrails.hooks import GuardrailBlocked
from sixfold.core.gateway.tools.servers import ServerTool, ToolOutput

_CALL, _ENDED = "mcp_call", ("completed", "failed")
# The number of a call that the caller has approved; calls of the model have numbers from 0.
_APPROVED = -1


class McpEventWriter(ResponseEventWriter):
    """Renders the events of a response with MCP tools."""

    def __init__(self, request_id: str, model: str, chat_call: ChatCall, plan: McpPlan) -> None:
        super().__init__(request_id, model, chat_call)
        self._plan = plan
        # The tools of servers by the name that the model receives.
        self.server_tools: Mapping[str, ServerTool] = {}
        # The indexes of the items of calls without an output, in the order of the calls.
        self._open_calls: deque[int] = deque()
        # The calls that need an approval, with their arguments so far.
        self._unapproved: dict[int, tuple[ServerTool, io.StringIO]] = {}
        self._interruption: Mapping[str, str] | None = None

    @property
    def has_made_calls(self) -> bool:
        """Whether a server's tool has been called for this response."""
        return any(item["type"] == _CALL and item["status"] in _ENDED for item in self.output)

    def interrupt(self, error: errors.SixfoldError) -> bytes:
        """Complete all items, and end the response as incomplete with an error as its reason."""
        reason = "content_filter" if isinstance(error, GuardrailBlocked) else error.code
        self._interruption = {"reason": reason, "message": error.message}
        return self.close() + self.abandon_calls()

    def response(self, end: MessageEnd) -> dict[str, Any]:
        document = super().response(end)
        if self._interruption is None:
            return document
        return {**document, "status": "incomplete", "incomplete_details": self._interruption}

    def add_list(self, server: str, tools: Sequence[ToolSpec]) -> bytes:
        """Add the list of the tools of a server."""
        index = len(self.output)
        item = {"id": f"mcpl_{self._id}_{index}", "type": "mcp_list_tools", "server_label": server}
        self.output.append({**item, "tools": [], "error": None})
        output = self._event("response.output_item.added", output_index=index, item=self.output[index])
        self.output[index]["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.schema,
                "annotations": None,
            }
            for tool in tools
        ]
        for state in ("in_progress", "completed"):
            output += self._event(f"response.mcp_list_tools.{state}", **self._position())
        return output + self._done(index)

    def add_approved(self, call: ApprovedCall, request_id: str, output: ToolOutput) -> bytes:
        """Add a call that was approved and has been made; `request_id` is the caller's id of the approval."""
        events = self._begin_server_call(_APPROVED, call.server, call.name, request_id)
        events += self.add_arguments(ToolCallDelta(_APPROVED, call.arguments))
        return events + self._end_call(_APPROVED) + self.end_server_call(output)

    def begin_call(self, call: ToolCallStart) -> bytes:
        """Begin a tool call; arguments of several calls may be interleaved."""
        tool = self.server_tools.get(call.name)
        if tool is None:
            return super().begin_call(call)
        output = self._end_open() + self._end_call(call.number)
        if self.needs_approval(call.name):
            self._unapproved[call.number] = tool, io.StringIO()
            return output
        return output + self._begin_server_call(call.number, tool.server, tool.spec.name)

    def needs_approval(self, name: str) -> bool:
        """Return whether calls of a server's tool, by the name that the model receives, need an approval."""
        tool = self.server_tools[name]
        return self._plan.tools[tool.server].needs_approval(tool.spec.name)

    def _begin_server_call(
        self, number: int, server: str, name: str, approval_request_id: str | None = None
    ) -> bytes:
        index = len(self.output)
        self._calls[number] = index
        self._open_calls.append(index)
        item = {"type": _CALL, "server_label": server, "name": name, "arguments": ""}
        item |= {"output": None, "error": None, "approval_request_id": approval_request_id}
        output = self._add_item("", f"mcp_{self._id}_{index}", item)
        return output + self._event("response.mcp_call.in_progress", **self._place(index))

    def add_arguments(self, delta: ToolCallDelta) -> bytes:
        if delta.number in self._unapproved:
            self._unapproved[delta.number][1].write(delta.text)
            return b""
        index = self._server_call(delta.number)
        if index is None:
            return super().add_arguments(delta)
        self._texts[index].write(delta.text)
        return self._event("response.mcp_call_arguments.delta", **self._place(index), delta=delta.text)

    def close(self) -> bytes:
        """Complete all open items, except calls without an output."""
        return super().close() + b"".join([self._end_call(number) for number in list(self._unapproved)])

    def _end_call(self, number: int) -> bytes:
        if number in self._unapproved:
            return self._request_approval(*self._unapproved.pop(number))
        index = self._server_call(number)
        if index is None:
            return super()._end_call(number)
        output = b"" if self._texts[index].tell() else self.add_arguments(ToolCallDelta(number, "{}"))
        item = self.output[index]
        item["arguments"] = self._texts.pop(index).getvalue()
        del self._calls[number]
        return output + self._event(
            "response.mcp_call_arguments.done", **self._place(index), arguments=item["arguments"]
        )

    def _request_approval(self, tool: ServerTool, arguments: io.StringIO) -> bytes:
        index = len(self.output)
        item = {"id": f"mcpr_{self._id}_{index}", "type": "mcp_approval_request"}
        item |= {"server_label": tool.server, "name": tool.spec.name}
        self.output.append({**item, "arguments": arguments.getvalue() or "{}"})
        added = self._event("response.output_item.added", output_index=index, item=self.output[index])
        return added + self._done(index)

    def end_server_call(self, output: ToolOutput) -> bytes:
        """Add the output of the first call without one, and complete that call."""
        index = self._open_calls.popleft()
        item = self.output[index]
        if output.failed:
            content = [{"type": "text", "text": output.text}]
            item["error"] = {"type": "mcp_tool_execution_error", "content": content}
        else:
            item["output"] = output.text
        item["status"] = "failed" if output.failed else "completed"
        event = self._event(f"response.mcp_call.{item['status']}", **self._place(index))
        return event + self._done(index)

    def abandon_calls(self) -> bytes:
        """Complete the calls that are not made, because the model's output is incomplete."""
        output = b""
        while self._open_calls:
            index = self._open_calls.popleft()
            self.output[index]["status"] = "incomplete"
            output += self._done(index)
        return output

    def _server_call(self, number: int) -> int | None:
        """Return the index of the item of an open call of a server's tool, or None."""
        index = self._calls.get(number)
        return index if index is not None and self.output[index]["type"] == _CALL else None

    def _place(self, index: int) -> dict[str, Any]:
        return {"item_id": self.output[index]["id"], "output_index": index}

    def _done(self, index: int) -> bytes:
        return self._event("response.output_item.done", output_index=index, item=self.output[index])
