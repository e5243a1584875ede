"""Data folders of older schemas, with the rows that each schema supports."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sixfold.core.accounts import keys
from sixfold.core.media import blob_keys
from sixfold.store import factory, sql
from tests.harness import backends, databases

Row = dict[str, Any]
HOUR_US = 3_600_000_000
KEY, COOKIE = "sf_" + "k" * 43, "sess_" + "c" * 43
ACCOUNT, PAGE, DONE, QUEUED, SESSION = "acct_old", "page_old", "pred_done", "pred_queued", "ses_open"
FILE, CONTENT = "result-of-that-time.txt", b"a result of that time\n" * 500
SLUG, BODY = "people/ann", "# Ann\n\nAnn repairs clocks in the [[places/old-town]]."
CREDIT, PRICE, SLICE = 5_000_000, 40_000, 6_000
# Schema versions.
MEMORY_SINCE, SESSIONS_SINCE = 3, 8


def schemas(dialect: str) -> list[int]:
    """Return the numbers of all released schemas."""
    return [step.number for step in sql.migrations(dialect)]


def make(folder: Path, dialect: str, schema: int) -> None:
    """Create a data folder with a schema: an account with money, a key, runs, a file, a page, a session."""
    url = backends.database_url(folder, dialect)
    folder.mkdir(parents=True, exist_ok=True)
    if url:
        databases.keeper(url, folder).migrate(0)
    with factory.open_loader(url, folder / databases.FILE) as loader:
        tables = loader.begin(schema)
        for table, row in _rows(schema):
            columns = [column for column in tables.get(table, ()) if column in row]
            if columns:
                loader.load(table, columns, [tuple(row[column] for column in columns)])
        loader.commit()
    blob = folder / "store" / blob_keys.blob_key(CONTENT)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)


def _rows(schema: int) -> Iterator[tuple[str, Row]]:
    now = time.time_ns() // 1000
    hold_amount = PRICE + SLICE * (schema >= SESSIONS_SINCE)
    for name, kind, posted in (
        ("world", "system", -CREDIT),
        ("revenue", "system", PRICE),
        (ACCOUNT, "customer", CREDIT - PRICE),
    ):
        own = name == ACCOUNT
        row = {"id": name, "kind": kind, "posted": posted, "can_go_negative": int(not own), "created_at": 0}
        yield "account", {**row, "email": "ann@example.com" if own else None, "held": hold_amount * own}
    yield "hold", _hold(DONE, PRICE, now, captured=True)
    yield "hold", _hold(QUEUED, PRICE, now)
    yield "transfer", _transfer("txn_old", "world", ACCOUNT, CREDIT, now)
    yield "transfer", {**_transfer(f"capture:{DONE}", ACCOUNT, "revenue", PRICE, now), "hold_id": DONE}
    secret = {"account_id": ACCOUNT, "created_at": now - HOUR_US}
    yield "api_key", {"id": "key_old", "hash": keys.hash_of(KEY), "hint": "kkkk", **secret}
    signin = {"token_hash": keys.hash_of(COOKIE), "kind": "session", "expires_at": now + 24 * HOUR_US}
    yield "signin", {**signin, **secret}
    yield "prediction", _prediction(DONE, now) | _finish(now)
    yield "prediction", _prediction(QUEUED, now)
    file = {"name": FILE, "account_id": ACCOUNT, "blob": blob_keys.blob_key(CONTENT), "kind": "output"}
    file |= {"content_type": "text/plain", "size": len(CONTENT), "prediction_id": DONE, "created_at": now}
    yield "media", file
    if schema >= MEMORY_SINCE:
        yield from _page(now)
    if schema >= SESSIONS_SINCE:
        yield "hold", _hold(f"{SESSION}:0", SLICE, now)
        yield "session", _session(now)


def _hold(name: str, amount: int, now: int, *, captured: bool = False) -> Row:
    state, ended_at = ("captured", now) if captured else ("pending", None)
    row = {"id": name, "account_id": ACCOUNT, "amount": amount, "captured": amount * captured, "state": state}
    return {**row, "created_at": now - HOUR_US, "ended_at": ended_at}


def _transfer(name: str, debit: str, credit: str, amount: int, now: int) -> Row:
    row = {"id": name, "debit": debit, "credit": credit, "amount": amount, "created_at": now}
    return {**row, "kind": "charge" if debit == ACCOUNT else "credit", "description": "of that time"}


def _prediction(name: str, now: int) -> Row:
    inputs = {"prompt": "a lake", "size": "1024x1024"}
    task = {
        "inputs": {"prompt": "a lake", "format": "png", "width": 1024, "height": 1024, "seed": 7},
        "files": {},
    }
    row = {"id": name, "account_id": ACCOUNT, "job_id": f"job_{name}", "request_id": f"req_{name}"}
    row |= {"face": "media", "model": "ra1", "engine": "scene-painter", "quality": "full"}
    row |= {"inputs": json.dumps(inputs), "task": json.dumps(task), "fingerprint": b"f" * 16}
    row |= {"output_kind": "image", "origin_id": name, "state": "queued", "price": PRICE, "credits": 4}
    return {**row, "created_at": now - HOUR_US}


def _finish(now: int) -> Row:
    file = {
        "name": FILE,
        "blob": blob_keys.blob_key(CONTENT),
        "content_type": "text/plain",
        "size": len(CONTENT),
    }
    output = {"files": [{**file, "info": {}}], "data": {}}
    row = {"state": "succeeded", "attempt": 1, "cost": PRICE, "output": json.dumps(output)}
    return {**row, "engine_version": "1", "started_at": now - HOUR_US, "completed_at": now - HOUR_US}


def _page(now: int) -> Iterator[tuple[str, Row]]:
    shared = {"account_id": ACCOUNT, "slug": SLUG, "title": "Ann", "type": "person", "tags": '["clocks"]'}
    shared |= {"collections": "[]", "version": 1, "created_at": now, "created_by": "key_old"}
    yield "memory_usage", {"account_id": ACCOUNT, "used": 1}
    yield "page", {**shared, "id": PAGE, "name": "ann", "updated_at": now}
    version = {
        "page_id": PAGE,
        "path": "",
        "operation": "write",
        "chars": len(BODY),
        "head": "",
        "body": BODY,
    }
    yield "page_version", {**shared, **version}
    yield "page_tag", {"account_id": ACCOUNT, "tag": "clocks", "page_id": PAGE}
    link = {"page_id": PAGE, "type": "mentions", "target": "places/old-town", "maker": "body", "context": ""}
    yield "page_link", {**link, "created_at": now, "account_id": ACCOUNT, "origin": "explicit"}
    # The index entry has the old format, which this version updates.
    yield "memory_change", {"account_id": ACCOUNT, "change": 1}
    yield "memory_index", {"page_id": PAGE, "account_id": ACCOUNT, "change": 1, "entry": '[1,"people/ann"]'}


def _session(now: int) -> Row:
    row = {"id": SESSION, "account_id": ACCOUNT, "request_id": "req_session", "model": "world-model"}
    row |= {"engine": "world", "quality": "full", "hardware": "gpu-24gb-a", "inputs": "{}", "fps": 30}
    row |= {"rate": 350_000, "idle_us": 120_000_000, "token_hash": b"t" * 32, "resume_hash": b"r" * 32}
    row |= {"state": "idle", "holder": "srv_gone", "lease_until": now - HOUR_US, "slice_amount": SLICE}
    return {**row, "slice_at": now - HOUR_US, "created_at": now - HOUR_US, "ready_at": now - HOUR_US}
