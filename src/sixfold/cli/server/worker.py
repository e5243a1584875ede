"""`worker`: run predictions that servers have accepted, without serving HTTP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal

import uvloop

from sixfold import process_resources, settings
from sixfold.app import bootstrap
from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError, TerminalStyle
from sixfold.settings import Settings
from sixfold.web import logs


def work(arguments: argparse.Namespace) -> int:
    """Run `worker`: run queued predictions until a signal ends it."""
    # `processes` in a shared environment or file applies only to `serve`.
    server_settings = settings.load(data_dir=arguments.data_dir, workers=arguments.workers, processes=1)
    logs.configure(server_settings.log_level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    process_resources.raise_file_limit()
    process_resources.return_large_blocks()
    _require_shared_stores(server_settings)
    os.umask(database_access.PRIVATE)
    with contextlib.ExitStack() as stack:
        stack.enter_context(server_lock.hold(server_settings.data_dir))
        stack.enter_context(database_access.understood())
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(_work(server_settings))
    return 0


def _require_shared_stores(server_settings: Settings) -> None:
    """Refuse to start without the database and file store that the servers share."""
    if not server_settings.on_postgres:
        raise CommandError(
            "`sixfold worker` requires its servers' database: set SIXFOLD_DATABASE_URL=postgresql://…; "
            "with SQLite, `sixfold serve` starts its own workers"
        )
    if not server_settings.blob_url:
        raise CommandError(
            "`sixfold worker` requires the object store of its servers: set the same SIXFOLD_BLOB_URL"
        )
    if not server_settings.workers:
        raise CommandError("--workers must be at least 1")


async def _work(server_settings: Settings) -> None:
    paint, stopping = TerminalStyle(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _handle_signal, number, stopping)
    application = bootstrap.build(server_settings)
    async with bootstrap.running(application):
        runs = "one run" if server_settings.workers == 1 else f"{server_settings.workers} runs"
        paint.line(f"  Running up to {runs} at a time; press Control-C to stop")
        await stopping.wait()
        paint.line(f"  Stopping: active runs have {server_settings.drain_seconds:g} s to finish")


def _handle_signal(number: int, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        # A second signal exits at once; other workers claim the runs when their leases expire.
        os._exit(128 + number)
    stopping.set()
