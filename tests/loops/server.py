"""The measuring server in a process of its own, and what one request costs it."""

from __future__ import annotations

import http.client
import mmap
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import servers
from tests.e2e.servers import Server
from tests.loops import child
from tests.loops.child import LAYOUT

_CSRF = re.compile(r'data-csrf="([^"]+)"')
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """The status of a response, or 0 where the server closed the connection, and what the request took."""

    status: int
    loop_ms: float
    grown_bytes: int
    text: str = ""


class MeteredServer:
    """A server, the meter of its loop, and the credentials of its account."""

    def __init__(self, server: Server, meter: mmap.mmap) -> None:
        self.server = server
        self.known: dict[str, str] = {"Authorization": f"Bearer {server.key}"}
        self._meter = meter
        self._process = Path("/proc") / str(server.process.pid)
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def sign_in(self) -> None:
        """Add a session of the pages to `known`."""
        _, text = await self.server.command("account", "link", "local@localhost")
        result = re.search(r"/signin\?token=\S+", text)
        assert result is not None, text
        answer = await self.server.call("GET", result[0])
        session = re.search(r"sixfold_session=[^;]+", answer.headers["set-cookie"])
        assert session is not None
        cookie = session[0]
        page = await self.server.call("GET", "/account", Cookie=cookie)
        token = _CSRF.search(page.body.decode())
        assert token is not None
        self.known |= {"Cookie": cookie, "X-CSRF-Token": token[1]}

    def cost(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Cost:
        """Send one request and return what it took."""
        before = self._memory("VmRSS")
        (self._process / "clear_refs").write_text("5")  # resets the peak
        LAYOUT.pack_into(self._meter, 0, 0.0)
        status, text = self.send(method, path, body, headers)
        self.send("GET", "/livez", None, {})  # the callback that sent the response has ended
        grown = self._memory("VmHWM") - before
        return Cost(status, 1000 * LAYOUT.unpack_from(self._meter)[0], grown, text)

    def _memory(self, name: str) -> int:
        result = re.search(rf"{name}:\s+(\d+) kB", (self._process / "status").read_text())
        assert result is not None
        return int(result[1]) * _KIB

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, str]:
        """Send one request; returns its status, 0 for a closed connection, and how the response begins."""
        connection = self._connection
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
                connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            text = answer.read(400).decode("utf-8", "replace")
            while answer.read(1 << 20):
                pass
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0, ""
        return answer.status, text


@asynccontextmanager
async def metered(folder: Path, *, is_metered: bool = True) -> AsyncIterator[MeteredServer]:
    """A server for the length of a test, with a person signed in; without a meter it has its own loop."""
    path = folder / "meter"
    path.write_bytes(bytes(LAYOUT.size))
    program = (sys.executable, child.__file__, str(path)) if is_metered else servers.PROGRAM
    async with servers.running(folder / "data", program) as server:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), LAYOUT.size) as meter:
            result = MeteredServer(server, meter)
            try:
                await result.sign_in()
                yield result
            finally:
                result.close()
