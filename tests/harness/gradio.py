"""Real Gradio servers: environments built by `tools/gradios.py`, and applications that run in them."""

from __future__ import annotations

import json
import re
import select
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sixfold import settings
from tests.harness import processes
from tools import gradios

_FACTS = """
import sys, sysconfig
print(*map(sysconfig.get_path, ("stdlib", "platlib")), sys._base_executable, sys.base_prefix, sep="\\n")
"""
# Applications do not need these; a small image is faster.
_LEFT_OUT = re.compile(
    r"tests?|idlelib|ensurepip|tkinter|pip|setuptools|site-packages|config-3.*|node|(media_)?assets|hf_xet"
)
APPLICATION = Path(__file__).parents[1] / "fakes" / "gradio_space" / "app.py"


def interpreter(version: str) -> Path:
    """Return the Python interpreter of a Gradio version; skip the test if it is not installed."""
    result = gradios.interpreter(version)
    if not result.exists():
        pytest.skip(f"Gradio {version} is not installed (make spaces)")
    return result


@contextmanager
def running_applications(version: str, folder: Path) -> Iterator[dict[str, int]]:
    """Start the applications of `fakes/gradio_space` and yield their local ports."""
    quiet = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1", "GRADIO_TEMP_DIR": str(folder)}
    process = processes.start(
        [interpreter(version), APPLICATION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**settings.worker_environment(), **quiet, "HOME": str(folder), "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    try:
        response, _, _ = select.select([process.stdout], [], [], processes.STORY_SECONDS)
        yield json.loads((process.stdout.readline() if response else "") or "{}")
    finally:
        processes.kill(process)


def pack(version: str, target: Path) -> None:
    """Build the root file system of a container with this version from local files, without downloads.

    `/usr/bin/python` is the Python of the environment, `/packages` its installed packages.
    """
    stdlib, packages, program, _ = (Path(path).resolve() for path in _interpreter_facts(version))
    with tarfile.open(target, "w", dereference=True) as tar:
        for library in _libraries([program, *stdlib.rglob("lib-dynload/*.so"), *packages.rglob("*.so*")]):
            tar.add(library)
        tar.add(program, "usr/bin/python")
        for folder, there in ((stdlib, str(stdlib)), (packages, "packages")):
            for part in folder.iterdir():
                tar.add(part, f"{there}/{part.name}", filter=_keep)


def base(version: str) -> str:
    """Return the prefix of that Python, which its container shares."""
    return _interpreter_facts(version)[3]


def _interpreter_facts(version: str) -> list[str]:
    requests = [interpreter(version), "-c", _FACTS]
    return subprocess.run(
        requests, capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()


def _keep(about: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.fullmatch(Path(about.name).name) else about


def _libraries(programs: list[Path]) -> list[Path]:
    """Return the shared libraries of the programs, and the dynamic loader."""
    response = subprocess.run(
        ["ldd", *programs], capture_output=True, text=True, check=False, timeout=60
    ).stdout
    results = {Path(path) for path in re.findall(r"(?:=> |^\s)(/\S+) \(0x", response, re.MULTILINE)}
    return sorted(path for path in results if "site-packages" not in path.parts)
