"""The line that tells how far something is: drawn where somebody watches, silent elsewhere."""

from __future__ import annotations

import io

import pytest

from sixfold.cli.terminal import Counted, Waiting


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        return True


def test_a_bar_grows_with_what_is_read_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with Waiting("backup", 2_000_000) as waiting:
        assert len(Counted(io.BytesIO(bytes(1_000_000)), waiting).read()) == 1_000_000
        assert "backup" in stream.getvalue()
        assert "1.0 MB" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_where_nobody_watches_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with Waiting("backup") as waiting:
        waiting.count(5)
    assert stream.getvalue() == ""
