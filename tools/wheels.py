"""Check with uv that every pin of the lock has a wheel for each supported Python and architecture.

`make lock` runs it and writes the result to tests/architecture/wheels.toml, which a test compares with the
lock without a network.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

from tools import lock

RECORD = lock.ROOT / "tests" / "architecture" / "wheels.toml"
ARCHITECTURES = ("x86_64", "aarch64")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_WITHOUT = re.compile(
    r"Because (?P<name>[\w.-]+)(?:\{[^}]*\})?==(?P<version>\S+) has no\s+(?:usable\s+)?wheels"
)


def pins() -> list[str]:
    """Return the pins of the lock, including those of the extra `weights`."""
    return sorted(set(lock.pins(*lock.LAYERS, lock.WEIGHTS)))


def digest() -> str:
    """Return a hash of the pins, which shows whether the current pins were checked."""
    return hashlib.sha256("\n".join(pins()).encode()).hexdigest()


def without_wheel(uv: Path, architecture: str, python: str) -> list[str]:
    """Return the pins that a Python on an architecture would have to compile."""
    expected, lacking = pins(), list[str]()
    while True:
        with tempfile.TemporaryDirectory() as folder:
            requirements = Path(folder) / "pins.txt"
            requirements.write_text("\n".join(expected) + "\n")
            command = [
                str(uv),
                "pip",
                "compile",
                str(requirements),
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
            ]
            command += ["--python-platform", f"{architecture}-unknown-linux-gnu", "--python-version", python]
            process = subprocess.run(command, check=False, capture_output=True, text=True)
        if process.returncode == 0:
            return lacking
        result = _WITHOUT.search(" ".join(process.stderr.split()))
        if result is None:
            raise SystemExit(process.stderr)
        lacking.append(f"{result['name']}=={result['version']}")
        expected = [pin for pin in expected if not pin.startswith(lacking[-1])]


def write(uv: Path) -> None:
    """Check the whole lock and write the record."""
    lacking = [
        f"{pin} on Python {python}, {architecture}"
        for architecture in ARCHITECTURES
        for python in PYTHONS
        for pin in without_wheel(uv, architecture, python)
    ]
    lines = [
        "# Written by `make lock`: result of `python -m tools.wheels` for the pins with this hash.",
        f"pins = {json.dumps(digest())}",
        f"architectures = {json.dumps(ARCHITECTURES)}",
        f"pythons = {json.dumps(PYTHONS)}",
        f"lacking = {json.dumps(lacking)}",
    ]
    RECORD.write_text("\n".join(lines) + "\n")
    print(f"{RECORD.relative_to(lock.ROOT)}: {len(pins())} pins, {len(lacking)} without a wheel")


def main() -> None:
    """Install uv into a temporary environment, and check the lock."""
    with tempfile.TemporaryDirectory() as scratch:
        write(lock.find_uv(Path(scratch)))


if __name__ == "__main__":
    main()
