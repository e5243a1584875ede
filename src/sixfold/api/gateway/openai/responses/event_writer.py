"""Builds a response item by item, with the events that report each change."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import Any

from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.openai.parsing import encode
from sixfold.api.gateway.openai.tools import PlainTool, ToolKind
from sixfold.core.gateway.chat import MessageEnd, ToolCallDelta, ToolCallStart
from sixfold.core.gateway.pricing.usage import TokenUsage


class ResponseEventWriter:
    """Renders the events of a response; the items are in `output`."""

    def __init__(self, request_id: str, model: str, chat_call: ChatCall) -> None:
        self.output: list[dict[str, Any]] = []
        self._id = request_id.removeprefix("req_")
        self._model = model
        self._created = int(time.time())
        self._echo = chat_call.echo()
        self._number = -1
        self._open: str = ""
        self._kinds: Mapping[str, ToolKind] = chat_call.tools()
        self._calls: dict[int, int] = {}
        # Readers of plain-text tools, by the index of their item.
        self._plain: dict[int, PlainTool] = {}
        # The text, the arguments or the input of each open item, by its index.
        self._texts: dict[int, io.StringIO] = {}
        self._searches = chat_call.searches

    def begin(self) -> bytes:
        """Return the events that announce the response."""
        document = self._document("in_progress", None)
        return self._event("response.created", response=document) + self._event(
            "response.in_progress", response=document
        )

    def add_searches(self) -> bytes:
        """Add the items of the searches that were run before the model answers."""
        output = b""
        for search in self._searches:
            index = len(self.output)
            output += self._add_item("", f"{search.prefix}_{self._id}_{index}", search.item())
            for state in ("in_progress", "searching", "completed"):
                output += self._event(f"response.{search.kind}.{state}", **self._position())
            output += self._item_done(index)
        return output

    def add_text(self, text: str) -> bytes:
        output = b""
        if self._open != "message":
            output = self._end_open()
            item: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
            output += self._add_item("message", f"msg_{self._id}_{len(self.output)}", item)
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            output += self._event(
                "response.content_part.added", **self._position(), content_index=0, part=dict(part)
            )
            self.output[-1]["content"].append(part)
        self._texts[len(self.output) - 1].write(text)
        return output + self._event(
            "response.output_text.delta", **self._position(), content_index=0, delta=text, logprobs=[]
        )

    def add_reasoning(self, text: str) -> bytes:
        output = b""
        if self._open != "reasoning":
            output = self._end_open()
            output += self._add_item(
                "reasoning", f"rs_{self._id}_{len(self.output)}", {"type": "reasoning", "summary": []}
            )
            part = {"type": "summary_text", "text": ""}
            output += self._event(
                "response.reasoning_summary_part.added", **self._position(), summary_index=0, part=dict(part)
            )
            self.output[-1]["summary"].append(part)
        self._texts[len(self.output) - 1].write(text)
        return output + self._event(
            "response.reasoning_summary_text.delta", **self._position(), summary_index=0, delta=text
        )

    def set_signature(self, signature: str) -> bytes:
        """Set the signature with which the model's server can verify the reasoning later."""
        output = self.add_reasoning("") if self._open != "reasoning" else b""
        self.output[-1]["encrypted_content"] = signature
        return output

    def begin_call(self, call: ToolCallStart) -> bytes:
        """Begin a tool call; arguments of several calls may be interleaved."""
        output = self._end_open() + self._end_call(call.number)
        self._calls[call.number] = len(self.output)
        kind = self._kinds.get(call.name) or ToolKind(call.name)
        item: dict[str, Any] = {"call_id": call.id, "name": kind.name}
        if kind.namespace:
            item["namespace"] = kind.namespace
        if kind.text:
            self._plain[len(self.output)] = PlainTool()
            item |= {"type": "custom_tool_call", "input": ""}
        else:
            item |= {"type": "function_call", "arguments": ""}
        prefix = "ctc" if kind.text else "fc"
        return output + self._add_item("", f"{prefix}_{self._id}_{len(self.output)}", item)

    def add_arguments(self, delta: ToolCallDelta) -> bytes:
        index = self._calls.get(delta.number, len(self.output) - 1)
        item = self.output[index]
        if index in self._plain:
            return self._input(index, self._plain[index].add(delta.text))
        self._texts[index].write(delta.text)
        return self._event(
            "response.function_call_arguments.delta", item_id=item["id"], output_index=index, delta=delta.text
        )

    def _input(self, index: int, text: str) -> bytes:
        """Add to the text of a plain-text tool call."""
        self._texts[index].write(text)
        place = {"item_id": self.output[index]["id"], "output_index": index}
        return self._event("response.custom_tool_call_input.delta", **place, delta=text) if text else b""

    def close(self) -> bytes:
        """Complete all open items."""
        return self._end_open() + b"".join([self._end_call(number) for number in list(self._calls)])

    def _end_call(self, number: int) -> bytes:
        """Complete a call; missing arguments become an empty object."""
        if number not in self._calls:
            return b""
        index = self._calls[number]
        item = self.output[index]
        place = {"item_id": item["id"], "output_index": index}
        if index in self._plain:
            output = self._input(index, self._plain.pop(index).finish())
            item["input"] = self._texts.pop(index).getvalue()
            output += self._event("response.custom_tool_call_input.done", **place, input=item["input"])
        else:
            output = b"" if self._texts[index].tell() else self.add_arguments(ToolCallDelta(number, "{}"))
            item["arguments"] = self._texts.pop(index).getvalue()
            output += self._event(
                "response.function_call_arguments.done",
                **place,
                name=item["name"],
                arguments=item["arguments"],
            )
        del self._calls[number]
        return output + self._item_done(index)

    def _end_open(self) -> bytes:
        """Complete the open text or reasoning."""
        kind, self._open = self._open, ""
        if not kind:
            return b""
        item, place = self.output[-1], self._position()
        text = self._texts.pop(place["output_index"]).getvalue()
        if kind == "message":
            part = item["content"][0]
            part["text"] = text
            output = self._annotate(part) + self._event(
                "response.output_text.done", **place, content_index=0, text=part["text"], logprobs=[]
            )
            output += self._event("response.content_part.done", **place, content_index=0, part=part)
        else:
            part = item["summary"][0]
            part["text"] = text
            output = self._event("response.reasoning_summary_text.done", **place, summary_index=0, text=text)
            output += self._event("response.reasoning_summary_part.done", **place, summary_index=0, part=part)
        return output + self._item_done(place["output_index"])

    def _annotate(self, part: dict[str, Any]) -> bytes:
        """Add the citations to a complete text."""
        part["annotations"] = [row for search in self._searches for row in search.annotations(part["text"])]
        place = {**self._position(), "content_index": 0}
        return b"".join(
            self._event(
                "response.output_text.annotation.added",
                **place,
                annotation_index=index,
                annotation=annotation,
            )
            for index, annotation in enumerate(part["annotations"])
        )

    def _item_done(self, index: int) -> bytes:
        item = self.output[index]
        item["status"] = "completed"
        return self._event("response.output_item.done", output_index=index, item=item)

    def end(self, end: MessageEnd) -> bytes:
        document = self.response(end)
        return self._event(f"response.{document['status']}", response=document)

    def fail(self, error: Mapping[str, Any]) -> bytes:
        """Return the events of a failed response; `fault` has the fields of the error event."""
        for index, text in self._texts.items():
            _set_text(self.output[index], text.getvalue())
        document = self._document("failed", None)
        document["error"] = {"code": "server_error", "message": error["message"]}
        return self._event("error", **error) + self._event("response.failed", response=document)

    def response(self, end: MessageEnd) -> dict[str, Any]:
        reasons = {"length": "max_output_tokens", "filter": "content_filter"}
        reason = reasons.get(end.stop)
        document = self._document("incomplete" if reason else "completed", end.usage)
        document["incomplete_details"] = {"reason": reason} if reason else None
        return document

    def _add_item(self, kind: str, item_id: str, item: dict[str, Any]) -> bytes:
        self._open = kind
        self._texts[len(self.output)] = io.StringIO()
        self.output.append({"id": item_id, **item, "status": "in_progress"})
        return self._event(
            "response.output_item.added", output_index=len(self.output) - 1, item=self.output[-1]
        )

    def _position(self) -> dict[str, Any]:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1}

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        body = encode({"type": kind, "sequence_number": self._number, **fields})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)

    def _document(self, status: str, tokens: TokenUsage | None) -> dict[str, Any]:
        return {
            **response_defaults(f"resp_{self._id}", self._created, self._model, status),
            "output": self.output,
            "usage": usage_fields(tokens) if tokens is not None else None,
            **self._echo,
        }


def response_defaults(response_id: str, created_at: int, model: str, status: str) -> dict[str, Any]:
    """Return a response without output, with the defaults of the fields that a request can set."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "store": False,
        "usage": None,
    }


def _set_text(item: dict[str, Any], text: str) -> None:
    """Set the text of an item that is not complete."""
    match item["type"]:
        case "message":
            item["content"][0]["text"] = text
        case "reasoning":
            item["summary"][0]["text"] = text
        case "custom_tool_call":
            item["input"] = text
        case "function_call" | "mcp_call":
            item["arguments"] = text
        case _:
            pass


def usage_fields(tokens: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
