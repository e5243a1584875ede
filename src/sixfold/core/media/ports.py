"""Ports of media storage: the blob store, the guarded HTTP client, and the files that pass through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object: its key, its size in bytes and when it was last written (epoch µs).

    `tag` names the version of its bytes, where the store has a name for it.
    """

    key: str
    size: int
    modified_at: int
    tag: str = ""


class BlobStore(Protocol):
    """Bytes under keys (`/`-separated, no empty, `.` or `..` segment).

    Files, S3, GCS and Azure run one suite.

    A `put` is atomic and durable when it returns: readers see the old object or the new one,
    whole, and a power cut after it loses nothing.
    """

    async def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Store `data` under `key`, replacing what is there."""
        ...

    async def put_file(self, key: str, path: Path, *, content_type: str | None = None) -> ObjectInfo:
        """Store the file at `path` under `key`; the file may be moved away by this."""
        ...

    async def stat(self, key: str) -> ObjectInfo | None:
        """Return the object's size and time, or None."""
        ...

    async def get(self, key: str) -> bytes:
        """Return the whole object; raises `KeyError` if it does not exist."""
        ...

    def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """The object's bytes from `start`, in pieces; raises `KeyError` at the first piece."""
        ...

    async def local_path(self, key: str) -> Path:
        """A readable local file with the object's bytes (for workers); raises `KeyError`."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove the object; return False if it did not exist."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, in key order."""
        ...

    async def link(self, key: str) -> str | None:
        """Return a temporary public URL of the object, or None where the store has none."""
        ...


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """The response to a fetch: its bytes, the declared content type, and the final URL."""

    data: bytes
    content_type: str
    url: str


class FetcherPort(Protocol):
    """The guarded HTTP client: refuses private addresses (`FetchRefused`)."""

    async def fetch_bytes(self, url: str, *, max_bytes: int, timeout_seconds: float) -> FetchedFile:
        """GET `url`; raises `FetchRefused`, `FetchFailed` or `TooLarge`."""
        ...

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        """GET `url` into a new file; return the declared content type. Leaves no file on an error."""
        ...


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One output file in the scratch folder of a worker; the reader removes it."""

    path: Path
    content_type: str
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])


class OutputFile(msgspec.Struct, frozen=True):
    """One stored output file: its public name, the key of its blob, its type and its size in bytes."""

    name: str
    blob: str
    content_type: str
    size: int
    info: dict[str, Any] = {}
