"""`doctor`, `engines`, `db` and `backup` commands."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sixfold.store import sql
from tests.unit.cli.conftest import Commands


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable probing of this machine's ports."""
    monkeypatch.setenv("SIXFOLD_PROBE", "0")


def test_doctor_reports_the_engine_of_each_model(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    report = sixfold.ok("doctor")
    assert report["ok"] is True
    assert report["problems"] == []
    assert report["server"] is None
    assert report["database"] == {
        "schema": sql.latest("sqlite"),
        "latest": sql.latest("sqlite"),
        "faults": [],
        "ledger_faults": [],
    }
    prices = report["prices"]
    assert prices["models"] > 40
    assert "2025-11" <= prices["oldest"] <= prices["newest"]
    limits = report["hosted_models"]
    assert limits["models"] > 40
    assert "2025-11" <= limits["oldest"] <= limits["newest"]
    served = {row["model"]: (row["engine"], row["quality"]) for row in report["models"]}
    assert served["ra1"] == ("scene-painter", "preview")
    assert {thing["name"] for thing in report["found"]} >= {"GPU", "ComfyUI", "Ollama", "fal", "OpenAI"}
    text = sixfold("doctor").out
    assert "the ledger is consistent" in text
    assert "sixfold provider set fal" in text
    assert "FAL_KEY" in sixfold("doctor", "--all").out


def test_doctor_reports_whether_a_language_model_is_available(
    sixfold: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {row["model"]: row for row in sixfold.ok("doctor")["models"]}
    assert [alone[name]["engine"] for name in ("chat", "vision", "text-llm")] == [None, None, None]
    assert "sixfold engines add chat" in alone["chat"]["unlock"]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    served = {row["model"]: row["engine"] for row in sixfold.ok("doctor")["models"]}
    assert [served[name] for name in ("chat", "vision", "text-llm")] == ["relay", "relay-vision", "relay"]


def test_doctor_without_data_creates_no_folder(sixfold: Commands) -> None:
    assert sixfold.ok("doctor")["database"] is None
    assert not sixfold.folder.exists()


def test_doctor_of_a_public_server_names_the_previews_setting(
    sixfold: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIXFOLD_PUBLIC_URL", "https://six.example")
    served = {row["model"]: row for row in sixfold.ok("doctor")["models"]}
    assert served["ra1"]["engine"] is None
    assert "SIXFOLD_PREVIEWS=allow" in served["ra1"]["unlock"]


def change(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "sixfold.db") as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "UPDATE account SET posted = 5 WHERE email = 'a@b.c'",
            "balance differs from the sum of its entries",
        ),
        ("DELETE FROM account WHERE email = 'a@b.c'", "refers to a missing row of account"),
        ("PRAGMA user_version=0", "run `sixfold migrate` to bring it to"),
        ("PRAGMA user_version=999", "upgrade Sixfold"),
    ],
)
def test_doctor_names_each_problem(sixfold: Commands, statement: str, problem: str) -> None:
    sixfold.ok("account", "create", "a@b.c")
    change(sixfold.folder, statement)
    final_result = sixfold("doctor", "--json")
    assert final_result.status == 1
    assert any(problem in result for result in final_result.json["problems"])
    assert problem in final_result.err


def test_invalid_database_file_fails_with_one_sentence(sixfold: Commands) -> None:
    sixfold.folder.mkdir()
    (sixfold.folder / "sixfold.db").write_bytes(b"no database at all" * 100)
    assert "cannot be used" in sixfold.error_of("account", "show", "a@b.c")
    assert "damaged" in sixfold("doctor").err


def test_engines_are_listed_with_their_models(sixfold: Commands) -> None:
    engines = {row["engine"]: row for row in sixfold.ok("engines", "list")["engines"]}
    messages = {"engine", "version", "kind", "quality", "models", "ready", "detail", "unlock"}
    assert set(engines["scene-painter"]) == messages
    assert engines["scene-painter"]["ready"]
    assert "ra1" in engines["scene-painter"]["models"]
    assert "style-transfer" in engines["style-painter"]["models"]


def test_schema_is_migrated_down_and_up(sixfold: Commands) -> None:
    newest = sql.latest("sqlite")
    sixfold.ok("account", "create", "a@b.c")
    assert sixfold.ok("migrate") == {"before": newest, "after": newest, "latest": newest}
    assert "--drop" in sixfold.error_of("migrate", "--to", "0")
    assert sixfold.ok("migrate", "--to", "0", "--drop") == {"before": newest, "after": 0, "latest": newest}
    assert sixfold.ok("migrate") == {"before": 0, "after": newest, "latest": newest}
    sixfold.ok("account", "create", "a@b.c")
    for goal in ("-1", str(newest + 1)):
        assert "--to must be a schema from 0 to" in sixfold.error_of("migrate", "--to", goal)


def test_migrate_without_data_creates_no_folder(sixfold: Commands) -> None:
    assert "There is no Sixfold data" in sixfold.error_of("migrate")
    assert not sixfold.folder.exists()


def test_a_restore_ends_all_access_of_the_backup(sixfold: Commands, tmp_path: Path) -> None:
    sixfold.ok("account", "create", "a@b.c")
    path = tmp_path / "all.tar"
    sixfold.ok("backup", str(path))
    target = Commands(tmp_path / "target", sixfold.capsys)
    result = target.ok("restore", str(path), "--end-access")["ended"]
    assert (result["keys"], result["programs"], set(result)) == (
        1,
        0,
        {"keys", "programs", "sign_ins", "invitations", "shares", "shared_folders"},
    )
    assert [key["revoked_at"] is None for key in target.ok("key", "list", "a@b.c")["keys"]] == [False]
    assert [key["revoked_at"] is None for key in sixfold.ok("key", "list", "a@b.c")["keys"]] == [True]
    assert sorted(item.name for item in target.folder.iterdir()) == ["server.lock", "sixfold.db"]


def test_backup_and_restore_report_tables_and_bytes(sixfold: Commands, tmp_path: Path) -> None:
    sixfold.ok("account", "create", "a@b.c", "--credit", "2")
    path = tmp_path / "all.tar"
    written = sixfold.ok("backup", str(path))
    assert written == {
        "file": str(path),
        "bytes": path.stat().st_size,
        "schema": sql.latest("sqlite"),
        "tables": written["tables"],
        "blobs": 0,
        "blob_bytes": 0,
        "missing_blobs": 0,
        "missing": [],
    }
    assert written["tables"]["account"] == 3
    target = Commands(tmp_path / "target", sixfold.capsys)
    assert target.ok("restore", str(path), "--verify") == {
        "data_dir": str(target.folder),
        "schema": written["schema"],
        "tables": written["tables"],
        "blobs": 0,
        "blob_bytes": 0,
        "missing": [],
        "damaged": [],
        "verified": True,
        "drift": 0,
        "missing_blobs": 0,
        "ledger_faults": [],
    }
    assert target.ok("account", "show", "a@b.c")["balance_usd"] == "2.00"
    assert "is not empty" in target.error_of("restore", str(path))


def test_backup_to_an_unusable_path_is_refused(sixfold: Commands, tmp_path: Path) -> None:
    assert "There is no Sixfold data" in sixfold.error_of("backup", str(tmp_path / "x.tar"))
    sixfold.ok("account", "create", "a@b.c")
    assert "not a folder" in sixfold.error_of("backup", str(tmp_path))
    assert "does not exist" in sixfold.error_of("backup", str(tmp_path / "none" / "x.tar"))
    empty = Commands(tmp_path / "empty", sixfold.capsys)
    for folder in (empty, sixfold):
        assert "none.tar does not exist" in folder.error_of("restore", str(tmp_path / "none.tar"))
    assert not empty.folder.exists()


def test_text_output_of_maintenance_has_the_same_facts(sixfold: Commands, tmp_path: Path) -> None:
    sixfold.ok("account", "create", "a@b.c")
    assert "server.key, local.key and sixfold.toml" in sixfold("backup", str(tmp_path / "all.tar")).out
    target = Commands(tmp_path / "target", sixfold.capsys)
    restored = target("restore", str(tmp_path / "all.tar"), "--verify").out
    assert "the ledger is consistent" in restored
    assert "copy server.key of the old server into this folder" in restored
    # The folder of a restore may already have the key.
    own = Commands(tmp_path / "own", sixfold.capsys)
    own.folder.mkdir()
    (own.folder / "server.key").write_bytes(bytes(32))
    assert "copy server.key" not in own("restore", str(tmp_path / "all.tar")).out
    assert "has schema" in target("migrate").out
