"""Ports of media storage: the blob store, the guarded fetcher, and the files that they exchange."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec


class ObjectInfo(msgspec.Struct, frozen=True):
    """A stored object, with its key, size in bytes and time of the last write (epoch µs).

    `tag` identifies the version of its bytes, if the store has version tags.
    """

    key: str
    size: int
    modified_at: int
    tag: str = ""


class MediaLimits(msgspec.Struct, frozen=True):
    """Limits on media inputs: bytes and pixels of a file, seconds of a fetch, bytes of all uploads.

    Video and audio have separate limits: `video_bytes` of one file and of all files of a request together,
    `video_seconds` of duration, and `video_fetch_seconds` of one fetch, which goes through a file in
    `staging`. Results are stored again for `store_seconds` if the store cannot be reached.
    """

    image_bytes: int
    image_pixels: int
    fetch_seconds: float
    quota_bytes: int
    upload_life_us: int
    video_bytes: int = 2 << 30
    video_seconds: float = 1800
    video_fetch_seconds: float = 300
    staging: Path | None = None
    store_seconds: float = 0


def new_name(extension: str) -> str:
    """Return a new public file name with 192 random bits."""
    return f"{secrets.token_urlsafe(24)}.{extension}"


class BlobStore(Protocol):
    """Bytes by key; keys are `/`-separated without empty, `.` or `..` segments.

    A `put` is atomic and durable when it returns: readers see either the old or the new object, and a power
    failure does not lose it. All implementations (files, S3, GCS, Azure) pass the same contract tests.
    """

    async def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Store `data` under `key`, replacing an existing object."""
        ...

    async def put_file(self, key: str, path: Path, *, content_type: str | None = None) -> ObjectInfo:
        """Store the file at `path` under `key`; the file may be moved."""
        ...

    async def stat(self, key: str) -> ObjectInfo | None:
        """Return the object's size and time, or None if it does not exist."""
        ...

    async def get(self, key: str) -> bytes:
        """Return the whole object; raises `KeyError`."""
        ...

    def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield the object's bytes from `start` in chunks; raises `KeyError` before the first chunk."""
        ...

    async def local_path(self, key: str) -> Path:
        """Return a readable local file with the object's content, for workers; raises `KeyError`."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield all objects whose keys start with `prefix`, in key order."""
        ...

    async def link(self, key: str) -> str | None:
        """Return a temporary public URL of the object, or None if the store does not support such URLs."""
        ...


class FetchedFile(msgspec.Struct, frozen=True):
    """A fetched file: its bytes, the declared content type, and the final URL."""

    data: bytes
    content_type: str
    url: str


class FetcherPort(Protocol):
    """The guarded HTTP client; raises `FetchRefused` for private addresses."""

    def check_url(self, url: str) -> None:
        """Raise `FetchRefused` for a URL that is forbidden regardless of the addresses of its host."""
        ...

    async def fetch_file(self, url: str, into: Path, *, max_bytes: int, timeout_seconds: float) -> str:
        """Fetch `url` into a new file, which is removed on errors; return the declared content type.

        Raises `FetchRefused`, `FetchFailed` and `TooLarge`.
        """
        ...


class StagedFile(msgspec.Struct, frozen=True):
    """An output file in a worker's scratch folder, which its reader removes.

    If the file was stored during the run, `stored` is its blob key and size, and `path` does not exist.
    """

    path: Path
    content_type: str
    info: Mapping[str, Any] = {}
    stored: tuple[str, int] | None = None


class OutputFile(msgspec.Struct, frozen=True):
    """A stored output file: its public name, blob key, content type and size in bytes."""

    name: str
    blob: str
    content_type: str
    size: int
    info: dict[str, Any] = {}
