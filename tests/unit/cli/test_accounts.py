"""Commands for accounts, keys and the ledger: exact output, one sentence for errors."""

from __future__ import annotations

import argparse
import json
import sqlite3
from pathlib import Path

import pytest
from pwdlib import PasswordHash

from sixfold import settings
from sixfold.cli import database_access
from sixfold.core.accounts import accounts, charges, keys, ledger
from sixfold.core.accounts.charges import LineItem
from sixfold.core.database import Transaction
from tests.unit.cli.conftest import Commands

SUM = "1,200 × 0.10/M + 300 × 0.40/M = 0.00024 USD"


def rows(folder: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "sixfold.db") as connection:
        result = connection.execute(query, values).fetchall()
    connection.close()
    return result


def test_a_new_account_gets_an_id_and_a_key_that_works(sixfold: Commands) -> None:
    result = sixfold.ok("account", "create", "Ann@Example.com", "--credit", "12.5")
    assert set(result) == {"account_id", "api_key"}
    assert len(result["api_key"]) == len("sf_") + 43
    query = "SELECT account_id FROM api_key WHERE hash = ?"
    assert rows(sixfold.folder, query, keys.hash_of(result["api_key"])) == [(result["account_id"],)]
    assert sixfold.ok("account", "show", "ann@example.com") == {
        "account_id": result["account_id"],
        "email": "ann@example.com",
        "balance_usd": "12.50",
        "held_usd": "0.00",
    }


def test_commands_need_no_keys_of_model_servers(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    upstream = 'kind = "openai"\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "UNSET_MODEL_SERVER_KEY"\n'
    (sixfold.folder / "sixfold.toml").write_text(f"[gateway.upstreams.acme]\n{upstream}")
    assert set(sixfold.ok("key", "create", "a@b.c")) == {"id", "api_key"}
    assert len(sixfold.ok("key", "list", "a@b.c")["keys"]) == 2
    with pytest.raises(settings.InvalidSetting, match="the variable UNSET_MODEL_SERVER_KEY is not set"):
        settings.load({}, data_dir=sixfold.folder)


def test_data_folder_is_readable_by_its_owner_only(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    assert {path.stat().st_mode & 0o077 for path in [sixfold.folder, *sixfold.folder.iterdir()]} == {0}


def test_credit_is_added_and_removed_but_not_below_zero(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    assert sixfold.ok("account", "credit", "a@b.c", "25")["balance_usd"] == "25.00"
    assert sixfold.ok("account", "credit", "a@b.c", "-0.005")["balance_usd"] == "24.995"
    assert "less than 25.00 USD" in sixfold.error_of("account", "credit", "a@b.c", "-25")
    assert sixfold.ok("account", "show", "a@b.c")["balance_usd"] == "24.995"


@pytest.mark.parametrize("amount", ["ten", "0.0000001", "1e30", "nan", "", "0"])
def test_invalid_amount_of_credit_is_refused(sixfold: Commands, amount: str) -> None:
    sixfold.ok("account", "create", "a@b.c")
    assert sixfold.error_of("account", "credit", "a@b.c", amount)
    assert sixfold.ok("account", "show", "a@b.c")["balance_usd"] == "0.00"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("create", "nobody"), "is not an e-mail address"),
        (("create", "a@b.c"), "An account with the e-mail address a@b.c already exists"),
        (("create", "d@b.c", "--credit", "-1"), "must not be negative"),
        (("show", "x@y.z"), "Account x@y.z not found"),
        (("credit", "x@y.z", "1"), "Account x@y.z not found"),
        (("link", "x@y.z"), "Account x@y.z not found"),
        (("password", "x@y.z", "--stdin"), "Account x@y.z not found"),
    ],
)
def test_a_refusal_is_one_sentence(sixfold: Commands, words: tuple[str, ...], sentence: str) -> None:
    sixfold.ok("account", "create", "a@b.c")
    assert sentence in sixfold.error_of("account", *words)


@pytest.mark.parametrize(
    "words",
    [
        ("account", "show", "a@b.c"),
        ("key", "list", "a@b.c"),
        ("key", "revoke", "key_1"),
        ("ledger", "verify"),
    ],
)
def test_command_without_data_fails_and_creates_no_folder(sixfold: Commands, words: tuple[str, ...]) -> None:
    assert "There is no Sixfold data" in sixfold.error_of(*words)
    assert not sixfold.folder.exists()


@pytest.mark.parametrize("words", [("account",), ("account", "make"), ("nothing",), ("key", "create")])
def test_wrong_usage_is_status_2(sixfold: Commands, words: tuple[str, ...]) -> None:
    result = sixfold(*words)
    assert result.status == 2
    assert "usage: sixfold" in result.err


def test_unknown_option_shows_the_usage_of_its_command(sixfold: Commands) -> None:
    result = sixfold("memory", "write", "a", "--zzz", "b")
    assert result.status == 2
    assert result.err.startswith("usage: sixfold memory write ")
    assert result.err.endswith("sixfold memory write: error: unrecognized arguments: --zzz b\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("runn",), "sixfold: error: argument COMMAND: invalid choice 'runn'; did you mean run?"),
        (("account", "creat"), "invalid choice 'creat'; did you mean create?"),
        (("completion", "zzz"), "invalid choice 'zzz'; choose from bash, zsh, fish"),
        (("run", "ra1", "--ouptut=x"), "unrecognized arguments: --ouptut=x; did you mean --output?"),
    ],
)
def test_misspelled_commands_and_options_get_suggestions(
    sixfold: Commands, words: tuple[str, ...], error: str
) -> None:
    result = sixfold(*words)
    assert result.status == 2
    assert result.err.endswith(f"{error}\n")


def test_password_is_read_from_stdin_and_stored_hashed(
    sixfold: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sixfold.ok("account", "create", "a@b.c")
    typed = tmp_path / "typed"
    for text, status in (("correct horse\n", 0), ("short\n", 1)):
        typed.write_text(text)
        with typed.open() as stream:
            monkeypatch.setattr("sys.stdin", stream)
            assert sixfold("account", "password", "a@b.c", "--stdin").status == status
            assert "Pass --stdin" in sixfold.error_of("account", "password", "a@b.c")
    ((remaining,),) = rows(sixfold.folder, "SELECT password_hash FROM account WHERE email = 'a@b.c'")
    assert PasswordHash.recommended().verify("correct horse", str(remaining))


def test_sign_in_link_token_is_stored_as_a_hash(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    result = sixfold.ok("account", "link", "a@b.c")
    url, _, token = result["url"].partition("?token=")
    assert url == "http://127.0.0.1:8600/signin"
    assert result["expires_in_seconds"] == 3600
    assert rows(sixfold.folder, "SELECT token_hash, kind FROM signin") == [(keys.hash_of(token), "link")]


def test_key_is_created_with_every_limit_of_the_options(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    limits = ["--read-only", "--collections", "notes,work", "--services", "ra1,anime", "--rpm", "60"]
    limits += ["--tpm", "5000", "--budget-day", "1.50", "--budget-month", "20", "--expires", "2999-01-31"]
    result = sixfold.ok("key", "create", "a@b.c", *limits)
    assert set(result) == {"id", "api_key"}
    newest, first = sixfold.ok("key", "list", "a@b.c")["keys"]
    assert newest == {
        "id": result["id"],
        "name": "",
        "created_at": newest["created_at"],
        "used_at": None,
        "expires_at": "2999-02-01T00:00:00.000Z",
        "revoked_at": None,
        "hint": result["api_key"][-4:],
        "rights": ["memory.read"],
        "read_only": True,
        "collections": ["notes", "work"],
        "services": ["ra1", "anime"],
        "rpm": 60,
        "tpm": 5000,
        "budget_day_usd": "1.50",
        "budget_month_usd": "20.00",
    }
    assert first["read_only"] is False
    listed = sixfold("key", "list", "a@b.c").out
    assert result["api_key"] not in listed
    assert "until 2999-01-31 " in listed


def test_a_server_has_one_operator(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c", "--operator")
    assert "a@b.c" in sixfold.error_of("account", "create", "b@b.c", "--operator")
    sixfold.ok("account", "create", "b@b.c")


def test_unknown_services_give_a_warning_with_similar_names(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    (sixfold.folder / "sixfold.toml").write_text(
        '[gateway.upstreams.box]\nkind = "vllm"\nbase_url = "http://127.0.0.1:1"\nmodels = ["small"]\n'
        '[gateway.aliases]\nfast = "box/small"\n'
    )
    known = sixfold("key", "create", "a@b.c", "--services", "ra1,chat,tools,box/small,small,fast")
    assert (known.status, known.err) == (0, "")
    unknown = sixfold("key", "create", "a@b.c", "--services", "ra1,chatt,nothing,bxo/small")
    assert unknown.status == 0
    assert (
        "Model or service chatt (did you mean chat?), nothing, bxo/small (did you mean box/small"
        in unknown.err
    )
    assert sixfold.ok("key", "list", "a@b.c")["keys"][0]["services"][1] == "chatt"


@pytest.mark.parametrize(
    "limit",
    [
        ("--expires", "tomorrow"),
        ("--expires", ""),
        ("--services", ""),
        ("--collections", " , "),
        ("--rpm", "0"),
        ("--budget-day", "-1"),
        ("--budget-month", "much"),
    ],
)
def test_invalid_limit_is_refused_and_no_key_created(sixfold: Commands, limit: tuple[str, str]) -> None:
    sixfold.ok("account", "create", "a@b.c")
    assert sixfold.error_of("key", "create", "a@b.c", *limit)
    assert len(sixfold.ok("key", "list", "a@b.c")["keys"]) == 1


def test_key_that_expires_in_the_past_gives_a_warning(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    result = sixfold("key", "create", "a@b.c", "--expires", "2001-01-01", "--json")
    assert result.status == 0
    assert result.err == "sixfold: the key has expired: --expires 2001-01-01 is in the past\n"
    keys = sixfold.ok("key", "list", "a@b.c")["keys"]
    assert next(key for key in keys if key["expires_at"])["id"] == json.loads(result.out)["id"]


def test_key_has_named_rights_or_all_but_operate(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    sixfold.ok("key", "create", "a@b.c", "--rights", "run, memory.read")
    sixfold.ok("key", "create", "a@b.c", "--services", "ra1")
    sixfold.ok("key", "create", "a@b.c", "--budget-day", "1")
    sixfold.ok("key", "create", "a@b.c", "--collections", "work")
    usual = ["run", "memory.read", "memory.write", "account.read", "account.manage"]
    assert [key["rights"] for key in sixfold.ok("key", "list", "a@b.c")["keys"]] == [
        ["memory.read", "memory.write"],
        usual[:-1],
        usual[:-1],
        ["run", "memory.read"],
        usual,
    ]
    assert "run, memory.read" in sixfold("key", "list", "a@b.c").out
    refused_rights = {
        ("--rights", "fly"): "Unknown right 'fly': the rights are run, memory.read, ",
        ("--rights", "operate"): "Only a key of the operator's account can have the right operate",
        (
            "--rights",
            "run",
            "--read-only",
        ): "A key with these limits cannot have the rights run: it can have memory.read",
        ("--rights", "account.manage", "--services", "ra1"): "cannot have the rights account.manage",
        ("--rights", ","): "--rights is empty",
    }
    for options, text in refused_rights.items():
        assert text in sixfold.error_of("key", "create", "a@b.c", *options)
    assert len(sixfold.ok("key", "list", "a@b.c")["keys"]) == 5


def test_first_operator_key_has_every_right_others_not_operate(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "o@b.c", "--operator")
    sixfold.ok("key", "create", "o@b.c")
    newer, first = sixfold.ok("key", "list", "o@b.c")["keys"]
    assert first["rights"] == [*newer["rights"], "operate"]


def test_a_key_is_revoked_once(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    (key,) = sixfold.ok("key", "list", "a@b.c")["keys"]
    assert sixfold.ok("key", "revoke", key["id"]) == {"id": key["id"], "revoked": True}
    assert sixfold.ok("key", "list", "a@b.c")["keys"][0]["revoked_at"]
    assert "not found, or already revoked" in sixfold.error_of("key", "revoke", key["id"])


def test_all_access_is_ended_or_one_key_is_revoked(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c")
    for wrong in ((), ("key_1", "--all")):
        assert "the ID of one key, or --all" in sixfold.error_of("key", "revoke", *wrong)
    counts = sixfold.ok("key", "revoke", "--all")
    assert counts == {
        "keys": 1,
        "programs": 0,
        "sign_ins": 0,
        "invitations": 0,
        "shares": 0,
        "shared_folders": 0,
    }
    assert sixfold.ok("key", "list", "a@b.c")["keys"][0]["revoked_at"]


def test_verify_detects_a_changed_ledger(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c", "--credit", "3")
    assert sixfold.ok("ledger", "verify") == {"ok": True, "faults": [], "archived": 0}
    with sqlite3.connect(sixfold.folder / "sixfold.db") as connection:
        connection.execute("UPDATE account SET posted = posted + 1 WHERE email = 'a@b.c'")
    connection.close()
    result = sixfold("ledger", "verify", "--json")
    assert result.status == 1
    assert len(result.json["faults"]) == 2
    assert "balance differs from the sum of its entries" in sixfold("ledger", "verify").err


def test_ledger_entries_show_the_calculation_of_each_charge(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c", "--credit", "3")
    account_id = sixfold.ok("account", "show", "a@b.c")["account_id"]
    lines = (LineItem("input_tokens", 1200, 100_000, 10**6), LineItem("output_tokens", 300, 400_000, 10**6))
    charge = charges.encode(charges.calculate(lines))

    def paid() -> Transaction[None]:
        yield from ledger.hold(account_id, "hold", 500)
        yield from ledger.capture("hold", 240, ledger.LedgerEntry("chat", "m by a/m", "req_1", charge))

    database_access.write(
        database_access.settings_of(argparse.Namespace(data_dir=str(sixfold.folder))), paid()
    )
    response = sixfold.ok("ledger", "entries", "a@b.c", "--limit", "1")
    [entry] = response["entries"]
    assert (entry["amount_usd"], entry["charge"]["sum"]) == ("-0.00024", SUM)
    older = sixfold.ok("ledger", "entries", "a@b.c", "--cursor", response["next_cursor"])["entries"]
    assert [(entry["kind"], entry["charge"]) for entry in older] == [("credit", None)]
    assert SUM in sixfold("ledger", "entries", "a@b.c").out
    assert "--limit must be from 1 to 1000 (got 0)" in sixfold.error_of(
        "ledger", "entries", "a@b.c", "--limit", "0"
    )
    assert "a@b.d" in sixfold.error_of("ledger", "entries", "a@b.d")
    assert "cursor" in sixfold.error_of("ledger", "entries", "a@b.c", "--cursor", "x")


@pytest.mark.parametrize(
    "words",
    [
        ("account", "show", "a@b.c"),
        ("account", "credit", "a@b.c", "1"),
        ("account", "create", "new@b.c"),
        ("account", "link", "a@b.c"),
        ("key", "create", "a@b.c"),
        ("key", "list", "a@b.c"),
        ("ledger", "verify"),
        ("ledger", "entries", "a@b.c"),
        ("engines", "list"),
    ],
)
def test_output_without_a_terminal_is_text_without_color(sixfold: Commands, words: tuple[str, ...]) -> None:
    sixfold.ok("account", "create", "a@b.c")
    result = sixfold(*words)
    assert (result.status, result.err) == (0, "")
    assert result.out.strip()
    assert "\x1b" not in result.out


def test_usage_is_printed_as_json_and_csv(sixfold: Commands) -> None:
    sixfold.ok("account", "create", "a@b.c", "--credit", "1")

    def charge() -> Transaction[None]:
        account = yield from accounts.by_email("a@b.c")
        yield from ledger.hold(account.id, "hold-1", 500)
        yield from ledger.capture("hold-1", 240, ledger.LedgerEntry("charge", "ra1", "req-1"))

    database_access.write(settings.load(data_dir=sixfold.folder), charge())
    amounts = {"requests": 1, "input_tokens": 0, "output_tokens": 0, "amount_usd": "0.00024"}
    amounts["provider_cost_usd"] = "0.00"
    assert sixfold.ok("ledger", "usage", "a@b.c", "--by", "kind,model") == {
        "days": 30,
        "usage": [{"kind": "run", "model": "ra1", **amounts}],
    }
    lines = sixfold("ledger", "usage", "a@b.c", "--by", "model", "--csv").out.splitlines()
    assert lines == [
        "model,requests,input_tokens,output_tokens,amount_usd,provider_cost_usd",
        "ra1,1,0,0,0.00024,0.00",
    ]
    assert "--by must be" in sixfold.error_of("ledger", "usage", "a@b.c", "--by", "hour")
    assert "--days must be" in sixfold.error_of("ledger", "usage", "a@b.c", "--days", "0")
