"""The start of a zygote that is canceled while a thread spawns its process."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence

import pytest

from sixfold import settings
from sixfold.drivers import forkserver
from sixfold.drivers.forkserver import ForkServer


async def test_canceled_start_keeps_its_socket_and_reaps_its_zygote(monkeypatch: pytest.MonkeyPatch) -> None:
    began, proceed = threading.Event(), threading.Event()
    processes: list[subprocess.Popen[bytes]] = []
    sockets: list[int] = []
    spawn = forkserver._spawn

    def delayed(
        control: socket.socket, environ: Mapping[str, str], preload: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        began.set()
        assert proceed.wait(60)
        sockets.append(control.fileno())
        processes.append(spawn(control, environ, preload))
        return processes[0]

    monkeypatch.setattr(forkserver, "_spawn", delayed)
    environ = forkserver.environment(settings.worker_environment())
    booting = asyncio.create_task(ForkServer.boot(environ, ()))
    assert await asyncio.to_thread(began.wait, 60)
    booting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await booting
    proceed.set()
    async with asyncio.timeout(60):
        while not processes or processes[0].returncode is None:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.01)
    assert sockets[0] > 0
    assert processes[0].returncode == -signal.SIGKILL
