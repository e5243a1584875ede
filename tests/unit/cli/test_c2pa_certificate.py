"""`c2pa create`, and messages of the server and `doctor` about an unusable certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold.app import media
from sixfold.core.provenance import certificates
from sixfold.settings import InvalidSetting, Settings
from tests.unit.cli.conftest import inside


def test_certificate_is_created_once_with_a_private_key_file(tmp_path: Path) -> None:
    result = inside(tmp_path, "c2pa", "create", "--name", "Example Ltd", "--days", "30", "--json").json
    chain, key = Path(result["c2pa_certificate"]), Path(result["c2pa_key"])
    assert certificates.algorithm(chain.read_bytes(), key.read_bytes()) == "es256"
    assert (key.stat().st_mode & 0o777, result["days"]) == (0o600, 30)
    before = key.read_bytes()
    final_result = inside(tmp_path, "c2pa", "create")
    assert (final_result.status, key.read_bytes()) == (1, before)
    assert "already exists: move it to another folder" in final_result.err


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"c2pa_key": "key.pem"}, "set together; c2pa_certificate is not set"),
        ({"c2pa_certificate": "chain.pem"}, "set together; c2pa_key is not set"),
        ({"c2pa_certificate": "none.pem", "c2pa_key": "key.pem"}, r"none\.pem cannot be read: No such file"),
        ({"c2pa_certificate": "long.pem", "c2pa_key": "key.pem"}, r"must be at most 65,536 bytes"),
        (
            {"c2pa_certificate": "chain.pem", "c2pa_key": "chain.pem"},
            "must contain a private key as PEM|pip install",
        ),
    ],
)
def test_unusable_settings_are_refused_with_the_reason(
    tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    chain, key = certificates.create("Example", 30)
    for name, content in (("chain.pem", chain), ("key.pem", key), ("long.pem", bytes(70_000))):
        (tmp_path / name).write_bytes(content)
    paths = {name: tmp_path / file for name, file in settings.items()}
    with pytest.raises(InvalidSetting, match=reason):
        media.open_credentials(Settings(data_dir=tmp_path, **paths), {})  # pyright: ignore[reportArgumentType] - paths by name


def test_doctor_reports_an_unusable_certificate(tmp_path: Path) -> None:
    (tmp_path / "sixfold.toml").write_text('c2pa_key = "/nowhere/key.pem"\n', "utf-8")
    result = inside(tmp_path, "doctor", "--json")
    assert result.status == 1
    assert any("c2pa_certificate is not set" in problem for problem in result.json["problems"])
