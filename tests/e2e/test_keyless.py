"""Requests without a key to a real server: directly, through proxies, and by its Unix socket."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.cli import client
from tests.e2e.servers import Server, serving
from tests.harness import processes
from tests.harness.cases import nightly_after
from tests.harness.waiting import wait_until

IMAGE_PATH = "/create_image?prompt=x&width=64&height=64"
ACCOUNT_ROUTES = ("/metrics", "/api/account", "/api/containers/predictions", "/api/engines", "/predictions")
KEYLESS_ROUTES = ("/queue", "/history", "/object_info/KSampler", "/system_stats", IMAGE_PATH)
OTHER_USER_SCRIPT = """
import os, socket, sys
os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect("sixfold.sock")
try:
    s.sendall(b"GET /api/account HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    print(len(s.recv(100)))
except ConnectionError:
    print(0)
"""


async def raw(port: int, path: str, version: str = "1.1", host: str = "127.0.0.1", **headers: str) -> str:
    """Send a request as a proxy does; return the head and body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"GET {path} HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n".encode())
    try:
        return (await reader.read()).decode("latin-1")
    finally:
        writer.close()
        await writer.wait_closed()


async def upgrade(port: int, version: str, headers: str) -> bytes:
    """The first byte of the first websocket frame: 0x81 for a text, 0x88 for a close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    nonce = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    writer.write(
        f"GET /ws?clientId=x HTTP/{version}\r\nHost: 127.0.0.1:{port}\r\n{lines}{nonce}{headers}\r\n".encode()
    )
    try:
        await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(1)
    finally:
        writer.close()


def status(answer: str) -> int:
    return int(answer.split(" ", 2)[1])


@asynccontextmanager
async def forwarder(port: int) -> AsyncIterator[int]:
    """A program that passes on bytes, as `ssh -R` and socat do; gives its port."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer), return_exceptions=True)

    async with await asyncio.start_server(pass_on, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data") as started:
        yield started


async def test_keyless_server_serves_two_apis_and_hides_the_account(server: Server) -> None:
    assert [status(await raw(server.port, path)) for path in KEYLESS_ROUTES] == [200] * len(KEYLESS_ROUTES)
    answers = {path: status(await raw(server.port, path)) for path in ACCOUNT_ROUTES}
    assert answers == {**dict.fromkeys(ACCOUNT_ROUTES, 401), "/predictions": 303}
    bearer = {"Authorization": f"Bearer {server.key}"}
    history = json.loads((await server.call("GET", "/api/containers/predictions", **bearer)).body)
    assert [row["model"] for row in history["predictions"]] == ["create_image"]


async def test_requests_of_a_plain_proxy_need_a_key(server: Server) -> None:
    for path in KEYLESS_ROUTES:
        answer = await raw(server.port, path, "1.0")
        assert status(answer) == 401
        assert "HTTP/1.0 requests without a key are refused" in answer
        assert status(await raw(server.port, path, X_Forwarded_For="203.0.113.9")) == 401
        assert status(await raw(server.port, path, "1.0", Authorization=f"Bearer {server.key}")) == 200
    assert await upgrade(server.port, "1.1", "") == b"\x81"
    assert await upgrade(server.port, "1.0", f"Authorization: Bearer {server.key}\r\n") == b"\x81"
    assert await upgrade(server.port, "1.0", "") == b"\x88", "closed by the server before any message"
    code, text = await server.command("doctor")
    assert code == 0
    assert f"HTTP/1.0: {len(KEYLESS_ROUTES) + 1}, a forwarding header: {len(KEYLESS_ROUTES)}" in text
    log = (server.folder.parent / f"{server.folder.name}.log").read_text()
    assert log.count("seem to come from a proxy") == 1


async def test_forwarder_allows_only_keyless_requests(server: Server) -> None:
    async with forwarder(server.port) as port:
        assert status(await raw(port, IMAGE_PATH, host="localhost")) == 200
        answers = {path: status(await raw(port, path, host="localhost")) for path in ACCOUNT_ROUTES}
    assert answers == {**dict.fromkeys(ACCOUNT_ROUTES, 401), "/predictions": 303}


async def test_local_socket_has_the_rights_of_the_operator(server: Server) -> None:
    path = server.folder / "sixfold.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (server.folder / "local.key").unlink()
    asking = client.ServerClient("http://127.0.0.1:1", None, path)
    account = await asyncio.to_thread(asking.get, "/api/account")
    assert account["email"] == "local@localhost"
    assert b"sixfold_requests" in (await asyncio.to_thread(asking.ask, "GET", "/metrics")).data
    code, text = await server.command("predictions", "--json")
    assert (code, json.loads(text)["predictions"]) == (0, [])
    code, text = await server.command("open")
    assert code == 0
    link = next(word for word in text.split() if "/signin?token=" in word)
    answer = await raw(server.port, link[link.index("/signin") :])
    assert "set-cookie: sixfold_session=" in answer.lower()
    assert await server.terminate() == 0
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
async def test_local_socket_refuses_other_users(server: Server) -> None:
    server.folder.chmod(0o755)
    (server.folder / "sixfold.sock").chmod(0o666)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHER_USER_SCRIPT, str(server.folder), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await processes.read_output(child)
    assert output.decode().strip() == "0"


async def test_first_start_in_a_pipe_prints_the_key_and_a_link(server: Server) -> None:
    assert server.banner.count(server.key) == 2
    assert "/signin?token=link_" in server.banner
    await assert_curl_works(server.banner)


async def assert_curl_works(banner: str) -> None:
    [line] = [line for line in banner.splitlines() if line.startswith("curl ")]
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", line, stdout=asyncio.subprocess.PIPE)
    output, _ = await processes.read_output(child)
    assert json.loads(output)["cost"] == "0.04"


@pytest.mark.parametrize(("testing", "secrets"), nightly_after(1, [("0", 0), ("1", 2)]))
async def test_a_first_start_into_a_file_prints_no_secret(tmp_path: Path, testing: str, secrets: int) -> None:
    folder, log = tmp_path / "data", tmp_path / "log"
    command = (sys.executable, "-m", "sixfold.cli.main", "serve", "--port", "0", "--data-dir", str(folder))
    environ = {**settings.worker_environment(), "SIXFOLD_PROBE": "0", "HOME": str(tmp_path)}
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            *command, env={**environ, "SIXFOLD_TESTING": testing}, stdout=output, stderr=output
        )
    try:
        await wait_until(lambda: "Control-C" in log.read_text())
        banner = log.read_text()
        assert banner.count((folder / "local.key").read_text().strip()) == secrets
        assert ("/signin?token=link_" in banner) is bool(secrets)
        assert str(folder / "local.key") in banner
        assert f"sixfold open --data-dir {folder}" in banner
        await assert_curl_works(banner)
    finally:
        child.terminate()
        await child.wait()


async def test_a_first_start_at_a_terminal_prints_the_key_and_a_link(tmp_path: Path) -> None:
    master, slave = os.openpty()
    command = (sys.executable, "-m", "sixfold.cli.main", "serve", "--port", "0", "--data-dir", str(tmp_path))
    environ = {**settings.worker_environment(), "SIXFOLD_PROBE": "0", "HOME": str(tmp_path)}
    child = await asyncio.create_subprocess_exec(*command, env=environ, stdout=slave, stderr=slave)
    os.close(slave)
    text = b""
    try:
        while b"Control-C" not in text:
            text += await asyncio.to_thread(os.read, master, 4096)
    finally:
        child.terminate()
        await child.wait()
        os.close(master)
    key = (tmp_path / "local.key").read_bytes().strip()
    # The key is shown alone and in the command to paste.
    assert text.count(key) == 2
    assert b"/signin?token=link_" in text
