"""What has to survive a power cut: a file's name lies in its folder, which is flushed on its own."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk: what was made, renamed or removed in it stays so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
