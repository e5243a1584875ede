"""The wheel and the source archive in clean environments, installed by uv from an index on loopback.

A server of each gives a first chat by Ollama, a first image by ComfyUI and a first answer of the memory, with
the commands of the README.
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from tests.architecture import source
from tests.e2e import servers
from tests.fakes import comfyui, local_models
from tools import lock, release

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

PYTHONS = ("3.11", "3.12", "3.13")


def interpreter(version: str) -> str | None:
    """Return the path of an interpreter that starts; pyenv's commands may name one that is not chosen."""
    results = shutil.which(f"python{version}")
    versions = Path.home() / ".pyenv" / "versions"
    for path in filter(None, [results, *map(str, sorted(versions.glob(f"{version}.*/bin/python3")))]):
        result = subprocess.run(
            [path, "-c", "import sys; print(sys.version)"], check=False, capture_output=True, text=True
        )
        if result.stdout.startswith(f"{version}."):
            return path
    return None


@dataclass(frozen=True)
class LocalIndex:
    """A package index with the files of a folder, and uv, which asks no other."""

    url: str
    folder: Path
    uv: Path

    def environ(self, home: Path) -> dict[str, str]:
        """Return the environment of uv: an empty home, and no index, mirror or download but this one."""
        return {
            "PATH": os.defpath,
            "HOME": str(home),
            "UV_DEFAULT_INDEX": self.url,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(self.folder / "cache"),
            "UV_LINK_MODE": "copy",
        }


def _pages(folder: Path, files: Path) -> None:
    """Write the pages of a simple index (PEP 503): one per name, with links to its files."""
    for path in files.iterdir():
        name = re.sub(r"[-_.]+", "-", re.split(r"-\d", path.name)[0]).lower()
        page = folder / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a") as file:
            file.write(f'<a href="/files/{path.name}">{path.name}</a>\n')


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalIndex]:
    """Serve our archives, and the wheels that pip downloads for each interpreter of this machine."""
    folder = tmp_path_factory.mktemp("index")
    files = folder / "files"
    archives = [release.build_wheel(files), release.build_archive(files)]
    pins = folder / "pins.txt"
    pins.write_text("\n".join(pin for name in lock.LAYERS for pin in lock.blocks(source.text(name))))
    try:
        uv = lock.find_uv(folder / "uv")
        for version in filter(interpreter, PYTHONS):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
            command += ["--python-version", version, "--dest", str(files), "--constraint", str(pins)]
            subprocess.run([*command, f"{archives[0]}[embedded]", "hatchling"], check=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"pip cannot download the dependencies: {error}")
    _pages(folder, files)
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield LocalIndex(f"http://127.0.0.1:{server.server_port}/simple", folder, uv)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
async def fake_servers(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Run Ollama and ComfyUI; yield the settings of a server that uses them."""
    ollama = local_models.Ollama({"qwen3:8b": local_models.COMPLETION})
    async with local_models.listening(ollama), comfyui.comfyui() as comfy:
        home = tmp_path / "home"
        home.mkdir()
        (home / "sixfold.toml").write_text(
            f'[gateway.upstreams.ollama]\nkind = "ollama"\nbase_url = "http://127.0.0.1:{ollama.port}"\n'
        )
        yield {"SIXFOLD_COMFYUI_URL": comfy.url, "SIXFOLD_DATA_DIR": str(home)}


async def run(*command: str, **environ: str) -> str:
    """Run a program, and return its output."""
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, (command, output.decode())
    return output.decode()


def readme_commands() -> list[str]:
    """Return the commands of the README's section on chat and memory."""
    section = source.text("README.md").partition("## Chat and memory")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (sixfold .*)$", section, re.MULTILINE)


async def follow_the_readme(program: tuple[str, ...], path: str, settings: dict[str, str]) -> None:
    """Start a server; check its first image, and the output of each command of the README."""
    environ = {**settings, "PATH": path}
    async with servers.running(Path(settings["SIXFOLD_DATA_DIR"]), program, environ) as server:
        file = Path(settings["SIXFOLD_DATA_DIR"]).with_name("light.png")
        image = await run("/bin/sh", "-c", f"sixfold run -o {file} ra1 prompt='a lighthouse'", **environ)
        assert "ra1 succeeded  comfyui-image, full" in image
        with Image.open(file) as picture:
            assert picture.format == "PNG"
        output = "".join([await run("/bin/sh", "-c", each, **environ) for each in readme_commands()])
        for expected in (r"^I am qwen3:8b$", r"people/mara  version 1", r"«keeps» the «lighthouse»"):
            assert re.search(expected, output, re.MULTILINE), output
        # uv passes SIGTERM on to the program that it runs.
        assert await server.terminate() == 0


@pytest.mark.parametrize("version", PYTHONS)
async def test_first_chat_image_and_memory_answer_on_each_python(
    version: str, index: LocalIndex, fake_servers: dict[str, str], tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    programs = tmp_path / "env" / "bin"
    environ = index.environ(tmp_path)
    # Wheels on every Python; the source archive, which uv builds, on the newest.
    kind = "--no-binary" if version == PYTHONS[-1] else "--only-binary"
    await run(str(index.uv), "venv", "--quiet", "--python", python, str(programs.parent), **environ)
    install = ("pip", "install", "--quiet", "--python", str(programs / "python"), kind, "sixfold")
    await run(str(index.uv), *install, "sixfold[embedded]", **environ)
    where = await run(str(programs / "python"), "-c", "import sixfold; print(sixfold.__file__)", **environ)
    assert Path(where).is_relative_to(tmp_path / "env")
    await follow_the_readme((str(programs / "sixfold"),), f"{programs}:{os.defpath}", fake_servers)


async def test_uvx_starts_a_server_without_an_installation(
    index: LocalIndex, fake_servers: dict[str, str], tmp_path: Path
) -> None:
    python = interpreter(f"{sys.version_info.major}.{sys.version_info.minor}") or sys.executable
    call = (str(index.uv), "tool", "run", "--python", python, "--from", "sixfold[embedded]", "sixfold")
    environ = index.environ(tmp_path)
    assert (await run(*call, "--version", **environ)).startswith("sixfold ")
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "sixfold"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
    script.chmod(0o755)
    settings = {**fake_servers, **environ}
    await follow_the_readme((str(script),), f"{programs}:{os.defpath}", settings)
