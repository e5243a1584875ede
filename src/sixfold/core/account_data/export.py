"""Export of everything that belongs to an account as a zip file, streamed in batches.

README.txt                describes the contents
account.json              the account; its keys, passkeys, sessions and identities, without their secrets
<name>.jsonl              a JSON object per line: ledger, predictions, calls, responses, live-sessions,
                          posts, characters, models, audit, media
media/<name>              every file that media.jsonl names
memory/<slug>.md          every page, as `sixfold memory import` reads it
"""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import IO, Any, cast

import msgspec

from sixfold.core import money
from sixfold.core.accounts import (
    accounts,
    audit_log,
    charges,
    keys,
    ledger_queries,
    login_sessions,
    oidc_identities,
    passkeys,
)
from sixfold.core.clock import SECOND_US, rfc3339
from sixfold.core.database import Database, Row, Transaction, many, now
from sixfold.core.media.ports import BlobStore
from sixfold.core.memory.import_export import files as import_export_files
from sixfold.core.memory.import_export.archive_stream import ArchiveSink
from sixfold.core.memory.models import Caller

# Ledger entries of one read.
_ROWS = 200
# Rows of other tables in one read, which is reduced if rows are large.
_MOST_ROWS, _FIRST_ROWS = 32, 8
# Target size of one read.
_READ_BYTES = 2**20
_TABLES = {
    "predictions": "export_predictions",
    "calls": "export_calls",
    "responses": "export_responses",
    "live-sessions": "export_live_sessions",
    "posts": "export_posts",
    "characters": "export_characters",
    "models": "export_models",
    "audit": "export_audit",
    "media": "export_media",
}
_MONEY = {"amount", "cost"}
_JSON = {"inputs", "input", "output", "tags", "document", "scope", "request", "response"}
_HIDDEN = {"blob"}
_FILE_MODE = 0o100644 << 16
_README = """Everything that this Sixfold server keeps of you.

account.json       your account; keys, passkeys, sessions and identities, without their secrets
*.jsonl            one JSON object per line; money in USD, times in UTC
media/             your files, under the names that media.jsonl and predictions.jsonl use
memory/            your pages; `sixfold memory import FOLDER` reads them
missing.txt        files that the store no longer had, if there were any
"""


class AccountExport:
    """A zip file whose bytes are read while it is written."""

    def __init__(self, moment: int) -> None:
        self._sink = ArchiveSink()
        self._date = datetime.fromtimestamp(moment / SECOND_US, UTC).timetuple()[:6]
        self._zip = zipfile.ZipFile(cast("IO[bytes]", self._sink), "w", zipfile.ZIP_DEFLATED)

    def taken(self) -> bytes:
        """Return the bytes written since the last call."""
        return self._sink.taken()

    def member(self, path: str, *, plain: bool = False) -> IO[bytes]:
        """Open a file in the zip for writing; with `plain`, without compression, as for images and videos."""
        info = zipfile.ZipInfo(path, self._date)
        info.compress_type = zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED
        info.external_attr = _FILE_MODE
        return self._zip.open(info, "w", force_zip64=True)

    def put(self, path: str, data: bytes) -> None:
        """Write a small file."""
        with self.member(path) as file:
            file.write(data)

    def close(self) -> None:
        """Write the central directory."""
        self._zip.close()


async def export_account(database: Database, blobs: BlobStore, account_id: str) -> AsyncIterator[bytes]:
    """Yield the zip in pieces, after recording the export in the audit log."""
    await database.write(audit_log.note(account_id, "account.export"))
    pack = AccountExport(await database.read(now()))
    account = await database.read(_account(account_id))
    await asyncio.to_thread(pack.put, "README.txt", _README.encode())
    await asyncio.to_thread(pack.put, "account.json", _json(account, indent=2))
    yield pack.taken()
    async for piece in _ledger(database, account_id, pack):
        yield piece
    for name, query in _TABLES.items():
        async for piece in _table(database, account_id, pack, name, query):
            yield piece
    async for piece in _files(database, blobs, account_id, pack):
        yield piece
    async for piece in _pages(database, account_id, pack):
        yield piece
    await asyncio.to_thread(pack.close)
    yield pack.taken()


async def _ledger(database: Database, account_id: str, pack: AccountExport) -> AsyncIterator[bytes]:
    cursor: str | None = ""
    with closing(pack.member("ledger.jsonl")) as file:
        while cursor is not None:
            found = await database.read(ledger_queries.page(account_id, _ROWS, cursor))
            cursor = found.next_cursor
            await asyncio.to_thread(_write_lines, file, found.entries)
            yield pack.taken()
    yield pack.taken()


async def _table(
    database: Database, account_id: str, pack: AccountExport, name: str, query: str
) -> AsyncIterator[bytes]:
    with closing(pack.member(f"{name}.jsonl")) as file:
        async for rows in _batches(database, account_id, query):
            await asyncio.to_thread(_write_lines, file, rows)
            yield pack.taken()
    yield pack.taken()


def _write_lines(file: IO[bytes], rows: Iterable[Row]) -> None:
    for row in rows:
        file.write(_json(_shown(row)) + b"\n")


async def _files(
    database: Database, blobs: BlobStore, account_id: str, pack: AccountExport
) -> AsyncIterator[bytes]:
    missing: list[str] = []
    async for rows in _batches(database, account_id, "export_media"):
        for row in rows:
            if await blobs.stat(row["blob"]) is None:
                missing.append(str(row["id"]))
                continue
            with closing(pack.member(f"media/{row['id']}", plain=True)) as file:
                async for piece in blobs.stream(row["blob"]):
                    file.write(piece)
                    yield pack.taken()
            yield pack.taken()
    if missing:
        await asyncio.to_thread(pack.put, "missing.txt", "\n".join([*missing, ""]).encode())


async def _pages(database: Database, account_id: str, pack: AccountExport) -> AsyncIterator[bytes]:
    caller, paths, after = Caller(account_id, ""), import_export_files.ImportPaths(), ""
    while batch := await database.read(import_export_files.exported(caller, after)):
        after = batch[-1].page.slug
        await asyncio.to_thread(_write_pages, pack, paths, batch)
        yield pack.taken()


def _write_pages(
    pack: AccountExport,
    paths: import_export_files.ImportPaths,
    batch: Sequence[import_export_files.ExportedPage],
) -> None:
    for exported in batch:
        pack.put(f"memory/{paths.of(exported.page)}", exported.text().encode())


async def _batches(database: Database, account_id: str, query: str) -> AsyncIterator[tuple[Row, ...]]:
    """Yield all rows of a query in batches, whose number of rows adapts to the size of earlier rows."""
    after, limit = "", _FIRST_ROWS
    while True:
        rows = await database.read(many(query, account_id=account_id, after=after, limit=limit))
        if rows:
            yield tuple(rows)
            after = str(rows[-1]["id"])
        if len(rows) < limit:
            return
        size = sum(
            len(value) for row in rows for value in dict(row).values() if isinstance(value, str | bytes)
        )
        limit = max(1, min(_MOST_ROWS, 2 * limit, limit * _READ_BYTES // max(1, size)))


def _account(account_id: str) -> Transaction[Mapping[str, Any]]:
    account = yield from accounts.by_id(account_id)
    own = yield from keys.of_account(account_id)
    devices = yield from passkeys.of_account(account_id)
    visits = yield from login_sessions.of_account(account_id, "")
    linked = yield from oidc_identities.of_account(account_id)
    return {
        "account_id": account.id,
        "email": account.email,
        "plan": account.plan,
        "balance_usd": money.format_usd(account.posted),
        "held_usd": money.format_usd(account.held),
        "keys": [_shown(row) for row in own],
        "passkeys": [_shown(row, "credential") for row in devices],
        "sessions": [_shown(row, "this") for row in visits],
        "identities": [_shown(row) for row in linked],
    }


def _shown(row: Row, *hidden: str) -> Mapping[str, Any]:
    """Return a row for export: money in USD, times in UTC, stored JSON as JSON."""
    shown: dict[str, Any] = {}
    for name, value in dict(row).items():
        if name in _HIDDEN or name in hidden:
            continue
        if name == "charge":
            shown[name] = charges.to_json(charges.decode(value))
        elif value is not None and name in _MONEY:
            shown[f"{name}_usd"] = money.format_usd(value)
        elif name.endswith("_at"):
            shown[name] = rfc3339(value)
        elif isinstance(value, str) and name in _JSON:
            shown[name] = _raw(value)
        else:
            shown[name] = value
    return shown


def _raw(text: str) -> Any:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())


def _json(value: Any, indent: int = 0) -> bytes:
    data = msgspec.json.encode(value)
    return msgspec.json.format(data, indent=indent) if indent else data
