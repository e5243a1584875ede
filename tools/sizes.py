"""Print the size on disk of each layer of the lock, as installed in this environment.

Run it with `.venv/bin/python -m tools.sizes`; a test in tests/architecture checks the limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from tools import lock

MEGABYTE = 1_000_000


def of_distribution(name: str) -> int:
    """Return the bytes of an installed distribution's files, 0 if it is not installed."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return 0
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.is_file())


def distributions(layer: str) -> list[str]:
    """Return the names that a layer of the lock pins."""
    return [lock.name_of(pin) for pin in lock.pins(layer)]


def installed(layers: Iterable[str]) -> list[int]:
    return [sum(map(of_distribution, distributions(layer))) for layer in layers]


def main() -> None:
    """Print the layers, each with its five largest distributions."""
    total = 0
    for layer, size in zip(lock.LAYERS, installed(lock.LAYERS), strict=True):
        total += size
        largest = sorted(((of_distribution(name), name) for name in distributions(layer)), reverse=True)[:5]
        details = ", ".join(f"{name} {bytes_ / MEGABYTE:.0f}" for bytes_, name in largest)
        print(f"{layer:26} {size / MEGABYTE:5.0f} MB, {total / MEGABYTE:5.0f} MB so far: {details}")


if __name__ == "__main__":
    main()
