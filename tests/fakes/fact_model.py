"""Fake chat model that extracts, compares and answers as a test specifies, and has configurable faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import fault_server


@dataclass
class FactModel:
    """The replies by kind of prompt (`extract`, `compare`, `answer`), in order; the last one repeats.

    `chat_text` is the reply to every other prompt.

    A reply is JSON, a text as it is, or the name of a fault: `!fail`, `!refuse`, `!hang`.
    """

    extract: Sequence[Any] = ()
    compare: Sequence[Any] = ()
    answer: Sequence[Any] = ()
    chat_text: str = ""
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def chat(self, request: Request) -> Response:
        document: dict[str, Any] = json.loads(await request.body())
        self.requests.append(document)
        self.requested.set()
        kind = document["messages"][0]["content"].split()[1]
        name = kind if kind in ("extract", "compare", "answer") else "chat"
        replies: Sequence[Any] = [self.chat_text] if name == "chat" else getattr(self, name)
        replies = replies or [{"facts": [], "sentences": []}]
        number = self.counts[name] = self.counts.get(name, 0) + 1
        reply = replies[min(number, len(replies)) - 1]
        if reply == "!hang":
            await asyncio.Event().wait()
        if reply in ("!fail", "!refuse"):
            status = 500 if reply == "!fail" else 400
            return JSONResponse({"error": {"message": "no", "type": "invalid_request_error"}}, status)
        text = reply if isinstance(reply, str) else json.dumps(reply)
        message = {"role": "assistant", "content": text}
        return JSONResponse(
            {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": "small",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            }
        )

    def prompt(self, number: int = -1) -> str:
        """Return the user's message of a request."""
        return str(self.requests[number]["messages"][-1]["content"])


def fact(subject: str, statement: str, quote: str, date: str = "") -> Mapping[str, str]:
    return {"subject": subject, "statement": statement, "quote": quote, "date": date}


@asynccontextmanager
async def fact_model() -> AsyncIterator[FactModel]:
    model = FactModel()
    async with fault_server.serve([Route("/v1/chat/completions", model.chat, methods=["POST"])]) as port:
        model.port = port
        yield model
