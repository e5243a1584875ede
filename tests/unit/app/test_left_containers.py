"""Containers that an earlier server left are removed when the server starts, before any run."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from urllib.parse import unquote

from tests.api.app_fixture import running_app


async def test_containers_of_a_killed_server_are_removed_at_the_start(tmp_path: Path) -> None:
    requests: asyncio.Queue[str] = asyncio.Queue()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).decode().partition(" HTTP")[0]
        requests.put_nowait(unquote(line))
        body = b'[{"Id": "left"}]' if "containers/json" in line else b"[]"
        head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "socket"
        async with (
            await asyncio.start_unix_server(respond, socket),
            running_app(tmp_path, container_socket=str(socket)),
            asyncio.timeout(60),
        ):
            seen = [await requests.get() for _ in range(4)]
    assert 'filters={"label":["sixfold.owner=' in seen[0]
    assert seen[2] == "DELETE /v1.41/containers/left?force=true&v=true"
