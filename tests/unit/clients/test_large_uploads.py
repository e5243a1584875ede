"""Files for containers and spaces are sent in parts, and responses that nobody needs are limited."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from sixfold.clients.cog import CogClient, CogFile
from sixfold.clients.gradio.server import GradioServer
from sixfold.net.limited_responses import UnreadableResponse
from tests import loop_time
from tests.fakes import fault_server
from tests.fakes.cog import FakeCog

MIB = 2**20
LARGE = 64 * MIB


class Discarding:
    """A server that reads uploads without storing them, and answers cancellations with 32 MiB."""

    def __init__(self) -> None:
        self.received = 0
        self.routes: list[BaseRoute] = [
            Route("/predictions/{name}", self._predict, methods=["PUT"]),
            Route("/predictions/{name}/cancel", self._cancel, methods=["POST"]),
            Route("/upload", self._upload, methods=["POST"]),
        ]

    async def _read(self, request: Request) -> None:
        async for chunk in request.stream():
            self.received += len(chunk)

    async def _predict(self, request: Request) -> Response:
        await self._read(request)
        return JSONResponse({"status": "succeeded", "output": "done"})

    async def _upload(self, request: Request) -> Response:
        await self._read(request)
        return JSONResponse(["stored.bin"])

    async def _cancel(self, _request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for _ in range(32):
                yield bytes(MIB)

        return StreamingResponse(parts())


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(LARGE)
    return path


@pytest.mark.parametrize("size", [0, 1, 2, 3, 200_000, 400_001])
async def test_container_receives_a_file_as_one_data_uri(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "photo").write_bytes(content)
    cog = FakeCog()
    async with fault_server.serve(cog.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        inputs = {"prompt": 'a "é"', "photo": CogFile(tmp_path / "photo", "image/png", size), "tags": ["a"]}
        await CogClient(client, f"http://127.0.0.1:{port}").predict("one", inputs)
    photo = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    assert cog.asked["one"] == {"prompt": 'a "é"', "photo": photo, "tags": ["a"]}


@pytest.mark.parametrize("kind", ["container", "space"])
async def test_a_large_file_is_sent_in_parts(large_file: Path, kind: str) -> None:
    server = Discarding()
    async with fault_server.serve(server.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        address = f"http://127.0.0.1:{port}"
        tracemalloc.start()
        try:
            async with loop_time.watched() as seen:
                if kind == "container":
                    inputs = {"photo": CogFile(large_file, "image/png", LARGE)}
                    await CogClient(client, address).predict("one", inputs)
                else:
                    assert await GradioServer(client, address).upload(large_file, "x.bin") == "stored.bin"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert server.received > LARGE
    assert peak < 16 * MIB
    assert seen.longest < 0.1


async def test_a_large_answer_to_a_cancellation_is_not_read() -> None:
    server = Discarding()
    async with fault_server.serve(server.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(UnreadableResponse, match="more than 8,388,608 bytes"):
            await CogClient(client, f"http://127.0.0.1:{port}").cancel("one")
