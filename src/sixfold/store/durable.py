"""Durable renames: the name of a file is stored in its folder, which needs an fsync of its own."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that files created, renamed or removed in it stay so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
