"""`memory sync` of a folder: concurrent edits and interrupted runs lose nothing."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sixfold.cli.sync.engine import CONFLICT, FolderSync
from sixfold.cli.sync.state import RemoteFile, RemoteListing, SyncConflict

SLUGS = ("a", "b", "x/a")
STEPS = frozenset({"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.scandir"})


class Killed(BaseException):
    """Raised to simulate the death of the process."""


@dataclass
class Memory:
    """A memory in plain Python, with the history of its texts."""

    pages: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    # Page ids by slug, including those of deleted pages.
    ids: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    history: set[bytes] = field(default_factory=set)
    every: dict[tuple[str, int], bytes] = field(default_factory=dict)
    step: Callable[[], None] = lambda: None

    def put(self, slug: str, data: bytes) -> int:
        page = self.ids.setdefault(slug, f"{slug}{len(self.every)}")
        self.versions[page] = self.versions.get(page, 0) + 1
        self.pages[slug] = (self.versions[page], data)
        self.history.add(data)
        self.every[page, self.versions[page]] = data
        return self.versions[page]

    def move(self, slug: str, to: str) -> int:
        """Rename a page on the server, if that is possible."""
        if slug not in self.pages or to in self.ids:
            return 0
        data = self.pages.pop(slug)[1]
        self.ids[to] = self.ids.pop(slug)
        return self.put(to, data)

    def list_pages(self) -> dict[str, RemoteListing]:
        self.step()
        return {slug: RemoteListing(version, self.ids[slug]) for slug, (version, _) in self.pages.items()}

    def fetch(self, slug: str) -> RemoteFile | None:
        self.step()
        result = self.pages.get(slug)
        return RemoteFile(*result, self.paths.get(slug, "")) if result is not None else None

    def version(self, slug: str, number: int) -> bytes | None:
        self.step()
        return self.every.get((self.ids.get(slug, ""), number))

    def _check(self, slug: str, version: int | None) -> None:
        self.step()
        result = self.pages.get(slug)
        if (result[0] if result is not None else None) != version:
            raise SyncConflict

    def store(self, slug: str, data: bytes, version: int | None, path: str) -> int:
        self._check(slug, version)
        self.paths[slug] = path
        stored = self.put(slug, data)
        self.step()
        return stored

    def remove(self, slug: str, version: int) -> None:
        self._check(slug, version)
        del self.pages[slug]
        self.step()

    def rename(self, slug: str, to: str, version: int, path: str) -> int:
        self._check(slug, version)
        stored = self.move(slug, to)
        if not stored:
            raise SyncConflict
        self.paths[to] = path
        self.step()
        return stored


class Interruption:
    """Action at a given step of a sync: each file that is opened or moved, each call of the memory."""

    active: Interruption | None = None

    def __init__(self, plan: dict[int, Callable[[], None]]) -> None:
        self._plan = plan
        self._count = 0
        self._busy = False

    def __call__(self) -> None:
        if self._busy:
            return
        self._count += 1
        action = self._plan.get(self._count)
        if action is not None:
            self._busy = True
            try:
                action()
            finally:
                self._busy = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        Interruption.active = self
        try:
            yield
        finally:
            Interruption.active = None


def _hook(event: str, _args: tuple[Any, ...]) -> None:
    if Interruption.active is not None and event in STEPS:
        Interruption.active()


sys.addaudithook(_hook)


@dataclass
class SyncFixture:
    """A folder with a user, a memory with other writers, and the texts that must not be lost."""

    folder: Path
    memory: Memory = field(default_factory=Memory)
    missed: set[bytes] = field(default_factory=set)
    number: int = 0

    def text(self) -> bytes:
        self.number += 1
        return b"text %d\n" % self.number

    def missing_no_more(self, path: Path) -> None:
        """Delete a file, as its user may."""
        data = path.read_bytes()
        self.missed = {line for line in self.missed if line not in data}

    def edit(self, slug: str) -> None:
        """Save a file again, as a user does."""
        path = self.folder / f"{slug}.md"
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            self.missing_no_more(path)
        line = self.text()
        path.write_bytes(line)
        self.missed.add(line)

    def add(self, slug: str) -> None:
        """Add a line to a file."""
        path = self.folder / f"{slug}.md"
        if path.exists():
            line = self.text()
            path.write_bytes(path.read_bytes() + line)
            self.missed.add(line)

    def drop(self, slug: str) -> None:
        path = self.folder / f"{slug}.md"
        if path.exists():
            self.missing_no_more(path)
            path.unlink()

    def move(self, slug: str) -> None:
        """Rename a file, if the new name is free."""
        path, target = self.folder / f"{slug}.md", self.folder / "moved.md"
        if path.exists() and not target.exists():
            path.rename(target)

    def other(self, slug: str) -> None:
        self.memory.put(slug, self.text())

    def begin(self, slug: str) -> None:
        """Insert a line at the beginning of a page on the server."""
        if slug in self.memory.pages:
            self.memory.put(slug, self.text() + self.memory.pages[slug][1])

    def elsewhere(self, slug: str) -> None:
        """Rename a page on the server."""
        self.memory.move(slug, "x/renamed")

    def delete_page(self, slug: str) -> None:
        """Delete a page on the server."""
        self.memory.pages.pop(slug, None)

    def kill(self, _slug: str) -> None:
        raise Killed

    def sync(self, plan: dict[int, Callable[[], None]]) -> None:
        interruption = Interruption(plan)
        self.memory.step = interruption
        try:
            with interruption.at_work():
                FolderSync(self.folder, self.memory, "test").run()
        except Killed:
            pass
        finally:
            self.memory.step = lambda: None

    def files(self) -> dict[str, bytes]:
        result = self.folder.rglob("*.md")
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in result
            if ".sixfold" not in path.parts
        }

    def nothing_is_lost(self) -> None:
        remaining = b"".join({*self.files().values(), *self.memory.history})
        assert not [line for line in self.missed if line not in remaining]

    def both_sides_agree(self) -> None:
        for _ in range(4):
            FolderSync(self.folder, self.memory, "test").run()
        here = {name.removesuffix(".md"): data for name, data in self.files().items() if CONFLICT not in name}
        assert here == {slug: data for slug, (_, data) in self.memory.pages.items()}
        assert not FolderSync(self.folder, self.memory, "test").run()


ACTIONS = st.tuples(
    st.sampled_from(
        ["edit", "add", "add", "drop", "move", "other", "begin", "begin", "delete_page", "elsewhere"]
    ),
    st.sampled_from(SLUGS),
)
MIDST = st.dictionaries(
    st.integers(1, 60),
    st.tuples(
        st.sampled_from(
            ["kill", "kill", "edit", "add", "drop", "other", "begin", "delete_page", "elsewhere"]
        ),
        st.sampled_from(SLUGS),
    ),
    max_size=3,
)
ROUNDS = st.lists(st.tuples(st.lists(ACTIONS, max_size=4), MIDST), min_size=1, max_size=6)


@settings(
    max_examples=2 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(ROUNDS)
def test_concurrent_edits_converge_without_loss(rounds: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as result:
        fixture = SyncFixture(Path(result))
        for actions, midst in rounds:
            for name, slug in actions:
                getattr(fixture, name)(slug)
            plan = {at: (lambda n=name, s=slug: getattr(fixture, n)(s)) for at, (name, slug) in midst.items()}
            fixture.sync(plan)
            fixture.nothing_is_lost()
        fixture.both_sides_agree()
        fixture.nothing_is_lost()


@pytest.fixture
def fixture(tmp_path: Path) -> SyncFixture:
    """An empty folder and an empty memory."""
    return SyncFixture(tmp_path)


def test_changes_of_one_side_are_copied_to_the_other(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.other("x/a")
    result = FolderSync(fixture.folder, fixture.memory, "test").run()
    assert (result.sent, result.received) == (["a"], ["x/a"])
    assert fixture.files() == {"a.md": b"text 1\n", "x/a.md": b"text 2\n"}
    fixture.drop("a")
    fixture.delete_page("x/a")
    result = FolderSync(fixture.folder, fixture.memory, "test").run()
    assert (result.removed_there, result.removed_here) == (["a"], ["x/a"])
    assert (fixture.files(), fixture.memory.pages) == ({}, {})


def test_page_recreated_after_an_interrupted_sync_is_received(fixture: SyncFixture) -> None:
    fixture.other("a")
    fixture.sync({18: lambda: fixture.kill("a")})
    assert fixture.files() == {"a.md": b"text 1\n"}
    fixture.elsewhere("a")
    fixture.other("a")
    fixture.both_sides_agree()
    assert fixture.files() == {"a.md": b"text 2\n", "x/renamed.md": b"text 1\n"}


def test_page_recreated_with_the_same_version_is_received(fixture: SyncFixture) -> None:
    fixture.other("a")
    fixture.sync({})
    fixture.delete_page("a")
    del fixture.memory.ids["a"]
    fixture.other("a")
    fixture.both_sides_agree()
    assert fixture.files() == {"a.md": b"text 2\n"}


def test_page_with_the_name_of_another_file_is_received(fixture: SyncFixture) -> None:
    (fixture.folder / "a").write_bytes(b"a script")
    fixture.other("a")
    fixture.both_sides_agree()
    assert fixture.files() == {"a.md": b"text 1\n"}


def test_both_versions_of_a_concurrent_edit_are_kept(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    fixture.edit("a")
    fixture.other("a")
    result = FolderSync(fixture.folder, fixture.memory, "test").run()
    (copy,) = result.conflicts
    assert fixture.files() == {"a.md": b"text 3\n", copy: b"text 2\n"}
    fixture.sync({})
    assert set(fixture.memory.pages) == {"a"}


def test_separate_concurrent_changes_are_merged(fixture: SyncFixture) -> None:
    fixture.edit("a")
    for _ in range(3):
        fixture.add("a")
    fixture.sync({})
    fixture.add("a")
    fixture.begin("a")
    assert FolderSync(fixture.folder, fixture.memory, "test").run().merged == ["a"]
    order = b"".join(b"text %d\n" % number for number in (6, 1, 2, 3, 4, 5))
    assert (fixture.files(), fixture.memory.pages["a"][1]) == ({"a.md": order}, order)
    assert not FolderSync(fixture.folder, fixture.memory, "test").run()


def test_a_moved_file_is_a_renamed_page(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    fixture.move("a")
    assert FolderSync(fixture.folder, fixture.memory, "test").run().renamed == ["a → moved"]
    assert set(fixture.memory.pages) == {"moved"}


def test_moved_file_takes_concurrent_page_edits(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    fixture.move("a")
    fixture.begin("a")
    result = FolderSync(fixture.folder, fixture.memory, "test").run()
    assert (result.renamed, result.received) == (["a → moved"], ["moved"])
    assert fixture.files() == {"moved.md": b"text 2\ntext 1\n"}
    assert set(fixture.memory.pages) == {"moved"}


def test_renamed_page_takes_concurrent_file_edits(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.edit("b")
    fixture.sync({})
    fixture.add("a")
    fixture.memory.move("a", "new/a")
    fixture.memory.move("b", "new/b")
    result = FolderSync(fixture.folder, fixture.memory, "test").run()
    assert (result.renamed, result.merged) == (["a → new/a", "b → new/b"], ["new/a"])
    assert (result.received, result.removed_here, result.sent) == ([], [], [])
    assert fixture.files() == {"new/a.md": b"text 1\ntext 3\n", "new/b.md": b"text 2\n"}
    assert fixture.memory.pages["new/a"][1] == b"text 1\ntext 3\n"
    assert set(fixture.memory.pages) == {"new/a", "new/b"}


def test_memory_name_wins_over_file_name_for_one_page(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    fixture.move("a")
    fixture.memory.move("a", "b")
    assert FolderSync(fixture.folder, fixture.memory, "test").run().renamed == ["a → b"]
    assert (fixture.files(), set(fixture.memory.pages)) == ({"b.md": b"text 1\n"}, {"b"})


def test_file_takes_the_name_of_a_page_renamed_elsewhere(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    fixture.memory.move("a", "ann-smith")
    fixture.memory.paths["ann-smith"] = "Ann Smith.md"
    FolderSync(fixture.folder, fixture.memory, "test").run()
    assert fixture.files() == {"Ann Smith.md": b"text 1\n"}


def test_outliner_file_names_spell_folders_and_days(fixture: SyncFixture) -> None:
    for path in ("pages/work___acme.md", "pages/old%2Fway.md", "journals/2026_11_20.md", "notes.md"):
        (fixture.folder / path).parent.mkdir(exist_ok=True)
        (fixture.folder / path).write_text(path)
    for path in ("logseq/config.edn", "logseq/bak/pages/old.md"):
        (fixture.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (fixture.folder / path).write_text("{}")
    fixture.other("work/new")
    fixture.other("journals/2026-11-21")
    FolderSync(fixture.folder, fixture.memory, "test").run()
    assert not FolderSync(fixture.folder, fixture.memory, "test").run()
    days = {"journals/2026-11-20", "journals/2026-11-21"}
    assert set(fixture.memory.pages) == {"work/acme", "old/way", "notes", "work/new"} | days
    assert {"pages/work___new.md", "journals/2026_11_21.md"} <= set(fixture.files())


def test_page_reusing_an_old_name_is_not_an_edit(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    fixture.memory.move("a", "b")
    fixture.other("a")
    FolderSync(fixture.folder, fixture.memory, "test").run()
    assert fixture.files() == {"a.md": b"text 2\n", "b.md": b"text 1\n"}


def test_restored_page_has_its_unusual_file_name_again(fixture: SyncFixture) -> None:
    odd = fixture.folder / "An Odd, Odd Name.md"
    odd.write_bytes(b"1")
    fixture.sync({})
    odd.unlink()
    fixture.sync({})
    assert fixture.memory.pages == {}
    fixture.memory.put("an-odd-odd-name", b"1")
    fixture.sync({})
    assert fixture.files() == {odd.name: b"1"}


@pytest.mark.parametrize("slug", [".hidden", ".sixfold/memory-sync", f"a{CONFLICT}b", "x/.git/config"])
def test_page_with_an_invalid_file_name_is_not_synced(fixture: SyncFixture, slug: str) -> None:
    fixture.other(slug)
    for _ in range(2):
        assert FolderSync(fixture.folder, fixture.memory, "test").run().problems
    assert set(fixture.memory.pages) == {slug}
    assert fixture.files() == {}


def test_no_page_path_is_written_outside_the_folder(tmp_path: Path) -> None:
    inside = SyncFixture(tmp_path / "inside")
    inside.folder.mkdir()
    (inside.folder / "out").symlink_to(tmp_path)
    inside.memory.put("out/stolen", b"x")
    for path in ("../up.md", "/tmp/up.md", "a/../../up.md", "A.md"):
        result = RemoteFile(1, b"y", path)
        assert FolderSync(inside.folder, inside.memory, "test")._path_for("a", result.path) in {
            "a.md",
            "A.md",
        }
    assert FolderSync(inside.folder, inside.memory, "test").run().problems
    assert not (tmp_path / "stolen.md").exists()


def test_second_file_with_the_name_of_a_page_is_reported(fixture: SyncFixture) -> None:
    (fixture.folder / "Note.md").write_bytes(b"1")
    (fixture.folder / "note.md").write_bytes(b"2")
    result = FolderSync(fixture.folder, fixture.memory, "test").run()
    assert (result.sent, len(result.problems)) == (["note"], 1)
    assert fixture.files() == {"Note.md": b"1", "note.md": b"2"}


def test_other_markdown_file_extensions_are_synced_and_kept(fixture: SyncFixture) -> None:
    for name in ("Upper.MD", "long.markdown"):
        (fixture.folder / name).write_bytes(b"1")
    assert FolderSync(fixture.folder, fixture.memory, "test").run().sent == ["long", "upper"]
    for slug in ("long", "upper"):
        fixture.memory.put(slug, b"2")
    FolderSync(fixture.folder, fixture.memory, "test").run()
    result = {path.name: path.read_bytes() for path in fixture.folder.iterdir() if path.is_file()}
    assert result == {"Upper.MD": b"2", "long.markdown": b"2"}


def test_watch_reports_a_problem_once(fixture: SyncFixture) -> None:
    messages: list[str] = []
    fixture.memory.put(".hidden", b"x")
    watch = FolderSync(fixture.folder, fixture.memory, "test", lambda _verb, what: messages.append(what))
    assert [bool(watch.run().problems) for _ in range(3)] == [True, True, True]
    assert len(messages) == 1
    assert not watch.changes()


def test_sync_state_of_another_server_is_ignored(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    elsewhere = Memory()
    FolderSync(fixture.folder, elsewhere, "other").run()
    assert (fixture.files(), set(elsewhere.pages)) == ({"a.md": b"text 1\n"}, {"a"})


def test_interrupted_file_move_is_recovered(fixture: SyncFixture) -> None:
    fixture.edit("a")
    fixture.sync({})
    own = fixture.folder / ".sixfold"
    (own / "old-1").write_bytes(b"text 1\n")
    (own / "old-2").write_bytes(b"typed in that moment")
    (own / "new-2").write_bytes(b"half")
    (copy,) = FolderSync(fixture.folder, fixture.memory, "test").run().conflicts
    assert fixture.files() == {"a.md": b"text 1\n", copy: b"typed in that moment"}
    assert sorted(path.name for path in own.iterdir()) == ["memory-sync.json"]
