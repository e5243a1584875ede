"""`import openwebui`: files, knowledge bases, notes and memories become pages of their users."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from sixfold.cli import database_access
from sixfold.cli.imports import openwebui, openwebui_documents
from sixfold.core.accounts import accounts
from sixfold.core.database import Transaction
from sixfold.core.memory import pages
from sixfold.settings import load
from tests.fakes import documents
from tests.fakes.fault_server import image
from tests.unit.cli.conftest import Commands

ANN, BOB = "ann@example.com", "bob@example.com"
# The tables of Open WebUI 0.12, without columns that no import reads.
TABLES = """
CREATE TABLE user (id TEXT, email TEXT, role TEXT);
CREATE TABLE chat (id TEXT, user_id TEXT, title TEXT, chat JSON, created_at INTEGER);
CREATE TABLE file (id TEXT, user_id TEXT, filename TEXT, path TEXT, data JSON, created_at INTEGER);
CREATE TABLE knowledge (id TEXT, user_id TEXT, name TEXT, data JSON);
CREATE TABLE knowledge_file (id TEXT, knowledge_id TEXT, file_id TEXT, directory_id TEXT);
CREATE TABLE knowledge_directory (id TEXT, knowledge_id TEXT, parent_id TEXT, name TEXT);
CREATE TABLE note (id TEXT, user_id TEXT, title TEXT, data JSON, created_at INTEGER);
CREATE TABLE memory (id TEXT, user_id TEXT, content TEXT, created_at INTEGER);
INSERT INTO user VALUES ('u1', 'ann@example.com', 'admin'), ('u2', 'bob@example.com', 'user'),
    ('u3', 'eve@x.org', 'pending');
"""
FILES = [
    ("f1", "u1", "Airships.pdf", "/app/backend/data/uploads/f1_Airships.pdf", None, 1),
    ("f2", "u1", "plan.csv", "/app/backend/data/uploads/f2_plan.csv", {"content": "mast, 40 m"}, 2),
    ("f3", "u2", "lost.pdf", "gone", {}, 3),
    ("f4", "u2", "guide.md", "f4_guide.md", {"content": "extracted"}, 4),
    ("f5", "u3", "secret.txt", "f5", {"content": "of a pending user"}, 5),
    ("f6", "gone", "shared.txt", "../../etc/hostname", {"content": "of a deleted user"}, 6),
    ("f7", "u1", "PLAN.csv", "", {"content": "another plan"}, 7),
]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A `webui.db` with its folder of uploads."""
    folder = tmp_path / "data"
    (folder / "uploads").mkdir(parents=True)
    (folder / "uploads" / "f1_Airships.pdf").write_bytes(documents.pdf(["The zeppelin burned in Lakehurst."]))
    (folder / "uploads" / "f4_guide.md").write_text("# Guide\n\nWalk along [[open-webui/memories]].\n")
    (folder / "uploads" / "hostname").symlink_to("/etc/hostname")
    with sqlite3.connect(folder / "webui.db") as file:
        file.executescript(TABLES)
        rows = [(*row[:4], json.dumps(row[4]), row[5]) for row in FILES]
        file.executemany("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)", rows)
        file.execute("INSERT INTO knowledge VALUES ('k1', 'u1', 'Air / Sea', '{}')")
        file.executemany(
            "INSERT INTO knowledge_directory VALUES (?, 'k1', ?, ?)", [("d1", "d2", "old"), ("d2", "d1", "x")]
        )
        members = [("1", "k1", "f1", "d1"), ("2", "k1", "f2", None), ("3", "k1", "f6", None)]
        file.executemany("INSERT INTO knowledge_file VALUES (?, ?, ?, ?)", members)
        notes = [
            ("n1", "u1", "Shopping", json.dumps({"content": {"md": "- rope"}}), 1),
            ("n2", "u2", "Bad", "{", 2),
        ]
        file.executemany("INSERT INTO note VALUES (?, ?, ?, ?, ?)", notes)
        file.execute("INSERT INTO memory VALUES ('m1', 'u2', 'Bob keeps bees.', 1)")
    return folder / "webui.db"


def stored_pages(sixfold: Commands, email: str) -> dict[str, str]:
    """Return the bodies of the pages of an account by slug."""

    def read() -> Transaction[dict[str, str]]:
        account = yield from accounts.by_email(email)
        caller = pages.Caller(account.id, "")
        rows = yield from pages.list_rows(caller, pages.PageFilter(), 100)
        result: dict[str, str] = {}
        for row in rows:
            page = yield from pages.find_exact(account.id, str(row["slug"]))
            assert page is not None
            result[page.page.slug] = page.page.body
        return result

    return database_access.read(load({}, data_dir=sixfold.folder), read())


def test_openwebui_documents_become_pages(sixfold: Commands, export: Path) -> None:
    sixfold.ok("account", "create", ANN)
    preview = sixfold.ok("import", "openwebui", str(export))
    assert (preview["found_documents"], preview["documents"], preview["written"]) == (7, 0, False)
    result = sixfold.ok("import", "openwebui", str(export), "--write")
    assert (result["documents"], result["imported_before"]) == (7, 0)
    why = {row["setting"]: row["reason"] for row in result["not_imported"]}
    assert "not in the folder of uploads" in why["lost.pdf"]
    assert why["secret.txt"] == "its user is not imported"
    assert why["Bad"] == "the note has no text"
    ann, bob = stored_pages(sixfold, ANN), stored_pages(sixfold, BOB)
    assert "zeppelin burned" in ann["open-webui/air-sea/x/old/airships.pdf"]
    assert "mast, 40 m" in ann["open-webui/air-sea/plan.csv"]
    assert "another plan" in ann["open-webui/files/plan.csv"]
    assert len(ann) == 5
    assert "of a deleted user" in ann["open-webui/air-sea/shared.txt"]
    assert "- rope" in ann["open-webui/notes/shopping"]
    assert set(bob) == {"open-webui/files/guide", "open-webui/memories"}
    assert "Walk along" in bob["open-webui/files/guide"]
    assert "Bob keeps bees." in bob["open-webui/memories"]


def test_second_import_keeps_edits_and_deletions(sixfold: Commands, export: Path) -> None:
    sixfold.ok("account", "create", ANN)
    sixfold.ok("import", "openwebui", str(export), "--write")
    before = stored_pages(sixfold, BOB)
    with sqlite3.connect(export) as file:
        file.execute("UPDATE memory SET content = 'Bob sells bees.'")
        file.execute("UPDATE file SET data = json_object('content', 'changed') WHERE id IN ('f2', 'f7')")
    second_result = sixfold.ok("import", "openwebui", str(export), "--write")
    assert (second_result["documents"], second_result["imported_before"]) == (0, 7)
    assert stored_pages(sixfold, BOB) == before


def test_older_knowledge_and_uploads_elsewhere(sixfold: Commands, export: Path, tmp_path: Path) -> None:
    with sqlite3.connect(export) as file:
        file.execute("DROP TABLE knowledge_file")
        file.execute("DROP TABLE note")
        file.execute("UPDATE knowledge SET data = ?", (json.dumps({"file_ids": ["f1", 7]}),))
    uploads = (export.parent / "uploads").rename(tmp_path / "elsewhere")
    missing = sixfold("import", "openwebui", str(export), "--uploads", str(tmp_path / "none"))
    assert (missing.status, "does not exist" in missing.err) == (1, True)
    sixfold.ok("account", "create", ANN)
    result = sixfold.ok("import", "openwebui", str(export), "--uploads", str(uploads), "--write")
    assert result["documents"] == 5
    assert "open-webui/air-sea/airships.pdf" in stored_pages(sixfold, ANN)


def test_titles_with_one_slug_become_two_pages(sixfold: Commands, export: Path) -> None:
    # They differ, and their slugs do not.
    titles, documents_before = ["a b", "a-b", "A b"], 7
    with sqlite3.connect(export) as file:
        for number, title in enumerate(titles, 11):
            note = (f"same-note-{number}", "u1", title, json.dumps({"content": {"md": title}}), number)
            file.execute("INSERT INTO note VALUES (?, ?, ?, ?, ?)", note)
            row = (f"same-file-{number}", "u1", f"{title}.xyz", "", json.dumps({"content": title}), number)
            file.execute("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)", row)
        # Its folder is that of the notes.
        file.execute("INSERT INTO knowledge VALUES ('k2', 'u1', 'Notes', '{}')")
        file.execute("INSERT INTO file VALUES ('f9', 'u1', 'a b', '', json_object('content', 'a file'), 20)")
        file.execute("INSERT INTO knowledge_file VALUES ('9', 'k2', 'f9', NULL)")
    sixfold.ok("account", "create", ANN)
    result = sixfold.ok("import", "openwebui", str(export), "--write")
    total = documents_before + 2 * len(titles) + 1
    assert (result["documents"], result["imported_before"]) == (total, 0)
    bodies = {slug: body.strip() for slug, body in stored_pages(sixfold, ANN).items()}
    notes = {slug: body for slug, body in bodies.items() if slug.startswith("open-webui/notes/a-b")}
    assert sorted(notes.values()) == sorted([*titles, "a file"])
    assert bodies["open-webui/files/a-b.xyz"] == "a b"
    second_result = sixfold.ok("import", "openwebui", str(export), "--write")
    assert (second_result["documents"], second_result["imported_before"]) == (0, total)


def test_image_is_attached_to_the_page_of_its_text(sixfold: Commands, export: Path) -> None:
    (export.parent / "uploads" / "f8_chart.png").write_bytes(image(8, 8))
    row = ("f8", "u1", "chart.png", "f8_chart.png", json.dumps({"content": "Sales in May"}), 8)
    with sqlite3.connect(export) as file:
        file.execute("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)", row)
    sixfold.ok("account", "create", ANN)
    sixfold.ok("import", "openwebui", str(export), "--write")
    body = stored_pages(sixfold, ANN)["open-webui/files/chart.png"]
    assert "![[open-webui/files/chart.png]]" in body
    assert "Sales in May" in body
    with sqlite3.connect(sixfold.folder / "sixfold.db") as database:
        (names,) = zip(*database.execute("SELECT filename FROM account_file"), strict=True)
    assert "chart.png" in names


def test_damaged_text_does_not_stop_the_import(sixfold: Commands, export: Path) -> None:
    with sqlite3.connect(export) as file:
        file.execute("UPDATE note SET title = CAST(x'52ff70652066697665' AS TEXT) WHERE id = 'n1'")
        file.execute("UPDATE memory SET content = CAST(x'426f62ff' AS TEXT)")
    sixfold.ok("account", "create", BOB)
    result = sixfold.ok("import", "openwebui", str(export), "--write")
    assert result["documents"] == 7
    assert "another way" not in json.dumps(result["not_imported"])
    assert "Bob\N{REPLACEMENT CHARACTER}" in stored_pages(sixfold, BOB)["open-webui/memories"]


def test_invalid_file_name_is_listed_as_not_imported(sixfold: Commands, export: Path) -> None:
    with sqlite3.connect(export) as file:
        file.execute("UPDATE file SET path = ? WHERE id = 'f3'", ("x" * 5000,))
    result = sixfold.ok("import", "openwebui", str(export))
    assert "lost.pdf" in {row["setting"] for row in result["not_imported"]}


def test_texts_above_the_total_limit_are_refused(
    sixfold: Commands, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sixfold.cli.imports.openwebui_documents.MAX_BYTES", 20)
    result = sixfold("import", "openwebui", str(export), "--write")
    assert (result.status, "more than 20 characters in total" in result.err) == (1, True)


def test_unknown_tables_are_reported_and_give_no_documents(sixfold: Commands, export: Path) -> None:
    with sqlite3.connect(export) as file:
        file.execute("ALTER TABLE file RENAME COLUMN path TO place")
    result = sixfold.ok("import", "openwebui", str(export))
    assert result["found_documents"] == 0
    assert "no such column" in result["not_imported"][-1]["reason"]


def test_documents_with_the_same_id_are_named_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, named = tmp_path / "webui.db", 0
    segment = openwebui_documents.page_segment

    def counting_segment(name: str) -> str:
        nonlocal named
        named += 1
        return segment(name)

    monkeypatch.setattr(openwebui_documents, "page_segment", counting_segment)
    with sqlite3.connect(path) as file:
        file.executescript(TABLES)
        row = ("f", "u1", "plan.csv", "", json.dumps({"content": "text"}), 1)
        file.executemany("INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)", [row] * 200)
    names = [document.name for document in openwebui.read(path).documents]
    assert names[:3] == ["plan.csv", "plan-f.csv", "plan-f-2.csv"]
    assert len(set(names)) == 200
    assert named < 1000
