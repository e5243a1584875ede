"""The `memory` commands with a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sixfold.cli.client import ServerClient, read_key
from sixfold.cli.memory import folder_archive
from tests.fakes import documents as fakes
from tests.unit.cli.conftest import CommandResult, Server, Starter, inside, minimal, program

pytestmark = pytest.mark.slow  # each test starts programs
_PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


@pytest.fixture
def server(start: Starter, tmp_path: Path) -> Server:
    return start(tmp_path / "data")


@pytest.fixture(scope="module")
def empty_server(start: Starter, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """One server for the commands that fail."""
    return start(tmp_path_factory.mktemp("empty") / "data")


def memory(server: Server, *words: str, **environ: str) -> CommandResult:
    if environ:
        return program(server.folder, "memory", *words, **environ)
    return inside(server.folder, "memory", *words)


def run_with_input(server: Server, text: str, *words: str) -> CommandResult:
    result = subprocess.run(
        [sys.executable, "-m", "sixfold.cli.main", "memory", *words],
        env=minimal(server.folder),
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return CommandResult(result.returncode, result.stdout, result.stderr)


def test_page_is_written_found_read_edited_and_linked(server: Server) -> None:
    result = run_with_input(
        server, "# Ann\nAnn likes zeppelins.\n", "write", "people/ann", "--tag", "team", "--type", "person"
    )
    assert (result.status, result.out) == (0, "  people/ann  version 1  Ann\n")
    assert (
        memory(server, "search", "who", "likes", "zeppelins")
        .out.splitlines()[0]
        .startswith("  people/ann  Ann")
    )
    assert (
        memory(server, "edit", "people/ann", "--append", "And kites.")
        .out.strip()
        .startswith("people/ann  version 2")
    )
    assert memory(server, "read", "people/ann").out == (
        "---\ntitle: Ann\ntype: person\ntags: [team]\n---\n# Ann\nAnn likes zeppelins.\nAnd kites."
    )
    assert memory(server, "tag", "people/ann", "pilot", "--remove", "team").out == "  pilot\n"
    linked = memory(server, "link", "people/ann", "companies/acme", "--type", "works_at")
    assert linked.out.split() == [
        "link",
        "page",
        "context",
        "works_at",
        "→",
        "companies/acme",
        "no",
        "page",
        "yet",
    ]
    assert memory(server, "edit", "people/ann", "--rename", "people/ann-smith").status == 0
    pages = memory(server, "list", "people/", "--json").json["pages"]
    assert [page["slug"] for page in pages] == ["people/ann-smith"]


def test_page_without_a_title_is_printed_with_its_slug_once(server: Server) -> None:
    written = memory(server, "write", "animals/quagga", "--body", "Striped.")
    assert written.out == "  animals/quagga  version 1\n"
    first = memory(server, "search", "striped").out.splitlines()[0]
    assert re.fullmatch(r"  animals/quagga  \d\.\d{3}", first)


def test_list_of_batches_without_facts_names_the_command(server: Server) -> None:
    shown = memory(server, "forget")
    assert (shown.status, shown.out) == (0, "  No batches: `sixfold memory remember` writes one\n")


def test_shortened_list_states_that_there_are_more_pages(server: Server) -> None:
    for name in "abc":
        assert memory(server, "write", f"books/{name}", "--body", "A book.").status == 0
    assert "more pages" not in memory(server, "list", "books/", "--limit", "3").out
    shown = memory(server, "list", "books/", "--limit", "2").out
    assert "books/c" not in shown
    assert shown.endswith("  There are more pages: --limit N lists more than 2\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("read", "nowhere"), "Page nowhere not found"),
        (("read", "no?"), "'?' (U+003F QUESTION MARK)"),
        (("read", "nowhere", "--as-of", "soon"), "as_of must be an RFC 3339 time"),
        (("edit", "a"), "Specify exactly one change"),
        (("edit", "a", "--append", "x", "--rename", "b"), "Specify exactly one change"),
        (("write", "a", "/nowhere.md"), "/nowhere.md: No such file"),
        (("import", "/nowhere.zip"), "No such file"),
        (("list", "--limit", "0"), "--limit must be at least 1"),
    ],
)
def test_failed_memory_command_prints_one_sentence(
    empty_server: Server, words: tuple[str, ...], sentence: str
) -> None:
    result = memory(empty_server, *words)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("sixfold: ")
    assert sentence in result.err
    assert result.err.count("\n") == 1


def test_a_lost_update_is_refused(server: Server) -> None:
    run_with_input(server, "one", "write", "a")
    assert "use --overwrite to replace it" in run_with_input(server, "", "write", "a", "--body", "two").err
    run_with_input(server, "", "write", "a", "--body", "two", "--overwrite")
    assert "two" in memory(server, "read", "a").out
    assert "version 2, not 1" in memory(server, "edit", "a", "--append", "x", "--if-version", "1").err
    assert "already" in run_with_input(server, "three", "write", "a").err


def test_imported_folder_is_exported_unchanged(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    (folder / ".obsidian").mkdir(parents=True)
    files = {"Plan A.md": b"---\ntags: [x]\n---\r\n# A\n", "sub/b.md": b"[[Plan A]]", ".obsidian/x.md": b"no"}
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    report = memory(server, "import", str(folder), "--json").json
    assert (report["created"], report["errors"]) == (2, [])
    (folder / "elsewhere.md").symlink_to(folder / "Plan A.md")
    (folder / ".draft.md").write_bytes(b"mine")
    Path(os.fsdecode(bytes(folder) + b"/\xff.md")).write_bytes(b"a name of another coding")
    response = memory(server, "import", str(folder), "--json")
    assert (response.status, {row["path"] for row in response.json["errors"]}) == (
        1,
        {".draft.md", "elsewhere.md", "\ufffd.md"},
    )
    exported = memory(server, "export", str(tmp_path / "out.zip"))
    assert (exported.status, exported.out.endswith((" kB\n", " B\n"))) == (0, True)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            name: files[name] for name in ("Plan A.md", "sub/b.md")
        }


def test_sync_copies_changes_between_folder_and_memory(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "Here.md").write_text("# Here\n")
    run_with_input(server, "from there", "write", "deep/there")
    first = memory(server, "sync", str(folder))
    assert (first.status, sorted(first.out.split())) == (0, sorted(["↑", "here", "↓", "deep/there"]))
    assert (folder / "deep/there.md").read_text().endswith("from there")
    assert memory(server, "sync", str(folder)).out == "  Both sides are equal\n"
    (folder / "Here.md").write_text("by hand\n# Here\n")
    memory(server, "edit", "here", "--append", "by an agent\n")
    assert memory(server, "sync", str(folder)).out == "  ↕ here\n"
    assert (
        (folder / "Here.md").read_text()
        == memory(server, "read", "here").out
        == "by hand\n# Here\nby an agent\n"
    )
    (folder / "Here.md").write_text("# Here\nby hand\n")
    memory(server, "edit", "here", "--append", "by an agent again")
    body = memory(server, "sync", str(folder), "--json").json
    assert (folder / body["conflicts"][0]).read_text() == "# Here\nby hand\n"
    assert (folder / "Here.md").read_text().endswith("by an agent\nby an agent again")
    (folder / "Odd, Name.md").write_text("odd")
    memory(server, "sync", str(folder))
    memory(server, "edit", "odd-name", "--append", "!")
    (folder / "Odd, Name.md").rename(folder / "Odder: Name.md")
    assert memory(server, "sync", str(folder)).out == "  → odd-name → odder-name\n  ↓ odder-name\n"
    (folder / "Odder: Name.md").unlink()
    memory(server, "sync", str(folder))
    client = ServerClient(server.url, read_key(server.folder))
    assert client.post("/api/versions/odder-name", {"version": 1})["version"] > 1
    memory(server, "sync", str(folder))
    assert (folder / "Odder: Name.md").read_text() == "odd"
    (folder / "bad.md").write_bytes(b"\xff")
    result = memory(server, "sync", str(folder))
    assert (result.status, "bad.md: The body must be UTF-8 text" in result.out) == (1, True)


def test_watch_runs_until_interrupted_and_locks_the_folder(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    words = ["memory", "sync", str(folder), "--watch", "--interval", "0.2"]
    watching = subprocess.Popen(
        [sys.executable, "-m", "sixfold.cli.main", *words],
        env=minimal(server.folder),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    try:
        assert watching.stdout.readline() == "  Both sides are equal\n"
        assert "Another sync" in memory(server, "sync", str(folder)).err
        run_with_input(server, "news", "write", "n")
        assert watching.stdout.readline() == "  ↓ n\n"
        (folder / "m.md").write_text("mine")
        assert watching.stdout.readline() == "  ↑ m\n"
        assert memory(server, "read", "m").out == "mine"
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
        watching.stdout.close()
    assert (folder / ".sixfold" / "memory-sync.json").exists()


def test_sync_with_a_collection_key_writes_to_that_collection(server: Server, tmp_path: Path) -> None:
    run_with_input(server, "mine", "write", "ours", "--collection", "team")
    run_with_input(server, "not yours", "write", "theirs", "--collection", "other")
    result = program(server.folder, "key", "create", "local@localhost", "--collections", "team", "--json")
    key = {"SIXFOLD_API_KEY": result.json["api_key"]}
    folder = tmp_path / "vault"
    folder.mkdir()
    (folder / "new.md").write_text("A new page.", "utf-8")
    (folder / "theirs.md").write_text("Taken.", "utf-8")
    first = memory(server, "sync", str(folder), "--json", **key)
    assert first.out, first.err
    body = first.json
    assert (body["sent"], body["received"]) == (["new"], ["ours"])
    assert [problem.partition(":")[0] for problem in body["problems"]] == ["theirs.md"]
    assert "in its collections (team)" in body["problems"][0]
    assert memory(server, "read", "new", "--json").json["collections"] == ["team"]
    assert memory(server, "read", "theirs", "--json").json["body"] == "not yours"
    second_body = memory(server, "sync", str(folder), "--json", **key).json
    assert (second_body["sent"], second_body["received"]) == ([], [])


def test_documents_of_a_folder_are_imported_and_cited(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(fakes.pdf(["Of quaggas."], title="Quaggas"))
    (folder / "b.md").write_text("# B\n")
    report = memory(server, "import", str(folder), "--folder", "in", "--tag", "old").out
    assert "2 created" in report
    assert "in/a.pdf  Quaggas  1 page" in report
    assert "a.pdf, p. 1" in memory(server, "search", "quaggas").out
    second_body = memory(server, "import", str(folder / "a.pdf"), "--folder", "in", "--json").json
    assert (second_body["skipped"], second_body["documents"][0]["changed"]) == (1, False)
    plain = memory(server, "import", str(folder), "--markdown-only", "--json").json
    assert (plain["created"], plain["skipped"]) == (1, 0)
    (folder / "c.pdf").write_bytes(b"%PDF-1.7 no")
    assert "damaged" in memory(server, "import", str(folder / "c.pdf")).err


def test_images_beyond_the_size_of_an_import_are_omitted(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in {"a.png": _PNG, "b.png": _PNG, "c.md": b"# C"}.items():
        (folder / name).write_bytes(data)
    monkeypatch.setattr(folder_archive, "_MAX_BYTES", 130)
    report = memory(server, "import", str(folder), "--json")
    assert report.json["errors"] == [{"path": "b.png", "error": folder_archive.OMITTED}]
    assert (report.status, report.json["created"]) == (1, 2)


def test_vault_is_imported_with_images_and_a_report(server: Server, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    for name, data in {
        "Notes/Ann Smith.md": b"---\r\naliases: [Annie]\r\n---\r\n![[lamp.png]]\r\n",
        "Home.md": b"[[Annie]]",
        "files/lamp.png": _PNG,
        "Plan.canvas": b'{"nodes": [{"id": "1", "type": "text", "text": "Buy helium"}]}',
        "Books.base": b"views: []",
        ".trash/old.png": _PNG,
    }.items():
        (vault / name).parent.mkdir(parents=True, exist_ok=True)
        (vault / name).write_bytes(data)
    report = memory(server, "import", str(vault), "--json").json
    assert (report["created"], report["errors"], len(report["left_out"])) == (4, [], 1)
    assert report["left_out"][0].startswith("Books.base")
    assert memory(server, "read", "notes/ann-smith", "--json").json["title"] == "Ann Smith"
    assert [row["to"] for row in memory(server, "link", "home", "--json").json["links"]] == [
        "notes/ann-smith"
    ]
    assert memory(server, "sync", str(vault)).out == "  Both sides are equal\n"
    assert [path.name for path in (vault / "files").iterdir()] == ["lamp.png"]
    assert not (vault / "plan.canvas.md").exists()
    single = memory(server, "import", str(vault / "files" / "lamp.png"), "--folder", "files", "--json")
    assert (single.status, single.json["skipped"]) == (0, 1)
