"""What a release is: a wheel with every file of the package, a version and a changelog that agree."""

from __future__ import annotations

import re
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import sixfold
from tests.architecture import source
from tools import release


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what lies here now."""
    return release.build_wheel(tmp_path_factory.mktemp("dist"))


def test_wheel_has_every_package_file_and_nothing_else(wheel: Path) -> None:
    packed = release.packed(wheel)
    assert packed == release.tracked()
    for kind in (".sql", ".toml", ".html", ".css", ".js", ".webp", "py.typed"):
        assert any(name.endswith(kind) for name in packed), f"no {kind} in the wheel"


def test_the_wheel_says_its_version_its_licence_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = f"sixfold-{sixfold.__version__}.dist-info/"
        told = Parser().parsestr(archive.read(about + "METADATA").decode())
        commands = archive.read(about + "entry_points.txt").decode()
        licence = archive.read(about + "licenses/LICENSE").decode()
    extras = tomllib.loads(source.text("pyproject.toml"))["project"]["optional-dependencies"]
    assert told["Version"] == sixfold.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert licence == source.text("LICENSE")
    assert set(told.get_all("Provides-Extra") or ()) == set(extras)
    assert "sixfold = sixfold.cli.main:main" in commands


def test_version_is_the_newest_or_next_of_the_changelog() -> None:
    changes = source.text("CHANGELOG.md")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", changes, re.MULTILINE)
    announced = re.findall(r"^To become (\d+\.\d+\.\d+):", changes, re.MULTILINE)
    assert sixfold.__version__ == [*announced, *released][0]
