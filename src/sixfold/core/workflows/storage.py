"""The files and cached node outputs of workflows in the store, by account."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Rows, Transaction, encode_json, many, now, one
from sixfold.core.media import blob_keys
from sixfold.core.media import media as media_files
from sixfold.core.media.media import MediaService, MediaSource
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import refunds
from sixfold.core.provenance import embed
from sixfold.core.provenance.formats import media_types
from sixfold.core.provenance.manifest import Manifest
from sixfold.core.provenance.signing import Signer
from sixfold.core.workflows.ports import PAYMENT_PREFIX, CachedOutput, NodeFile

Kind = Literal["input", "output", "temp"]
# Prefix of inputs that refer to files sent with the request, also in a graph embedded in an image.
SENT_FILE = "given:"
KINDS: tuple[Kind, ...] = ("input", "output", "temp")
_LIFE_US = {"input": 30 * DAY_US, "output": 30 * DAY_US, "temp": DAY_US}
_OUTPUT_LIFE_US = 7 * DAY_US
# Longer than the longest run and the life of its cached outputs.
_SOURCE_LIFE_US = 30 * DAY_US
_MAX_OUTPUT_BYTES = 64 * 2**20  # per node output
_MAX_MEMORY_BYTES = 32 * 2**20
_MAX_NAME = 255
# Maximum length of a file name's prefix, before its number and extension.
_MAX_PREFIX = 200
# A name with a number, as in `ComfyUI_00001_.png`.
_NUMBERED = re.compile(r"(.+)_([0-9]{1,9})_\.[^.]*", re.DOTALL)
# Key of the preview flag in the `shown` column, which is not the name of a ComfyUI list.
_PREVIEW = ""
# Key of the words of prompts in the `shown` column.
_WORDS = " words"
# Key of a small output's values in base64 in the `shown` column.
_PACKED = " packed"
# Smaller outputs are stored in their row: a separate file costs two disk syncs.
_ROW_BYTES = 8 * 2**10
# Prefix of the folders and cache keys of requests without an API key; other names do not start with it.
_KEYLESS = "/keyless/"
# The `prediction_id` of an output without a cost. Older versions stored NULL, which is never found because a
# refund could not determine the run that created the output.
_FREE = ""
_MAX_CONCURRENT_WRITES = 8


class StoredName(msgspec.Struct, frozen=True):
    """A file name in ComfyUI's notation: `subfolder/name [kind]`."""

    name: str
    subfolder: str = ""
    kind: Kind = "input"

    @classmethod
    def parse(cls, text: str, kind: Kind = "input") -> StoredName | None:
        """Parse a name; return None if it is not valid or points outside its folder."""
        plain = text.strip()
        for each in KINDS:
            if plain.endswith(f" [{each}]"):
                plain, kind = plain.removesuffix(f" [{each}]"), each
        path = PurePosixPath(plain.removeprefix("input/") if kind == "input" else plain)
        parts = path.parts
        if not parts or path.is_absolute() or ".." in parts or len(plain) > _MAX_NAME or "\0" in plain:
            return None
        return cls(path.name, "/".join(parts[:-1]), kind)

    def row(self, tenant: Tenant) -> dict[str, Any]:
        """Return the query parameters for a tenant's file."""
        return {**_folder(tenant, self.kind, self.subfolder), "name": self.name}


class Run(msgspec.Struct, frozen=True):
    """The owner of files and outputs; `paid_by` is the prediction whose success pays for them."""

    tenant: Tenant
    paid_by: str | None = None


class FoundFile(msgspec.Struct, frozen=True):
    """The location of a named file."""

    blob: str
    content_type: str
    size: int


class GraphFiles:
    """The files of accounts by name; `examples` are shared by all accounts."""

    def __init__(
        self, database: Database, media: MediaService, examples: Mapping[str, Path], signer: Signer
    ) -> None:
        self._database = database
        self._media = media
        self._examples = examples
        self._signer = signer

    @property
    def media(self) -> MediaService:
        return self._media

    def output_cache(self, tenant: Tenant) -> NodeOutputCache:
        return NodeOutputCache(self._database, self._media, tenant)

    async def put(self, run: Run, name: StoredName, source: MediaSource) -> None:
        """Name a stored file, replacing a file with the same name.

        Raises `Conflict` if the file with this name belongs to another credential.
        """
        await self._database.write(_put(run, name, source))

    def sign(self, data: bytes, content_type: str, manifest: Manifest) -> bytes:
        """Return the file with a signed provenance manifest, if its type supports one."""
        return embed.embed(data, content_type, self._signer.sign(manifest))

    def sign_file(self, path: Path, content_type: str, manifest: Manifest) -> None:
        """Add a signed provenance manifest to a file, if its type supports one."""
        embed.embed_file(path, content_type, self._signer.sign(manifest))

    async def put_numbered(self, run: Run, kind: Kind, prefix: str, source: MediaSource) -> StoredName:
        """Name a file of a run by `prefix` and the next free number."""
        transaction = _put_numbered(run, kind, prefix, source)
        # The end of the run makes the write durable.
        return await self._database.write(transaction, durable=False)

    async def find(self, tenant: Tenant, name: StoredName) -> FoundFile | None:
        """Return the location of a file, or None if it does not exist."""
        row = await self._database.read(one("graph_file", **name.row(tenant)))
        if row is not None:
            return FoundFile(row["blob"], row["content_type"], row["size"])
        example = self._examples.get(name.name) if name.kind == "input" and not name.subfolder else None
        if example is None:
            return None
        source = await self._media.store_unnamed(example.read_bytes(), _EXAMPLE_TYPES[example.suffix])
        return FoundFile(source.blob, source.content_type, source.size)

    async def source(self, tenant: Tenant, text: str, kind: str, label: str = "") -> MediaSource:
        """Return the file that an input specifies by file name, URL or upload id.

        Raises `InvalidInput` with a message that begins with `label`, or else with the kind.
        """
        label = label or kind
        if "://" not in text and not text.startswith(_ADDRESSES):
            name = StoredName.parse(text)
            stored_file = await self.find(tenant, name) if name is not None else None
            if stored_file is None:
                message = f"{label}: {kind} {text[:100]!r} not found: upload it first with "
                message += "`POST /api/uploads`, or send a URL or a `data:` URL"
                if text.startswith(SENT_FILE):
                    message = f"{label}: this workflow does not contain its {kind}: send one"
                raise errors.InvalidInput.of(label, message, "file_missing")
            return MediaSource(stored_file.blob, stored_file.content_type, stored_file.size)
        descriptor = Descriptor(label, "file" if kind == "3d" else kind)  # pyright: ignore[reportArgumentType]  # it is one of the four kinds of files
        return await self._media.resolve(tenant, descriptor, text)

    async def file(self, source: MediaSource, name: str) -> NodeFile:
        """Return a stored file in the form that a run reads."""
        path = await self._media.blobs.local_path(source.blob)
        digest = blob_keys.content_digest(source.blob)
        if digest is None:
            digest = await asyncio.to_thread(blob_keys.file_digest, path)
        return NodeFile(digest, source.content_type, path, name)

    async def sweep(self) -> None:
        """Delete expired node outputs."""
        for query in ("graph_outcomes_sweep", "graph_sources_sweep"):
            await self._database.write(many(query), durable=False)


_ADDRESSES = ("data:", "blob_", media_files.MEDIA_PATH, media_files.UPLOADS_PATH)
_EXAMPLE_TYPES = {".png": "image/png", ".wav": "audio/wav"}


def _folder(tenant: Tenant, kind: Kind, subfolder: str) -> dict[str, Any]:
    folder = f"{_KEYLESS}{subfolder}" if tenant.keyless else subfolder
    return {**tenant.row, "kind": kind, "subfolder": folder}


def _put(run: Run, name: StoredName, source: MediaSource) -> Transaction[None]:
    row = _media_row(run.tenant.account_id, source, (yield from now()) + _LIFE_US[name.kind], run.paid_by)
    yield Query("media_insert", row)
    match = _NUMBERED.fullmatch(name.name)
    number = {"stem": match[1], "number": int(match[2])} if match else {"stem": None, "number": None}
    if not (yield Query("graph_file_put", {"media": row["name"], **name.row(run.tenant), **number})):
        raise errors.Conflict(f"A file of another key has the name {name.name!r}: use another name")


def _put_numbered(run: Run, kind: Kind, prefix: str, source: MediaSource) -> Transaction[StoredName]:
    path = PurePosixPath("".join(filter(str.isprintable, prefix))[:_MAX_PREFIX])
    stem, subfolder = path.name or "ComfyUI", "/".join(part for part in path.parts[:-1] if part not in "/..")
    row = _media_row(run.tenant.account_id, source, (yield from now()) + _LIFE_US[kind], run.paid_by)
    yield Query("media_insert", row)
    extension = media_types.EXTENSIONS.get(source.content_type, "bin")
    # Files may have been deleted, so their count may be the number of an existing file.
    highest = yield from one("graph_file_number", **_folder(run.tenant.whole, kind, subfolder), stem=stem)
    number = 0 if highest is None else int(highest["number"])
    while True:
        number += 1
        name = StoredName(f"{stem}_{number:05}_.{extension}", subfolder, kind)
        values = {"media": row["name"], "stem": stem, "number": number, **name.row(run.tenant)}
        # Another server may have taken the number.
        if (yield Query("graph_file_add", values)):
            return name


def _media_row(
    account_id: str, source: MediaSource, expires_at: int, paid_by: str | None
) -> Mapping[str, Any]:
    name = media_files.new_name(source.content_type)
    file = OutputFile(name, source.blob, source.content_type, source.size)
    row = media_files.record(file, account_id, "input", prediction_id=paid_by)
    row = {**row, "expires_at": expires_at}
    return row if paid_by is None else refunds.withheld_record(row)


def _put_sources(rows: Sequence[Row]) -> Transaction[None]:
    yield Query("graph_source_put", {}, rows)


def _encode_ui(output: CachedOutput, *, in_row: bool) -> str:
    """Encode the `shown` column as JSON, with the output's values if they are stored `in_row`."""
    data: dict[str, Any] = {**output.ui, **({_PREVIEW: True} if output.preview else {})}
    if output.words != NO_WORDS:
        data[_WORDS] = output.words
    if in_row and output.packed is not None:
        data[_PACKED] = base64.b64encode(output.packed).decode()
    return encode_json(data)


class NodeOutputCache:
    """The node output cache of one tenant, in the store and with the latest outputs in memory."""

    def __init__(self, database: Database, media: MediaService, tenant: Tenant) -> None:
        self._database = database
        self._media = media
        self._account_id = tenant.account_id
        self._prefix = _KEYLESS if tenant.keyless else ""
        self._in_memory: OrderedDict[str, CachedOutput] = OrderedDict()
        self._bytes = 0

    async def find(self, keys: Sequence[str], used_by: str | None = None) -> Mapping[str, CachedOutput]:
        """Return the stored outputs by key, and record that the run `used_by` depends on the runs that paid.

        If one of these runs is refunded, outputs that `used_by` derived from theirs are not found either.
        """
        result = {key: self._in_memory[key] for key in keys if key in self._in_memory}
        missing = [key for key in keys if key not in result]
        if missing:
            encoded_keys = encode_json([self._prefix + key for key in missing])
            rows = await self._database.read(
                many("graph_outcomes", account_id=self._account_id, keys=encoded_keys)
            )
            if used_by is not None:
                await self._record_sources(used_by, rows)
            for row in rows:
                key = str(row["key"]).removeprefix(self._prefix)
                result[key] = await self._read(key, row)
        return {key: stored for key, stored in result.items() if stored is not _MISSING}

    async def _record_sources(self, prediction_id: str, outputs: Rows) -> None:
        """Record the runs whose outputs a run uses; a record of a payment is not such an output."""
        payments = self._prefix + PAYMENT_PREFIX
        source_ids = {str(row["prediction_id"]) for row in outputs if not row["key"].startswith(payments)}
        common = {"account_id": self._account_id, "prediction_id": prediction_id, "life": _SOURCE_LIFE_US}
        # Concurrent batches on PostgreSQL must lock rows in the same order.
        rows = [{**common, "source_id": each} for each in sorted(source_ids - {_FREE, prediction_id})]
        if rows:
            await self._database.write(_put_sources(rows), durable=False)

    async def _read(self, key: str, row: Row) -> CachedOutput:
        packed_data = None
        data: dict[str, Any] = msgspec.json.decode(str(row["shown"]))
        if row["media"] is not None:
            if row["blob"] is None:
                return _MISSING
            packed_data = await self._media.blobs.get(row["blob"])
        elif _PACKED in data:
            packed_data = base64.b64decode(data.pop(_PACKED))
        words = msgspec.convert(data.pop(_WORDS, {}), PromptWords)
        stored = CachedOutput(packed_data, data, bool(data.pop(_PREVIEW, False)), words)
        if row["prediction_id"] == _FREE:
            self._remember(key, stored)
        return stored

    def of_run(self, run: Run) -> RunOutputCache:
        return RunOutputCache(self, run)

    async def keep(self, entries: Mapping[str, CachedOutput], paid_by: str | None = None) -> None:
        """Store outputs in one transaction; outputs above 64 MiB or the quota are dropped.

        Outputs that a prediction pays for can be found once it has succeeded, and are not stored in memory.
        """
        batch = {
            key: stored for key, stored in entries.items() if len(stored.packed or b"") <= _MAX_OUTPUT_BYTES
        }
        if not batch or not await self._fits(batch.values()):
            return
        gate = asyncio.Semaphore(_MAX_CONCURRENT_WRITES)
        sources = await asyncio.gather(*(self._store_packed(stored, gate) for stored in batch.values()))
        sources_by_key = dict(zip(batch, sources, strict=True))
        await self._database.write(self._put(batch, sources_by_key, paid_by), durable=False)
        if paid_by is None:
            for key, stored in batch.items():
                self._remember(key, stored)

    async def _fits(self, batch: Iterable[CachedOutput]) -> bool:
        """Return whether the cached outputs of a customer stay within the quota of uploads."""
        row = await self._database.read(one("storage_usage", account_id=self._account_id))
        if row is None or row["kind"] != "customer":
            return True
        size = sum(len(stored.packed or b"") for stored in batch)
        return int(row["cached_bytes"]) + size <= self._media.quota_bytes

    async def _store_packed(self, output: CachedOutput, gate: asyncio.Semaphore) -> MediaSource | None:
        if output.packed is None or len(output.packed) <= _ROW_BYTES:
            return None
        async with gate:
            return await self._media.store_unnamed(output.packed, "application/octet-stream")

    def _put(
        self,
        batch: Mapping[str, CachedOutput],
        sources: Mapping[str, MediaSource | None],
        paid_by: str | None,
    ) -> Transaction[None]:
        expires = (yield from now()) + _OUTPUT_LIFE_US
        files: list[Row] = []
        rows: list[Row] = []
        # Concurrent batches on PostgreSQL must lock rows in the same order.
        for key in sorted(batch):
            source, media = sources[key], None
            if source is not None:
                files.append(_media_row(self._account_id, source, expires, paid_by))
                media = files[-1]["name"]
            row = {
                "account_id": self._account_id,
                "key": self._prefix + key,
                "media": media,
                "expires_at": expires,
            }
            data = _encode_ui(batch[key], in_row=source is None)
            prediction_id = _FREE if paid_by is None else paid_by
            rows.append({**row, "shown": data, "prediction_id": prediction_id, "size": len(data)})
        if files:
            yield Query("media_insert_cached", {}, files)
        yield Query("graph_outcome_put", {}, rows)
        size = sum(row["size"] for row in (*files, *rows))
        yield Query("storage_usage_cache", {"account_id": self._account_id, "bytes": size})

    async def clear(self) -> None:
        self._in_memory.clear()
        self._bytes = 0
        await self._database.write(
            many("graph_outcomes_clear", account_id=self._account_id, keyless=int(self._prefix != ""))
        )

    def _remember(self, key: str, output: CachedOutput) -> None:
        previous = self._in_memory.pop(key, None)
        self._bytes += len(output.packed or b"") - len((previous.packed if previous else None) or b"")
        self._in_memory[key] = output
        while self._bytes > _MAX_MEMORY_BYTES or len(self._in_memory) > 10_000:
            _, evicted = self._in_memory.popitem(last=False)
            self._bytes -= len(evicted.packed or b"")


class RunOutputCache(msgspec.Struct, frozen=True):
    """The node output cache in the form that one run reads and writes (`ports.NodeCachePort`)."""

    cache: NodeOutputCache
    run: Run

    async def find(self, keys: Sequence[str]) -> Mapping[str, CachedOutput]:
        return await self.cache.find(keys, self.run.paid_by)

    async def keep(self, entries: Mapping[str, CachedOutput]) -> None:
        """Store outputs; outputs of a paid run can be found once it has succeeded."""
        await self.cache.keep(entries, self.run.paid_by)


_MISSING = CachedOutput(None, {})
