"""Links drawn from plain sentences, written in the transaction that writes the page."""

from __future__ import annotations

from sixfold.core.database import Transaction
from sixfold.core.memory.model import Page


def refresh(page: Page) -> Transaction[None]:
    """Draw the inferred links of a page anew from what it now says."""
    del page
    return
    yield


def forget(page: Page) -> Transaction[None]:
    """Take back every inferred link of a page that is no more."""
    del page
    return
    yield
