"""Execution of a command: errors become one sentence on standard error and an exit status."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys

from sixfold import errors, settings
from sixfold.cli import ownership
from sixfold.cli.terminal import CommandError, TerminalStream

# Modules of commands that start workers or use a server's data folder, which require Linux system calls.
_LINUX_ONLY = frozenset(
    {
        "database.commands",
        "database.move",
        "database.upgrade",
        "doctor.commands",
        "imports.chat_commands",
        "replay.commands",
        "server.serve",
        "server.worker",
    }
)
# The exit status that shells report for a process that Control-C has ended.
_INTERRUPTED = 130


def run(arguments: argparse.Namespace) -> int:
    """Run the command that `arguments.target` names and return its exit status."""
    module, _, function = str(arguments.target).partition(":")
    if module in _LINUX_ONLY and sys.platform != "linux":
        return _fail(
            f"`sixfold {arguments.command}` requires Linux (this is {sys.platform}): use WSL 2, a virtual "
            "machine or the container image. Commands that only call a server work here with --api-url"
        )
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Texts of a server may have characters that the encoding lacks, as may the names of files.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = TerminalStream.of(sys.stdout), TerminalStream.of(sys.stderr)
    try:
        command = getattr(importlib.import_module(f"sixfold.cli.{module}"), function)
        try:
            status = int(command(arguments) or 0)
        finally:
            _give_files_to_owner(arguments)
        sys.stdout.flush()
    except (CommandError, settings.InvalidSetting) as refused:
        return _fail(str(refused))
    except errors.SixfoldError as error:
        return _fail(error.message)
    except BrokenPipeError:
        # The reader closed the pipe; otherwise Python would report the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return _INTERRUPTED
    return status


def _give_files_to_owner(arguments: argparse.Namespace) -> None:
    if hasattr(arguments, "data_dir"):
        with contextlib.suppress(settings.InvalidSetting):  # the command reports it
            ownership.give_to_owner(settings.load(with_keys=False, data_dir=arguments.data_dir).data_dir)


def _fail(sentence: str) -> int:
    sys.stdout.flush()
    stop = "" if sentence.endswith((".", "!", "?", "`")) else "."
    sys.stderr.write(f"sixfold: {sentence}{stop}\n")
    return 1
