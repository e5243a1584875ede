"""Files for containers and spaces are sent in parts, and responses of containers are limited."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from sixfold.clients.cog import CogClient, CogFile
from sixfold.clients.gradio.server import GradioServer
from sixfold.core.catalog.engines import EngineError, Result, Task
from sixfold.engines.providers.cog import CogContainer, CogEngine
from sixfold.net.limited_responses import UnreadableResponse
from sixfold.net.response_memory import response_memory
from tests import loop_time
from tests.fakes import fault_server
from tests.fakes.cog import FakeCog

MIB = 2**20
LARGE = 64 * MIB


class Discarding:
    """A server that reads uploads without storing them, and responds to cancellations with 32 MiB."""

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


async def predict(server: CogClient, inputs: Mapping[str, Any]) -> None:
    with response_memory("container") as memory:
        await server.predict("one", inputs, memory)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 200_000, 400_001])
async def test_container_receives_a_file_as_one_data_uri(tmp_path: Path, size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "photo").write_bytes(content)
    cog = FakeCog()
    async with fault_server.serve(cog.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        inputs = {"prompt": 'a "é"', "photo": CogFile(tmp_path / "photo", "image/png", size), "tags": ["a"]}
        await predict(CogClient(client, f"http://127.0.0.1:{port}"), inputs)
    photo = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    assert cog.requests["one"] == {"prompt": 'a "é"', "photo": photo, "tags": ["a"]}


@pytest.mark.parametrize("kind", ["container", "space"])
async def test_a_large_file_is_sent_in_parts(large_file: Path, kind: str) -> None:
    server = Discarding()
    async with fault_server.serve(server.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        address = f"http://127.0.0.1:{port}"
        tracemalloc.start()
        try:
            async with loop_time.watched() as loop:
                if kind == "container":
                    inputs = {"photo": CogFile(large_file, "image/png", LARGE)}
                    await predict(CogClient(client, address), inputs)
                else:
                    assert await GradioServer(client, address).upload(large_file, "x.bin") == "stored.bin"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert server.received > LARGE
    assert peak < 16 * MIB
    assert loop.longest < 0.1


async def test_a_large_answer_to_a_cancellation_is_not_read() -> None:
    server = Discarding()
    async with fault_server.serve(server.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(UnreadableResponse, match="more than 8,388,608 bytes"):
            await CogClient(client, f"http://127.0.0.1:{port}").cancel("one")


class Output:
    """A server whose predictions have an output and a log."""

    def __init__(self, output: Any, logs: str = "") -> None:
        self._document = {"status": "succeeded", "output": output, "logs": logs}
        self.routes: list[BaseRoute] = [Route("/predictions/{name}", self._predict, methods=["PUT"])]

    async def _predict(self, _request: Request) -> Response:
        return JSONResponse(self._document)


class LargeOutput:
    """A server whose prediction returns a file of 48 MiB, sent in parts."""

    def __init__(self) -> None:
        self.routes: list[BaseRoute] = [Route("/predictions/{name}", self._predict, methods=["PUT"])]

    async def _predict(self, request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b'{"status": "succeeded", "output": "data:application/zip;base64,'
            for _ in range(64):
                yield b"A" * MIB
            yield b'"}'

        await request.body()
        return StreamingResponse(parts())


async def test_a_large_file_from_a_container_is_written_in_pieces(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        result, _ = await run_cog(LargeOutput(), tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (artifact,) = result.artifacts
    assert artifact.path is not None
    assert (artifact.content_type, artifact.path.stat().st_size) == ("application/zip", 48 * MIB)
    # The response and its decoded string.
    assert peak < 150 * MIB


async def run_cog(server: Output | LargeOutput, folder: Path) -> tuple[Result, list[str]]:
    lines: list[str] = []
    async with fault_server.serve(server.routes) as port, httpx.AsyncClient(trust_env=False) as client:
        container = CogContainer(CogClient(client, f"http://127.0.0.1:{port}"), "1", folder, no_removal)
        context = SimpleNamespace(progress=lambda _: None, log=lines.append, scratch=folder)
        return await CogEngine(container).run(Task("one", "model", {}, {}), cast("Any", context)), lines


async def no_removal() -> None:
    return


async def test_the_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    _, lines = await run_cog(Output("done", "a line\n" * 100_000 + "x" * 5000), tmp_path)
    assert len(lines) == 1000
    assert lines[-1] == "x" * 1000


async def test_a_container_returns_at_most_1000_files(tmp_path: Path) -> None:
    result, _ = await run_cog(Output(["data:text/plain,a"] * 1000), tmp_path)
    assert len(result.artifacts) == 1000
    with pytest.raises(EngineError, match="returned 1,001 files"):
        await run_cog(Output({"a": ["data:text/plain,a"] * 1000, "b": "data:text/plain,b"}), tmp_path)
