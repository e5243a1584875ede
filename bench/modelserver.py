"""A minimal model server for measuring gateways: `python -m bench.modelserver PORT`.

It answers every POST with the same chat completion, or with forty chunks, one per millisecond, if the body
requests a stream. It parses only the length of a body.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop

CHUNKS = 40
_SHARED = {"id": "chatcmpl-1", "created": 1, "model": "m"}
_USAGE = {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 10 + CHUNKS}
_MESSAGE = {"role": "assistant", "content": " ".join(["word"] * CHUNKS)}
_CHOICE = {"index": 0, "message": _MESSAGE, "finish_reason": "stop"}
_BODY = json.dumps({**_SHARED, "object": "chat.completion", "choices": [_CHOICE], "usage": _USAGE}).encode()
_WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_BODY) + _BODY
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _event(document: object) -> bytes:
    data = b"data: " + json.dumps(document).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def _events() -> list[bytes]:
    def chunk(delta: object, stop: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return _event({**_SHARED, "object": "chat.completion.chunk", "choices": [choice]})

    words = [chunk({"content": " word"}) for _ in range(CHUNKS)]
    usage = _event({**_SHARED, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE})
    done = b"data: [DONE]\n\n"
    return [*words, chunk({}, "stop"), usage, b"%x\r\n%s\r\n0\r\n\r\n" % (len(done), done)]


STREAM = _events()


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._buffer = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            _, _, rest = head.partition(b"content-length:")
            length = int(rest.split(b"\r\n", 1)[0]) if rest else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            if b'"stream":true' in body.replace(b" ", b""):
                self._transport.write(HEAD)
                self._next(0)
            else:
                self._transport.write(_WHOLE)

    def _next(self, index: int) -> None:
        self._transport.write(STREAM[index])
        if index + 1 < len(STREAM):
            asyncio.get_running_loop().call_later(0.001, self._next, index + 1)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
