"""Vectors of passages: made beside the writing, kept in the database, resumed after a restart.

A page waits for its vectors from the transaction that writes it on, so nothing is lost with a process; one
that is written anew before its vectors came waits again.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sixfold import errors
from sixfold.core.database import Database, Query, Row, Transaction, many, one
from sixfold.core.memory.indexing import chunks
from sixfold.core.memory.indexing import entries as index

_QUESTIONS_KEPT = 512
_AT_ONCE = 16  # pages of one pass: a page that was just written waits for no more than these
_ANEW = 5_000  # pages that a transaction sets back to waiting
_IDLE_SECONDS = 1.0  # between two looks for pages that wait
_MOST_TEXT = 4 * chunks.TARGET_CHARS  # characters of a passage that are read


class EmbeddingModel(Protocol):
    """Something that turns texts into vectors of one length."""

    @property
    def name(self) -> str:
        """Its name and version: other vectors, another name."""
        ...

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Vectors of length 1, each as 32-bit floats; may be called from any thread."""
        ...


class QueryVectors:
    """The vectors of questions, the last ones remembered."""

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model
        self._known: OrderedDict[str, bytes] = OrderedDict()

    async def vector(self, text: str) -> bytes:
        """The vector of a question."""
        known = self._known.get(text)
        if known is None:
            known = (await asyncio.to_thread(self._model.embed, [text]))[0]
            self._known[text] = known
            if len(self._known) > _QUESTIONS_KEPT:
                self._known.popitem(last=False)
        return known


@dataclass(frozen=True, slots=True)
class _EmbeddedBatch:
    """A page's vectors, and the change of the text that they are of."""

    page_id: str
    account_id: str
    of_change: int
    vectors: bytes


class Embedder:
    """Gives every page of every account its vectors, the last written first."""

    def __init__(self, database: Database, model: EmbeddingModel) -> None:
        self._database = database
        self._model = model

    async def run(self) -> None:
        """Work until cancelled; a store that fails is asked again."""
        begun = False
        while True:
            try:
                if not begun:
                    await self.begin()
                    begun = True
                worked = await self.step()
            except errors.StoreFailed:
                worked = 0
            if not worked:
                await asyncio.sleep(_IDLE_SECONDS)

    async def begin(self) -> None:
        """Set back to waiting what another model, or another version of this one, has embedded."""
        params = {"model": self._model.name, "limit": _ANEW}
        while await self._database.write(many("memory_embed_anew", **params), durable=False):
            pass

    async def step(self) -> int:
        """Embed some of the pages that wait; gives how many it was."""
        rows = await self._database.read(many("memory_waiting", limit=_AT_ONCE))
        if rows:
            made = await asyncio.to_thread(self._embed, rows)
            await self._database.write(_keep(self._model.name, made), durable=False)
        return len(rows)

    async def waiting(self) -> int:
        """How many pages wait."""
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
        made: list[_EmbeddedBatch] = []
        for row, count in zip(rows, counts, strict=True):
            packed = b"".join(halved(next(vectors)) for _ in range(count))
            made.append(_EmbeddedBatch(row["page_id"], row["account_id"], row["change"], packed))
        return made


def texts_of(slug: str, title: str, body: str) -> list[str]:
    """What the model reads of a page: its passages, those of an article under its title."""
    head = f"{title}\n" if index.is_article(slug, title) else ""
    return [f"{head}{body[start : min(end, start + _MOST_TEXT)]}" for start, end in chunks.split(body)]


def halved(vector: bytes) -> bytes:
    """32-bit floats as 16-bit ones: half the room, the same cosines to three digits."""
    floats = array("f", vector)
    return struct.pack(f"<{len(floats)}e", *floats)


def _keep(model: str, made: Sequence[_EmbeddedBatch]) -> Transaction[None]:
    changes: dict[str, int] = {}
    for page in made:
        params = {"page_id": page.page_id, "model": model, "of_change": page.of_change}
        if not (yield Query("memory_embedded", params)):
            continue  # written anew meanwhile, or gone
        if page.account_id not in changes:
            changes[page.account_id] = yield from index.next_change(page.account_id)
        rest = {"account_id": page.account_id, "change": changes[page.account_id], "vectors": page.vectors}
        yield Query("memory_vector_put", {**params, **rest})
