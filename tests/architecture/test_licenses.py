"""The page of licenses names exactly the packages that are installed for Sixfold."""

from __future__ import annotations

import sys

import pytest

from tools import licenses, lock


def test_license_page_lists_every_installed_package() -> None:
    installed = {name for names in licenses.layers().values() for name in names}
    missing = sorted(installed - licenses.documented().keys())
    assert not missing, f"`python -m tools.licenses` writes the page anew: it does not name {missing}"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the page is written with Python 3.11")
def test_license_page_lists_no_removed_package() -> None:
    request = licenses.project()
    known = licenses.closure([text for texts in request.values() for text in texts], request)
    # Some packages are installed by another target of make, and may be missing here.
    locked = {lock.name_of(pin) for pin in lock.pins()}
    stale = sorted(licenses.documented().keys() - known - locked)
    assert not stale, f"`python -m tools.licenses` writes the page anew: it still names {stale}"


def test_every_font_has_a_license_file_and_is_documented() -> None:
    response = dict(licenses.typefaces())
    faces = {path.name for path in licenses.FONTS.glob("*.woff2")}
    for name, notice in response.items():
        stem = name.lower().replace(" ", "-")
        assert any(face.startswith(f"{stem}-") for face in faces), name
        assert f"| {name} | SIL OFL 1.1 | {notice} |" in licenses.PAGE.read_text("utf-8")
        faces = {face for face in faces if not face.startswith(f"{stem}-")}
    assert not faces, f"no license lies beside {sorted(faces)}"


def test_license_is_the_one_of_the_package() -> None:
    assert licenses.license_of("starlette") == "BSD-3-Clause"
    assert licenses.license_of("certifi") == "MPL-2.0"
    assert "GPL" in licenses.license_of("espeakng-loader")
