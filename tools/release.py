"""Build the wheel and the source archive, install the wheel and start the server.

The wheel is installed in a clean environment without and then with the extra `embedded`. The installed
program serves, generates an image with the command that it prints, and stops. Run it with `make packages`;
the files stay in dist/ with a bill of materials and checksums, signed if RELEASE_KEY names an SSH key. It
prints the size of each installation.
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

LIMITS = {"": 250, "embedded": 500}  # megabytes without pip and bytecode
STOP_SECONDS = 180
PACKAGE = "src/sixfold/"
GUIDES = ("docs/index.md", *(f"docs/{folder}/" for folder in FOLDERS))


def tracked() -> set[str]:
    """Return the package's files and guides that git tracks or does not ignore, as named in a wheel."""
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
    return _build_target("wheel", folder, "sixfold-*.whl")


def build_archive(folder: Path) -> Path:
    """Build the source archive alone, with the same build backend."""
    return _build_target("sdist", folder, "sixfold-*.tar.gz")


def _build_target(target: str, folder: Path, pattern: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=lock.ROOT, check=True, capture_output=True)
    (built,) = folder.glob(pattern)
    return built


class CleanEnvironment:
    """A virtual environment that contains only the wheel and its dependencies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "env", with_pip=True)
        self.pins = folder / "pins.txt"
        self.pins.write_text("\n".join(lock.pins()) + "\n")
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SIXFOLD_"))
        }
        self.environ["HOME"] = str(folder)
        self.empty = self.megabytes()

    def megabytes(self) -> tuple[float, float]:
        """Return the size of the environment's packages in megabytes: their files, and their bytecode."""
        (packages,) = (self.folder / "env").glob("lib/python*/site-packages")
        sizes_of = {True: 0, False: 0}
        for path in packages.rglob("*"):
            if path.is_file():
                sizes_of[path.suffix == ".pyc"] += path.stat().st_size
        return sizes_of[False] / sizes.MEGABYTE, sizes_of[True] / sizes.MEGABYTE

    def run(self, program: str, *words: str) -> str:
        """Run a program of the environment outside the checkout, and return its output."""
        command = [str(self.folder / "env" / "bin" / program), *words]
        process = subprocess.run(
            command, cwd=self.folder, env=self.environ, check=True, stdout=subprocess.PIPE, text=True
        )
        return process.stdout

    def install(self, wheel: Path, extra: str) -> None:
        """Install the wheel with an extra at the lock's versions; exit if its size exceeds the limit."""
        requirement = f"{wheel}[{extra}]" if extra else str(wheel)
        start = time.monotonic()
        self.run("python", "-m", "pip", "install", "-q", "--no-input", "-c", str(self.pins), requirement)
        seconds = time.monotonic() - start
        files, bytecode = (now - before for now, before in zip(self.megabytes(), self.empty, strict=True))
        name = f"sixfold[{extra}]" if extra else "sixfold"
        print(f"{name:18} {files:.0f} MB and {bytecode:.0f} MB of bytecode, installed in {seconds:.0f} s")
        if files > LIMITS[extra]:
            raise SystemExit(
                f"{requirement} must take at most {LIMITS[extra]} MB on disk (got {files:.0f} MB)."
            )

    @contextmanager
    def serving(self, data: str) -> Iterator[str]:
        """Start the installed server on a free port, and yield the text that it prints at its start."""
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
                wait_for_exit(process)
        if process.returncode != 0:
            raise SystemExit(f"The server exited with status {process.returncode}.")


def wait_for_exit(process: subprocess.Popen[str]) -> None:
    """Wait for a server that received SIGTERM; kill it after STOP_SECONDS and exit."""
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"The server did not stop within {STOP_SECONDS} seconds.") from None


def banner(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that a server prints until it is ready."""
    for line in lines:
        yield line
        if "Control-C" in line:
            return


def curl(*words: str) -> bytes:
    """Return the body of a URL; raises `CalledProcessError` for an error status."""
    return subprocess.run(["curl", "--fail", "-sS", *words], check=True, stdout=subprocess.PIPE).stdout


def generate_image(banner_text: str) -> str:
    """Run the command that the server printed, and return the image's size and the duration as a string."""
    (line,) = [line for line in banner_text.splitlines() if line.strip().startswith("curl ")]
    start = time.monotonic()
    output = subprocess.run(["bash", "-c", f"{line} --fail -S"], check=True, stdout=subprocess.PIPE).stdout
    response = json.loads(output)
    image = Image.open(io.BytesIO(curl(response["image_url"])))
    image.load()
    return f"{image.width}×{image.height} {image.format} in {time.monotonic() - start:.1f} s"


def check_second_build(sums: Path) -> None:
    """Build everything again and exit if a checksum differs from those in `sums`."""
    with tempfile.TemporaryDirectory() as scratch:
        build(Path(scratch))
        _, second = artifacts.write_sums(Path(scratch))
        first, again = (set(path.read_text().splitlines()) for path in (sums, second))
    if first != again:
        raise SystemExit(f"Two builds must have the same hashes (different: {sorted(first ^ again)}).")
    print(f"  a second build has the same {len(first)} hashes")


def main() -> None:
    """Build the archives, check the wheel's files, and install and start each variant."""
    dist = lock.ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    wheel, archive = sorted(build(dist), key=lambda path: path.suffix, reverse=True)
    if packed(wheel) != tracked():
        raise SystemExit(f"The wheel and the sources differ in {sorted(packed(wheel) ^ tracked())}.")
    for path in (wheel, archive):
        print(f"{path.relative_to(lock.ROOT)}  {path.stat().st_size / sizes.MEGABYTE:.1f} MB")
    for path in artifacts.write(dist):
        print(path.relative_to(lock.ROOT))
    check_second_build(dist / artifacts.CHECKSUMS)
    with tempfile.TemporaryDirectory() as scratch:
        environment = CleanEnvironment(Path(scratch))
        for extra in LIMITS:
            environment.install(wheel, extra)
            start = time.monotonic()
            with environment.serving(f"data-{extra}") as text:
                seconds = time.monotonic() - start
                print(f"  {environment.run('sixfold', '--version').strip()}, ready in {seconds:.1f} s")
                if extra:  # images need OpenCV
                    print(f"  {generate_image(text)}")


if __name__ == "__main__":
    main()
