"""Pages of public lists, newest first, with ids that sort by time as cursors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

# Sorts after every id.
LAST_ID = "~"


class _NamedRow(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=_NamedRow)


@dataclass(frozen=True, slots=True)
class GalleryPage(Generic[T]):
    """A page of rows; `next_cursor` is None on the last page."""

    rows: tuple[T, ...]
    next_cursor: str | None


def page(found: Sequence[N], limit: int) -> GalleryPage[N]:
    """Return the first `limit` rows; `found` has one more if there is another page."""
    rows = tuple(found[:limit])
    return GalleryPage(rows, rows[-1].id if len(found) > limit else None)
