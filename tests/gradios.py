"""Real Gradio servers: environments that `tools/gradios.py` makes, and applications started in them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sixfold import settings
from tools import gradios

APPLICATION = Path(__file__).parent / "fakes" / "gradio_space" / "app.py"


def interpreter(version: str) -> Path:
    """The one that has this version; skips the test where there is none."""
    found = gradios.interpreter(version)
    if not found.exists():
        pytest.skip(f"Gradio {version} is not installed (make spaces)")
    return found


@contextmanager
def served(version: str, folder: Path) -> Iterator[dict[str, int]]:
    """The applications of `fakes/gradio_space`, by their ports on this machine."""
    quiet = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1", "GRADIO_TEMP_DIR": str(folder)}
    with subprocess.Popen(
        [interpreter(version), APPLICATION],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**settings.worker_environment(), **quiet, "HOME": str(folder), "TMPDIR": str(folder)},
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline() or "{}")
        finally:
            process.kill()
