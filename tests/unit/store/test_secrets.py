"""Stored provider keys: encrypted, bound to their name and folder, reloaded, never in plain text."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from sixfold.settings import Settings
from sixfold.store import secrets
from sixfold.store.secrets import Secrets, SecretUnreadable, provider_key

KEY = "sk-proj-canary-0123456789abcdef"
MASTER = bytes(range(32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / secrets.MASTER).write_bytes(MASTER)
    return tmp_path


def test_stored_key_is_read_unchanged_and_never_in_plain_text(folder: Path) -> None:
    remaining = Secrets(folder, MASTER)
    remaining.put("openai_api_key", KEY)
    remaining.mark_checked("openai_api_key", KEY)
    assert Secrets(folder, MASTER).get("openai_api_key") == KEY
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert len(written) == 3
    assert not any(KEY.encode() in content or KEY[-8:].encode() in content for content in written)


def test_stored_secrets_are_readable_by_their_owner_only(folder: Path) -> None:
    Secrets(folder, MASTER).put("fal_key", KEY)
    paths = [folder / secrets.FOLDER, *(folder / secrets.FOLDER).iterdir()]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o700, 0o600]


def test_equal_keys_have_different_ciphertexts(folder: Path) -> None:
    remaining, path = Secrets(folder, MASTER), folder / secrets.FOLDER / "fal_key.json"
    remaining.put("fal_key", KEY)
    first = json.loads(path.read_text())["sealed"]
    remaining.put("fal_key", KEY)
    assert json.loads(path.read_text())["sealed"] != first


def test_secret_is_bound_to_its_name_and_master_key(folder: Path) -> None:
    remaining = Secrets(folder, MASTER)
    remaining.put("fal_key", KEY)
    shutil.copy(folder / "providers/fal_key.json", folder / "providers/openai_api_key.json")
    with pytest.raises(SecretUnreadable):
        remaining.get("openai_api_key")
    with pytest.raises(SecretUnreadable, match=r"server\.key was different"):
        Secrets(folder, bytes(32)).get("fal_key")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"sealed": 5}', b'{"sealed": "AAAA"}'])
def test_damaged_secret_file_is_unreadable(folder: Path, content: bytes) -> None:
    remaining = Secrets(folder, MASTER)
    remaining.put("fal_key", KEY)
    (folder / "providers/fal_key.json").write_bytes(content)
    with pytest.raises(SecretUnreadable):
        remaining.get("fal_key")
    assert provider_key(Settings(data_dir=folder), "fal_key") == ""


def test_only_keys_of_providers_are_stored(folder: Path) -> None:
    with pytest.raises(ValueError, match="not the name of a provider key"):
        Secrets(folder, MASTER).put("../server", KEY)
    assert provider_key(Settings(data_dir=folder), "../server") == ""


def test_removed_key_is_not_found(folder: Path) -> None:
    remaining = Secrets(folder, MASTER)
    remaining.put("fal_key", KEY)
    assert remaining.remove("fal_key")
    assert remaining.get("fal_key") is None
    assert not remaining.remove("fal_key")


def test_check_applies_only_to_the_checked_key(folder: Path) -> None:
    remaining = Secrets(folder, MASTER)
    assert remaining.checked_at("fal_key", KEY) is None
    remaining.mark_checked("fal_key", KEY)
    assert remaining.checked_at("fal_key", KEY)
    assert remaining.checked_at("fal_key", KEY + "2") is None


def test_environment_key_precedes_stored_and_new_key_is_seen(folder: Path) -> None:
    configured = Settings(data_dir=folder)
    assert provider_key(configured, "fal_key") == ""
    remaining = Secrets(folder, MASTER)
    for key in (KEY, KEY + "-second"):
        remaining.put("fal_key", key)
        assert provider_key(configured, "fal_key") == key
    assert provider_key(configured.replace(fal_key="from-outside"), "fal_key") == "from-outside"
    remaining.remove("fal_key")
    assert provider_key(configured, "fal_key") == ""


def test_undecryptable_key_is_logged_once_without_its_text(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Secrets(folder, bytes(32)).put("fal_key", KEY)
    with caplog.at_level(logging.WARNING):
        assert [provider_key(Settings(data_dir=folder), "fal_key") for _ in range(5)] == [""] * 5
    assert len(caplog.records) == 1
    assert KEY not in caplog.text


@pytest.mark.parametrize(("key", "hint"), [(KEY, "…cdef"), ("short", "…"), ("", "…")])
def test_hint_shows_only_the_end_of_a_key(key: str, hint: str) -> None:
    assert secrets.hint(key) == hint
