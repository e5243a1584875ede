"""Systems other than Linux: `serve` fails with one sentence, and client commands work."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sixfold.cli import dispatch
from sixfold.cli.main import build_parser
from tests.api.app_fixture import running_app
from tests.architecture import source
from tests.mcp.loopback import serve

# What another system lacks. The standard library has its own variants of these, so it is imported before.
HIDE = """
import asyncio, importlib, os, select, shutil, signal, socket, subprocess, sys, tempfile, uuid
for name in ("fcntl", "uvloop", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"):
    sys.modules[name] = None
lacking = {
    os: "fork forkpty register_at_fork sched_getaffinity getuid geteuid setsid killpg pread pwrite "
        "pidfd_open memfd_create posix_fadvise copy_file_range sendfile statvfs getloadavg waitid",
    signal: "SIGCHLD SIGHUP SIGUSR1 SIGUSR2 SIGKILL SIGALRM pthread_sigmask setitimer",
    select: "epoll poll",
    socket: "AF_UNIX SO_PEERCRED SO_REUSEPORT",
}
for module, names in lacking.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
# The variants of Windows do not call the functions that are hidden.
disk = type("Usage", (), {"total": 2**40, "used": 0, "free": 2**40})
shutil.disk_usage = lambda path: disk
sys.platform = sys.argv.pop(1)
"""
PROGRAM = f"{HIDE}\nfrom sixfold.cli.main import main\nsys.exit(main(sys.argv[1:]))"
# Prints the modules of commands that cannot be imported without what is hidden.
IMPORTS = (
    f"{HIDE}\n"
    + """
import sixfold, sixfold.client
assert sixfold.Client is sixfold.client.Client
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"sixfold.cli.{name}")
    except (ImportError, AttributeError) as error:
        print(name, error)
"""
)


def on(
    system: str, folder: Path, *words: str, program: str = PROGRAM, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, system, *words],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", **environ},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def targets(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the module of each command below a parser."""
    if parser.get_default("target"):
        yield parser.get_default("target").partition(":")[0]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from targets(below)


def test_every_other_command_and_the_client_can_be_imported(tmp_path: Path) -> None:
    modules = sorted(set(targets(build_parser())) - dispatch._LINUX_ONLY)
    assert {"client", "run", "mcp"} & set(modules)
    result = on("win32", tmp_path, *modules, program=IMPORTS)
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.parametrize(
    ("system", "command"),
    [("darwin", "serve"), ("win32", "serve"), ("darwin", "worker"), ("win32", "doctor"), ("darwin", "move")],
)
def test_server_requires_linux_before_creating_files(tmp_path: Path, system: str, command: str) -> None:
    result = on(system, tmp_path, command)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"sixfold: `sixfold {command}` requires Linux (this is {system}): use WSL 2, a virtual machine or "
        "the container image. Commands that only call a server work here with --api-url.\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("--help",), ("memory", "--help")], ids=" ".join)
def test_help_is_available_on_every_system(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = on("win32", tmp_path, *words)
    assert (result.returncode, result.stderr) == (0, "")
    assert "sixfold" in result.stdout


@pytest.mark.slow  # six programs
async def test_clients_of_a_server_elsewhere_work(tmp_path: Path) -> None:
    commands = [("run", "--list"), ("predictions",), ("workflow", "list"), ("memory", "list"), ("mcp",)]
    commands.append(("run", "ra1", "prompt=a lake"))
    async with running_app(tmp_path / "data") as app, serve(app.asgi) as url:
        key = {"SIXFOLD_API_KEY": app.key}
        runs = [
            asyncio.to_thread(on, "freebsd14", tmp_path, *words, "--api-url", url, **key)
            for words in commands
        ]
        results = await asyncio.gather(*runs)
    assert [(result.returncode, result.stderr) for result in results if result.returncode] == []
    assert "ra1" in results[0].stdout


def test_make_serve_requires_linux_before_creating_files(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    uname = programs / "uname"
    uname.write_text("#!/bin/sh\necho Darwin\n")
    uname.chmod(0o755)
    result = subprocess.run(
        ["/bin/sh", str(source.ROOT / "tools" / "setup.sh"), "embedded"],
        env={"PATH": f"{programs}:{os.defpath}", "VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "Sixfold's server needs Linux, and this is Darwin: "
        "use WSL 2, a virtual machine or the container image.\n"
    )
    assert not (tmp_path / "venv").exists()


def test_package_metadata_and_docs_state_that_linux_is_required() -> None:
    project = tomllib.loads((source.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    for page in ("README.md", "docs/start/installation.md"):
        assert "WSL" in (source.ROOT / page).read_text("utf-8")
