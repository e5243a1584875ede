"""Blobs in a bucket of S3, Google Cloud Storage or Azure, with a local cache of files.

Objects named by their content are written once: a second writer does not replace the bytes of the first. They
are cached when they are stored, and later read from the cache. Objects that may be replaced are checked at
each read and cached by version.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import blake3
import msgspec
import obstore
from obstore import exceptions

from sixfold import errors
from sixfold.core.media import blob_keys
from sixfold.core.media.ports import ObjectInfo
from sixfold.disk_space import SpaceLimitedFile
from sixfold.store.blob_cache import BlobCache
from sixfold.store.buckets import Bucket, BucketAccess, UnconditionalStore, open_bucket, understood
from sixfold.store.file_store import MAX_KEY_CHARACTERS, PIECE_BYTES, InvalidBlobKey, is_segment, segments

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

PART_BYTES = 5 << 20  # size of the parts of larger objects, the minimum of S3
_PARTS_AT_ONCE = 4
_FETCH_BYTES = 1 << 20
_MAX_IN_MEMORY = 1 << 30
_LISTED_AT_ONCE = 1000
# The growth of this process during one page, measured in intervals; other requests may grow it as well.
_MAX_GROWTH, _LOOK_SECONDS = 160 * 2**20, 0.02
_STATM = Path("/proc/self/statm")
_REFRESH_SECONDS = 12 * 3600  # blobs without a name are deleted after 24 hours


class ObjectOptions(msgspec.Struct, frozen=True):
    """Options of stored objects: whether keys are content hashes (`by_content`), and two lifetimes.

    Signed links are valid for `link_seconds` (0: links are not created). Content older than `refresh_seconds`
    is written again, so that it is not deleted before the database refers to it.
    """

    by_content: bool = False
    link_seconds: int = 0
    refresh_seconds: float = _REFRESH_SECONDS


class StoreOptions(msgspec.Struct, frozen=True):
    """The URL, timeout in `seconds`, cache and object options of a store.

    `tables` maps a URL scheme to the bucket options.
    """

    url: str
    tables: Mapping[str, Mapping[str, Any]]
    seconds: float
    cache: BlobCache
    objects: ObjectOptions


def open_store(place: StoreOptions) -> ObjectStore:
    """Return the store without connecting to it; raises `InvalidUrl`."""
    own_options = place.tables.get(place.url.partition(":")[0], {})
    options = {name: _option(value) for name, value in own_options.items()}
    return ObjectStore(
        open_bucket(place.url, BucketAccess(options, place.seconds)), place.cache, place.objects
    )


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class ObjectStore:
    """A `BlobStore` in a bucket, which any number of servers may share."""

    def __init__(self, bucket: Bucket, cache: BlobCache, options: ObjectOptions | None = None) -> None:
        self._bucket = bucket
        self._cache = cache
        self._options = options or ObjectOptions()
        self._coming: dict[str, asyncio.Event] = {}
        self._creates = True  # False once the store has refused a conditional write

    # -- writing -----------------------------------------------------------------------------------

    async def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """Store `data` under `key`, replacing any earlier data; raises `StoreFailed`."""
        segments(key)
        digest = self._digest(key)
        if digest is None:
            return await self._send(key, data, len(data), content_type)
        info, _ = await asyncio.gather(
            self._send_once(key, data, len(data), content_type),
            self._keep(digest, data),
            return_exceptions=True,
        )
        if isinstance(info, BaseException):
            await asyncio.to_thread(self._cache.drop, digest)
            raise info
        return info

    async def _keep(self, digest: str, data: bytes) -> None:
        if self._cache.takes(len(data)):
            with contextlib.suppress(OSError):  # on a full disk, reads are slower
                await asyncio.to_thread(self._cache.write, digest, data)

    async def put_file(self, key: str, path: Path, *, content_type: str | None = None) -> ObjectInfo:
        """Store the file at `path` under `key`; the file is moved into the cache or removed."""
        segments(key)
        digest = self._digest(key)
        with await asyncio.to_thread(_opened, path) as file:
            size = os.fstat(file.fileno()).st_size
            body = file if size > PART_BYTES else await asyncio.to_thread(file.read)
            send = self._send if digest is None else self._send_once
            info = await send(key, body, size, content_type)
        await asyncio.to_thread(self._put_by, path, digest, size)
        return info

    def _put_by(self, path: Path, digest: str | None, size: int) -> None:
        with contextlib.suppress(OSError):  # a file on another filesystem is only deleted
            if digest is not None and self._cache.takes(size) and path.stat().st_nlink == 1:
                cached = self._cache.new()
                path.rename(cached)
                self._cache.keep(digest, cached)
        with contextlib.suppress(OSError):
            path.unlink()

    async def _send_once(
        self, key: str, body: bytes | IO[bytes], size: int, content_type: str | None
    ) -> ObjectInfo:
        """Store an object whose key is its hash, unless a recent copy exists."""
        # A multipart upload cannot be conditional, and costs more than the check.
        if size > PART_BYTES or not self._creates:
            info = await self._fresh(key, size)
            return info or await self._send(key, body, size, content_type)
        try:
            return await self._send(key, body, size, content_type, create=True)
        except exceptions.AlreadyExistsError:
            info = await self._fresh(key, size)
        except UnconditionalStore:
            self._creates = False
            info = None
        return info or await self._send(key, body, size, content_type)

    async def _fresh(self, key: str, size: int) -> ObjectInfo | None:
        """Return the stored object if it is complete and will not be deleted soon, otherwise None."""
        info = await self.stat(key)
        since = time.time_ns() // 1000 - int(self._options.refresh_seconds * 1_000_000)
        return info if info and info.size == size and info.modified_at > since else None

    async def _send(
        self, key: str, body: bytes | IO[bytes], size: int, content_type: str | None, *, create: bool = False
    ) -> ObjectInfo:
        if not isinstance(body, bytes):
            body.seek(0)
        with understood(creating=create):
            result = await obstore.put_async(
                self._bucket,
                key,
                body,
                attributes={"Content-Type": content_type} if content_type else None,
                mode="create" if create else "overwrite",
                use_multipart=size > PART_BYTES,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        return ObjectInfo(key, size, time.time_ns() // 1000, _tag(result["e_tag"]))

    async def delete(self, key: str) -> bool:
        """Delete the object; return False if it did not exist."""
        if await self.stat(key) is None:
            return False
        with understood(key), contextlib.suppress(FileNotFoundError):
            await obstore.delete_async(self._bucket, key)
        digest = self._digest(key)
        if digest is not None:
            await asyncio.to_thread(self._cache.drop, digest)
        return True

    # -- reading -----------------------------------------------------------------------------------

    async def stat(self, key: str) -> ObjectInfo | None:
        """Return the size, time and tag of an object, or None if it does not exist."""
        segments(key)
        try:
            with understood(key):
                return _info(await obstore.head_async(self._bucket, key))
        except KeyError:
            return None

    async def get(self, key: str) -> bytes:
        segments(key)
        digest = self._digest(key)
        if digest is not None:
            data = await asyncio.to_thread(self._cached, digest)
            if data is not None:
                return data
        with understood(key):
            result = await obstore.get_async(self._bucket, key)
            # obstore allocates the stated size at once.
            if (size := result.meta["size"]) > _MAX_IN_MEMORY:
                raise errors.StoreFailed(
                    f"The object store returned an object of {size:,} bytes, and at most {_MAX_IN_MEMORY:,} "
                    "are read into memory"
                )
            data = bytes(await result.bytes_async())
        if digest is not None:
            _check(key, digest, blake3.blake3(data).hexdigest())
        return data

    def _cached(self, digest: str) -> bytes | None:
        path = self._cache.find(digest)
        with contextlib.suppress(OSError):
            return path.read_bytes() if path is not None else None
        return None

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield the object from `start` in chunks of at most 128 KiB; raises `KeyError` before the first."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"start and length must not be negative (got {start} and {length})")
        segments(key)
        digest = self._digest(key)
        file = await asyncio.to_thread(self._open_cached, digest) if digest is not None else None
        pieces = self._from_bucket(key, start, length) if file is None else _from_file(file, start, length)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _open_cached(self, digest: str) -> IO[bytes] | None:
        path = self._cache.find(digest)
        with contextlib.suppress(OSError):
            return path.open("rb", buffering=0) if path is not None else None
        return None

    async def _from_bucket(self, key: str, start: int, length: int | None) -> AsyncGenerator[bytes]:
        if length == 0:
            if await self.stat(key) is None:
                raise KeyError(key)
            return
        options = _range(start, length)
        try:
            with understood(key):
                result = await obstore.get_async(self._bucket, key, options=options)
                async for chunk in result.stream(min_chunk_size=PIECE_BYTES):
                    for piece in _pieces(memoryview(chunk)):
                        yield piece
        except errors.StoreFailed:
            if not options or not await self._ends_before(key, start):
                raise

    async def _ends_before(self, key: str, start: int) -> bool:
        """Return whether a range was refused because it begins after the end of the object.

        The providers report this with different errors.
        """
        info = await self.stat(key)
        return info is not None and info.size <= start

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, ordered by key."""
        *within, start = prefix.split("/")
        if not all(map(is_segment, within)) or not (start in {"", ".", ".."} or is_segment(start)):
            raise InvalidBlobKey(f"{prefix[:80]!r} is not a valid prefix of object keys")
        if len(prefix) > MAX_KEY_CHARACTERS:
            raise InvalidBlobKey(
                f"{prefix[:80]!r} has {len(prefix)} characters; a key can have at most {MAX_KEY_CHARACTERS}"
            )
        return self._list("/".join(within), prefix)

    async def _list(self, folder: str, prefix: str) -> AsyncIterator[ObjectInfo]:
        before = prefix[:-1] + chr(ord(prefix[-1]) - 1) if prefix and not prefix.endswith("/") else None
        with understood():
            pages = obstore.list(  # pyright: ignore[reportUnknownMemberType] - Arrow is not installed
                self._bucket, folder or None, offset=before, chunk_size=_LISTED_AT_ONCE
            )
            async for batch in _limited(aiter(pages)):
                for meta in batch:
                    key = meta["path"]
                    if key > prefix and not key.startswith(prefix):
                        return
                    if key.startswith(prefix) and _is_key(key):
                        yield _info(meta)

    # -- local files -------------------------------------------------------------------------------

    async def local_path(self, key: str) -> Path:
        """Return a local copy of the object that stays cached during a run; raises `KeyError`."""
        segments(key)
        digest = self._digest(key)
        name = digest if digest is not None else await self._version(key)
        while True:
            path = await asyncio.to_thread(self._cache.lend, name)
            if path is not None:
                return path
            download = self._coming.get(name)
            if download is None:
                break
            await download.wait()  # another caller downloads it; if that fails, this caller tries
        download = self._coming[name] = asyncio.Event()
        try:
            return await self._fetch(key, name, digest)
        finally:
            del self._coming[name]
            download.set()

    async def _version(self, key: str) -> str:
        info = await self.stat(key)
        if info is None:
            raise KeyError(key)
        text = f"{key}\n{info.tag}\n{info.size}\n{info.modified_at}"
        return blake3.blake3(text.encode()).hexdigest()

    async def _fetch(self, key: str, name: str, digest: str | None) -> Path:
        temporary = await asyncio.to_thread(self._cache.new)
        try:
            hashed = blake3.blake3()
            with await asyncio.to_thread(temporary.open, "xb") as file, understood(key):
                result = await obstore.get_async(self._bucket, key)
                target = SpaceLimitedFile(file, temporary.parent)
                async for chunk in result.stream(min_chunk_size=_FETCH_BYTES):
                    await asyncio.to_thread(_append, target, hashed, memoryview(chunk))
            if digest is not None:
                _check(key, digest, hashed.hexdigest())
            return await asyncio.to_thread(self._cache.keep, name, temporary)  # already lent by `local_path`
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    # -- links -------------------------------------------------------------------------------------

    async def link(self, key: str) -> str | None:
        """Return a presigned GET URL of the object, or None if presigned URLs are disabled."""
        segments(key)
        if not self._options.link_seconds:
            return None
        with understood(key):
            return await obstore.sign_async(
                self._bucket, "GET", key, timedelta(seconds=self._options.link_seconds)
            )

    def _digest(self, key: str) -> str | None:
        """Return the BLAKE3 hash in a key, or None if this store's keys contain no hash."""
        return blob_keys.content_digest(key) if self._options.by_content else None


async def _limited(pages: AsyncIterator[Sequence[ObjectMeta]]) -> AsyncGenerator[Sequence[ObjectMeta]]:
    """Yield the pages of a list; raises `StoreFailed` if the memory grows too much while one is received.

    obstore reads a response of any size into memory, but stops when it is canceled.
    """
    while True:
        page = asyncio.ensure_future(anext(pages, None))
        before = _resident_bytes()
        try:
            while not (await asyncio.wait({page}, timeout=_LOOK_SECONDS))[0]:
                if _resident_bytes() - before > _MAX_GROWTH:
                    raise errors.StoreFailed(
                        f"A page of the object store's list must have at most {_MAX_GROWTH:,} bytes: "
                        "check its endpoint, or try again when fewer requests run"
                    )
            result = page.result()
        finally:
            page.cancel()
        if result is None:
            return
        yield result


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()


def _opened(path: Path) -> IO[bytes]:
    """Open a regular file without following links; raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "only regular files can be stored", str(path))
    return os.fdopen(descriptor, "rb")


async def _from_file(file: IO[bytes], start: int, length: int | None) -> AsyncGenerator[bytes]:
    with file:
        while length is None or length > 0:
            chunk_bytes = PIECE_BYTES if length is None else min(PIECE_BYTES, length)
            piece = await asyncio.to_thread(os.pread, file.fileno(), chunk_bytes, start)
            if not piece:
                return
            start += len(piece)
            if length is not None:
                length -= len(piece)
            yield piece


def _append(file: SpaceLimitedFile, digest: blake3.blake3, piece: memoryview) -> None:
    digest.update(piece)
    file.write(piece)


def _check(key: str, expected: str, actual: str) -> None:
    if actual != expected:
        raise errors.StoreFailed(
            f"The object store returned a damaged object {key}: its hash is {actual}, not {expected}"
        )


def _range(start: int, length: int | None) -> GetOptions:
    """Return the options of a ranged read, empty for the whole object."""
    if length is not None:
        return {"range": (start, start + length)}
    return {"range": {"offset": start}} if start else {}


def _pieces(chunk: memoryview) -> Iterator[bytes]:
    for at in range(0, len(chunk), PIECE_BYTES):
        yield bytes(chunk[at : at + PIECE_BYTES])


def _is_key(text: str) -> bool:
    try:
        segments(text)
    except InvalidBlobKey:
        return False
    return True


def _info(meta: ObjectMeta) -> ObjectInfo:
    modified = int(meta["last_modified"].timestamp() * 1_000_000)
    return ObjectInfo(meta["path"], meta["size"], modified, _tag(meta["e_tag"]))


def _tag(e_tag: str | None) -> str:
    """Return the store's version tag, reduced to characters that are valid in a header."""
    return "".join(sign for sign in e_tag or "" if sign.isalnum() or sign in "-_+/=.")[:64]
