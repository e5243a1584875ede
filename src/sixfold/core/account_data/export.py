"""Export of all data of an account as a zip file, streamed in batches.

README.txt                describes the contents
account.json              the account; its keys, passkeys, sessions, identities and guardrails; no secrets
<name>.jsonl              a JSON object per line: ledger, predictions, calls, responses, conversations,
                          conversation-items, provider-objects, files, batches, batch-answers,
                          vector-stores, vector-store-files, live-sessions, posts, shares,
                          characters, models, members, teams, invitations, audit, media, content-log,
                          archive (records that the operator has archived)
media/<name>              every file that media.jsonl names
memory/<slug>.md          every page, as `sixfold memory import` reads it
"""

from __future__ import annotations

import asyncio
import functools
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import IO, Any, cast

import msgspec

from sixfold.core import money
from sixfold.core.account_data.archive.reader import ArchiveReader
from sixfold.core.account_data.archive.segments import SegmentLine
from sixfold.core.accounts import accounts, audit_log, charges, keys, ledger_queries
from sixfold.core.accounts.authentication import login_sessions, oidc_identities, passkeys
from sixfold.core.alerts import alerts
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.concurrency import export_turns
from sixfold.core.database import Database, Row, Transaction, Value, many, now
from sixfold.core.gateway.content_log.storage import MAX_CHARS, ContentLog
from sixfold.core.gateway.guardrails import storage as guardrails
from sixfold.core.media.ports import BlobStore
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archive_stream import ArchiveSink
from sixfold.core.memory.models import Caller

# Ledger entries per batch.
_ROWS = 200
# Rows of other tables per batch.
_MAX_ROWS = 32
# A batch with larger rows ends before the next row. A query for rows of up to tens of megabytes returns one
# row or, on PostgreSQL, where each query is a round trip, rows of this size together.
_BATCH_BYTES = 2**20
_MAX_KEYS = 100_000
_MAX_PLAIN_CHARS = 2 * MAX_CHARS
_TABLES = {
    "predictions": "export_predictions",
    "calls": "export_calls",
    "responses": "export_responses",
    "files": "export_files",
    "vector-stores": "export_vector_stores",
    "vector-store-files": "export_vector_store_files",
    "conversations": "export_conversations",
    "conversation-items": "export_conversation_items",
    "provider-objects": "export_objects",
    "batches": "export_batches",
    "batch-answers": "export_batch_answers",
    "live-sessions": "export_live_sessions",
    "posts": "export_posts",
    "shares": "export_shares",
    "shared-folders": "export_shared_folders",
    "characters": "export_characters",
    "models": "export_models",
    "members": "export_members",
    "teams": "export_teams",
    "invitations": "export_invitations",
    "audit": "export_audit",
    "media": "export_media",
}
# Columns of archived records that are exported; the other columns belong to the operator or are secret.
_ARCHIVED = {
    "prediction": "id parent_id face model engine engine_version quality state inputs output error cost "
    "charge created_at started_at completed_at",
    "media": "name prediction_id kind content_type size sha256 created_at",
    "session": "id model engine quality hardware inputs state reason cost created_at ready_at closed_at",
    "call": "id key_id face model target state input_tokens cached_tokens output_tokens cost error request "
    "response charge created_at ended_at",
    "audit": "id action detail created_at",
    "transfer": "id debit credit amount hold_id kind created_at",
    "transfer_text": "id description request_id charge",
    "damaged": "id error",
}
_MONEY = {"amount", "cost", "budget_day", "budget_month"}
_JSON = frozenset(
    {
        *("inputs", "input", "output", "tags", "document", "scope", "request", "response", "metadata"),
        *("item", "detail", "attributes", "errors"),
    }
)
_EXCLUDED_FIELDS = {"blob", "bytes", "bytes_before", "place"}
_FILE_MODE = 0o100644 << 16
_README = """All data of your account on this Sixfold server.

account.json       your account; keys, passkeys, sessions and identities, without their secrets
*.jsonl            one JSON object per line; money in USD, times in UTC
media/             your files, under the names that media.jsonl and predictions.jsonl use
memory/            your pages; `sixfold memory import FOLDER` reads them
missing.txt        files whose content was no longer stored, if any
"""


class AccountExport:
    """A zip file whose bytes are read while it is written."""

    def __init__(self, moment: int) -> None:
        self._sink = ArchiveSink()
        self._date = datetime.fromtimestamp(moment / SECOND_US, UTC).timetuple()[:6]
        self._zip = zipfile.ZipFile(cast("IO[bytes]", self._sink), "w", zipfile.ZIP_DEFLATED)

    def read_written(self) -> bytes:
        """Return the bytes written since the previous call."""
        return self._sink.drain()

    def open_file(self, path: str, *, compressed: bool = True) -> IO[bytes]:
        """Open a file in the zip for writing; images and videos are not compressed."""
        info = zipfile.ZipInfo(path, self._date)
        info.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        info.external_attr = _FILE_MODE
        return self._zip.open(info, "w", force_zip64=True)

    def write_file(self, path: str, data: bytes) -> None:
        with self.open_file(path) as file:
            file.write(data)

    def close(self) -> None:
        """Write the central directory."""
        self._zip.close()


async def export_account(
    database: Database, blobs: BlobStore, account_id: str, contents: ContentLog | None = None
) -> AsyncIterator[bytes]:
    """Yield the zip in chunks, after recording the export in the audit log.

    `contents` decrypts logged requests and responses.
    """
    await database.write(audit_log.note(account_id, "account.export"))
    archive = AccountExport(await database.read(now()))
    account = await database.read(_account(account_id), in_thread=True)
    await asyncio.to_thread(archive.write_file, "README.txt", _README.encode())
    await asyncio.to_thread(archive.write_file, "account.json", _json(account, indent=2))
    yield archive.read_written()
    async for piece in _ledger(database, account_id, archive):
        yield piece
    for name, query in _TABLES.items():
        async for piece in _table(database, account_id, archive, name, query):
            yield piece
    async for piece in _archived(database, blobs, account_id, archive):
        yield piece
    if contents is not None:
        opened = functools.partial(contents.opened, account_id)
        async for piece in _table(database, account_id, archive, "content-log", "export_content_log", opened):
            yield piece
    async for piece in _files(database, blobs, account_id, archive):
        yield piece
    async for piece in _pages(database, account_id, archive):
        yield piece
    await asyncio.to_thread(archive.close)
    yield archive.read_written()


async def _ledger(database: Database, account_id: str, archive: AccountExport) -> AsyncIterator[bytes]:
    cursor: str | None = ""
    with closing(archive.open_file("ledger.jsonl")) as file:
        while cursor is not None:
            async with export_turns.TURNS.next():
                page = await database.read(ledger_queries.page(account_id, _ROWS, cursor), in_thread=True)
                cursor = page.next_cursor
                await asyncio.to_thread(_write_lines, file, page.entries)
                del page
            yield archive.read_written()
    yield archive.read_written()


async def _table(
    database: Database,
    account_id: str,
    archive: AccountExport,
    name: str,
    query: str,
    opened: Callable[[Row], Row] | None = None,
) -> AsyncIterator[bytes]:
    after: str | None = ""
    with closing(archive.open_file(f"{name}.jsonl")) as file:
        while after is not None:
            async with export_turns.TURNS.next():
                rows, after = await database.read(batch(account_id, query, after), in_thread=True)
                await asyncio.to_thread(_write_lines, file, rows, opened)
                del rows
            yield archive.read_written()
    yield archive.read_written()


async def _archived(
    database: Database, blobs: BlobStore, account_id: str, archive: AccountExport
) -> AsyncIterator[bytes]:
    with closing(archive.open_file("archive.jsonl")) as file:
        async for lines in ArchiveReader(database, blobs).of_account(account_id):
            rows = [_archived_row(line) for line in lines if line.table in _ARCHIVED]
            await asyncio.to_thread(_write_lines, file, rows)
            del lines, rows
            yield archive.read_written()
    yield archive.read_written()


def _archived_row(line: SegmentLine) -> Row:
    hidden = ("inputs", "output") if line.row.get("withheld") else ()
    names = [name for name in _ARCHIVED[line.table].split() if name in line.row and name not in hidden]
    return {"record": line.table, **{name: line.row[name] for name in names}}


def _write_lines(file: IO[bytes], rows: Iterable[Row], opened: Callable[[Row], Row] | None = None) -> None:
    for row in rows:
        file.write(_json(_export_row(row if opened is None else opened(row))) + b"\n")


async def _files(
    database: Database, blobs: BlobStore, account_id: str, archive: AccountExport
) -> AsyncIterator[bytes]:
    missing: list[str] = []
    after: str | None = ""
    while after is not None:
        rows, after = await database.read(batch(account_id, "export_media", after))
        for row in rows:
            if await blobs.stat(row["blob"]) is None:
                missing.append(str(row["id"]))
                continue
            with closing(archive.open_file(f"media/{row['id']}", compressed=False)) as file:
                async for piece in blobs.stream(row["blob"]):
                    file.write(piece)
                    yield archive.read_written()
            yield archive.read_written()
    if missing:
        await asyncio.to_thread(archive.write_file, "missing.txt", "\n".join([*missing, ""]).encode())


async def _pages(database: Database, account_id: str, archive: AccountExport) -> AsyncIterator[bytes]:
    caller, paths, after = Caller(account_id, ""), import_export_files.ImportPaths(), ""
    while True:
        async with export_turns.TURNS.next():
            batch = await database.read(import_export_files.exported(caller, after), in_thread=True)
            if not batch:
                return
            after = batch[-1].page.slug
            await asyncio.to_thread(_write_pages, archive, paths, batch)
            del batch
        yield archive.read_written()


def _write_pages(
    archive: AccountExport,
    paths: import_export_files.ImportPaths,
    batch: Sequence[import_export_files.ExportedPage],
) -> None:
    for exported in batch:
        archive.write_file(f"memory/{paths.of(exported.page)}", exported.text().encode())


def batch(account_id: str, query: str, after: str) -> Transaction[tuple[list[Row], str | None]]:
    """Return the next rows of a query, and the id of the last one, or None at the end of the table."""
    rows: list[Row] = []
    size = 0
    while len(rows) < _MAX_ROWS and size < _BATCH_BYTES:
        limits = {"limit": _MAX_ROWS - len(rows), "bytes": _BATCH_BYTES - size}
        found = yield from many(query, account_id=account_id, after=after, **limits, **_place(after))
        rows += found
        if not found:
            return rows, None
        after = str(rows[-1]["id"])
        size += sum(
            len(value) for row in found for value in dict(row).values() if isinstance(value, str | bytes)
        )
    return rows, after


def _place(after: str) -> dict[str, Value]:
    """Return the parts of an id that consists of a batch or conversation and a number in it."""
    parent_id, _, number = after.replace("/", ":").rpartition(":")
    return {"parent_id": parent_id, "number": int(number) if parent_id and number.isdecimal() else 0}


def _account(account_id: str) -> Transaction[Mapping[str, Any]]:
    account = yield from accounts.by_id(account_id)
    api_keys = yield from keys.of_account(account_id, _MAX_KEYS)
    own_passkeys = yield from passkeys.of_account(account_id)
    sessions = yield from login_sessions.of_account(account_id, "")
    identities = yield from oidc_identities.of_account(account_id)
    own_alerts = yield from alerts.of_account(account_id)
    own_guardrails = yield from guardrails.guardrails_of(account_id)
    return {
        "account_id": account.id,
        "email": account.email,
        "plan": account.plan,
        "balance_usd": money.format_usd(account.posted),
        "held_usd": money.format_usd(account.held),
        "keys": [_export_row(row) for row in api_keys],
        "passkeys": [_export_row(row, "credential") for row in own_passkeys],
        "sessions": [_export_row(row, "this") for row in sessions],
        "identities": [_export_row(row) for row in identities],
        "guardrails": [_export_row(row) for row in own_guardrails],
        "alerts": [alerts.to_json(row) for row in own_alerts],
    }


def _export_row(row: Row, *excluded: str) -> Mapping[str, Any]:
    """Return a row for export: money in USD, times in UTC, stored JSON as JSON."""
    result: dict[str, Any] = {}
    for name, value in dict(row).items():
        if name in _EXCLUDED_FIELDS or name in excluded:
            continue
        if name == "charge":
            result[name] = charges.to_json(charges.decode(value))
        elif value is not None and name in _MONEY:
            result[f"{name}_usd"] = money.format_usd(value)
        elif name.endswith("_at"):
            result[name] = rfc3339(value)
        elif isinstance(value, str) and name in _JSON:
            result[name] = _raw(value)
        else:
            result[name] = value
    return result


def _raw(text: str) -> Any:
    if len(text) > _MAX_PLAIN_CHARS:
        # Decoding would block all threads. Only requests and responses in the content log may be other texts.
        return msgspec.Raw(text.encode())
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())


def _json(value: Any, indent: int = 0) -> bytes:
    data = msgspec.json.encode(value)
    return msgspec.json.format(data, indent=indent) if indent else data
