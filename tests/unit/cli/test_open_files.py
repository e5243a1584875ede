"""Limits on open files: a server raises its own, and responds with 503 before it has none left."""

from __future__ import annotations

import contextlib
import http.client
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import START_SECONDS, minimal

pytestmark = pytest.mark.slow  # each test starts programs
_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.execv(sys.executable, [sys.executable, "-m", "sixfold.cli.main", "serve", "--port", "0"])
"""
Limited = Callable[[int, int], tuple[subprocess.Popen[str], int]]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    """Start a server with a soft and a hard limit; return its process and its port."""
    started: list[subprocess.Popen[str]] = []

    def start(soft: int, hard: int) -> tuple[subprocess.Popen[str], int]:
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _LIMITED, str(soft), str(hard)],
                env={**minimal(tmp_path / "data"), "SIXFOLD_PREVIEWS": "allow"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        started.append(process)
        assert process.stdout is not None
        banner = ""
        while "Control-C" not in banner:
            line = process.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            banner += line
        result = re.search(r"http://127\.0\.0\.1:(\d+)", banner)
        assert result is not None
        return process, int(result[1])

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=START_SECONDS)


def soft_limit(pid: int | str) -> int:
    """Return the soft limit of a process, as reported by the kernel."""
    text = Path(f"/proc/{pid}/limits").read_text()
    result = re.search(r"Max open files\s+(\d+)", text)
    assert result is not None
    return int(result[1])


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return children + [result for child in children for result in descendants(child)]


def ask(port: int, path: str = "/livez", **headers: str) -> tuple[int, str | None]:
    """Send a request on a new connection; return its status and its Retry-After."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("Retry-After")


def test_serve_raises_a_low_soft_limit_but_not_for_workers(limited: Limited, tmp_path: Path) -> None:
    process, port = limited(300, 2000)
    assert soft_limit(process.pid) == 2000
    key = (tmp_path / "data" / "local.key").read_text().strip()
    assert ask(port, "/create_image?prompt=boat&width=64&height=64", Authorization=f"Bearer {key}")[0] == 200
    below = descendants(process.pid)
    # The process from which workers are forked, and a worker.
    assert len(below) >= 2
    assert {soft_limit(child) for child in below} == {300}


def test_serve_with_a_low_hard_limit_logs_a_warning(limited: Limited, tmp_path: Path) -> None:
    limited(300, 2000)
    assert "may open only 2,000 files" in (tmp_path / "log").read_text()


def test_serve_with_all_connections_used_answers_503(limited: Limited) -> None:
    _, port = limited(200, 200)
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        status, retry = ask(port)
        assert (status, retry) == (200, None)
        while status == 200:
            sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            assert len(sockets) < 200, "no connection was refused"
            status, retry = ask(port)
        assert (status, retry) == (503, "5")
        assert len(sockets) > 20
        sockets.pop().close()
        while ask(port)[0] == 503:
            pass


def test_serve_answers_more_connections_than_descriptors(limited: Limited) -> None:
    _, port = limited(200, 200)
    with contextlib.ExitStack() as stack:
        request: dict[int, socket.socket] = {}
        for _ in range(400):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            request[connection.fileno()] = connection
        statuses: dict[bytes, int] = {}
        poll = select.poll()
        for descriptor in request:
            poll.register(descriptor, select.POLLIN)
        while request:
            result = poll.poll(START_SECONDS * 1000)
            assert result, f"{len(request)} connections got no answer"
            for descriptor, _ in result:
                line = request.pop(descriptor).recv(4096).partition(b"\r\n")[0]
                statuses[line] = statuses.get(line, 0) + 1
                poll.unregister(descriptor)
    assert statuses.keys() == {b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"}, statuses
    assert sum(statuses.values()) == 400
    # The server may not have closed its connections yet.
    while (status := ask(port)[0]) == 503:
        pass
    assert status == 200
