"""Write the lock: files of pinned, hashed requirements, without any index address.

    constraints.txt           the requirements of the server, and its build backend
    constraints-embedded.txt  added by the extra `embedded`
    constraints-test.txt      added by the extra `test`
    constraints-dev.txt       added by the extra `dev`
    constraints-weights.txt   added to constraints-embedded.txt by the extra `weights`, without torch

The first four are layers: each contains only the pins that the layers above lack, so a file's length shows
the cost of an extra. uv resolves the requirements once, for every supported Python and platform.
Run it with `make lock`; `make lock ARGS=--upgrade` selects newer releases.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {
    "constraints.txt": (),
    "constraints-embedded.txt": ("embedded",),
    "constraints-test.txt": ("embedded", "test"),
    "constraints-dev.txt": ("embedded", "test", "dev"),
}
HEADER = "# Written by `make lock`; do not edit.{note}\n"
# What `make weights` installs, apart from torch and its dependencies, which differ by machine and index.
WEIGHTS = "constraints-weights.txt"
OF_TORCH = re.compile(r"torch|triton|nvidia-|cuda-")
# Extras without a layer: torch, since its builds differ by machine, the packages that are installed with it,
# and ray, which only clusters need.
UNLOCKED = frozenset({"weights", "listening", "ray"})
# An editable install needs the build backend in the environment, since nothing is built in isolation.
BUILD = ["editables>=0.5"]


def blocks(text: str) -> dict[str, str]:
    """Split uv's output into one block of lines (pin and hashes) per pin."""
    result: dict[str, str] = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", text.strip()):
        pin = block.partition("\n")[0].removesuffix(" \\").strip()
        if pin and not pin.startswith("#"):
            result[pin] = block
    return result


def name_of(pin: str) -> str:
    """Return the distribution's name in a pin such as `uvloop==0.23.0 ; sys_platform != 'win32'`."""
    return pin.partition("==")[0]


def resolve(uv: Path, extras: tuple[str, ...], constraints: Path | None) -> str:
    """Return uv's lock of the project with `extras`, limited to the versions in `constraints`."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as scratch:
        expected = Path(scratch) / "build-backend.in"
        expected.write_text("\n".join([*build, *BUILD]) + "\n")
        command = [str(uv), "pip", "compile", "pyproject.toml", str(expected), "--quiet"]
        command += ["--universal", "--python-version", "3.11", "--fork-strategy", "fewest"]
        command += ["--generate-hashes", "--no-emit-index-url", "--no-header", "--no-annotate"]
        command += [part for extra in extras for part in ("--extra", extra)]
        command += ["--constraints", str(constraints)] if constraints else []
        return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def pins(*files: str) -> list[str]:
    """Return the pins of files of the lock, by default of all layers."""
    return [pin for file in files or LAYERS for pin in blocks((ROOT / file).read_text())]


def pins_only(lock: str) -> str:
    """Return the pins of a lock without their hashes, as constraints for a smaller resolution."""
    return "\n".join(blocks(lock)) + "\n"


def find_uv(scratch: Path) -> Path:
    """Install uv into a temporary environment, since only locking needs it; return its path."""
    venv.create(scratch, with_pip=True)
    folder = scratch / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([str(folder / "python"), "-m", "pip", "install", "--quiet", "uv"], check=True)
    return folder / "uv"


def main(arguments: list[str]) -> None:
    """Resolve all requirements once, then write to each layer the pins that it adds."""
    with tempfile.TemporaryDirectory() as scratch:
        uv = find_uv(Path(scratch) / "venv")
        pinned = Path(scratch) / "pinned.txt"
        if "--upgrade" not in arguments:
            old = "".join((ROOT / name).read_text() for name in LAYERS if (ROOT / name).exists())
            pinned.write_text(pins_only(old))
        everything = blocks(resolve(uv, LAYERS["constraints-dev.txt"], pinned if pinned.exists() else None))
        pinned.write_text("\n".join(everything) + "\n")
        above: set[str] = set()
        for name, extras in LAYERS.items():
            expected = {name_of(pin) for pin in blocks(resolve(uv, extras, pinned))} - above
            # The marker of the whole resolution: it holds for every layer below as well.
            layer = [text for pin, text in everything.items() if name_of(pin) in expected]
            note = f" Adds the extra `{extras[-1]}` to the files above it." if extras else ""
            (ROOT / name).write_text(HEADER.format(note=note) + "".join(f"{text}\n" for text in layer))
            above |= expected
            print(f"{name}: {len(expected)} distributions")
        write_weights(uv, pinned)


def write_weights(uv: Path, locked: Path) -> None:
    """Write the pins that the extra `weights` adds to the layer of `embedded`, at the locked versions."""
    known = {name_of(pin) for pin in pins("constraints.txt", "constraints-embedded.txt")}
    old = ROOT / WEIGHTS
    constraints = locked.with_name("weights.txt")
    old_pins = pins_only(old.read_text()) if old.exists() and "--upgrade" not in sys.argv else ""
    constraints.write_text(locked.read_text() + old_pins)
    resolved = blocks(resolve(uv, ("weights",), constraints))
    added = [text for pin, text in resolved.items() if name_of(pin) not in known and not OF_TORCH.match(pin)]
    note = " Adds the extra `weights` to constraints-embedded.txt."
    old.write_text(HEADER.format(note=note) + "".join(f"{text}\n" for text in added))
    print(f"{WEIGHTS}: {len(added)} distributions")


if __name__ == "__main__":
    main(sys.argv[1:])
