"""Applications that send incomplete or endless responses, to replace a route of a fake."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send


def cut_off(length: int, sent: bytes) -> ASGIApp:
    """Return an application that announces `length` bytes and disconnects after `sent`."""

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        head = [(b"content-type", b"image/png"), (b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": sent, "more_body": False})

    return answer


def endless(piece: bytes) -> ASGIApp:
    """Return an application that sends until the client disconnects."""

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1_000_000):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)

    return answer
