"""Comparison of rows and files with their copies, for `restore --verify` and `move`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import blake3

from sixfold.core.media.ports import BlobStore
from sixfold.store.archive import Row, TableReader


class RowCount(NamedTuple):
    """The number of rows of a table, including rows that exist only in the copy, and how many differ."""

    rows: int
    differing: int


def compare_rows(table: str, columns: Sequence[str], rows: Iterable[Row], copies: TableReader) -> RowCount:
    """Compare the rows of a table with their copies; the order of columns may differ."""
    order = [columns.index(column) for column in dict(copies.tables())[table]]
    count = differences = 0
    for before, after in zip_longest(rows, copies.rows(table)):
        same = before is not None and after is not None and [before[index] for index in order] == list(after)
        count += 1
        differences += not same
    return RowCount(count, differences)


async def hash_of(store: BlobStore, key: str) -> str:
    """Return the BLAKE3 hash of a file in hexadecimal, or "" if the file does not exist."""
    digest = blake3.blake3()
    with contextlib.suppress(KeyError):
        async for piece in store.stream(key):
            digest.update(piece)
        return digest.hexdigest()
    return ""
