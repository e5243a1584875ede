"""The operator's key file, with mode 0600, which other commands use to authenticate."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE = "local.key"


def write(path: Path, api_key: str) -> None:
    """Write a key to a new file that only the owner can read."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{api_key}\n")
        file.flush()
        os.fsync(file.fileno())


def read(data_dir: Path) -> str | None:
    """Return the key that the first start stored, or None."""
    try:
        return (data_dir / FILE).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
