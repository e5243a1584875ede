"""Build the wheel and the source archive, and do with them what a person would do.

The wheel, built from the source archive, is installed in a clean environment without and then with the extra
`embedded`; the installed program serves, is asked for a picture by the line that it prints, and stops.
Run it with `make packages`; the files stay in dist/ with a bill of materials and checksums, signed if
RELEASE_KEY names an SSH key. It prints what each installation takes on disk.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from hatch_build import FOLDERS
from tools import artifacts, lock, sizes

LIMITS = {"": 310, "embedded": 610}  # megabytes, without pip itself; the lexers of Pygments are 10
STOP_SECONDS = 180
PACKAGE = "src/sixfold/"
GUIDES = ("docs/index.md", *(f"docs/{folder}/" for folder in FOLDERS))


def tracked() -> set[str]:
    """Return the files of the package and its guides that git has or would take, as a wheel names them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", PACKAGE, *GUIDES]
    names = subprocess.run(command, cwd=lock.ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    results = {name for name in names.split("\0") if (lock.ROOT / name).is_file()}
    return {re.sub("^docs/", "sixfold/guides/", name.removeprefix("src/")) for name in results}


def packed(wheel: Path) -> set[str]:
    """Return the files of the package in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("sixfold/")}


def build(folder: Path) -> list[Path]:
    """Build both archives into `folder`; needs the package `build` of the extra `dev`."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=lock.ROOT, check=True, stdout=subprocess.PIPE)
    return sorted(folder.glob("sixfold-*"))


def build_wheel(folder: Path) -> Path:
    """Build the wheel alone, with the build backend that every environment of this checkout has."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=lock.ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("sixfold-*.whl")
    return wheel


class Clean:
    """An environment with nothing in it but what is installed from the wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "env", with_pip=True)
        self.pins = folder / "pins.txt"
        blocks = [lock.blocks((lock.ROOT / layer).read_text()) for layer in lock.LAYERS]
        self.pins.write_text("\n".join(pin for layer in blocks for pin in layer) + "\n")
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SIXFOLD_"))
        }
        self.environ["HOME"] = str(folder)
        self.empty = self.bytes()

    def bytes(self) -> int:
        """What lies in the environment's packages."""
        (packages,) = (self.folder / "env").glob("lib/python*/site-packages")
        return sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())

    def run(self, program: str, *words: str) -> str:
        """Run a program of the environment, far from the sources; return what it printed."""
        command = [str(self.folder / "env" / "bin" / program), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def install(self, wheel: Path, extra: str) -> None:
        """Install the wheel with an extra at the lock's versions, and hold its size to the limit."""
        expected = f"{wheel}[{extra}]" if extra else str(wheel)
        start = time.monotonic()
        # Files that pip would compile are compiled at the first start as well, so they count.
        self.run("python", "-m", "pip", "install", "-q", "--no-input", "-c", str(self.pins), expected)
        took = time.monotonic() - start
        megabytes = (self.bytes() - self.empty) / sizes.MEGABYTE
        name = f"sixfold[{extra}]" if extra else "sixfold"
        print(f"{name:18} {megabytes:.0f} MB on disk, installed in {took:.0f} s")
        if megabytes > LIMITS[extra]:
            raise SystemExit(f"{expected} takes {megabytes:.0f} MB; {LIMITS[extra]} MB are the limit.")

    @contextmanager
    def serving(self, data: str) -> Iterator[str]:
        """The installed program serves on a free port; gives what it said at its start."""
        program = str(self.folder / "env" / "bin" / "sixfold")
        command = [program, "serve", "--port", "0", "--data-dir", str(self.folder / data)]
        with (
            (self.folder / "log").open("a") as log,
            subprocess.Popen(
                command, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            try:
                yield "".join(banner(process.stdout or ()))
            finally:
                process.send_signal(signal.SIGTERM)
                ended(process)
        if process.returncode != 0:
            raise SystemExit(f"The server ended with status {process.returncode}.")


def ended(process: subprocess.Popen[str]) -> None:
    """Wait for a server that was told to stop, and no longer than its drain and a good while."""
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"The server did not stop within {STOP_SECONDS} seconds.") from None


def banner(lines: Iterable[str]) -> Iterator[str]:
    """Yield what a server says until it is ready."""
    for line in lines:
        yield line
        if "Control-C" in line:
            return


def curl(*words: str) -> bytes:
    """Fetch a URL; anything but a success ends the trial."""
    return subprocess.run(["curl", "--fail", "-sS", *words], check=True, stdout=subprocess.PIPE).stdout


def picture(said: str) -> str:
    """Make a picture with the line that the server printed; say how large it is and what it took."""
    (line,) = [line for line in said.splitlines() if line.strip().startswith("curl ")]
    start = time.monotonic()
    pasted = subprocess.run(["bash", "-c", f"{line} --fail -S"], check=True, stdout=subprocess.PIPE).stdout
    answer = json.loads(pasted)
    image = Image.open(io.BytesIO(curl(answer["image_url"])))
    image.load()
    return f"{image.width}×{image.height} {image.format} in {time.monotonic() - start:.1f} s"


def main() -> None:
    """Build, compare, install, serve, make a picture."""
    dist = lock.ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    wheel, archive = sorted(build(dist), key=lambda path: path.suffix, reverse=True)
    if packed(wheel) != tracked():
        raise SystemExit(f"The wheel and the sources differ in {sorted(packed(wheel) ^ tracked())}.")
    for path in (wheel, archive):
        print(f"{path.relative_to(lock.ROOT)}  {path.stat().st_size / sizes.MEGABYTE:.1f} MB")
    for path in artifacts.write(dist):
        print(path.relative_to(lock.ROOT))
    with tempfile.TemporaryDirectory() as scratch:
        clean = Clean(Path(scratch))
        for extra in LIMITS:
            clean.install(wheel, extra)
            start = time.monotonic()
            with clean.serving(f"data-{extra}") as text:
                took = time.monotonic() - start
                print(f"  {clean.run('sixfold', '--version').strip()}, ready in {took:.1f} s")
                if extra:  # pictures need OpenCV
                    print(f"  {picture(text)}")


if __name__ == "__main__":
    main()
