"""Server process with a meter of its event loop, and the cost of one request."""

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
    """Status of a response, or 0 if the server closed the connection, and the cost of the request."""

    status: int
    loop_ms: float
    grown_bytes: int
    text: str = ""


class MeteredServer:
    """Server, the meter of its loop, and the credentials of its account."""

    def __init__(self, server: Server, meter: mmap.mmap) -> None:
        self.server = server
        self.known: dict[str, str] = {"Authorization": f"Bearer {server.key}"}
        self._meter = meter
        self._process = Path("/proc") / str(server.process.pid)
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)

    def close(self) -> None:
        self._connection.close()

    async def sign_in(self) -> None:
        """Add a login session to `known`."""
        _, text = await self.server.command("account", "link", "local@localhost")
        result = re.search(r"/signin\?token=\S+", text)
        assert result is not None, text
        response = await self.server.call("GET", result[0])
        session = re.search(r"sixfold_session=[^;]+", response.headers["set-cookie"])
        assert session is not None
        cookie = session[0]
        page = await self.server.call("GET", "/account", Cookie=cookie)
        token = _CSRF.search(page.body.decode())
        assert token is not None
        self.known |= {"Cookie": cookie, "X-CSRF-Token": token[1]}

    def cost(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Cost:
        """Send one request and return its cost."""
        before = self._memory("VmRSS")
        # Resets the peak.
        (self._process / "clear_refs").write_text("5")
        LAYOUT.pack_into(self._meter, 0, 0.0)
        status, text = self.send(method, path, body, headers)
        # Wait until the callback that sent the response has ended.
        self.send("GET", "/livez", None, {})
        grown = self._memory("VmHWM") - before
        return Cost(status, 1000 * LAYOUT.unpack_from(self._meter)[0], grown, text)

    def _memory(self, name: str) -> int:
        result = re.search(rf"{name}:\s+(\d+) kB", (self._process / "status").read_text())
        assert result is not None
        return int(result[1]) * _KIB

    def send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, str]:
        """Send one request; return its status, 0 for a closed connection, and the start of the response."""
        connection = self._connection
        try:
            with suppress(
                BrokenPipeError,
                ConnectionResetError,
                # The server rejected the request before reading its body.
            ):
                connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            text = response.read(400).decode("utf-8", "replace")
            while response.read(1 << 20):
                pass
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0, ""
        return response.status, text


@asynccontextmanager
async def metered(folder: Path, *, is_metered: bool = True) -> AsyncIterator[MeteredServer]:
    """Run a server with a signed-in user; without a meter it uses its own loop."""
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
