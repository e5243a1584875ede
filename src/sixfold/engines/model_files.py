"""Search of a folder of weights for the files of models."""

from __future__ import annotations

from pathlib import Path

# The beginning of the names of hidden files and folders.
_HIDDEN = "."


def find(place: str | Path, pattern: str) -> list[Path]:
    """Return the file `place`, or the matching files in that folder, sorted.

    Hidden folders are skipped: they contain unfinished installations (`.unfinished-NAME`) and replaced ones.
    """
    path = Path(place).expanduser()
    if not path.is_dir():
        return [path] if path.is_file() else []
    return sorted(file for file in path.rglob(pattern) if not _is_hidden(file.relative_to(path)))


def has_visible(folder: Path) -> bool:
    """Return whether a folder contains anything but hidden files and folders."""
    try:
        return any(not entry.name.startswith(_HIDDEN) for entry in folder.iterdir())
    except OSError:
        return False


def _is_hidden(path: Path) -> bool:
    """Return whether a path below the folder of weights is in a hidden folder, or hidden itself."""
    return any(part.startswith(_HIDDEN) for part in path.parts)
