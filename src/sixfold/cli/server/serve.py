"""`serve`: run the server, with one process per data folder and a graceful shutdown."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import functools
import gc
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from typing import cast

import uvicorn
import uvloop
from starlette.types import ASGIApp

from sixfold import errors, process_resources, settings
from sixfold.app import bootstrap, storage
from sixfold.app.asgi import create_app
from sixfold.app.bootstrap import Application
from sixfold.app.config_reload import WatchedFile
from sixfold.cli import database_access, server_lock
from sixfold.cli.server import banner, first_run
from sixfold.cli.server.children import ChildProcesses
from sixfold.cli.server_lock import ServerLock
from sixfold.cli.terminal import CommandError, TerminalStyle
from sixfold.clients import hosts
from sixfold.core import ids
from sixfold.core.accounts import accounts
from sixfold.core.accounts.accounts import LOCAL_EMAIL
from sixfold.settings import Settings
from sixfold.web import logs
from sixfold.web.connections import local_socket
from sixfold.web.connections.local_socket import LocalHttpProtocol, LocalOperator
from sixfold.web.connections.peers import PeerLimits
from sixfold.web.connections.send_memory import SendMemory
from sixfold.web.connections.sweep import ConnectionSweep
from sixfold.web.connections.unused_memory import UnusedMemory
from sixfold.web.connections.uvicorn_protocol import HttpProtocol
from sixfold.web.connections.websocket_protocol import WebSocketProtocol

_LOG = logging.getLogger("sixfold.server")
Listener = socket.socket
# Data of a connection that the kernel accepts before it can send it; without a limit, it takes up to 4 MiB.
_UNSENT_BYTES = 512 * 1024
_BACKLOG = 2048
# Settings that the command line overrides.
_PINNED = ("host", "database_url", "processes")
_OPTIONS = ("data_dir", "host", "port", "public_url", "comfyui_port", "workers", "processes")
# Seconds for open connections to close after all runs have ended.
_CLOSE_SECONDS = 5
_KEEP_ALIVE_SECONDS = 30
# Clients send messages of at most 65,536 characters, except on one route, which sets another limit.
_MAX_SOCKET_MESSAGE = 256 * 1024
# Ticks of uvicorn per second.
_TICKS = 10
# Allocations between garbage collections, which are rare: requests do not create reference cycles.
_GARBAGE_EVERY = 20_000


def serve(arguments: argparse.Namespace) -> int:
    """Run `serve`: serve until a signal ends the server."""
    areas = tuple(name.strip() for name in arguments.areas.split(",")) if arguments.areas else None
    overrides = {name: getattr(arguments, name) for name in _OPTIONS} | {"areas": areas}
    load = functools.partial(settings.load, **overrides)
    server_settings = load()
    configure_logs(server_settings)
    process_resources.raise_file_limit()
    process_resources.return_large_blocks()
    _require_workers(server_settings)
    _require_public_account(server_settings)
    os.umask(database_access.PRIVATE)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(server_lock.hold(server_settings.data_dir))
        _delete_scratch_of_former_processes(server_settings)
        listeners = [
            stack.enter_context(contextlib.closing(listener)) for listener in _bind_all(server_settings)
        ]
        local = _local_listener(server_settings, stack)
        ready = server_settings.replace(port=listeners[0].getsockname()[1])
        # Processes that start later must use the same database, even if the file has changed.
        pinned = {name: getattr(ready, name) for name in _PINNED} | {"data_dir": str(ready.data_dir)}
        others = ChildProcesses(ready.processes, ready.port, overrides | pinned)
        stack.enter_context(database_access.understood())
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(_serve(ready, WatchedFile(load, server_settings), listeners, local, lock, others))
    return 0


def configure_logs(server_settings: Settings) -> None:
    """Configure the logs of a server; raises `CommandError` for an unknown level."""
    try:
        logs.configure(
            server_settings.log_level,
            process=server_settings.process if server_settings.processes > 1 else None,
        )
    except ValueError:
        raise CommandError(
            f"SIXFOLD_LOG_LEVEL must be debug, info, warning or error (got {server_settings.log_level!r})"
        ) from None
    # The banner contains the same information.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # On a terminal, a line per request would hide the rest.
    if sys.stderr.isatty() and server_settings.log_level.lower() != "debug":
        logging.getLogger("sixfold.access").setLevel(logging.WARNING)


# -- checks before the start -----------------------------------------------------------------------


def _require_workers(server_settings: Settings) -> None:
    """Refuse to start without workers, unless `sixfold worker` processes can share the database."""
    if not server_settings.workers and not server_settings.on_postgres:
        raise CommandError(
            "With --workers 0, this server would not run any request: use a PostgreSQL database that "
            "`sixfold worker` processes share (SIXFOLD_DATABASE_URL)"
        )


def _require_public_account(server_settings: Settings) -> None:
    """Refuse to listen on a public address without a public URL and an account."""
    if server_settings.on_loopback:
        return
    where = f"{server_settings.host} can be reached from other machines"
    if not server_settings.public_url:
        raise CommandError(f"{where}: set --public-url to the URL that clients use, https://…")
    exists = storage.open_admin(server_settings).schema() is not None
    people = database_access.read(server_settings, accounts.people()) if exists else ()
    if not any(account.email != LOCAL_EMAIL for account in people):
        raise CommandError(
            f"{where}, but there is only the local account: "
            "create another with `sixfold account create EMAIL`"
        )


def _delete_scratch_of_former_processes(server_settings: Settings) -> None:
    """Delete the temporary files of processes that this server had before `processes` was lowered."""
    for folder in server_settings.data_dir.glob("scratch-*"):
        number = folder.name.removeprefix("scratch-")
        if number.isascii() and number.isdigit() and int(number) >= server_settings.processes:
            shutil.rmtree(folder, ignore_errors=True)


def _local_listener(server_settings: Settings, stack: contextlib.ExitStack) -> socket.socket | None:
    """Return the local socket, or None if the data folder's file system does not support sockets."""
    path = server_settings.data_dir / local_socket.FILE
    try:
        return stack.enter_context(local_socket.listening(path))
    except OSError as error:
        _LOG.warning(
            "The local socket %s could not be created (%s): commands on this machine need a key",
            path,
            error.strerror,
        )
        return None


def _bind_all(server_settings: Settings) -> Iterator[socket.socket]:
    port = server_settings.port
    if server_settings.processes > 1:
        # Without this check, the port could be shared with another program that permits sharing.
        with contextlib.closing(bind(server_settings.host, port, "--port")) as free:
            port = free.getsockname()[1]
    yield bind(server_settings.host, port, "--port", is_shared=server_settings.processes > 1)
    if server_settings.comfyui_port:
        yield bind(server_settings.host, server_settings.comfyui_port, "--comfyui-port")


def bind(host: str, port: int, option: str, *, is_shared: bool = False, backlog: int = _BACKLOG) -> Listener:
    """Return a listening socket; connections made before the server is ready wait.

    The kernel distributes the connections to a shared port among the processes that listen on it. With a
    `backlog` of 0 the socket does not listen yet. Raises `CommandError`, which names `option`.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CommandError(f"{host} is not a valid address ({error.strerror})") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # The connections inherit the limit.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        listener.bind(address)
        if backlog:
            listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise CommandError(_bind_error(error, host, port, option)) from None
    return listener


def _bind_error(error: OSError, host: str, port: int, option: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            free = f"{option} 0 chooses a free port" if option == "--port" else "choose another"
            return f"Port {port} of {host} is in use by another program: {free}"
        case errno.EACCES:
            return f"This user may not listen on port {port}: choose one above 1023 with {option}"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: choose another with --host"
        case _:
            return f"Port {port} of {host} cannot be opened: {error.strerror}"


# -- the server ------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """A uvicorn server without signal handlers; `up` is set when it accepts requests.

    `local` is the local socket and the configuration for its connections.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sweep: ConnectionSweep,
        local: tuple[socket.socket, uvicorn.Config] | None,
    ) -> None:
        super().__init__(config)
        self._sweep = sweep
        self._local = local
        self._memory: UnusedMemory | None = None
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept requests."""
        await super().startup(sockets)
        if self._local is not None:
            listener, config = self._local
            config.load()
            serving = asyncio.get_running_loop().create_unix_server(
                lambda: LocalHttpProtocol(config, self.server_state, self.lifespan.state),
                sock=listener,
                **local_socket.SERVER_OPTIONS,
            )
            self.servers.append(await serving)
        gc.freeze()
        gc.set_threshold(_GARBAGE_EVERY, 20, 20)
        self._memory = UnusedMemory()
        self.up.set()

    def stop_accepting(self) -> None:
        """Close the listening sockets, but not the open connections."""
        for listener in self.servers:
            listener.close()

    async def on_tick(self, counter: int) -> bool:
        """Close idle and slow connections and return memory once a second; return whether to exit."""
        if counter % _TICKS == 0:
            self._sweep.run(self.server_state.connections, asyncio.get_running_loop().time())
            if self._memory is not None:
                self._memory.check(len(self.server_state.connections))
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `Shutdown` handles the signals."""
        yield


async def _serve(
    server_settings: Settings,
    source: WatchedFile,
    listeners: list[socket.socket],
    local: socket.socket | None,
    lock: ServerLock,
    others: ChildProcesses,
) -> None:
    application = bootstrap.build(server_settings, source=source)
    async with bootstrap.running(application):
        server = build_server(application, local)
        welcome = None
        if server_settings.on_loopback:
            welcome = await first_run.prepare(application.database, server_settings.data_dir)
        elif server_settings.open_image_service:
            await application.database.write(first_run.operator())
        shutdown = Shutdown(server, application, others)
        shutdown.listen()
        await others.start()
        banner_task = asyncio.create_task(_show(application, server, lock, welcome), name="banner")
        await run_server(server, listeners, shutdown, banner_task)


async def run_server(
    server: Server, listeners: list[Listener], shutdown: Shutdown, *tasks: asyncio.Task[None]
) -> None:
    """Serve until the shutdown has finished; `tasks` are canceled with the server."""
    try:
        await server.serve(sockets=listeners)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await shutdown.wait()


def build_server(application: Application, local: Listener | None = None) -> Server:
    """Return the HTTP server of an application, with the local socket if there is one."""
    server_settings = application.settings
    send_memory = SendMemory(server_settings.send_memory_bytes)
    sweep = ConnectionSweep(
        _KEEP_ALIVE_SECONDS,
        server_settings.header_seconds,
        server_settings.body_bytes_per_second,
        server_settings.send_seconds,
        send_memory,
    )
    token = ids.secret("local")
    app = create_app(application, token)
    limited = functools.partial(HttpProtocol, limits=PeerLimits.of(server_settings), send_memory=send_memory)
    over_local = None if local is None else (local, _config(LocalOperator(app, token), LocalHttpProtocol))
    return Server(_config(app, cast("type[HttpProtocol]", limited)), sweep, over_local)


def _config(app: ASGIApp, protocol: type[HttpProtocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        ws=WebSocketProtocol,
        ws_ping_interval=10,
        ws_per_message_deflate=False,
        # An account may have many websockets, each of which holds one message.
        ws_max_size=_MAX_SOCKET_MESSAGE,
        lifespan="off",
        log_config=None,
        access_log=False,
        # A client could forge its address and pretend to be this machine.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )


async def _show(
    application: Application, server: Server, lock: ServerLock, welcome: first_run.FirstRunInfo | None
) -> None:
    await server.up.wait()
    lock.write_url(application.settings.base_url, on_postgres=application.settings.on_postgres)
    paint = TerminalStyle()
    banner.start(paint, application.settings, welcome, price=_image_price(application))
    await application.gateway_runtime.wait_refreshed()
    banner.print_found(
        paint,
        await application.resources.resources(),
        container=hosts.in_container(),
        doctor=banner.command(application.settings, "doctor"),
    )


def _image_price(application: Application) -> str | None:
    """Return the price of the banner's command, or None if no engine can generate an image."""
    if "media" not in application.settings.enabled_apis:
        return None
    try:
        price = application.predictions.quote("ra1", {"prompt": "…"}).price
    except errors.EngineUnavailable:
        return None
    return f"{price.cost} USD" if price.list_micros is None else "free"


def _has_terminal() -> bool:
    """Return whether this process has a terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Shutdown:
    """Graceful shutdown: stop accepting runs, wait for the active ones, then close the server.

    `others` are the additional processes of this server, which shut down at the same time.
    """

    def __init__(
        self, server: Server, application: Application, others: ChildProcesses | None = None
    ) -> None:
        self._server = server
        self._application = application
        self._others = others
        self._paint = TerminalStyle()
        self._drain: asyncio.Task[None] | None = None
        self._had_terminal = _has_terminal()

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT, which stop the server, and SIGHUP, which reloads the configuration."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._handle_stop, number)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._handle_hangup)

    def _handle_hangup(self) -> None:
        """Reload the configuration, or stop if the signal was sent because the terminal was closed."""
        if self._had_terminal and not _has_terminal():
            self._handle_stop(signal.SIGTERM)
        else:
            self._application.operator.reloader.request()
            if self._others is not None:
                self._others.signal(signal.SIGHUP)

    def _handle_stop(self, number: int) -> None:
        if self._drain is not None:
            if self._application.settings.process:
                # Process 0 and a service manager may both send the signal, so the second one is ignored here.
                return
            # A second signal exits at once; the next start resumes from the database.
            if self._others is not None:
                self._others.signal(signal.SIGKILL)
            os._exit(128 + number)
        self.begin()

    def begin(self) -> None:
        """Begin the shutdown. Idempotent."""
        if self._drain is None:
            if self._others is not None:
                self._others.is_stopping = True
            self._application.predictions.drain()
            self._drain = asyncio.create_task(self._finish(), name="drain")

    async def _finish(self) -> None:
        busy = sum(pool["busy"] for pool in self._application.scheduler.snapshot().values())
        if busy:
            seconds = self._application.settings.drain_seconds
            runs = "one run" if busy == 1 else f"{busy} runs"
            hint = self._paint.dim("press Control-C again to stop at once")
            self._paint.line(f"  Stopping: {runs} may finish within {seconds:g} s; {hint}")
        try:
            await self._application.live_sessions.drain()
            seconds = self._application.settings.drain_seconds + 3 * _CLOSE_SECONDS
            ending = [] if self._others is None else [self._others.stop(seconds)]
            await asyncio.gather(bootstrap.drain(self._application), *ending)
        finally:
            self._server.should_exit = True

    async def wait(self) -> None:
        """Wait for the shutdown to finish, if one has started."""
        if self._drain is not None:
            await self._drain
