"""Vectors of passages, computed in the background, stored in the database, and resumed after a restart.

A page is marked as waiting for its vectors in the transaction that writes it, so the mark survives a crash. A
page that changes before its vectors are computed waits again.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import msgspec

from sixfold import errors
from sixfold.core.database import Database, Query, Row, Transaction, many, one
from sixfold.core.memory.indexing import chunks
from sixfold.core.memory.indexing import entries as index

_QUERY_CACHE_SIZE = 512
# Pages per pass, for which a page that was just written may have to wait.
_AT_ONCE = 16
# Pages per transaction that are marked as waiting.
_ANEW = 5_000
# The interval in seconds between two checks for waiting pages.
_IDLE_SECONDS = 1.0
# Maximum characters of a passage that are embedded.
_MAX_TEXT = 4 * chunks.TARGET_CHARS


class EmbeddingModel(Protocol):
    """A model that converts texts to vectors of one length."""

    @property
    def name(self) -> str:
        """The name and version of the model; vectors from any other version are computed again."""
        ...

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return vectors of length 1 as 32-bit floats; safe to call from any thread."""
        ...


class QueryVectors:
    """A cache of the vectors of queries.

    Its keys contain the caller: otherwise, the time of a search would show what others have searched for.
    """

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    async def vector(self, caller: str, text: str) -> bytes:
        key = caller, text
        known = self._known.get(key)
        if known is None:
            known = (await asyncio.to_thread(self._model.embed, [text]))[0]
            self._known[key] = known
            if len(self._known) > _QUERY_CACHE_SIZE:
                self._known.popitem(last=False)
        return known


class _EmbeddedBatch(msgspec.Struct, frozen=True):
    """The vectors of a page, and the number of the change whose text they represent."""

    page_id: str
    account_id: str
    of_change: int
    vectors: bytes


class Embedder:
    """Computes the vectors of all pages of all accounts, most recently written first."""

    def __init__(self, database: Database, model: EmbeddingModel) -> None:
        self._database = database
        self._model = model

    async def run(self) -> None:
        """Run until canceled; database errors are retried."""
        started = False
        while True:
            try:
                if not started:
                    await self.begin()
                    started = True
                done_count = await self.step()
            except errors.StoreFailed:
                done_count = 0
            if not done_count:
                await asyncio.sleep(_IDLE_SECONDS)

    async def begin(self) -> None:
        """Mark pages as waiting whose vectors come from another model or version."""
        params = {"model": self._model.name, "limit": _ANEW}
        while await self._database.write(many("memory_embed_anew", **params), durable=False):
            pass

    async def step(self) -> int:
        """Embed some waiting pages and return their number."""
        rows = await self._database.read(many("memory_waiting", limit=_AT_ONCE))
        if rows:
            batches = await asyncio.to_thread(self._embed, rows)
            await self._database.write(_keep(self._model.name, batches), durable=False)
        return len(rows)

    async def waiting(self) -> int:
        """Return the number of waiting pages."""
        row = await self._database.read(one("memory_waiting_count"))
        return int(row["count"]) if row is not None else 0

    def _embed(self, rows: Sequence[Row]) -> list[_EmbeddedBatch]:
        texts: list[str] = []
        counts: list[int] = []
        for row in rows:
            passages = texts_of(row["slug"], row["title"], row["body"])
            counts.append(len(passages))
            texts += passages
        vectors = iter(self._model.embed(texts))
        batches: list[_EmbeddedBatch] = []
        for row, count in zip(rows, counts, strict=True):
            vector_bytes = b"".join(halved(next(vectors)) for _ in range(count))
            batches.append(_EmbeddedBatch(row["page_id"], row["account_id"], row["change"], vector_bytes))
        return batches


def texts_of(slug: str, title: str, body: str) -> list[str]:
    """Return the texts to embed of a page: its passages, which include the title if it is an article."""
    head = f"{title}\n" if index.is_article(slug, title) else ""
    return [f"{head}{body[start : min(end, start + _MAX_TEXT)]}" for start, end in chunks.split(body)]


def halved(vector: bytes) -> bytes:
    """Convert 32-bit floats to 16-bit, which halves the size and keeps three digits of the cosines."""
    floats = array("f", vector)
    return struct.pack(f"<{len(floats)}e", *floats)


def _keep(model: str, batches: Sequence[_EmbeddedBatch]) -> Transaction[None]:
    changes: dict[str, int] = {}
    for page in batches:
        params = {"page_id": page.page_id, "model": model, "of_change": page.of_change}
        if not (yield Query("memory_embedded", params)):
            # The page was changed or deleted in the meantime.
            continue
        if page.account_id not in changes:
            changes[page.account_id] = yield from index.next_change(page.account_id)
        vector = {"account_id": page.account_id, "change": changes[page.account_id], "vectors": page.vectors}
        yield Query("memory_vector_put", {**params, **vector})
