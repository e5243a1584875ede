"""Temporary folders of a process: kept while it lives, and removed after it was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sixfold.drivers import temp_dirs
from sixfold.drivers.temp_dirs import OwnedTempDir

FACTORY = """
import sys
from sixfold.drivers.temp_dirs import OwnedTempDir
room = OwnedTempDir()
(room.path / "file").write_text("mine")
print(room.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@contextmanager
def _factory(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and the folder that it created."""
    words = ["env", f"TMPDIR={folder}", sys.executable, "-c", FACTORY]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        yield owner, Path(owner.stdout.readline().strip())


def test_a_folder_is_private_and_removed_when_it_is_released(tmp_path: Path) -> None:
    room, other = OwnedTempDir(), OwnedTempDir()
    assert room.path.parent == tmp_path
    assert room.path.stat().st_mode & 0o777 == 0o700
    (room.path / "file").write_text("mine")
    room.leave()
    room.leave()
    assert list(tmp_path.iterdir()) == [other.path]
    other.leave()


def test_temp_dir_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    with _factory(tmp_path) as (living, remaining), _factory(tmp_path) as (killed, left):
        killed.kill()
        killed.wait()
        assert left.is_dir(), "nobody has cleared it yet"
        room = OwnedTempDir()
        assert sorted(tmp_path.iterdir()) == sorted([remaining, room.path])
        assert (remaining / "file").read_text() == "mine"
        room.leave()
        assert living.poll() is None


def test_files_and_links_with_the_name_of_a_folder_are_kept(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("not ours")
    (tmp_path / "sixfold-room-link").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "sixfold-room-file").write_text("not ours")
    temp_dirs.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "sixfold-room-file",
        "sixfold-room-link",
    ]
    assert (elsewhere / "file").read_text() == "not ours"
