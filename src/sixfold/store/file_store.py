"""Blob store in a folder: each object is a file whose path is its key.

The segments of a key are opened one by one, each relative to the one before, and symbolic links are refused,
so a path cannot lead out of the folder. New files are written in `~new`, which is not a valid key, synced and
renamed.

An object and a folder cannot share a name: with `a/b` stored, `a` is refused with an `OSError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import re
import stat
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from sixfold.core.concurrency.fair_threads import FairThreadPool
from sixfold.core.media.ports import ObjectInfo

MAX_KEY_CHARACTERS = 1024
MAX_SEGMENT_CHARACTERS = 255
PIECE_BYTES = 128 << 10
STALE_SECONDS = 24 * 3600  # age at which temporary files of a killed server are deleted
_THREADS = 16
_MAX_KNOWN_FOLDERS = 10_000
_NEW = "~new"
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR})

P = ParamSpec("P")
T = TypeVar("T")


class InvalidBlobKey(ValueError):
    """The string is not a valid object key."""


def segments(key: str) -> tuple[str, ...]:
    """Split a key into its segments; raises `InvalidBlobKey`."""
    parts = tuple(key.split("/"))
    if len(key) > MAX_KEY_CHARACTERS or not all(map(is_segment, parts)):
        raise InvalidBlobKey(f"{key[:80]!r} is not a valid object key")
    return parts


def is_segment(text: str) -> bool:
    """Return whether a string is a valid segment of a key."""
    fits = 0 < len(text) <= MAX_SEGMENT_CHARACTERS and text not in {".", ".."}
    return fits and _SEGMENT.fullmatch(text) is not None


class FileStore:
    """A `BlobStore` in a local folder, which several processes may share."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._pool = FairThreadPool(_THREADS, "blobs")
        self._lock = threading.Lock()
        self._known: set[tuple[str, ...]] = set()  # folders that were synced
        self._prepared = False

    # -- the port ----------------------------------------------------------------------------------

    async def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Store `data` under `key`, replacing any earlier data."""
        parts = segments(key)
        return await self._threaded(self._put, parts, data)

    async def put_file(self, key: str, path: Path, *, content_type: str | None = None) -> ObjectInfo:
        """Move the file at `path` to `key`, or copy it if it is on another filesystem."""
        parts = segments(key)
        return await self._threaded(self._put_file, parts, path)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Return the size and time of an object, or None if it does not exist."""
        parts = segments(key)
        return await self._threaded(self._stat, parts)

    async def get(self, key: str) -> bytes:
        parts = segments(key)
        return await self._threaded(self._get, parts)

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield the object from `start` in chunks of 128 KiB; raises `KeyError` before the first."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"start and length must not be negative (got {start} and {length})")
        parts = segments(key)
        descriptor = await self._threaded(self._open, parts)
        try:
            while length is None or length > 0:
                chunk_bytes = PIECE_BYTES if length is None else min(PIECE_BYTES, length)
                piece = await self._threaded(os.pread, descriptor, chunk_bytes, start)
                if not piece:
                    return
                start += len(piece)
                if length is not None:
                    length -= len(piece)
                yield piece
        finally:
            os.close(descriptor)

    async def local_path(self, key: str) -> Path:
        """Return the path of the object's file, which callers may only read; raises `KeyError`."""
        parts = segments(key)
        if await self._threaded(self._stat, parts) is None:
            raise KeyError(key)
        return self._root.joinpath(*parts)

    async def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        parts = segments(key)
        return await self._threaded(self._delete, parts)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, ordered by key."""
        *within, start = prefix.split("/")
        if not all(map(is_segment, within)) or not (start in {"", ".", ".."} or is_segment(start)):
            raise InvalidBlobKey(f"{prefix[:80]!r} is not a valid prefix of object keys")
        pending = [await self._threaded(self._scan, tuple(within), start)]
        while pending:
            entry = next(pending[-1], None)
            if entry is None:
                pending.pop()
            elif isinstance(entry, ObjectInfo):
                yield entry
            else:
                pending.append(await self._threaded(self._scan, entry, ""))

    async def link(self, key: str) -> str | None:
        """Return None, because local files do not have a URL."""
        segments(key)

    def close(self) -> None:
        """Stop the threads; the store must not be used afterwards."""
        self._pool.shutdown(wait=True)

    async def _threaded(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    # -- in a thread: reading ----------------------------------------------------------------------

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...]) -> Generator[int]:
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, parts: tuple[str, ...]) -> int:
        try:
            with self._folder(parts[:-1]) as folder:
                descriptor = os.open(parts[-1], _READ, dir_fd=folder)
        except OSError as error:
            if error.errno in _ABSENT:
                raise KeyError("/".join(parts)) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise KeyError("/".join(parts))
        return descriptor

    def _get(self, parts: tuple[str, ...]) -> bytes:
        with os.fdopen(self._open(parts), "rb", buffering=0) as file:
            return file.readall()

    def _stat(self, parts: tuple[str, ...]) -> ObjectInfo | None:
        try:
            with self._folder(parts[:-1]) as folder:
                status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        return _info(parts, status) if stat.S_ISREG(status.st_mode) else None

    def _scan(self, parts: tuple[str, ...], start: str) -> Iterator[ObjectInfo | tuple[str, ...]]:
        """Yield the objects and folders of one folder, ordered by key; a folder sorts as `name/`."""
        listed: list[tuple[str, ObjectInfo | tuple[str, ...]]] = []
        try:
            with self._folder(parts) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(start) and is_segment(entry.name):
                        listed += _listing_entries(entry, (*parts, entry.name))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
        listed.sort(key=_first)
        return iter([entry for _, entry in listed])

    # -- in a thread: writing ----------------------------------------------------------------------

    def _put(self, parts: tuple[str, ...], data: bytes) -> ObjectInfo:
        self._prepare()
        with self._folder((_NEW,)) as new, self._ensured_folder(parts[:-1]) as folder:
            name = uuid.uuid4().hex
            descriptor = os.open(name, _CREATE, 0o600, dir_fd=new)
            try:
                self._write_all(descriptor, data)
                self._sync(descriptor)
                status = os.fstat(descriptor)
                os.rename(name, parts[-1], src_dir_fd=new, dst_dir_fd=folder)
            except BaseException:
                _remove(name, new)
                raise
            finally:
                os.close(descriptor)
            self._sync(folder)
        return _info(parts, status)

    def _write_all(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._write(descriptor, view) :]

    def _put_file(self, parts: tuple[str, ...], path: Path) -> ObjectInfo:
        self._prepare()
        with self._folder((_NEW,)) as new, self._ensured_folder(parts[:-1]) as folder:
            name = uuid.uuid4().hex
            is_moved = self._bring(path, name, new)
            try:
                existing = self._settle(name, new)
                os.rename(name, parts[-1], src_dir_fd=new, dst_dir_fd=folder)
            except BaseException:
                if is_moved:
                    # The caller may retry with the same file.
                    with contextlib.suppress(OSError):
                        os.rename(name, path, src_dir_fd=new)
                _remove(name, new)
                raise
            self._sync(folder)
        if not is_moved:
            with contextlib.suppress(OSError):
                path.unlink()
        return _info(parts, existing)

    def _bring(self, path: Path, name: str, new: int) -> bool:
        """Move the file into the folder of new files, or copy it; return whether it was moved."""
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "only a regular file can be stored", str(path))
        # Another process could still write to a file that has other names.
        if status.st_nlink == 1:
            try:
                os.rename(path, name, dst_dir_fd=new)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return True
        source = os.open(path, _READ)
        try:
            self._copy(source, name, new)
        finally:
            os.close(source)
        return False

    def _copy(self, source: int, name: str, new: int) -> None:
        target = os.open(name, _CREATE, 0o600, dir_fd=new)
        try:
            while piece := os.read(source, PIECE_BYTES):
                self._write_all(target, piece)
        except BaseException:
            _remove(name, new)
            raise
        finally:
            os.close(target)

    def _settle(self, name: str, new: int) -> os.stat_result:
        descriptor = os.open(name, _READ, dir_fd=new)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "only a regular file can be stored")
            os.fchmod(descriptor, 0o600)
            os.utime(descriptor)
            self._sync(descriptor)
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _delete(self, parts: tuple[str, ...]) -> bool:
        if self._stat(parts) is None:
            return False
        try:
            with self._folder(parts[:-1]) as folder:
                os.unlink(parts[-1], dir_fd=folder)
                self._sync(folder)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise
        return True

    def _prepare(self) -> None:
        """Create the folders; delete temporary files older than `STALE_SECONDS`."""
        if self._prepared:
            return
        (self._root / _NEW).mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._folder((_NEW,)) as new, os.scandir(new) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_SECONDS:
                        _remove(entry.name, new)
        self._prepared = True

    @contextlib.contextmanager
    def _ensured_folder(self, parts: tuple[str, ...]) -> Generator[int]:
        """Open a folder, creating and syncing it if it is missing."""
        with contextlib.ExitStack() as stack:
            try:
                if not self._is_known(parts):
                    self._make(parts)
                folder = stack.enter_context(self._folder(parts))
            except FileNotFoundError:  # another program has deleted the folder
                self._make(parts)
                folder = stack.enter_context(self._folder(parts))
            yield folder

    def _make(self, parts: tuple[str, ...]) -> None:
        for depth in range(len(parts)):
            with self._folder(parts[:depth]) as above:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parts[depth], 0o700, dir_fd=above)
                self._sync(above)  # another process may have created it without syncing it yet
        with self._lock:
            if len(self._known) >= _MAX_KNOWN_FOLDERS:
                self._known.clear()
            self._known.add(parts)

    def _is_known(self, parts: tuple[str, ...]) -> bool:
        with self._lock:
            return parts in self._known

    # -- replaced by tests of disk failures --------------------------------------------------------

    def _write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def _sync(self, descriptor: int) -> None:
        os.fsync(descriptor)


def _info(parts: tuple[str, ...], status: os.stat_result) -> ObjectInfo:
    return ObjectInfo("/".join(parts), status.st_size, status.st_mtime_ns // 1000)


def _listing_entries(
    entry: os.DirEntry[str], parts: tuple[str, ...]
) -> Iterator[tuple[str, ObjectInfo | tuple[str, ...]]]:
    """Yield an entry with its name in a listing, if it still exists and is a folder or file."""
    if entry.is_dir(follow_symlinks=False):
        yield f"{entry.name}/", parts
    elif entry.is_file(follow_symlinks=False):
        with contextlib.suppress(FileNotFoundError):
            yield entry.name, _info(parts, entry.stat(follow_symlinks=False))


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
