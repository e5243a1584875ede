"""A further process of `serve --processes N`: serves the same port without running predictions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys

import msgspec
import uvloop

from sixfold import process_resources, settings
from sixfold.app import bootstrap
from sixfold.app.config_reload import WatchedFile
from sixfold.cli import database_access
from sixfold.cli.server import serve
from sixfold.cli.server.children import READY, ProcessOptions
from sixfold.settings import Settings


def main() -> int:
    """Run the process until a signal or the end of its standard input."""
    # Process 0 may forward this signal before the handler is installed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    if not line:
        return 0
    options = msgspec.json.decode(line, type=ProcessOptions)
    # The settings contain tuples, which JSON encodes as lists.
    overrides = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.overrides.items()
    }
    load = functools.partial(settings.load, **overrides)
    server_settings = load()
    ready = server_settings.replace(port=options.port, process=options.number)
    serve.configure_logs(ready)
    process_resources.raise_file_limit()
    process_resources.return_large_blocks()
    os.umask(database_access.PRIVATE)
    with contextlib.ExitStack() as stack:
        listener = serve.bind(server_settings.host, options.port, "--port", is_shared=True, backlog=0)
        stack.enter_context(contextlib.closing(listener))
        stack.enter_context(database_access.understood())
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(_serve(ready, WatchedFile(load, server_settings), listener))
    return 0


async def _serve(server_settings: Settings, source: WatchedFile, listener: serve.Listener) -> None:
    application = bootstrap.build(server_settings, source=source)
    async with bootstrap.running(application):
        server = serve.build_server(application)
        shutdown = serve.Shutdown(server, application)
        shutdown.listen()
        ready = asyncio.create_task(_announce(server), name="ready")
        parent = asyncio.create_task(_follow_parent(server, shutdown), name="parent")
        await serve.run_server(server, [listener], shutdown, ready, parent)


async def _announce(server: serve.Server) -> None:
    await server.up.wait()
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    # Process 0 does not read the pipe after this line.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


async def _follow_parent(server: serve.Server, shutdown: serve.Shutdown) -> None:
    """Shut down when process 0 has ended, which closes standard input."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, stopped.set)
    try:
        await stopped.wait()
    finally:
        loop.remove_reader(sys.stdin)
    # The port must be free for the next start.
    server.stop_accepting()
    shutdown.begin()


if __name__ == "__main__":
    sys.exit(main())
