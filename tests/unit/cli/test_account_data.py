"""`sixfold account export` and deletion: one zip, and a balanced ledger afterwards."""

from __future__ import annotations

import json
import zipfile

from tests.unit.cli.conftest import Commands


def test_export_writes_all_data_of_an_account_to_one_zip(sixfold: Commands) -> None:
    output = sixfold.ok("account", "create", "a@b.c", "--credit", "5")
    path = sixfold.folder.parent / "a.zip"
    response = sixfold.ok("account", "export", "a@b.c", str(path))
    assert (response["account_id"], response["bytes"]) == (output["account_id"], path.stat().st_size)
    with zipfile.ZipFile(path) as result:
        account = json.loads(result.read("account.json"))
        assert output["api_key"].encode() not in b"".join(result.read(name) for name in result.namelist())
    assert (account["email"], account["balance_usd"]) == ("a@b.c", "5.00")
    assert path.stat().st_mode & 0o077 == 0
    assert "does not exist" in sixfold.error_of("account", "export", "a@b.c", str(path / "x" / "y.zip"))


def test_account_is_closed_reopened_and_erased(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c", "--credit", "5")
    sixfold.ok("account", "create", "other@b.c", "--credit", "7")
    assert "--yes" in sixfold.error_of("account", "delete", "a@b.c")
    assert sixfold.ok("account", "delete", "a@b.c", "--yes")["erased"] is False
    assert sixfold.ok("account", "keep", "a@b.c")["email"] == "a@b.c"
    assert "a@b.c is not closed: nothing was changed" in sixfold.error_of("account", "keep", "a@b.c")
    assert sixfold.ok("account", "delete", "a@b.c", "--yes", "--now")["erased"] is True
    assert "Account a@b.c not found" in sixfold.error_of("account", "show", "a@b.c")
    assert sixfold.ok("ledger", "verify") == {"ok": True, "faults": [], "archived": 0}
    assert sixfold.ok("account", "show", "other@b.c")["balance_usd"] == "7.00"
    # The address is available again.
    assert sixfold.ok("account", "create", "a@b.c")["account_id"]
