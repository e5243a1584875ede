"""`import chatgpt` and `import openwebui`: stored chats, what is left out, second runs, hostile files."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sixfold.cli import database_access
from sixfold.cli.imports import chat_files, openwebui
from sixfold.core.accounts import accounts
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction, many
from sixfold.settings import load
from tests.unit.cli.conftest import Commands

ANN, BOB = "ann@example.com", "bob@example.com"


def node(parent: str | None, role: str = "", *parts: Any, hidden: bool = False) -> dict[str, Any]:
    if not role:
        return {"message": None, "parent": parent, "children": []}
    content = {"content_type": "text", "parts": list(parts)}
    metadata = {"is_visually_hidden_from_conversation": hidden}
    message = {"id": "m", "author": {"role": role}, "content": content, "metadata": metadata}
    return {"message": message, "parent": parent, "children": []}


def chatgpt_chat(chat_id: str = "c-1", title: str = "Birds") -> dict[str, Any]:
    """A chat with an abandoned branch, a hidden message, a tool and an image."""
    mapping = {
        "root": node(None),
        "sys": node("root", "system", "", hidden=True),
        "q0": node("sys", "user", "abandoned question"),
        "q1": node("sys", "user", {"content_type": "image_asset_pointer"}, "Which bird is this?"),
        "t1": node("q1", "tool", "search results"),
        "a1": node("t1", "assistant", "A quagga is no bird."),
    }
    return {"title": title, "conversation_id": chat_id, "mapping": mapping, "current_node": "a1"}


def archive(path: Path, chats: Any, name: str = "conversations.json") -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, chats if isinstance(chats, bytes) else json.dumps(chats))
        file.writestr("chat.html", "<html>")
    return str(path)


def openwebui_body(*texts: str, files: Any = None) -> dict[str, Any]:
    """The chat of a row of Open WebUI: a branch of messages, the first of them by the user."""
    messages: dict[str, Any] = {}
    parent: str | None = None
    for index, text in enumerate(texts):
        role = "assistant" if index % 2 else "user"
        messages[f"m{index}"] = {"id": f"m{index}", "parentId": parent, "role": role, "content": text}
        parent = f"m{index}"
    if files:
        messages["m0"]["files"] = files
    return {"title": "t", "history": {"messages": messages, "currentId": parent}}


def webui_database(path: Path) -> str:
    """A `webui.db` with three users, chats of two of them, and a document."""
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE user (id TEXT, name TEXT, email TEXT, role TEXT, created_at INTEGER)")
        file.execute("CREATE TABLE chat (id TEXT, user_id TEXT, title TEXT, chat JSON, created_at INTEGER)")
        file.execute(
            "CREATE TABLE file (id TEXT, user_id TEXT, filename TEXT, path TEXT, data JSON,"
            " created_at INTEGER)"
        )
        users = [
            ("u1", "Ann", ANN, "admin"),
            ("u2", "Bob", BOB, "user"),
            ("u3", "Eve", "eve@x.org", "pending"),
        ]
        file.executemany("INSERT INTO user VALUES (?, ?, ?, ?, 1)", users)
        chats = [
            ("w1", "u1", "Weather", json.dumps(openwebui_body("Is it wet?", "Yes.", files=[{"id": "f"}]))),
            ("w2", "u2", "Stones", json.dumps(openwebui_body("Which stone?", "Basalt."))),
            ("w3", "u3", "Pending", json.dumps(openwebui_body("Hello", "Hi"))),
            ("w4", "u1", "Broken", "{"),
            ("w5", "gone", "Orphan", "{}"),
        ]
        file.executemany("INSERT INTO chat VALUES (?, ?, ?, ?, 1)", chats)
        file.execute("INSERT INTO file VALUES ('f', 'u1', 'a.pdf', '', '{}', 1)")
    return str(path)


def stored_chats(sixfold: Commands, email: str) -> dict[str, list[tuple[str, str]]]:
    """Return the chats of an account by title: role and text of their messages."""

    def read() -> Transaction[dict[str, list[tuple[str, str]]]]:
        tenant = Tenant((yield from accounts.by_email(email)).id)
        result: dict[str, list[tuple[str, str]]] = {}
        for chat in (yield from many("chat_list", **tenant.row, before=2**62, limit=100)):
            own = {"account_id": tenant.account_id, "conversation_id": chat["id"], "last": 2**62}
            items = [json.loads(str(row["item"])) for row in (yield from many("conversation_items", **own))]
            result[str(chat["title"])] = [(item["role"], item["content"][0]["text"]) for item in items]
        return result

    return database_access.read(load({}, data_dir=sixfold.folder), read())


def reasons(document: Any) -> dict[str, str]:
    return {row["setting"]: row["reason"] for row in document["not_imported"]}


@pytest.fixture
def owner(sixfold: Commands) -> Commands:
    """A data folder with Ann's account."""
    sixfold.ok("account", "create", ANN)
    return sixfold


def test_chatgpt_export_becomes_chats(owner: Commands, tmp_path: Path) -> None:
    file = archive(tmp_path / "export.zip", [chatgpt_chat(), chatgpt_chat("c-2", ""), {"mapping": 3}])
    words = ("import", "chatgpt", file, "--account", ANN)
    preview = owner.ok(*words)
    assert (preview["found"], preview["chats"], preview["written"]) == (2, 0, False)
    result = owner.ok(*words, "--write")
    assert (result["chats"], result["imported_before"]) == (2, 0)
    assert reasons(result)["Birds"] == "1 images or other media of this chat"
    assert "it is not a chat" in reasons(result)["chat 3 of conversations.json"]
    assert "1 other files" in reasons(result)
    second_result = owner.ok(*words, "--write")
    assert (second_result["chats"], second_result["imported_before"]) == (0, 2)
    chats = stored_chats(owner, ANN)
    assert chats["Birds"] == [("user", "Which bird is this?"), ("assistant", "A quagga is no bird.")]
    assert len(chats) == 2


def test_openwebui_users_become_accounts(owner: Commands, tmp_path: Path) -> None:
    file = webui_database(tmp_path / "webui.db")
    result = owner.ok("import", "openwebui", file, "--write")
    assert (result["users"], result["accounts"], result["chats"]) == ([ANN, BOB], 1, 2)
    why = reasons(result)
    assert "pending" in why["eve@x.org"]
    assert why["Pending"] == why["Orphan"] == "its user is not imported"
    assert "it is not a chat" in why["Broken"]
    assert why["Weather"] == "1 attached files: an imported chat has only text"
    assert "not in the folder of uploads" in why["a.pdf"]
    second_result = owner.ok("import", "openwebui", file, "--write")
    assert (second_result["accounts"], second_result["chats"], second_result["imported_before"]) == (0, 0, 2)
    assert stored_chats(owner, ANN) == {"Weather": [("user", "Is it wet?"), ("assistant", "Yes.")]}
    assert stored_chats(owner, BOB) == {"Stones": [("user", "Which stone?"), ("assistant", "Basalt.")]}


def test_openwebui_export_needs_an_account(owner: Commands, tmp_path: Path) -> None:
    file = tmp_path / "chats.json"
    file.write_text(
        json.dumps([{"id": "w9", "title": "Seas", "chat": openwebui_body("Which sea?", "The Black Sea.")}])
    )
    result = owner("import", "openwebui", str(file))
    assert result.status == 1
    assert "--account" in result.err
    command_result = owner.ok("import", "openwebui", str(file), "--account", ANN, "--write")
    assert command_result["chats"] == 1
    assert list(stored_chats(owner, ANN)) == ["Seas"]


def test_hostile_files_are_refused(owner: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    circle = chatgpt_chat()
    circle["mapping"]["q1"]["parent"] = "a1"
    command_result = owner.ok(
        "import", "chatgpt", archive(tmp_path / "circle.zip", [circle]), "--account", ANN
    )
    assert command_result["found"] == 1
    monkeypatch.setattr("sixfold.cli.imports.chatgpt.MAX_BYTES", 2**20)
    bomb = archive(tmp_path / "bomb.zip", b"[" + b" " * 2**21 + b"]")
    deep = archive(tmp_path / "deep.zip", b"[" * 100_000)
    empty = archive(tmp_path / "empty.zip", [], "other.json")
    cut = tmp_path / "cut.zip"
    cut.write_bytes(Path(empty).read_bytes()[:-10])
    for file, words in (
        (bomb, "at most 1 MiB"),
        (deep, "not a JSON array"),
        (empty, "does not contain conversations.json"),
        (str(cut), ""),
    ):
        result = owner("import", "chatgpt", file, "--account", ANN, "--write")
        assert result.status == 1, file
        assert words in result.err
        assert "Traceback" not in result.err
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    result = owner("import", "openwebui", str(broken), "--write")
    assert (result.status, "not a database of Open WebUI" in result.err) == (1, True)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0"


@pytest.mark.parametrize(
    "schema",
    [
        f"DROP TABLE user; CREATE VIEW user(id) AS {ENDLESS}",
        "DROP TABLE user; CREATE VIRTUAL TABLE user USING fts5(id, email, role)",
        "ALTER TABLE chat ADD COLUMN large GENERATED ALWAYS AS (hex(zeroblob(9999999)))",
    ],
)
def test_a_table_that_computes_its_values_is_refused(owner: Commands, tmp_path: Path, schema: str) -> None:
    file = webui_database(tmp_path / "webui.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(schema)
    error = owner("import", "openwebui", file).err
    assert "is a view, is virtual or has generated columns" in error


def test_the_steps_of_queries_are_limited(
    owner: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = webui_database(tmp_path / "webui.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = ((f"u{number}", "", "a@example.com", "pending", 1) for number in range(10_000))
        connection.executemany("INSERT INTO user VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
    monkeypatch.setattr(openwebui, "MAX_STEPS", 10_000)
    monkeypatch.setattr(openwebui, "STEPS_AT_A_TIME", 1_000)
    result = owner("import", "openwebui", file)
    assert (result.status, "interrupted" in result.err) == (1, True)


def test_chat_above_a_limit_is_not_imported(
    owner: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_files, "MAX_CHAT_BYTES", 2000)
    long = chatgpt_chat("c-long", "x" * 2000)
    file = archive(tmp_path / "export.zip", [long, chatgpt_chat()])
    result = owner.ok("import", "chatgpt", file, "--account", ANN, "--write")
    assert result["chats"] == 1
    assert "more than" in reasons(result)["chat 1 of conversations.json"]
    lost = owner.ok("import", "chatgpt", file, "--account", "nobody@example.com", "--write")
    assert lost["chats"] == 0
    assert "not found" in reasons(lost)["Birds"]
