"""What search keeps of each page, written in the transaction that writes the page."""

from __future__ import annotations

from collections.abc import Sequence

from sixfold.core.database import Transaction
from sixfold.core.memory.model import Link, Page


def put(page: Page, links: Sequence[Link]) -> Transaction[None]:
    """Make a page searchable as it now stands, in place of what was there of it."""
    yield from put_many(((page, links),))


def put_many(batch: Sequence[tuple[Page, Sequence[Link]]]) -> Transaction[None]:
    """`put` for many pages of one account at once, each of them once: an import's way in."""
    del batch
    return
    yield


def remove(account_id: str, page_id: str) -> Transaction[None]:
    """Forget a page; one that is not there is no error."""
    del account_id, page_id
    return
    yield
