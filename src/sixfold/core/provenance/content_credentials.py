"""C2PA manifests in output files, in addition to the Sixfold manifest.

A run never fails because of signing: a file that cannot be signed has only its Sixfold manifest, and the
reason is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from sixfold.core.provenance import c2pa_definition
from sixfold.core.provenance import manifest as provenance_manifest

_LOG = logging.getLogger("sixfold.c2pa")
# The library holds a file in memory.
_MAX_BYTES = 256 << 20
_MAX_SECONDS = 60.0
_THREADS = 2


class SigningFailed(Exception):
    """The C2PA library could not sign a file; the message states the reason."""


# Reads a file, and writes it with the C2PA manifest of a definition: source, target, media type, definition.
SignFile = Callable[[BinaryIO, BinaryIO, str, dict[str, Any]], None]


class ContentCredentials:
    """Signs output files with the operator's certificate, in separate threads.

    `sign_file` raises `SigningFailed`; `engine_kind` returns the kind of an engine by its name, or None.
    """

    def __init__(
        self,
        sign_file: SignFile,
        engine_kind: Callable[[str], str | None],
        *,
        max_bytes: int = _MAX_BYTES,
        max_seconds: float = _MAX_SECONDS,
    ) -> None:
        self._sign_file = sign_file
        self._engine_kind = engine_kind
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._threads = ThreadPoolExecutor(_THREADS, "c2pa")
        # Files that exceeded the time limit and still occupy a thread.
        self._overdue = 0

    async def sign(self, path: Path, content_type: str, text: str) -> bool:
        """Add a C2PA manifest to the file at `path`; return whether that succeeded.

        `text` is the file's Sixfold manifest.
        """
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type not in c2pa_definition.MEDIA_TYPES:
            return False
        if reason := self._refusal(path):
            _LOG.warning("a file has no C2PA manifest: %s", reason)
            return False
        beside = path.with_name(f"{path.name}.c2pa")
        signing = asyncio.get_running_loop().run_in_executor(
            self._threads, self._write, path, beside, media_type, text
        )
        try:
            async with asyncio.timeout(self._max_seconds):
                await asyncio.shield(signing)
        except TimeoutError:
            _LOG.warning(
                "a file has no C2PA manifest: signing took longer than %g seconds", self._max_seconds
            )
            return False
        except (SigningFailed, OSError, ValueError) as error:
            _LOG.warning("a file has no C2PA manifest: %s", error)
            return False
        finally:
            if not signing.done():
                self._discard_later(signing, beside)
        beside.replace(path)
        return True

    def _refusal(self, path: Path) -> str:
        if self._overdue >= _THREADS:
            return f"{self._overdue} earlier files are still being signed"
        size = path.stat().st_size
        if size > self._max_bytes:
            return f"it has {size:,} bytes, and only files of at most {self._max_bytes:,} bytes are signed"
        return ""

    def _discard_later(self, signing: asyncio.Future[None], beside: Path) -> None:
        self._overdue += 1

        def end(done: asyncio.Future[None]) -> None:
            self._overdue -= 1
            if not done.cancelled():
                done.exception()
            beside.unlink(missing_ok=True)

        signing.add_done_callback(end)

    def _write(self, path: Path, beside: Path, media_type: str, text: str) -> None:
        try:
            manifest, _ = provenance_manifest.parse(text)
            definition = c2pa_definition.definition(manifest, self._engine_kind(manifest.engine))
            with path.open("rb") as source, beside.open("w+b") as target:
                self._sign_file(source, target, media_type, definition)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
