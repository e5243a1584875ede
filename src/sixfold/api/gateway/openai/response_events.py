"""A response as it grows: its items, and the events that tell of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sixfold.api.gateway.chat_handler import ChatCall
from sixfold.api.gateway.openai.parsing import encode
from sixfold.api.gateway.openai.tools import PlainTool, ToolKind
from sixfold.core.gateway.chat import MessageEnd, ToolCallDelta, ToolCallStart
from sixfold.core.gateway.usage import TokenUsage


class ResponseEventWriter:
    """Takes what is said, gives the bytes that tell it; the items stay in `output`."""

    def __init__(self, request_id: str, model: str, asked: ChatCall) -> None:
        self.output: list[dict[str, Any]] = []
        self._id = request_id.removeprefix("req_")
        self._model = model
        self._created = int(time.time())
        self._echo = asked.echo()
        self._number = -1
        self._open: str = ""
        self._kinds: Mapping[str, ToolKind] = asked.tools()
        self._calls: dict[int, int] = {}
        self._plain: dict[int, PlainTool] = {}  # by the place of the item whose text they read

    def begin(self) -> bytes:
        """The response exists."""
        blank = self._document("in_progress", None)
        return self._event("response.created", response=blank) + self._event(
            "response.in_progress", response=blank
        )

    def said(self, text: str) -> bytes:
        """More text."""
        told = b""
        if self._open != "message":
            told = self._shut()
            item: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
            told += self._add("message", f"msg_{self._id}_{len(self.output)}", item)
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            told += self._event(
                "response.content_part.added", **self._place(), content_index=0, part=dict(part)
            )
            self.output[-1]["content"].append(part)
        self.output[-1]["content"][0]["text"] += text
        return told + self._event(
            "response.output_text.delta", **self._place(), content_index=0, delta=text, logprobs=[]
        )

    def thought(self, text: str) -> bytes:
        """More of a thought."""
        told = b""
        if self._open != "reasoning":
            told = self._shut()
            told += self._add(
                "reasoning", f"rs_{self._id}_{len(self.output)}", {"type": "reasoning", "summary": []}
            )
            part = {"type": "summary_text", "text": ""}
            told += self._event(
                "response.reasoning_summary_part.added", **self._place(), summary_index=0, part=dict(part)
            )
            self.output[-1]["summary"].append(part)
        self.output[-1]["summary"][0]["text"] += text
        return told + self._event(
            "response.reasoning_summary_text.delta", **self._place(), summary_index=0, delta=text
        )

    def sealed(self, signature: str) -> bytes:
        """What lets the model's server check the thought that was said, when it comes back."""
        told = self.thought("") if self._open != "reasoning" else b""
        self.output[-1]["encrypted_content"] = signature
        return told

    def calling(self, call: ToolCallStart) -> bytes:
        """A tool is asked for; its arguments may come among those of others."""
        told = self._shut() + self._called(call.number)
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
        letters = "ctc" if kind.text else "fc"
        return told + self._add("", f"{letters}_{self._id}_{len(self.output)}", item)

    def argument(self, more: ToolCallDelta) -> bytes:
        """More of a call's arguments."""
        index = self._calls.get(more.number, len(self.output) - 1)
        item = self.output[index]
        if index in self._plain:
            return self._input(index, self._plain[index].more(more.text))
        item["arguments"] += more.text
        return self._event(
            "response.function_call_arguments.delta", item_id=item["id"], output_index=index, delta=more.text
        )

    def _input(self, index: int, text: str) -> bytes:
        """More of a plain text that a tool is called with."""
        item = self.output[index]
        item["input"] += text
        place = {"item_id": item["id"], "output_index": index}
        return self._event("response.custom_tool_call_input.delta", **place, delta=text) if text else b""

    def close(self) -> bytes:
        """Nothing more comes: all that was open is whole."""
        return self._shut() + b"".join([self._called(number) for number in list(self._calls)])

    def _called(self, number: int) -> bytes:
        """A call is whole; one without arguments has an empty object."""
        if number not in self._calls:
            return b""
        index = self._calls[number]
        item = self.output[index]
        place = {"item_id": item["id"], "output_index": index}
        if index in self._plain:
            told = self._input(index, self._plain.pop(index).rest())
            told += self._event("response.custom_tool_call_input.done", **place, input=item["input"])
        else:
            told = b"" if item["arguments"] else self.argument(ToolCallDelta(number, "{}"))
            told += self._event(
                "response.function_call_arguments.done",
                **place,
                name=item["name"],
                arguments=item["arguments"],
            )
        del self._calls[number]
        return told + self._done(index)

    def _shut(self) -> bytes:
        """The text or the thought that was open is whole."""
        kind, self._open = self._open, ""
        if not kind:
            return b""
        item, place = self.output[-1], self._place()
        if kind == "message":
            part = item["content"][0]
            told = self._event(
                "response.output_text.done", **place, content_index=0, text=part["text"], logprobs=[]
            )
            told += self._event("response.content_part.done", **place, content_index=0, part=part)
        else:
            part = item["summary"][0]
            told = self._event(
                "response.reasoning_summary_text.done", **place, summary_index=0, text=part["text"]
            )
            told += self._event("response.reasoning_summary_part.done", **place, summary_index=0, part=part)
        return told + self._done(place["output_index"])

    def _done(self, index: int) -> bytes:
        item = self.output[index]
        item["status"] = "completed"
        return self._event("response.output_item.done", output_index=index, item=item)

    def end(self, ended: MessageEnd) -> bytes:
        """The response is whole."""
        document = self.response(ended)
        return self._event(f"response.{document['status']}", response=document)

    def fail(self, fault: Mapping[str, Any]) -> bytes:
        """The response will never be whole; `fault` is what the event of an error has."""
        document = self._document("failed", None)
        document["error"] = {"code": "server_error", "message": fault["message"]}
        return self._event("error", **fault) + self._event("response.failed", response=document)

    def response(self, ended: MessageEnd) -> dict[str, Any]:
        """The whole response."""
        reasons = {"length": "max_output_tokens", "filter": "content_filter"}
        reason = reasons.get(ended.stop)
        document = self._document("incomplete" if reason else "completed", ended.usage)
        document["incomplete_details"] = {"reason": reason} if reason else None
        return document

    def _add(self, kind: str, item_id: str, item: dict[str, Any]) -> bytes:
        self._open = kind
        self.output.append({"id": item_id, **item, "status": "in_progress"})
        return self._event(
            "response.output_item.added", output_index=len(self.output) - 1, item=self.output[-1]
        )

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1}

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        body = encode({"type": kind, "sequence_number": self._number, **fields})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)

    def _document(self, status: str, used: TokenUsage | None) -> dict[str, Any]:
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self._model,
            "output": self.output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "store": False,
            "usage": _usage(used) if used is not None else None,
            **self._echo,
        }


def _usage(used: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }
