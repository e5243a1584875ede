"""Answers that do not end as they should, to be put in a route's place."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send


def cut_off(length: int, sent: bytes) -> ASGIApp:
    """An answer that promises `length` bytes and breaks off after `sent`."""

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        head = [(b"content-type", b"image/png"), (b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": sent, "more_body": False})

    return answer


def endless(piece: bytes) -> ASGIApp:
    """An answer that goes on for as long as somebody reads."""

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1_000_000):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)

    return answer
