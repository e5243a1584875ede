"""Pictures of results without files and of shares: rendered once, and stored in the database.

They are deleted with the run or the share.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import msgspec

from sixfold.core.database import Database, Query, Transaction, one
from sixfold.core.media.ports import BlobStore

Point = tuple[float, float]
CARD_WIDTH, CARD_HEIGHT = 1200, 630
DRAWING_TYPE, CARD_TYPE = "image/webp", "image/jpeg"
# A change of the layout of cards changes this number, so that they are rendered again.
_CARD_VERSION = 1
_SUCCEEDED = "succeeded"


class Shape(msgspec.Struct, frozen=True):
    """A polygon, or a line of this width; the color is `#rrggbb` or `#rrggbbaa`."""

    points: tuple[Point, ...]
    color: str
    width: float = 0.0


class Label(msgspec.Struct, frozen=True):
    """A line of text; `y` is the top of its letters."""

    x: float
    y: float
    text: str
    size: float
    color: str


class Drawing(msgspec.Struct, frozen=True):
    """Shapes and labels in a box of this size, in the order in which they are drawn."""

    width: float
    height: float
    shapes: tuple[Shape, ...] = ()
    labels: tuple[Label, ...] = ()


class ShareCard(msgspec.Struct, frozen=True):
    """The content of the picture of a share; `picture` is the key of a WebP image in the store, or ""."""

    kind: str
    title: str
    text: str
    picture: str = ""
    drawing: Drawing | None = None


class DrawingStore:
    """Renders and stores pictures; `render_drawing` and `render_card` are set by the application."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs
        # One thread renders one picture at a time.
        self._semaphore = asyncio.Semaphore(1)
        self.render_drawing: Callable[[Drawing], bytes] = _unavailable
        self.render_card: Callable[[ShareCard, bytes], bytes] = _unavailable

    async def of_run(self, prediction_id: str, build: Callable[[], Drawing | None]) -> bytes | None:
        """Return the picture of a run as WebP; None if `build` returns None for its data."""
        query = one("run_drawing_get", prediction_id=prediction_id)
        row = await self._database.read(query)
        if row is not None:
            return bytes(row["image"])
        async with self._semaphore:
            row = await self._database.read(query)
            if row is not None:
                return bytes(row["image"])
            image = await asyncio.to_thread(self._rendered, build)
        if image is not None:
            await self._database.write(_store_run(prediction_id, image), durable=False)
        return image

    def _rendered(self, build: Callable[[], Drawing | None]) -> bytes | None:
        drawing = build()
        return None if drawing is None else self.render_drawing(drawing)

    async def of_share(self, share_id: str, card: ShareCard) -> bytes:
        """Return the picture of a share as JPEG, rendered again if its content has changed."""
        digest = _digest(card)
        stored = await self._stored_card(share_id, digest)
        return await self._render_share(share_id, digest, card) if stored is None else stored

    async def of_shared_run(
        self, share_id: str, prediction_id: str, build: Callable[[], Awaitable[ShareCard]]
    ) -> bytes:
        """Return the picture of a share of a run, which does not change, so that `build` is called once."""
        digest = _digest(prediction_id)
        stored = await self._stored_card(share_id, digest)
        return await self._render_share(share_id, digest, await build()) if stored is None else stored

    async def _stored_card(self, share_id: str, digest: bytes) -> bytes | None:
        row = await self._database.read(one("share_card_get", share_id=share_id))
        return bytes(row["image"]) if row is not None and bytes(row["digest"]) == digest else None

    async def _render_share(self, share_id: str, digest: bytes, card: ShareCard) -> bytes:
        async with self._semaphore:
            stored = await self._stored_card(share_id, digest)
            if stored is not None:
                return stored
            picture = await self._blobs.get(card.picture) if card.picture else b""
            image = await asyncio.to_thread(self.render_card, card, picture)
        await self._database.write(_store_card(share_id, digest, image), durable=False)
        return image


def _digest(content: ShareCard | str) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode((_CARD_VERSION, content))).digest()


def _store_run(prediction_id: str, image: bytes) -> Transaction[None]:
    """Store the picture of a run, unless the run has been deleted or its result withdrawn meanwhile."""
    row = yield from one("prediction_head", id=prediction_id)
    if row is not None and row["state"] == _SUCCEEDED:
        yield Query("run_drawing_put", {"prediction_id": prediction_id, "image": image})


def _store_card(share_id: str, digest: bytes, image: bytes) -> Transaction[None]:
    """Store the picture of a share, unless the share has ended meanwhile."""
    if (yield from one("share_exists", id=share_id)) is not None:
        yield Query("share_card_put", {"share_id": share_id, "digest": digest, "image": image})


def _unavailable(*_arguments: object) -> bytes:
    raise RuntimeError("the application has set no function that renders pictures")
