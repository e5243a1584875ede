"""What graphs keep in the store, for each account: files by name, and outcomes of nodes by key."""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import blake3
import msgspec

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Query, Row, Transaction, many, now, one
from sixfold.core.media import media as media_files
from sixfold.core.media.media import MediaService, MediaSource
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import refunds
from sixfold.core.provenance import embed
from sixfold.core.provenance.formats import media_types
from sixfold.core.provenance.manifest import Manifest
from sixfold.core.provenance.signing import Signer
from sixfold.core.workflows.ports import NodeFile, StoredOutput

Kind = Literal["input", "output", "temp"]
GIVEN = "given:"  # how inputs name files that came with an order, in a picture's own graph as well
KINDS: tuple[Kind, ...] = ("input", "output", "temp")
_LIFE_US = {"input": 30 * DAY_US, "output": 30 * DAY_US, "temp": DAY_US}
_OUTCOME_US = 7 * DAY_US
_MOST_BYTES = 64 * 2**20  # of one outcome
_REMEMBERED_BYTES = 32 * 2**20
_MOST_NAME = 255
_MOST_PREFIX = 200  # of a name: its number and extension come behind
_PREVIEW = ""  # among what is shown: no list of ComfyUI's has this name
_PACKED = " packed"  # likewise: the values of a small outcome in base64
# Smaller outcomes are stored in their row: a file of its own costs two syncs of the disk.
_ROW_BYTES = 8 * 2**10
# Before folders of files, and keys of outcomes, of orders without a key; neither begins so otherwise.
_KEYLESS = "/keyless/"
# Who paid for an outcome that cost nothing. Versions before this column leave NULL, which is never found: a
# refund could not tell whether it is the refunded run's.
_FREE = ""
_WRITES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StoredName:
    """A file's name as ComfyUI has it: `subfolder/name [kind]`."""

    name: str
    subfolder: str = ""
    kind: Kind = "input"

    @classmethod
    def parse(cls, text: str, kind: Kind = "input") -> StoredName | None:
        """The name that a text is; None for one that leads out of its folder, or is none."""
        plain = text.strip()
        for each in KINDS:
            if plain.endswith(f" [{each}]"):
                plain, kind = plain.removesuffix(f" [{each}]"), each
        path = PurePosixPath(plain.removeprefix("input/") if kind == "input" else plain)
        parts = path.parts
        if not parts or path.is_absolute() or ".." in parts or len(plain) > _MOST_NAME or "\0" in plain:
            return None
        return cls(path.name, "/".join(parts[:-1]), kind)

    def row(self, tenant: Tenant) -> dict[str, Any]:
        """As parameters of a query about a tenant's file."""
        return {**_folder(tenant, self.kind, self.subfolder), "name": self.name}


@dataclass(frozen=True, slots=True)
class Run:
    """Whose files and outcomes these are; `paid_by` is the prediction whose success pays for them."""

    tenant: Tenant
    paid_by: str | None = None


@dataclass(frozen=True, slots=True)
class FoundFile:
    """Where a named file lies."""

    blob: str
    content_type: str
    size: int


class GraphFiles:
    """Files of accounts by the names that clients gave them, or were told; `examples` are everyone's."""

    def __init__(
        self, database: Database, media: MediaService, examples: Mapping[str, Path], signer: Signer
    ) -> None:
        self._database = database
        self._media = media
        self._examples = examples
        self._signer = signer

    @property
    def media(self) -> MediaService:
        """Where the files lie."""
        return self._media

    def outcomes(self, tenant: Tenant) -> NodeOutputCache:
        """The cache of a tenant's nodes."""
        return NodeOutputCache(self._database, self._media, tenant)

    async def put(self, run: Run, name: StoredName, source: MediaSource) -> None:
        """Give a stored file a name; one of the same name is replaced."""
        await self._database.write(_put(run, name, source))

    def signed(self, data: bytes, content_type: str, manifest: Manifest) -> bytes:
        """A file that says where it came from, as far as its type can carry that."""
        return embed.embed(data, content_type, self._signer.sign(manifest))

    async def kept(self, run: Run, kind: Kind, prefix: str, source: MediaSource) -> StoredName:
        """Name a file of a run by `prefix` and a number that is free."""
        naming = _numbered(run, kind, prefix, source)
        return await self._database.write(naming, durable=False)  # the end of the run makes it so

    async def find(self, tenant: Tenant, name: StoredName) -> FoundFile | None:
        """Where a file lies, or None."""
        row = await self._database.read(one("graph_file", **name.row(tenant)))
        if row is not None:
            return FoundFile(row["blob"], row["content_type"], row["size"])
        example = self._examples.get(name.name) if name.kind == "input" and not name.subfolder else None
        if example is None:
            return None
        source = await self._media.store_unnamed(example.read_bytes(), _EXAMPLE_TYPES[example.suffix])
        return FoundFile(source.blob, source.content_type, source.size)

    async def source(self, tenant: Tenant, text: str, kind: str, called: str = "") -> MediaSource:
        """The file that an input names: by its name, as a URL, or as an upload's id.

        Raises `InvalidInput` with a sentence that begins with what the input is `called`, or else its kind.
        """
        called = called or kind
        if "://" not in text and not text.startswith(("data:", "blob_", media_files.MEDIA_PATH)):
            name = StoredName.parse(text)
            found = await self.find(tenant, name) if name is not None else None
            if found is None:
                sentence = f"{called}: There is no {kind} {text[:100]!r}: upload it first, or give a URL"
                if text.startswith(GIVEN):
                    sentence = f"{called}: This workflow was given its {kind} and does not carry it: give one"
                raise errors.InvalidInput.of(called, sentence, "file_missing")
            return MediaSource(found.blob, found.content_type, found.size)
        descriptor = Descriptor(called, "file" if kind == "3d" else kind)  # pyright: ignore[reportArgumentType]  # it is one of the four kinds of files
        return await self._media.resolve(tenant, descriptor, text)

    async def file(self, source: MediaSource, name: str) -> NodeFile:
        """A stored file as a run reads it."""
        path = await self._media.blobs.local_path(source.blob)
        digest = media_files.content_digest(source.blob) or blake3.blake3(path.read_bytes()).hexdigest()
        return NodeFile(digest, source.content_type, path, name)

    async def sweep(self) -> None:
        """Delete outcomes that have expired."""
        await self._database.write(many("graph_outcomes_sweep"), durable=False)


_EXAMPLE_TYPES = {".png": "image/png", ".wav": "audio/wav"}


def _folder(tenant: Tenant, kind: Kind, subfolder: str) -> dict[str, Any]:
    stored = f"{_KEYLESS}{subfolder}" if tenant.keyless else subfolder
    return {**tenant.row, "kind": kind, "subfolder": stored}


def _put(run: Run, name: StoredName, source: MediaSource) -> Transaction[None]:
    row = _media_row(run.tenant.account_id, source, (yield from now()) + _LIFE_US[name.kind], run.paid_by)
    yield Query("media_insert", row)
    yield Query("graph_file_put", {"media": row["name"], **name.row(run.tenant)})


def _numbered(run: Run, kind: Kind, prefix: str, source: MediaSource) -> Transaction[StoredName]:
    path = PurePosixPath("".join(filter(str.isprintable, prefix))[:_MOST_PREFIX])
    stem, subfolder = path.name or "ComfyUI", "/".join(part for part in path.parts[:-1] if part not in "/..")
    least = f"{stem}_"
    alike = yield from one(
        "graph_files_named",
        **_folder(run.tenant.whole, kind, subfolder),
        least=least,
        below=f"{stem}`",
    )
    number = int(alike["count"]) + 1 if alike is not None else 1
    extension = media_types.EXTENSIONS.get(source.content_type, "bin")
    name = StoredName(f"{stem}_{number:05}_.{extension}", subfolder, kind)
    yield from _put(run, name, source)
    return name


def _media_row(
    account_id: str, source: MediaSource, expires_at: int, paid_by: str | None
) -> Mapping[str, Any]:
    name = media_files.new_name(source.content_type)
    file = OutputFile(name, source.blob, source.content_type, source.size)
    row = media_files.record(file, account_id, "input", prediction_id=paid_by)
    row = {**row, "expires_at": expires_at}
    return row if paid_by is None else refunds.withheld_record(row)


def _shown(stored: StoredOutput, *, in_row: bool) -> str:
    """What an outcome showed as JSON, with its values where they are stored `in_row`."""
    told = {**stored.ui, **({_PREVIEW: True} if stored.preview else {})}
    if in_row and stored.packed is not None:
        told[_PACKED] = base64.b64encode(stored.packed).decode()
    return msgspec.json.encode(told).decode()


class NodeOutputCache:
    """The cache of one tenant's nodes: in the store, and the last ones in memory."""

    def __init__(self, database: Database, media: MediaService, tenant: Tenant) -> None:
        self._database = database
        self._media = media
        self._account_id = tenant.account_id
        self._prefix = _KEYLESS if tenant.keyless else ""
        self._known: OrderedDict[str, StoredOutput] = OrderedDict()
        self._bytes = 0

    async def find(self, keys: Sequence[str]) -> Mapping[str, StoredOutput]:
        """What is known of these keys."""
        found = {key: self._known[key] for key in keys if key in self._known}
        asked = [key for key in keys if key not in found]
        if asked:
            listed = msgspec.json.encode([self._prefix + key for key in asked]).decode()
            rows = await self._database.read(many("graph_outcomes", account_id=self._account_id, keys=listed))
            for row in rows:
                key = str(row["key"]).removeprefix(self._prefix)
                found[key] = await self._read(key, row)
        return {key: stored for key, stored in found.items() if stored is not _GONE}

    async def _read(self, key: str, row: Row) -> StoredOutput:
        packed = None
        shown: dict[str, Any] = msgspec.json.decode(str(row["shown"]))
        if row["media"] is not None:
            if row["blob"] is None:
                return _GONE
            packed = await self._media.blobs.get(row["blob"])
        elif _PACKED in shown:
            packed = base64.b64decode(shown.pop(_PACKED))
        stored = StoredOutput(packed, shown, bool(shown.pop(_PREVIEW, False)))
        if row["prediction_id"] == _FREE:
            self._remember(key, stored)
        return stored

    def of_run(self, run: Run) -> RunOutcomes:
        """The same for one run."""
        return RunOutcomes(self, run)

    async def keep(self, entries: Mapping[str, StoredOutput], paid_by: str | None = None) -> None:
        """Keep outcomes in one transaction; those above 64 MiB are dropped.

        What a prediction pays for is found once it has succeeded, and is not kept in memory.
        """
        batch = {key: stored for key, stored in entries.items() if len(stored.packed or b"") <= _MOST_BYTES}
        if not batch:
            return
        gate = asyncio.Semaphore(_WRITES_AT_ONCE)
        sources = await asyncio.gather(*(self._hold(stored, gate) for stored in batch.values()))
        found = dict(zip(batch, sources, strict=True))
        await self._database.write(self._put(batch, found, paid_by), durable=False)
        if paid_by is None:
            for key, stored in batch.items():
                self._remember(key, stored)

    async def _hold(self, stored: StoredOutput, gate: asyncio.Semaphore) -> MediaSource | None:
        if stored.packed is None or len(stored.packed) <= _ROW_BYTES:
            return None
        async with gate:
            return await self._media.store_unnamed(stored.packed, "application/octet-stream")

    def _put(
        self,
        batch: Mapping[str, StoredOutput],
        sources: Mapping[str, MediaSource | None],
        paid_by: str | None,
    ) -> Transaction[None]:
        expires = (yield from now()) + _OUTCOME_US
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
            shown = _shown(batch[key], in_row=source is None)
            rows.append({**row, "shown": shown, "prediction_id": _FREE if paid_by is None else paid_by})
        if files:
            yield Query("media_insert", {}, files)
        yield Query("graph_outcome_put", {}, rows)

    async def clear(self) -> None:
        """Forget all."""
        self._known.clear()
        self._bytes = 0
        await self._database.write(
            many("graph_outcomes_clear", account_id=self._account_id, keyless=int(self._prefix != ""))
        )

    def _remember(self, key: str, stored: StoredOutput) -> None:
        before = self._known.pop(key, None)
        self._bytes += len(stored.packed or b"") - len((before.packed if before else None) or b"")
        self._known[key] = stored
        while self._bytes > _REMEMBERED_BYTES or len(self._known) > 10_000:
            _, dropped = self._known.popitem(last=False)
            self._bytes -= len(dropped.packed or b"")


@dataclass(frozen=True, slots=True)
class RunOutcomes:
    """The cache of one account's nodes as one run reads and writes it (`ports.Cache`)."""

    outcomes: NodeOutputCache
    run: Run

    async def find(self, keys: Sequence[str]) -> Mapping[str, StoredOutput]:
        """What is known of these keys."""
        return await self.outcomes.find(keys)

    async def keep(self, entries: Mapping[str, StoredOutput]) -> None:
        """Keep outcomes; those of a run that is paid for are found once it has succeeded."""
        await self.outcomes.keep(entries, self.run.paid_by)


_GONE = StoredOutput(None, {})
