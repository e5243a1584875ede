"""A part of a list that everybody may read: newest first, by ids that sort by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

LAST_ID = "~"  # sorts after every id


class _NamedRow(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=_NamedRow)


@dataclass(frozen=True, slots=True)
class GalleryPage(Generic[T]):
    """Some rows, and the cursor of those that follow."""

    rows: tuple[T, ...]
    next_cursor: str | None


def page(found: Sequence[N], limit: int) -> GalleryPage[N]:
    """The first `limit` of one more than that."""
    rows = tuple(found[:limit])
    return GalleryPage(rows, rows[-1].id if len(found) > limit else None)
