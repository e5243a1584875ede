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
folder = OwnedTempDir()
(folder.path / "file").write_text("mine")
print(folder.path, flush=True)
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
    temp_dir, other = OwnedTempDir(), OwnedTempDir()
    assert temp_dir.path.parent == tmp_path
    assert temp_dir.path.stat().st_mode & 0o777 == 0o700
    (temp_dir.path / "file").write_text("mine")
    temp_dir.leave()
    temp_dir.leave()
    assert list(tmp_path.iterdir()) == [other.path]
    other.leave()


def test_temp_dir_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    with _factory(tmp_path) as (living, remaining), _factory(tmp_path) as (killed, left):
        killed.kill()
        killed.wait()
        assert left.is_dir(), "nobody has cleared it yet"
        temp_dir = OwnedTempDir()
        assert sorted(tmp_path.iterdir()) == sorted([remaining, temp_dir.path])
        assert (remaining / "file").read_text() == "mine"
        temp_dir.leave()
        assert living.poll() is None


@pytest.mark.parametrize("prefix", ["sixfold-temp-", "sixfold-room-"])
def test_folders_of_every_version_are_removed(prefix: str, tmp_path: Path) -> None:
    (tmp_path / f"{prefix}a").mkdir()
    (tmp_path / "sixfold-other").mkdir()
    temp_dirs.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["sixfold-other"]


def test_new_folders_have_a_plain_name() -> None:
    temp_dir = OwnedTempDir()
    assert temp_dir.path.name.startswith("sixfold-temp-")
    temp_dir.leave()


def test_files_and_links_with_the_name_of_a_folder_are_kept(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("not ours")
    (tmp_path / "sixfold-temp-link").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "sixfold-temp-file").write_text("not ours")
    temp_dirs.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "sixfold-temp-file",
        "sixfold-temp-link",
    ]
    assert (elsewhere / "file").read_text() == "not ours"
