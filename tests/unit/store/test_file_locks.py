"""Only a file that does not exist, or is not locked, shows that no process holds its lock."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from sixfold.core.gpu.state import GpuState
from sixfold.store.file_locks import is_locked
from sixfold.store.gpu_state import GpuStateFile


def test_lock_is_held_until_its_holder_closes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    assert not is_locked(path)
    with path.open("wb") as holder:
        assert not is_locked(path)
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert is_locked(path)
        folder = os.open(tmp_path, os.O_RDONLY)
        assert is_locked("a.lock", folder)
        os.close(folder)
    assert not is_locked(path)


def _keep(_state: GpuState) -> None:
    """Change nothing."""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
async def test_gpu_owner_is_alive_when_its_lock_cannot_be_opened(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = GpuStateFile(tmp_path, "gpu", "first"), GpuStateFile(tmp_path, "gpu", "second")
    await first.update(_keep)
    assert second.is_alive("first")
    assert not second.is_alive("third")

    def refuse(*_arguments: object, **_options: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert second.is_alive("first")
    first.close()
    assert not second.is_alive("first")
