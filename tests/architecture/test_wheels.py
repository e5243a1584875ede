"""Every pin of the lock has wheels for each Python and architecture that Sixfold supports."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.architecture import source
from tools import lock, wheels

# Releases without a wheel for a Python, as a pin would name them; "" means every release.
WITHOUT_A_WHEEL = [("pocketsphinx", "5.1.1", "3.12"), ("pocketsphinx", "", "3.14"), ("coincurve", "", "3.14")]


def test_every_pin_has_a_wheel_on_x86_64_and_arm64() -> None:
    """The record was written with the lock and has a hash of its pins."""
    record = tomllib.loads(wheels.RECORD.read_text("utf-8"))
    assert record["pins"] == wheels.digest(), "the lock has changed: run `python -m tools.wheels`"
    assert record["lacking"] == []
    assert record["architectures"] == ["x86_64", "aarch64"]
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', source.text("pyproject.toml"))
    assert record["pythons"] == classified


def pinned(name: str, python: str) -> set[str]:
    """Return the versions of a distribution that the lock installs on a Python."""
    pins = [Requirement(pin) for pin in lock.pins()]
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "platform_machine": "x86_64",
    }
    return {
        str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.name == name and (pin.marker is None or pin.marker.evaluate(environment))
    }


@pytest.mark.parametrize(("name", "version", "python"), WITHOUT_A_WHEEL)
def test_lock_excludes_releases_without_a_wheel(name: str, version: str, python: str) -> None:
    assert pinned(name, "3.11"), f"{name} is no longer locked: take it out of this table"
    result = pinned(name, python)
    assert not result if version == "" else version not in result
