"""`memory sync` of a folder from another person: files cannot block, overload or mislead the command."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sixfold.cli.client import ServerClient
from sixfold.cli.memory.commands import _locked, _pages
from sixfold.cli.sync import engine, files
from sixfold.cli.sync.engine import FolderSync
from sixfold.cli.sync.state import RemoteFile, RemoteListing, SyncConflict
from sixfold.cli.terminal import CommandError

DEEP = "[" * 100_000 + "]" * 100_000


class Memory:
    """A memory whose pages stay at version 1."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}

    def list_pages(self) -> dict[str, RemoteListing]:
        return {slug: RemoteListing(1, f"id-{slug}") for slug in self.pages}

    def fetch(self, slug: str) -> RemoteFile | None:
        return RemoteFile(1, self.pages[slug]) if slug in self.pages else None

    def version(self, slug: str, number: int) -> bytes | None:
        return self.pages.get(slug)

    def store(self, slug: str, data: bytes, version: int | None, path: str) -> int:
        self.pages[slug] = data
        return 1

    def remove(self, slug: str, version: int) -> None:
        if slug not in self.pages:
            raise SyncConflict
        del self.pages[slug]

    def rename(self, slug: str, to: str, version: int, path: str) -> int:
        self.pages[to] = self.pages.pop(slug)
        return 1


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)
        listener.bind(path.name)


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)


@pytest.mark.parametrize("make", [os.mkfifo, make_socket, make_large], ids=["fifo", "socket", "large"])
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "synchronized"])
def test_unreadable_file_is_a_problem_and_its_page_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], is_known: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = Memory()
    (tmp_path / "other.md").write_text("other")
    if is_known:
        (tmp_path / "page.md").write_text("page")
        FolderSync(tmp_path, memory, "server").run()
        (tmp_path / "page.md").unlink()
    make(tmp_path / "page.md")
    for _ in range(2):
        result = FolderSync(tmp_path, memory, "server").run()
        assert [problem.partition(":")[0] for problem in result.problems] == ["page.md"]
        assert (result.removed_here, result.removed_there) == ([], [])
    assert sorted(memory.pages) == (["other", "page"] if is_known else ["other"])


def test_names_with_line_breaks_are_sent_and_other_bytes_are_not(tmp_path: Path) -> None:
    (tmp_path / "a\nb.md").write_text("a")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/c\xff.md")).write_text("c")
    memory = Memory()
    result = FolderSync(tmp_path, memory, "server").run()
    assert memory.pages == {"a-b": b"a"}
    assert result.problems == ["'c\\udcff.md': its name is not UTF-8 text; rename the file"]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text(f'{{"server": "server", "pages": {DEEP}}}'),
        lambda path: path.write_text('{"server": "server", "pages": []}'),
        os.mkfifo,
        lambda path: path.mkdir(),
    ],
    ids=["deep", "list", "fifo", "folder"],
)
def test_hostile_state_is_compared_again(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / files.FOLDER).mkdir()
    (tmp_path / "a.md").write_text("a")
    os.mkfifo(tmp_path / files.FOLDER / "old-1")
    make(tmp_path / files.FOLDER / engine.STATE)
    memory = Memory()
    sync = FolderSync(tmp_path, memory, "server")
    # The new state cannot replace a folder.
    with contextlib.suppress(IsADirectoryError):
        sync.run()
    assert memory.pages == {"a": b"a"}


def test_links_in_the_state_folder_change_no_other_files(tmp_path: Path) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    (folder / files.FOLDER).mkdir(parents=True)
    (folder / "a.md").write_text("a")
    victim.write_text("victim")
    (folder / files.FOLDER / f"{engine.STATE}.new").symlink_to(victim)
    FolderSync(folder, Memory(), "server").run()
    assert victim.read_text() == "victim"
    assert json.loads((folder / files.FOLDER / engine.STATE).read_text())["pages"].keys() == {"a"}
    (folder / files.FOLDER / "lock").symlink_to(victim)
    with pytest.raises(CommandError, match="lock cannot be opened"), _locked(folder):
        pass
    assert victim.read_text() == "victim"


def test_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.mkdir()
    (victim / "new-year.txt").write_text("kept")
    (victim / "old-photo").write_text("kept")
    (folder / files.FOLDER).symlink_to(victim)
    with pytest.raises(CommandError, match="symbolic link"):
        FolderSync(folder, Memory(), "server").run()
    assert sorted(path.name for path in victim.iterdir()) == ["new-year.txt", "old-photo"]


def test_data_of_a_folder_is_held_for_one_file_at_a_time(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.md").write_text(f"{number}")
    sync = FolderSync(tmp_path, Memory(), "server")
    assert {file.data for file in sync._scan().values()} == {b""}
    assert len(sync.run().sent) == 20


def test_state_is_written_less_often_for_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        (tmp_path / f"{number}.md").write_text(f"{number}")
    rows: list[int] = []
    save = FolderSync._save

    def counted(sync: FolderSync) -> None:
        rows.append(len(sync._known))
        save(sync)

    monkeypatch.setattr(FolderSync, "_save", counted)
    FolderSync(tmp_path, Memory(), "server").run()
    # Each row is written about ten times however many there are.
    assert sum(rows) < 12 * 1000


def test_list_of_pages_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sixfold.cli.client._MAX_LISTS", 5)

    calls: list[str] = []

    def get(path: str) -> dict[str, object]:
        calls.append(path)
        return {"pages": [], "next_cursor": str(len(calls))}

    server = ServerClient("http://127.0.0.1:1", None)
    monkeypatch.setattr(server, "get", get)
    with pytest.raises(CommandError, match="does not end"):
        list(_pages(server, {}))
    assert len(calls) == 5
    monkeypatch.setattr(server, "get", lambda _path: {"pages": [], "next_cursor": "same"})
    with pytest.raises(CommandError, match="does not end"):
        list(server.lists("/api/graph/spaces"))
