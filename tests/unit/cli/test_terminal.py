"""Aligned tables, and the progress line on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sixfold.cli.terminal import ERASE_LINE, CountedProgress, Spinner, TerminalStream, TerminalStyle


class Terminal(io.StringIO):
    """Stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_line_counts_read_bytes_and_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with Spinner("backup", 2_000_000) as spinner:
        assert len(CountedProgress(io.BytesIO(bytes(1_000_000)), spinner).read()) == 1_000_000
        assert "backup" in stream.getvalue()
        assert "1.0 MB" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_progress_is_not_drawn_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with Spinner("backup") as spinner:
        spinner.count(5)
    assert stream.getvalue() == ""


def test_colors_do_not_change_the_column_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    paint = TerminalStyle(stream := Terminal())
    paint.table(
        ("", "engine", "serves"), [(paint.accent("●"), "graph", "all"), (paint.dim("○"), "far", "one")]
    )
    bare = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert bare.splitlines() == ["     engine  serves", "  ●  graph   all", "  ○  far     one"]


def test_long_last_column_wraps_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    TerminalStyle(stream := Terminal()).table(
        ("engine", "serves"), [("graph", "one-model, another-model, a-third-one")]
    )
    assert stream.getvalue().splitlines() == [
        "  engine  serves",
        "  graph   one-model, another-model,",
        "          a-third-one",
    ]


def test_row_is_not_wrapped_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    TerminalStyle(stream := io.StringIO()).table(
        ("engine", "serves"), [("graph", "one two three four five six seven")]
    )
    assert len(stream.getvalue().splitlines()) == 2


def test_control_characters_of_texts_are_shown_as_escapes() -> None:
    stream = TerminalStream(data := io.BytesIO(), "utf-8")
    stream.write(f"{ERASE_LINE}\x1b[38;5;71mname\x1b[0m\tö\n")
    stream.write("\x1b]0;title\x07 \x1b[2J \x9b2J \x7f over\r\x1b[2Kwritten\n")
    stream.flush()
    assert data.getvalue().decode().split("\n") == [
        f"{ERASE_LINE}\x1b[38;5;71mname\x1b[0m\tö",
        "\\x1b]0;title\\x07 \\x1b[2J \\x9b2J \\x7f over\\x0d\\x1b[2Kwritten",
        "",
    ]


def test_output_of_a_command_to_a_terminal_is_protected(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    arguments = ("run", "ra1", "--output", "\x1b[2J/a.png", "--data-dir", str(tmp_path))
    command = [sys.executable, "-m", "sixfold", *arguments]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, check=False)
    text = os.read(controller, 10_000).decode()
    os.close(terminal)
    os.close(controller)
    assert text.startswith("sixfold: Folder \\x1b[2J for the output does not exist")
