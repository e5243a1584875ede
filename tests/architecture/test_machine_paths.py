"""The repository contains no path of a machine and no registry, and its lock is complete."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture import source
from tools import lock, sizes

# Joined here, so that this file does not find itself.
HOSTS = [
    "pypi" + ".org",
    "files." + "pythonhosted",
    "registry." + "npmjs",
    "deb." + "debian.org",
    "registry." + "yarnpkg",
]
PLACES = ["work", "root", "opt/pypi", "opt/wheels", "home"]
ELSEWHERE = re.compile(
    "|".join([*map(re.escape, HOSTS), *(rf"(?<![\w.*}}>\])/])/{place}/" for place in PLACES)])
)
PARTS = [*HOSTS, *(f"/{place}/" for place in PLACES)]
MEGABYTE = 1_000_000


def test_no_file_names_a_registry_or_a_path_of_a_machine() -> None:
    broken = {}
    for name in source.files():
        try:
            text = source.text(name)
        except UnicodeDecodeError:
            continue
        # A substring is found 50 times as fast as the pattern.
        result = ELSEWHERE.search(text) if any(part in text for part in PARTS) else None
        if result:
            broken[name] = f"names {result[0]}"
    source.check_law("place", broken)


def test_the_lock_pins_and_hashes_everything() -> None:
    for layer in lock.LAYERS:
        blocks = lock.blocks(source.text(layer))
        assert all("==" in pin and "--hash=sha256:" in block for pin, block in blocks.items()), layer
        assert "--index-url" not in source.text(layer), layer


def test_no_distribution_is_in_two_layers_of_the_lock() -> None:
    layers = [{lock.name_of(pin) for pin in lock.pins(layer)} for layer in lock.LAYERS]
    names = [name for layer in layers for name in layer]
    assert len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_lock_agrees_with_the_project() -> None:
    """Each requirement of pyproject.toml is in the lock, at a version that it admits."""
    project = tomllib.loads(source.text("pyproject.toml"))
    expected = [*project["project"]["dependencies"], *project["build-system"]["requires"], *lock.BUILD]
    extras = project["project"]["optional-dependencies"]
    expected += [line for extra, lines in extras.items() if extra not in lock.UNLOCKED for line in lines]
    # A marker may choose one of several versions by the interpreter.
    pins: dict[str, set[str]] = {}
    for pin in lock.pins():
        name, version = pin.partition(";")[0].strip().split("==")
        pins.setdefault(name, set()).add(version)
    for requirement in map(Requirement, expected):
        name = canonicalize_name(requirement.name)
        if name != "sixfold":
            assert name in pins, f"{requirement} is not in the lock; run `make lock`"
            assert any(requirement.specifier.contains(version) for version in pins[name]), (
                f"{requirement}, not {pins[name]}; run `make lock`"
            )


def test_installed_size_is_limited() -> None:
    base, embedded = sizes.installed(("constraints.txt", "constraints-embedded.txt"))
    assert base <= 180 * MEGABYTE, f"base: {base / MEGABYTE:.0f} MB"
    assert base + embedded <= 505 * MEGABYTE, f"with embedded: {(base + embedded) / MEGABYTE:.0f} MB"


def test_every_api_package_is_in_the_import_contract() -> None:
    """import-linter has no optional modules, so a new package must be added to the contract."""
    contracts = tomllib.loads(source.text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    contract = next(row for row in contracts if row["name"].startswith("API packages reach"))
    packages = {f"sixfold.{name}" for name in ("api", "ui", "mcp") if (source.PACKAGE / name).is_dir()}
    missing = sorted(packages - set(contract["source_modules"]))
    assert not missing, f"add {missing} to the contract 'API packages reach …'"
