"""Temporary files of requests: received uploads, documents to read, and results before they are stored."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

from sixfold import errors


def new_path(folder: Path) -> Path:
    """Return the path of a new file in `folder`, which is created; call this outside the event loop."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / secrets.token_hex(16)


@contextlib.asynccontextmanager
async def temporary_path(folder: Path) -> AsyncGenerator[Path]:
    """Yield the path of a new file in `folder`, which is deleted at the end.

    Raises `StoreFailed` for an error of the file system in the block.
    """
    path = None
    try:
        path = await asyncio.to_thread(new_path, folder)
        yield path
    except OSError as error:
        raise errors.StoreFailed from error
    finally:
        if path is not None:
            await asyncio.to_thread(path.unlink, missing_ok=True)
