"""Create the environments of the Gradio servers that tests of spaces start, one for each version.

    make spaces, or python tools/gradios.py VERSION ...

Each is a virtual environment in `gradio/VERSION` below the current environment; existing ones are unchanged.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

# Requirements of each version; the dependencies of an old version are limited to compatible releases.
VERSIONS: Mapping[str, tuple[str, ...]] = {
    "4": ("gradio==4.44.1", "huggingface-hub<1", "pydantic<2.11", "starlette<0.47"),
    "5": ("gradio>=5.50,<6",),
    "6": ("gradio>=6.31,<7",),
}
_READY = ".ready"


def interpreter(version: str) -> Path:
    """Return the path of a version's interpreter; the path does not exist unless it is installed."""
    home = Path(sys.prefix) / "gradio" / version
    return home / "bin" / "python" if (home / _READY).exists() else home / _READY


def main() -> int:
    """Create the environments of the versions on the command line, or all; return the exit status."""
    for version in sys.argv[1:] or VERSIONS:
        if interpreter(version).name != _READY:
            continue
        began, home = time.monotonic(), Path(sys.prefix) / "gradio" / version
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-compile", *VERSIONS[version]], check=True)
        (home / _READY).touch()
        print(f"Gradio {version}: {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
