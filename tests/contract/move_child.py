"""`sixfold move` in a process that ends itself with SIGKILL at a moment: `move_child FOLDER MOMENT`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from sixfold.cli import main
from sixfold.cli.database import move
from sixfold.store.object_store import ObjectStore
from sixfold.store.postgres.admin import PostgresLoader


def _die(*_words: Any, **_options: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _in_files() -> None:
    put_file, copied = ObjectStore.put_file, 0

    async def die_after_five(self: Any, key: str, *words: Any, **options: Any) -> Any:
        nonlocal copied
        result = await put_file(self, key, *words, **options)
        # Files are copied concurrently: only a completed copy is certain to be in the store.
        copied += 1
        return _die() if copied == 5 else result

    patch.object(ObjectStore, "put_file", die_after_five).start()


def _in_rows() -> None:
    load = PostgresLoader.load

    def load_until_transfers(self: PostgresLoader, table: str, columns: Any, rows: Any) -> None:
        load(self, table, columns, rows)
        if table == "transfer":
            _die()

    patch.object(PostgresLoader, "load", load_until_transfers).start()


def _before_commit() -> None:
    patch.object(move.ledger_queries, "verify", _die).start()


def _after_commit() -> None:
    # The next step after the commit.
    patch.object(move, "_missing", _die).start()


MOMENTS: dict[str, Callable[[], None]] = {
    "files": _in_files,
    "rows": _in_rows,
    "before commit": _before_commit,
    "after commit": _after_commit,
}

if __name__ == "__main__":
    MOMENTS[sys.argv[2]]()
    main.main(["move", "--data-dir", sys.argv[1]])
