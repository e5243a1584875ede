"""Named media files of accounts: outputs, uploads and fetched inputs; their bytes are stored as blobs.

A blob's key is the BLAKE3 hash of its content, so equal bytes are stored once. A name is random and cannot be
guessed; any number of names may refer to one blob.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from sixfold import errors
from sixfold.core import humanize, ids
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Transaction, many, now, one
from sixfold.core.media import drawings, outputs, pending_deletions, ports
from sixfold.core.media.blob_keys import blob_key, hashes
from sixfold.core.media.pending_deletions import PendingDeletions
from sixfold.core.media.ports import BlobStore, FetcherPort, MediaLimits, OutputFile, StagedFile
from sixfold.core.media.thumbnails import ThumbnailStore
from sixfold.core.media.uploaded_files import UploadedFiles
from sixfold.core.provenance import embed
from sixfold.core.provenance.content_credentials import ContentCredentials
from sixfold.core.provenance.formats import media_types

MEDIA_PATH, UPLOADS_PATH = "/media/", "/uploads/"
_GRACE_US = DAY_US
# Larger files are not read into memory.
_IN_MEMORY_BYTES = 4 << 20
_INPUT_ERRORS = (errors.FetchRefused, errors.FetchFailed, errors.TooLarge, errors.BadRequest)
_TIMED_KINDS = frozenset({"video", "audio"})
_LARGE_KINDS = _TIMED_KINDS | {"file"}
_Data = bytes | memoryview
# Files of one request that are fetched concurrently.
_CONCURRENCY = 8
# URLs of one account that are fetched concurrently; further URLs wait.
MAX_ACCOUNT_FETCHES = 16
Probe = Callable[[Path], tuple[str, int, int]]
Measure = Callable[[Path, str], float | None]


class MediaSource(msgspec.Struct, frozen=True):
    """A stored media input: its blob, and its duration in seconds if the header contains it."""

    blob: str
    content_type: str
    size: int
    seconds: float | None = None


class NamedFile(msgspec.Struct, frozen=True):
    """A named file."""

    name: str
    blob: str
    content_type: str
    size: int
    created_at: int

    @classmethod
    def of(cls, row: Row) -> NamedFile:
        return cls(row["name"], row["blob"], row["content_type"], row["size"], row["created_at"])


class Upload(msgspec.Struct, frozen=True):
    """An upload in the form that its owner sees."""

    id: str
    name: str
    content_type: str
    size: int
    sha256: str


class StoredMedia(msgspec.Struct, frozen=True):
    """The stored files of a run, to be named in the transaction that ends the run."""

    files: tuple[OutputFile, ...]
    records: tuple[Mapping[str, Any], ...]
    total_bytes: int


def new_name(content_type: str) -> str:
    """Return a new public file name with 192 random bits."""
    return ports.new_name(media_types.EXTENSIONS.get(content_type, "bin"))


def no_measure(_path: Path, _type: str) -> None:
    """Return None; this is the default `measure`, which does not read files."""


class MediaService:
    """Named files in the blob store.

    `probe` reads an image's type and size in pixels. `measure` reads the duration of a video or audio file in
    seconds, or None if its header does not contain it. For an invalid file, both raise
    `BadRequest` with a message that states the cause.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        fetcher: FetcherPort,
        probe: Probe,
        limits: MediaLimits,
        measure: Measure = no_measure,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._fetcher = fetcher
        self._probe = probe
        self._limits = limits
        self._measure = measure
        self.thumbnails = ThumbnailStore(blobs)
        self.drawings = drawings.DrawingStore(database, blobs)
        self._pending_deletions = PendingDeletions(database)
        self._fetches = WeakValueDictionary[str, asyncio.Semaphore]()
        self.own_origins: set[str] = set()
        self.uploaded_files = UploadedFiles(database, blobs)
        self.credentials: ContentCredentials | None = None

    @property
    def quota_bytes(self) -> int:
        """The maximum bytes of an account's uploads, and also of its cached node outputs."""
        return self._limits.quota_bytes

    @property
    def blobs(self) -> BlobStore:
        return self._blobs

    # -- inputs ----------------------------------------------------------------------------------

    async def resolve(self, tenant: Tenant, descriptor: Descriptor, text: str) -> MediaSource:
        """Store the content of a media input: a name of this server, an upload's id, a `data:` URI or a URL.

        Raises `InvalidInput` with one sentence that contains the name of the input.
        """
        try:
            kind = str(descriptor.type)
            return await self._check(await self._load(tenant, kind, text), kind)
        except _INPUT_ERRORS as error:
            raise _invalid_input(descriptor, error) from error

    async def check_unfetched(self, tenant: Tenant, descriptor: Descriptor, text: str) -> None:
        """Raise `InvalidInput` for a media input that is found to be invalid without a fetch."""
        kind = str(descriptor.type)
        try:
            if self.is_remote(text):
                self._fetcher.check_url(text)
                return
            source = await self._find(tenant, text, use=False)
            await self._check(source or await self._fetch(tenant.account_id, text, kind), kind)
        except _INPUT_ERRORS as error:
            raise _invalid_input(descriptor, error) from error

    async def resolve_all(
        self, tenant: Tenant, inputs: Mapping[str, tuple[Descriptor, str]]
    ) -> dict[str, MediaSource]:
        """Resolve many inputs, each URL once; raises `InvalidInput` with all problems."""
        semaphore, used = asyncio.Semaphore(_CONCURRENCY), 0
        kinds = {text: str(descriptor.type) for descriptor, text in inputs.values()}

        async def load(text: str, kind: str) -> MediaSource | errors.SixfoldError:
            nonlocal used
            async with semaphore:
                try:
                    source = await self._load(tenant, kind, text)
                except _INPUT_ERRORS as error:
                    return error
            used += source.size
            if used > self._limits.video_bytes:
                return errors.TooLarge(
                    f"all files together must be at most {self._limits.video_bytes:,} bytes (got {used:,})"
                )
            return source

        loaded = await asyncio.gather(*(load(text, kind) for text, kind in kinds.items()))
        results = dict(zip(kinds, loaded, strict=True))
        sources: dict[str, MediaSource] = {}
        problems: list[errors.Problem] = []
        for name, (descriptor, text) in inputs.items():
            try:
                result = results[text]
                if isinstance(result, errors.SixfoldError):
                    raise result
                sources[name] = await self._check(result, str(descriptor.type))
            except _INPUT_ERRORS as error:
                problems.extend(_invalid_input(descriptor, error).problems)
        if problems:
            raise errors.InvalidInput(problems)
        return sources

    async def _load(self, tenant: Tenant, kind: str, text: str) -> MediaSource:
        return await self._find(tenant, text) or await self._fetch(tenant.account_id, text, kind)

    async def _check(self, source: MediaSource, kind: str) -> MediaSource:
        if kind == "image":
            await self.check_image(source)
        return await self.check_duration(source, kind) if kind in _TIMED_KINDS else source

    async def _find(self, tenant: Tenant, text: str, *, use: bool = True) -> MediaSource | None:
        if (path := self._own_path(text, UPLOADS_PATH)) is not None:
            return await self._find_uploaded(tenant, path)
        if (name := self._own_path(text, MEDIA_PATH)) is not None:
            row = await self._database.read(one("media_usable", name=name, account_id=tenant.account_id))
        elif text.startswith("blob_"):
            query = one("media_by_upload", upload_id=text, **tenant.row)
            # Every upload with an id was stored with a key.
            row = None if tenant.keyless else await self._database.read(query)
        else:
            return None
        if row is None:
            raise errors.FetchFailed(f"{'Upload' if name is None else 'File'} not found on this server")
        if use and row["kind"] == "upload" and row["account_id"] == tenant.account_id:
            await self._database.write(one("media_keep", name=row["name"]))
        return MediaSource(row["blob"], row["content_type"], row["size"])

    async def _find_uploaded(self, tenant: Tenant, path: str) -> MediaSource:
        """Store a copy of an uploaded file, which its owner may replace later; raises `FetchFailed`."""
        with tempfile.TemporaryDirectory(dir=self._limits.staging, prefix="copy-") as folder:
            file = Path(folder) / "file"
            if not await self.uploaded_files.copy(tenant, path, file, self._limits.image_bytes):
                raise errors.FetchFailed("File not found on this server")
            content_type = await asyncio.to_thread(media_types.sniff_file, file)
            return await self.store_unnamed_file(file, content_type, tenant.account_id)

    def is_remote(self, text: str) -> bool:
        """Return whether a media input names a file of another server."""
        paths = {self._own_path(text, prefix) for prefix in (MEDIA_PATH, UPLOADS_PATH)}
        return text[:5].lower() not in ("data:", "blob_") and paths == {None}

    def _own_path(self, text: str, prefix: str) -> str | None:
        """Return the rest of a URL or path of this server after `prefix`, or None for any other URL."""
        for origin in ("", *self.own_origins):
            if text.startswith(origin + prefix):
                return text[len(origin + prefix) :]
        return None

    async def _fetch(self, account_id: str, url: str, kind: str) -> MediaSource:
        """Fetch a URL through a file: many requests may name large images at a time."""
        limits = self._limits
        max_bytes, seconds = limits.image_bytes, limits.fetch_seconds
        if kind in _LARGE_KINDS:
            max_bytes, seconds = limits.video_bytes, limits.video_fetch_seconds
        with tempfile.TemporaryDirectory(dir=limits.staging, prefix="fetch-") as folder:
            path = Path(folder) / "file"
            async with self._fetch_slot(account_id):
                content_type = await self._fetcher.fetch_file(
                    url, path, max_bytes=max_bytes, timeout_seconds=seconds
                )
            key, _, size = await asyncio.to_thread(hashes, path)
            await self._delete_if_unnamed(account_id, key, size)
            await self._blobs.put_file(key, path)
        return MediaSource(key, content_type, size)

    def _fetch_slot(self, account_id: str) -> asyncio.Semaphore:
        """Return the slots of an account, so that its slow servers do not occupy all slots of the fetcher."""
        return self._fetches.setdefault(account_id, asyncio.Semaphore(MAX_ACCOUNT_FETCHES))

    async def check_duration(self, source: MediaSource, kind: str) -> MediaSource:
        """Check the header of a video or audio file; raises `BadRequest` or `TooLarge`."""
        if source.size > self._limits.video_bytes:
            raise errors.TooLarge(
                f"The file must be at most {self._limits.video_bytes:,} bytes (got {source.size:,})"
            )
        path = await self._blobs.local_path(source.blob)
        seconds = await asyncio.to_thread(self._measure, path, kind)
        if seconds is not None and seconds > self._limits.video_seconds:
            raise errors.TooLarge(
                f"The file must be at most {self._limits.video_seconds / 60:g} minutes long "
                f"(got {humanize.duration(seconds * 1000)})"
            )
        return msgspec.structs.replace(source, seconds=seconds)

    async def check_image(self, source: MediaSource) -> None:
        """Check the header of an image; raises `BadRequest` or `TooLarge`."""
        if source.size > self._limits.image_bytes:
            raise errors.TooLarge(
                f"An image must be at most {self._limits.image_bytes:,} bytes (got {source.size:,})"
            )
        path = await self._blobs.local_path(source.blob)
        _kind, width, height = await asyncio.to_thread(self._probe, path)
        if width * height > self._limits.image_pixels:
            megapixels = self._limits.image_pixels // 1_000_000
            raise errors.BadRequest(
                f"An image must be at most {megapixels} megapixels (got {width} x {height})"
            )

    # -- outputs and uploads ---------------------------------------------------------------------

    async def store_outputs(
        self, prediction_id: str, account_id: str, staged: tuple[StagedFile, ...], texts: tuple[str, ...]
    ) -> StoredMedia:
        """Store a run's files as blobs with embedded manifests, and remove the staged files."""
        keys = list[tuple[str, int]]()
        for start in range(0, len(staged), _CONCURRENCY):
            batch = staged[start : start + _CONCURRENCY]
            keys += await asyncio.gather(*map(self._store_output, batch, texts[start:]))
        files = tuple(
            OutputFile(new_name(file.content_type), key, file.content_type, size, dict(file.info))
            for file, (key, size) in zip(staged, keys, strict=True)
        )
        records = tuple(record(file, account_id, "output", prediction_id=prediction_id) for file in files)
        return StoredMedia(files, records, sum(file.size for file in files))

    async def _store_output(self, file: StagedFile, text: str) -> tuple[str, int]:
        if file.stored is not None:
            return file.stored
        if self.credentials is not None or file.path.stat().st_size > _IN_MEMORY_BYTES:
            key, size = await asyncio.to_thread(_embed_in_place, file, text)
            if self.credentials and await self.credentials.sign(file.path, file.content_type, text):
                key, _, size = await asyncio.to_thread(hashes, file.path)
            put_file = functools.partial(self._blobs.put_file, key, file.path)
            await outputs.store(put_file, file.content_type, self._limits.store_seconds)
            # The blob store may have moved the file.
            with contextlib.suppress(FileNotFoundError):
                file.path.unlink()
            return key, size
        data, key = await asyncio.to_thread(_with_manifest, file, text)
        put = functools.partial(self._blobs.put, key, data)
        await outputs.store(put, file.content_type, self._limits.store_seconds)
        return key, len(data)

    async def upload(self, tenant: Tenant, path: Path, content_type: str, name: str = "") -> Upload:
        """Store the file at `path` (which is moved away) as an upload; raises `TooLarge` above the quota.

        `name` is an unused name from `new_name`; if it is empty, a new name is created.
        """
        key, sha256, size = await asyncio.to_thread(hashes, path)
        await self._delete_if_unnamed(tenant.account_id, key, size)
        await self._blobs.put_file(key, path, content_type=content_type)
        upload = Upload(ids.new("blob"), name or new_name(content_type), content_type, size, sha256)
        await self._database.write(self._name_upload(tenant, key, upload))
        return upload

    async def store_unnamed(self, data: _Data, content_type: str, account_id: str = "") -> MediaSource:
        """Store bytes, or a view without a copy; with an account, delete them unless they are named later."""
        if isinstance(data, memoryview):
            with tempfile.TemporaryDirectory(dir=self._limits.staging, prefix="form-") as folder:
                path = Path(folder) / "file"
                await asyncio.to_thread(path.write_bytes, data)
                return await self.store_unnamed_file(path, content_type, account_id)
        key = blob_key(data)
        await self._delete_if_unnamed(account_id, key, len(data))
        await self._blobs.put(key, data, content_type=content_type)
        return MediaSource(key, content_type, len(data))

    async def store_unnamed_file(self, path: Path, content_type: str, account_id: str = "") -> MediaSource:
        """Store a file, which may be moved, as `store_unnamed` stores bytes."""
        key, _, size = await asyncio.to_thread(hashes, path)
        await self._delete_if_unnamed(account_id, key, size)
        await self._blobs.put_file(key, path, content_type=content_type)
        return MediaSource(key, content_type, size)

    async def store_input(
        self, data: _Data, content_type: str, descriptor: Descriptor, account_id: str
    ) -> MediaSource:
        """Store bytes as a media input; raises `InvalidInput` with one sentence that contains its name."""
        try:
            source = await self.store_unnamed(data, content_type, account_id)
            return await self._check(source, str(descriptor.type))
        except _INPUT_ERRORS as error:
            raise _invalid_input(descriptor, error) from error

    async def _delete_if_unnamed(self, account_id: str, key: str, size: int) -> None:
        if account_id:
            await self._pending_deletions.add(account_id, key, size, self._limits.quota_bytes)

    def name_blob(self, account_id: str, source: MediaSource) -> Transaction[str]:
        """Name a blob permanently; raises `TooLarge` above the account's quota."""
        file = OutputFile(new_name(source.content_type), source.blob, source.content_type, source.size)
        yield from self._check_quota(account_id, source.size)
        yield Query("media_insert", record(file, account_id, "upload"))
        return file.name

    def _check_quota(self, account_id: str, size: int) -> Transaction[None]:
        usage = yield from one("media_usage", account_id=account_id)
        used_bytes = int(usage["used"]) if usage is not None else 0
        if used_bytes + size > self._limits.quota_bytes:
            raise errors.TooLarge(
                f"The uploads of an account can use at most {self._limits.quota_bytes:,} bytes "
                f"({used_bytes:,} are used, and this file has {size:,})"
            )

    def _name_upload(self, tenant: Tenant, key: str, upload: Upload) -> Transaction[None]:
        yield from self._check_quota(tenant.account_id, upload.size)
        expires = (yield from now()) + self._limits.upload_life_us
        file = OutputFile(upload.name, key, upload.content_type, upload.size)
        row = record(file, tenant.account_id, "upload", sha256=upload.sha256, upload_id=upload.id)
        row |= {"expires_at": expires, "credential_id": tenant.credential_id or None}
        yield Query("media_insert", row)

    async def find(self, name: str, *, served: bool = False) -> NamedFile:
        """Return a named file; raises `NotFound`, with `served` also for a suspended or closed account."""
        row = await self._database.read(one("media_served" if served else "media_by_name", name=name))
        if row is None:
            raise errors.NotFound("File not found")
        return NamedFile.of(row)

    # -- deletion --------------------------------------------------------------------------------

    async def sweep(self, limit: int = 2000) -> int:
        """Delete expired names, and blobs that no longer have a name; return the number of deleted names."""
        rows = await self._database.read(many("media_expired", limit=limit))
        for row in rows:
            orphan = await self._database.write(pending_deletions.delete_name(str(row["name"])))
            if orphan is not None:
                await self._delete_if_old(orphan, int(row["now"]))
        return len(rows)

    async def _delete_if_old(self, blob: str, now_us: int) -> None:
        """Delete a blob unless it is recent, because another request may be about to name it."""
        stored = await self._blobs.stat(blob)
        if stored is not None and stored.modified_at < now_us - _GRACE_US:
            await self._blobs.delete(blob)
            await self.thumbnails.delete(blob)


def _invalid_input(descriptor: Descriptor, error: errors.SixfoldError) -> errors.InvalidInput:
    return errors.InvalidInput.of(descriptor.name, f"{descriptor.name}: {error.message}", error.code)


def discard(staged: tuple[StagedFile, ...]) -> None:
    for file in staged:
        with contextlib.suppress(OSError):
            file.path.unlink()


def _with_manifest(file: StagedFile, text: str) -> tuple[bytes, str]:
    """Return the file's bytes with the manifest embedded, and their key; remove the staged file."""
    data = embed.embed(file.path.read_bytes(), file.content_type, text)
    file.path.unlink()
    return data, blob_key(data)


def _embed_in_place(file: StagedFile, text: str) -> tuple[str, int]:
    """Embed the manifest in the file; return its key and new size."""
    embed.embed_file(file.path, file.content_type, text)
    key, _, size = hashes(file.path)
    return key, size


def record(
    file: OutputFile,
    account_id: str,
    kind: str,
    *,
    sha256: str | None = None,
    prediction_id: str | None = None,
    upload_id: str | None = None,
) -> dict[str, Any]:
    return {
        "name": file.name,
        "account_id": account_id,
        "blob": file.blob,
        "kind": kind,
        "content_type": file.content_type,
        "size": file.size,
        "sha256": sha256,
        "prediction_id": prediction_id,
        "upload_id": upload_id,
        "credential_id": None,
        "expires_at": None,
    }


def input_record(source: MediaSource, account_id: str, prediction_id: str) -> Mapping[str, Any]:
    """Return the row of a prediction's input file."""
    name = new_name(source.content_type)
    file = OutputFile(name, source.blob, source.content_type, source.size)
    return record(file, account_id, "input", prediction_id=prediction_id)
