"""The words of pages that do not fit in memory, in a temporary file with SQLite's full-text index."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.store.search.columns import Positions

_LOG = logging.getLogger("sixfold.memory")
_PAGE_BYTES = 4096
_MAX_PAGES = 2**33 // _PAGE_BYTES  # 8 GiB
_CACHE_KIB = 4096
MAX_POSITIONS = 5_000  # positions read for each word, so that a search takes only milliseconds
# Without word offsets and counts; `tokens` are hexadecimal, so that no word is split.
_SCHEMA = "CREATE VIRTUAL TABLE page USING fts5(tokens, detail=none, columnsize=0, tokenize='ascii')"
_SETTINGS = (
    f"PRAGMA page_size = {_PAGE_BYTES}",
    f"PRAGMA max_page_count = {_MAX_PAGES}",
    f"PRAGMA cache_size = -{_CACHE_KIB}",
    # The file does not survive a crash, because it is unlinked when it is created.
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA locking_mode = EXCLUSIVE",
)


class DiskWords:
    """The words of pages on disk by position; after an error, such as a full disk, searches find nothing."""

    def __init__(self, folder: Path | None) -> None:
        """Create the file in `folder`, or in the system's folder of temporary files."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="index-", dir=folder)
        os.close(handle)
        self._connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        self._close = weakref.finalize(self, self._connection.close)
        self._usable = True
        for statement in (*_SETTINGS, _SCHEMA, "BEGIN"):
            self._rows(statement)
        Path(name).unlink()

    def put(self, position: int, words: Iterable[str]) -> None:
        """Write the words of a page that has no words on disk yet."""
        tokens = " ".join(map(_token, words))
        self._rows("INSERT INTO page (rowid, tokens) VALUES (?, ?)", position, tokens)

    def remove(self, position: int) -> None:
        self._rows("DELETE FROM page WHERE rowid = ?", position)

    def settle(self) -> None:
        """Write the pending batch before the next search needs it."""
        self._rows("COMMIT")
        self._rows("BEGIN")

    def positions(self, word: str) -> Positions:
        """Return the positions of a word in ascending order, at most `MAX_POSITIONS`."""
        rows = self._rows(
            "SELECT rowid FROM page WHERE page MATCH ? ORDER BY rowid DESC LIMIT ?",
            f'"{_token(word)}"',
            MAX_POSITIONS,
        )
        return np.array([row[0] for row in reversed(rows)], np.int64)

    def _rows(self, statement: str, *parameters: str | int) -> Sequence[Any]:
        if self._usable:
            try:
                return self._connection.execute(statement, parameters).fetchall()
            except sqlite3.Error as error:
                self._usable = False
                _LOG.warning("The words of pages on disk are not found until the next start: %s", error)
        return ()


def _token(word: str) -> str:
    return word.encode().hex()
