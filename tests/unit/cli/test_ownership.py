"""What root writes into the data folder of another user belongs to that user."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from sixfold.cli import ownership
from sixfold.cli.model import registration
from tests.unit.cli.conftest import Commands

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

USER, GROUP = 12345, 23456
GREET = '''
import sixfold

@sixfold.model(name="greet")
def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"
'''


@pytest.fixture
def served(sixfold: Commands) -> Commands:
    """Yield a data folder that belongs to the user of a server."""
    sixfold.ok("account", "create", "a@b.c", "--operator")
    for path in (sixfold.folder, *sixfold.folder.iterdir()):
        os.chown(path, USER, GROUP)
    return sixfold


def owners(folder: Path) -> set[tuple[int, int]]:
    """Return the users and groups of all files and folders in a folder."""
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in folder.rglob("*")}


def test_model_belongs_to_the_server_before_it_is_awaited(
    served: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited: list[set[tuple[int, int]]] = []
    for name in ("wait_until_added", "wait_until_removed"):
        monkeypatch.setattr(registration, name, lambda *_: awaited.append(owners(served.folder)))
    source = tmp_path / "greet.py"
    source.write_text(GREET)
    served.ok("model", "add", str(source))
    served.ok("model", "remove", "greet")
    assert awaited == [{(USER, GROUP)}] * 2
    assert (source.stat().st_uid, source.stat().st_gid) == (os.geteuid(), os.getegid())


def test_stored_key_belongs_to_the_server(served: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-proj-canary-0123456789abcdef\n"))
    served.ok("provider", "set", "openai")
    assert owners(served.folder) == {(USER, GROUP)}


def test_data_folder_of_a_dynamic_user_is_a_link(
    served: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(served.folder)
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-proj-canary-0123456789abcdef\n"))
    Commands(tmp_path / "link", served.capsys).ok("provider", "set", "openai")
    assert owners(served.folder) == {(USER, GROUP)}


def test_refused_command_leaves_no_files_of_root(served: Commands) -> None:
    (served.folder / "models").mkdir()
    assert "not found" in served.error_of("model", "remove", "greet")
    assert owners(served.folder) == {(USER, GROUP)}


def test_restored_data_belongs_to_the_owner_of_the_folder(served: Commands, tmp_path: Path) -> None:
    served.ok("backup", str(tmp_path / "all.tar"))
    target = Commands(tmp_path / "target", served.capsys)
    target.folder.mkdir()
    os.chown(target.folder, USER, GROUP)
    target.ok("restore", str(tmp_path / "all.tar"))
    assert owners(target.folder) == {(USER, GROUP)}


def test_files_outside_of_the_folder_keep_their_owner(served: Commands, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (served.folder / "models").symlink_to(outside)
    os.link(outside / "file", served.folder / "second-link")
    (served.folder / "store").mkdir()
    (served.folder / "store" / "of-the-server").touch()
    ownership.give_to_owner(served.folder)
    assert owners(outside) == {(0, 0)}
    assert (served.folder / "second-link").stat().st_uid == 0
    assert (served.folder / "store" / "of-the-server").stat().st_uid == 0, "the server alone writes there"


def test_read_only_mount_does_not_fail_a_command(served: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    (served.folder / "weights").mkdir()
    (served.folder / "weights" / "mounted").touch()

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "chown", refuse)
    served.ok("account", "show", "a@b.c")


def test_folder_of_root_is_unchanged(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    (sixfold.folder / "sixfold.toml").touch()
    os.chown(sixfold.folder / "sixfold.toml", USER, GROUP)
    ownership.give_to_owner(sixfold.folder, everything=True)
    assert owners(sixfold.folder) == {(0, 0), (USER, GROUP)}
