"""App on a port, in a thread with its own event loop, for synchronous clients and other programs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from sixfold.core.accounts import accounts
from tests.api.app_fixture import running_app
from tests.harness.embedded_server import EmbeddedServer, open_listener
from tests.harness.processes import PATIENCE_SECONDS

CREDIT_MICROS = 1_000_000_000


class ServedApp:
    """Address of a running app, and a key with credit."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder = folder
        self._settings = settings
        self._socket = open_listener()
        self._server: EmbeddedServer | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = ""

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)
        self._socket.close()

    async def _serve(self) -> None:
        async with running_app(self._folder, port=self.port, **self._settings) as app:
            await app.database.write(accounts.credit(app.account.email, CREDIT_MICROS))
            config = uvicorn.Config(app.asgi, log_config=None, lifespan="off", ws="none")
            self._server = EmbeddedServer(config)
            self.key = app.key
            # The socket is already listening.
            self._ready.set()
            await self._server.serve([self._socket])
            assert await app.faults() == ()


@contextlib.contextmanager
def served_app(folder: Path, **settings: Any) -> Iterator[ServedApp]:
    """Run an app on its own port within the block."""
    served = ServedApp(folder, **settings)
    served.start()
    try:
        yield served
    finally:
        served.stop()
