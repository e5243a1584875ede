"""Files that root writes into the data folder of another user belong to that user.

The server of a systemd unit runs as a separate user, while its administrator runs commands as root. The
server must be able to read and replace the files that such a command creates.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

# Folders of the data folder in which commands write; the server alone writes in the others.
FOLDERS = frozenset({"models", "providers", "spaces", "weights"})


def give_to_owner(data_dir: Path, *, everything: bool = False) -> None:
    """Give what root has created to the owner of a data folder; do nothing for other users.

    Without `everything`, only the files of the folder itself and those in `FOLDERS` are examined.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    try:
        owner = data_dir.stat()
    except OSError:
        return
    if owner.st_uid == 0:
        return
    # With `DynamicUser=yes`, systemd makes the data folder a symbolic link, which `os.fwalk` does not follow.
    place = data_dir.resolve()
    for folder, folders, files, descriptor in os.fwalk(place):
        if Path(folder) == place and not everything:
            folders[:] = FOLDERS.intersection(folders)
        for name in (*folders, *files):
            _give(name, owner, descriptor)


def _give(name: str, owner: os.stat_result, descriptor: int) -> None:
    # The server may delete a file at any time, and a mounted file system may be read-only or refuse owners.
    with contextlib.suppress(OSError):
        entry = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        # A file with several links may also have a name outside of the data folder.
        if entry.st_uid == 0 and (stat.S_ISDIR(entry.st_mode) or entry.st_nlink == 1):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=descriptor, follow_symlinks=False)
