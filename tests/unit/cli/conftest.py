"""Runs the command line in this process on a separate folder, and real servers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sixfold.cli import main as command_line

START_SECONDS = 60


@dataclass(frozen=True)
class CommandResult:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the output as one JSON document."""
        return json.loads(self.out)


@dataclass
class Commands:
    """Runs commands on `folder`."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> CommandResult:
        """Run one command; a usage error is returned as a status, too."""
        self.capsys.readouterr()
        try:
            status = command_line.main([*words, "--data-dir", str(self.folder)])
        except SystemExit as left:
            status = int(left.code or 0)
        captured = self.capsys.readouterr()
        return CommandResult(status, captured.out, captured.err)

    def ok(self, *words: str) -> Any:
        """Run a command with `--json` that must succeed; return its document."""
        result = self(*words, "--json")
        assert result.status == 0, result.err
        return result.json

    def error_of(self, *words: str) -> str:
        """Run a command that must fail; return its error message, which must be its only output."""
        result = self(*words)
        assert result.status == 1, result
        assert result.out == ""
        (line,) = result.err.splitlines()
        assert line.startswith("sixfold: ")
        return line.removeprefix("sixfold: ")


@pytest.fixture
def sixfold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    """The command line on an empty folder."""
    mask = os.umask(0o022)
    yield Commands(tmp_path / "data", capsys)
    os.umask(mask)


@dataclass
class Server:
    """A running `sixfold serve` in a separate process."""

    folder: Path
    process: subprocess.Popen[str]
    banner: str

    @property
    def url(self) -> str:
        return next(line.split()[-1] for line in self.banner.splitlines() if "address" in line)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=START_SECONDS)
        return self.process.returncode


Starter = Callable[..., Server]


@dataclass
class _Started:
    servers: list[Server] = field(default_factory=list[Server])

    def __call__(self, folder: Path, *options: str, **environ: str) -> Server:
        process = subprocess.Popen(
            [sys.executable, "-m", "sixfold.cli.main", "serve", "--port", "0", *options],
            env={**minimal(folder), **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        lines: list[str] = []
        while "Control-C" not in (lines[-1] if lines else ""):
            lines.append(process.stdout.readline())
            assert lines[-1], "the server ended at its start:\n" + "".join(lines)
        self.servers.append(Server(folder, process, "".join(lines)))
        return self.servers[-1]


def minimal(folder: Path) -> dict[str, str]:
    """Return an environment that only names the data folder."""
    return {"PATH": os.defpath, "SIXFOLD_DATA_DIR": str(folder), "SIXFOLD_PROBE": "0", "LANG": "C.UTF-8"}


def program(folder: Path, *words: str, **environ: str) -> CommandResult:
    """Run a command in a separate process."""
    result = subprocess.run(
        [sys.executable, "-m", "sixfold.cli.main", *words],
        env={**minimal(folder), **environ},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    return CommandResult(result.returncode, result.stdout, result.stderr)


def inside(folder: Path, *words: str) -> CommandResult:
    """Run a command in this process, which takes a tenth of the time of a separate program."""
    data, err = io.BytesIO(), io.StringIO()
    # Some commands write bytes to `sys.stdout.buffer`.
    out = io.TextIOWrapper(data, "utf-8", newline="", write_through=True)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = command_line.main([*words, "--data-dir", str(folder)])
        except SystemExit as left:
            status = int(left.code or 0)
    return CommandResult(status, data.getvalue().decode(), err.getvalue())


@pytest.fixture(scope="module")
def start() -> Iterator[Starter]:
    """Start servers, and stop those that still run at the end of the module."""
    started = _Started()
    yield started
    for server in started.servers:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)
        if server.process.stdout is not None:
            server.process.stdout.close()


@pytest.fixture(scope="module")
def server(start: Starter, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return start(tmp_path_factory.mktemp("served") / "data")
