"""One server per data folder, and leftovers of the previous one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold.cli import server_lock
from sixfold.cli.terminal import CommandError


def test_partial_uploads_of_a_killed_server_are_deleted(tmp_path: Path) -> None:
    received = tmp_path / "tmp" / "import-1"
    received.parent.mkdir()
    received.write_bytes(b"half of an archive")
    with server_lock.hold(tmp_path):
        assert not received.exists()
        received.write_bytes(b"one that comes now")
        with pytest.raises(CommandError), server_lock.hold(tmp_path):
            pass
        assert received.exists()
